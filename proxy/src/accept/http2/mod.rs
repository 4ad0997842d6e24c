//! A guest's HTTP/2 connection: each stream is a request of its own, decided and recorded as any other.
//!
//! In: a TLS stream on which `h2` was agreed. Out: one exchange per stream through the pipeline, side by side. Framing,
//! header compression and flow control are the h2 crate's; what a request means is `request::head`'s, as for HTTP/1.1.

mod body;
mod metered;
mod sink;
pub mod unseen;

#[cfg(test)]
mod tests;

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use freeboard_policy::Reason;
use h2::RecvStream;
use h2::server::{Connection, SendResponse};
use http::Request;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use crate::broker::Moment;
use crate::error::Stop;
use crate::limits;
use crate::pipeline::{After, Client, Lead, exchange, refuse_unread};
use crate::request::head::{Builder, Form};
use crate::request::{Length, Place, RequestHead, Version};
use body::StreamBody;
use metered::{Allowance, Metered};
use sink::StreamSink;
use unseen::Unseen;

type Frames = bytes::Bytes;

/// Why a connection was ended, for its record.
const NOTHING_ABOUT: &str = "HTTP/2: frames that bring nothing about";
const CANCELS_ALL: &str = "HTTP/2: too many requests of the connection were cancelled";

/// Serves every stream of a connection whose run and place are known. Returns when the connection is done. Dropping it
/// cuts the connection; requests in flight are recorded as cut.
pub async fn serve<IO>(client: &Client, lead: Lead, stream: IO)
where
    IO: AsyncRead + AsyncWrite + Unpin + Send,
{
    let allowance = Arc::new(Allowance::default());
    let unseen = Unseen::default();
    let metered = Metered::new(stream, Arc::clone(&allowance), unseen.clone());
    match timeout(limits::HANDSHAKE_TIMEOUT, settings().handshake::<_, Frames>(metered)).await {
        Ok(Ok(connection)) => {
            let lead = Arc::new(lead);
            streams(client, &lead, connection, &allowance, &unseen).await;
            // What h2 refused in the last breath of the connection.
            refused(client, &lead, unseen.take()).await;
        }
        // Nothing was asked; there is nothing to record but a broken connection, which `http1` does not record either.
        Ok(Err(error)) => {
            client.broker.metrics.aborts.silent.one_more();
            tracing::debug!(run = %client.run.id, %error, "no HTTP/2 preface");
        }
        Err(_) => {
            client.broker.metrics.aborts.silent.one_more();
            tracing::debug!(run = %client.run.id, "no HTTP/2 preface in time");
        }
    }
}

/// The bounds of one connection. Each names what it holds against.
fn settings() -> h2::server::Builder {
    let mut settings = h2::server::Builder::new();
    settings
        .max_concurrent_streams(limits::STREAMS_PER_CONNECTION)
        // Counts decoded bytes, so that an index of HPACK cannot blow up (ATTACKS E05, E09).
        .max_header_list_size(u32::try_from(limits::MAX_HEAD_BYTES).unwrap_or(u32::MAX))
        .initial_window_size(limits::STREAM_WINDOW_BYTES)
        .initial_connection_window_size(limits::CONNECTION_WINDOW_BYTES)
        // What waits to be sent on one stream, however wide the guest opens its window (ATTACKS E32).
        .max_send_buffer_size(limits::STREAM_SEND_BUFFER_BYTES)
        // Streams that are reset as fast as they are opened end the connection (ATTACKS E04).
        .max_pending_accept_reset_streams(limits::PENDING_RESETS)
        .max_local_error_reset_streams(Some(limits::STREAM_ERRORS_PER_CONNECTION))
        .max_concurrent_reset_streams(limits::PENDING_RESETS);
    settings
}

async fn streams<IO>(
    client: &Client,
    lead: &Arc<Lead>,
    mut connection: Connection<Metered<IO>, Frames>,
    allowance: &Arc<Allowance>,
    unseen: &Unseen,
) where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    // Owned here: when the connection ends, whatever still runs for it is cut.
    let mut running = JoinSet::new();
    let mut idle_since = Instant::now();
    let mut resets = 0_u32;
    let mut closing = false;
    let mut draining = pin!(client.broker.draining.cancelled());
    loop {
        tokio::select! {
            next = next(&mut connection, unseen) => match next {
                Err(stops) => refused(client, lead, stops).await,
                Ok(Some(Ok((request, respond)))) => {
                    unseen.shown(respond.stream_id().as_u32());
                    allowance.grant(limits::CONTROL_BYTES_PER_STREAM);
                    let started = client.broker.clock.now();
                    running.spawn(one(
                        client.clone(), Arc::clone(lead), started, request, respond, Arc::clone(allowance),
                    ));
                }
                Ok(Some(Err(error))) => {
                    // A guest that leaves at its refusal is recorded all the same.
                    refused(client, lead, unseen.take()).await;
                    if allowance.is_used_up() {
                        refused(client, lead, vec![Stop::new(Reason::RunLimit, NOTHING_ABOUT)]).await;
                    // One that leaves at the GOAWAY for what it sent makes an error of the socket of it.
                    } else if !error.is_io() || (unseen.has_ended() && !closing) {
                        broken(client, lead, &error).await;
                    }
                    return;
                }
                Ok(None) => return refused(client, lead, unseen.take()).await,
            },
            Some(done) = running.join_next() => {
                idle_since = Instant::now();
                if matches!(done, Ok(End::Reset)) {
                    resets += 1;
                }
                // SECURITY: opening and cancelling costs the guest nothing and us a request each (ATTACKS E04).
                if resets > limits::RESETS_PER_CONNECTION && !closing {
                    closing = true;
                    connection.abrupt_shutdown(h2::Reason::ENHANCE_YOUR_CALM);
                    refused(client, lead, vec![Stop::new(Reason::RunLimit, CANCELS_ALL)]).await;
                }
            },
            () = &mut draining, if !closing => {
                closing = true;
                connection.graceful_shutdown();
            }
            () = sleep_until(idle_since + limits::CLIENT_IDLE_TIMEOUT), if running.is_empty() && !closing => {
                closing = true;
                connection.graceful_shutdown();
            }
        }
    }
}

/// A request, an error of the connection, or its end.
type Shown = Option<Result<(Request<RecvStream>, SendResponse<Frames>), h2::Error>>;

/// What comes next of a connection; `Err` for streams that h2 refused by itself. Those that it has to show come first: only
/// then is it certain which ones it never will. Cancel-safe.
async fn next<IO>(
    connection: &mut Connection<Metered<IO>, Frames>,
    unseen: &Unseen,
) -> Result<Shown, Vec<Stop>>
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    poll_fn(|cx| match connection.poll_accept(cx) {
        Poll::Ready(shown) => Poll::Ready(Ok(shown)),
        Poll::Pending => match unseen.take() {
            stops if stops.is_empty() => Poll::Pending,
            stops => Poll::Ready(Err(stops)),
        },
    })
    .await
}

/// Records what was refused, and answered, without an exchange.
async fn refused(client: &Client, lead: &Lead, stops: Vec<Stop>) {
    for stop in stops {
        let started = client.broker.clock.now();
        refuse_unread(client, lead, Version::Http2, started, &stop, &mut sink::Nowhere).await;
    }
}

/// A connection that broke the protocol: recorded once. The h2 crate has answered with GOAWAY.
async fn broken(client: &Client, lead: &Lead, error: &h2::Error) {
    let stop = Stop::with(Reason::Malformed, format!("HTTP/2: {error}"));
    let started = client.broker.clock.now();
    refuse_unread(client, lead, Version::Http2, started, &stop, &mut sink::Nowhere).await;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Answered,
    /// The guest cancelled, or we had to.
    Reset,
}

/// One stream from head to end.
async fn one(
    client: Client,
    lead: Arc<Lead>,
    started: Moment,
    request: Request<RecvStream>,
    respond: SendResponse<Frames>,
    allowance: Arc<Allowance>,
) -> End {
    let (parts, stream) = request.into_parts();
    let respond = Arc::new(Mutex::new(respond));
    let left = Arc::new(AtomicBool::new(false));
    let mut sink = StreamSink::new(&respond, &parts, Arc::clone(&allowance), Arc::clone(&left));
    let head = match head(&parts, &stream) {
        Ok(head) => Box::new(head),
        Err(stop) => {
            refuse_unread(&client, &lead, Version::Http2, started, &stop, &mut sink).await;
            return End::Answered;
        }
    };
    let mut body = StreamBody::new(stream, head.length, allowance);
    // Dropping the exchange closes what it has open upstream (ATTACKS E04, H56); its record says why.
    let after = tokio::select! {
        biased;
        after = exchange(&client, &lead, started, head, &mut body, &mut sink) => Some(after),
        () = cancelled(&respond, &left) => None,
    };
    match after {
        Some(After::Keep | After::Close) => {
            // The rest of an upload that nobody wants is not waited for.
            sink.finish(body.ended());
            End::Answered
        }
        // A head without its end, or nothing at all: the guest must not take it for a whole answer.
        Some(After::Gone | After::Websocket(_)) | None => {
            sink.reset();
            End::Reset
        }
    }
}

/// Waits until the guest cancels the stream before it was answered, and says so.
async fn cancelled(respond: &Mutex<SendResponse<Frames>>, left: &AtomicBool) {
    poll_fn(|cx| match lock(respond).poll_reset(cx) {
        Poll::Ready(Ok(_)) => Poll::Ready(()),
        Poll::Ready(Err(error)) if error.is_io() || error.is_go_away() || error.is_remote() => {
            Poll::Ready(())
        }
        // After the head was sent this cannot be asked any more; from then on writing finds it out.
        Poll::Ready(Err(_)) | Poll::Pending => Poll::Pending,
    })
    .await;
    left.store(true, Ordering::Relaxed);
}

/// A panic while it was held cannot leave the handle in a state that matters: its connection decides (ATTACKS E30).
fn lock(respond: &Mutex<SendResponse<Frames>>) -> MutexGuard<'_, SendResponse<Frames>> {
    respond.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Builds the one request model from the pseudo-headers and fields (RFC 9113 8.3).
fn head(parts: &http::request::Parts, stream: &RecvStream) -> Result<RequestHead, Stop> {
    let mut builder = Builder::new(Version::Http2, 0);
    let mut cookies = Vec::new();
    if parts.headers.len() > limits::MAX_HEADER_FIELDS {
        return Err(Reason::HeadTooLarge.into());
    }
    for (name, value) in &parts.headers {
        let bytes = value.as_bytes();
        // RFC 9113 8.2.1: no white space at either end.
        if bytes.trim_ascii() != bytes {
            return Err(Stop::malformed("a field value with white space at its ends"));
        }
        if name == http::header::COOKIE {
            // RFC 9113 8.2.3: crumbs become one field again (ATTACKS H16).
            if !cookies.is_empty() {
                cookies.extend_from_slice(b"; ");
            }
            cookies.extend_from_slice(bytes);
        } else {
            builder.field(name.as_str(), bytes, true)?;
        }
    }
    if !cookies.is_empty() {
        builder.field("cookie", &cookies, true)?;
    }
    let target = parts.uri.path_and_query().map_or("", http::uri::PathAndQuery::as_str);
    let mut head = builder.finish(parts.method.as_str(), form(parts)?, target.as_bytes())?;
    match head.length {
        // The h2 crate holds the frames against a stated length (ATTACKS B22).
        Length::None if !stream.is_end_stream() => head.length = Length::Unknown,
        _ => {}
    }
    Ok(head)
}

fn form(parts: &http::request::Parts) -> Result<Form, Stop> {
    let place = match parts.uri.authority() {
        Some(authority) => Some(Place::parse(authority.as_str().as_bytes())?),
        None => None,
    };
    match (place, parts.uri.scheme_str()) {
        (Some(place), _) if parts.method == http::Method::CONNECT => Ok(Form::Authority(place)),
        (Some(place), Some(scheme)) => Ok(Form::Absolute { https: scheme == "https", place }),
        // Only a Host field: allowed, and then it is what counts (RFC 9113 8.3.1). The scheme is not kept then; it
        // says nothing, as all that we send goes over TLS.
        (None, _) if parts.method != http::Method::CONNECT => Ok(Form::Origin),
        _ => Err(Stop::malformed("no scheme or no authority")),
    }
}
