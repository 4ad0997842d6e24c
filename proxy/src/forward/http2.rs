//! A permitted request over HTTP/2: for gRPC, which needs it end to end, and for origins that speak nothing else.
//!
//! Everything else goes over pooled HTTP/1.1 connections, whoever asks: they cost less per request, and one slow answer
//! does not hold back another.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use freeboard_policy::{Permit, Reason};
use h2::client::ResponseFuture;
use h2::{RecvStream, SendStream};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Uri, Version};
use tokio::time::timeout;

use super::upload::{Tally, Upload, UploadEnd, UploadState, keep_harmless};
use super::{Plan, Trouble, request_limit, response_limit};
use crate::credential::{Attach, Material};
use crate::error::Stop;
use crate::limits;
use crate::pipeline::After;
use crate::record::Draft;
use crate::request::head::decimal;
use crate::request::name::role;
use crate::request::{Body, Fields, Length, RequestHead};
use crate::respond::{ResponseHead, Sink};
use crate::upstream::answer::forwards;
use crate::upstream::http2::{Session, failed, is_unprocessed};
use crate::upstream::send::{check_query, head_timeout, unsigned};

/// True for requests that mean nothing over HTTP/1.1.
pub(super) fn is_needed(head: &RequestHead) -> bool {
    head.fields.first("content-type").is_some_and(|kind| kind.starts_with(b"application/grpc"))
}

/// Sends the request on `session` and relays the answer; once more on a new session where the upstream has not looked
/// at it (ATTACKS H34). Consumes the permit.
///
/// # Errors
/// What stopped it; `Sink::has_begun` says whether the guest has seen a part of the answer.
pub(super) async fn forward<B: Body, S: Sink>(
    plan: Plan<'_>,
    permit: Permit,
    mut session: Session,
    draft: &mut Draft,
    head: &RequestHead,
    body: &mut B,
    sink: &mut S,
) -> Result<After, Stop> {
    let request = request(permit, &plan, head)?;
    let whole = if head.length == Length::None { Some(Bytes::new()) } else { None };
    let whole = whole.or_else(|| body.whole().map(Bytes::copy_from_slice));
    let mut again = whole.is_some();
    loop {
        draft.note(|outcome| outcome.upstream_address = Some(session.address));
        plan.client.run.pool.put_http2(plan.key(), &session);
        match once(&plan, &session, &request, whole.as_ref(), draft, head, body, sink).await {
            Ok(close) => return Ok(if close { After::Close } else { After::Keep }),
            Err(Failed::Unprocessed(_)) if again && !sink.has_begun() => again = false,
            Err(Failed::Unprocessed(stop) | Failed::Stopped(stop)) => return Err(stop),
        }
        session = super::connect_http2(&plan).await?;
    }
}

enum Failed {
    Stopped(Stop),
    /// The upstream has not looked at the request.
    Unprocessed(Stop),
}

impl From<Stop> for Failed {
    fn from(stop: Stop) -> Self {
        Self::Stopped(stop)
    }
}

impl From<Trouble> for Failed {
    fn from(trouble: Trouble) -> Self {
        Self::Stopped(trouble.into_stop())
    }
}

impl Failed {
    fn of(error: &h2::Error) -> Self {
        if is_unprocessed(error) { Self::Unprocessed(failed(error)) } else { Self::Stopped(failed(error)) }
    }
}

/// One exchange on one stream. Answers whether the guest's connection closes afterwards.
#[expect(clippy::too_many_arguments, reason = "the parts of one exchange, each borrowed from another owner")]
async fn once<B: Body, S: Sink>(
    plan: &Plan<'_>,
    session: &Session,
    request: &Request<()>,
    whole: Option<&Bytes>,
    draft: &mut Draft,
    head: &RequestHead,
    body: &mut B,
    sink: &mut S,
) -> Result<bool, Failed> {
    let mut sender = match session.ready().await {
        Ok(sender) => sender,
        // Nothing was sent on a connection that is over.
        Err(stop) if session.reused => return Err(Failed::Unprocessed(stop)),
        Err(stop) => return Err(stop.into()),
    };
    let empty = whole.is_some_and(Bytes::is_empty);
    let (response, stream) =
        sender.send_request(request.clone(), empty).map_err(|error| Failed::of(&error))?;
    if empty {
        let answer = timeout(limits::RESPONSE_HEAD_TIMEOUT, response).await.map_err(|_| head_timeout())?;
        let answer = answer.map_err(|error| Failed::of(&error))?;
        return relay(plan, answer, true, draft, head, sink).await;
    }
    if head.expects_continue {
        sink.go_on().await?;
    }
    let counted = draft.count();
    let answered = body.answered().cloned();
    let mut outgoing =
        Outgoing { stream, tally: Tally::new(request_limit(plan.grant), head), sent: &counted.to_upstream };
    let mut upload = Upload {
        future: pin!(async {
            match whole {
                Some(whole) => outgoing.whole(whole).await,
                None => outgoing.body(body).await,
            }
        }),
        state: UploadState::Running,
    };
    let answer = upload.beside(pin!(answer(response)), Some(limits::RESPONSE_HEAD_TIMEOUT)).await?;
    let answer = answer.map_err(|error| Failed::of(&error))?;
    if let Some(answered) = answered {
        answered.begin();
    }
    let complete = upload.state == UploadState::Complete;
    let relay = relay(plan, answer, complete, draft, head, sink);
    upload.beside(pin!(relay), None).await?
}

async fn answer(response: ResponseFuture) -> Result<http::Response<RecvStream>, h2::Error> {
    response.await
}

/// A request body on its way. Dropped before its end, it cancels the stream.
struct Outgoing<'a> {
    stream: SendStream<Bytes>,
    tally: Tally,
    sent: &'a AtomicU64,
}

impl Outgoing<'_> {
    async fn body<B: Body>(&mut self, body: &mut B) -> Result<UploadEnd, Stop> {
        while let Some(piece) = body.next().await? {
            let total = self.tally.count(piece)?;
            if let UploadEnd::Unwanted = self.send(Bytes::copy_from_slice(piece), false).await? {
                return Ok(UploadEnd::Unwanted);
            }
            self.sent.store(total, Ordering::Relaxed);
        }
        self.tally.end()?;
        let mut trailers = body.trailers();
        if let Some(trailers) = &mut trailers {
            keep_harmless(trailers);
        }
        let end = match trailers.filter(|trailers| !trailers.is_empty()) {
            Some(trailers) => self.stream.send_trailers(map(&trailers)?),
            None => self.stream.send_data(Bytes::new(), true),
        };
        Ok(if end.is_ok() { UploadEnd::Complete } else { UploadEnd::Unwanted })
    }

    async fn whole(&mut self, whole: &Bytes) -> Result<UploadEnd, Stop> {
        let end = self.send(whole.clone(), true).await?;
        if let UploadEnd::Complete = end {
            self.sent.store(whole.len() as u64, Ordering::Relaxed);
        }
        Ok(end)
    }

    async fn send(&mut self, mut bytes: Bytes, last: bool) -> Result<UploadEnd, Stop> {
        while !bytes.is_empty() {
            self.stream.reserve_capacity(bytes.len());
            let room = poll_fn(|cx| self.stream.poll_capacity(cx));
            let room = timeout(limits::CLIENT_WRITE_TIMEOUT, room).await;
            let room = room.map_err(|_| Stop::new(Reason::UpstreamTimeout, "the upstream takes no more"))?;
            let Some(Ok(room)) = room else { return Ok(UploadEnd::Unwanted) };
            let piece = bytes.split_to(room.min(bytes.len()));
            if self.stream.send_data(piece, last && bytes.is_empty()).is_err() {
                return Ok(UploadEnd::Unwanted);
            }
        }
        Ok(UploadEnd::Complete)
    }
}

/// Writes the request from the model: method, canonical target, authority of the route, the fields, our credential.
fn request(permit: Permit, plan: &Plan<'_>, head: &RequestHead) -> Result<Request<()>, Stop> {
    let Plan { route, material, .. } = plan;
    // SECURITY: a permit that names a credential never goes out without it, nor any other with one (C09, C28).
    if permit.credential().map(|name| &**name) != material.map(|material| &*material.name) {
        return Err(Stop::new(Reason::Internal, "permit and credential do not belong together"));
    }
    let mut target = head.target.as_ref().ok_or(Stop::new(Reason::Internal, "no target"))?.wire().to_owned();
    let mut fields = map(&head.fields)?;
    match material {
        None => {}
        Some(Material { attach: Attach::Query { parameter, value }, .. }) => {
            let query = head.target.as_ref().and_then(|target| target.query());
            check_query(query, parameter)?;
            let value = std::str::from_utf8(value.expose())
                .map_err(|_| Stop::new(Reason::CredentialUnavailable, "the secret cannot be in a query"))?;
            target.push(if query.is_some() { '&' } else { '?' });
            target.push_str(parameter);
            target.push('=');
            target.push_str(value);
        }
        Some(Material { attach: Attach::Sign(_), .. }) => return Err(unsigned()),
        Some(Material { attach: Attach::Certificate(_), .. }) => {}
        Some(Material { attach: Attach::Header { name, value }, .. }) => {
            // SECURITY: exactly one. What the guest brought was dropped before; this holds that it stays so (B32, C09).
            if head.fields.first(name).is_some() || head.has_guest_credential_left() {
                return Err(Stop::new(Reason::Internal, "a second credential was about to go out"));
            }
            let unfit = || Stop::new(Reason::CredentialUnavailable, "the secret cannot be a header value");
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| unfit())?;
            let mut value = HeaderValue::from_bytes(value.expose()).map_err(|_| unfit())?;
            // Never indexed (RFC 7541 7.1.3), and hidden in debug output.
            value.set_sensitive(true);
            fields.insert(name, value);
        }
    }
    if let Length::Sized(length) = head.length {
        fields.insert(http::header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    if head.takes_trailers {
        fields.insert(http::header::TE, HeaderValue::from_static("trailers"));
    }
    let mut request = Request::new(());
    *request.method_mut() = http::Method::from_bytes(head.method.as_bytes())
        .map_err(|_| Stop::malformed("the method is no token"))?;
    *request.version_mut() = Version::HTTP_2;
    let port = if route.port == 443 { String::new() } else { format!(":{}", route.port) };
    *request.uri_mut() = Uri::builder()
        .scheme("https")
        .authority(format!("{}{port}", route.host))
        .path_and_query(target)
        .build()
        .map_err(|_| Stop::malformed("the target cannot be sent over HTTP/2"))?;
    *request.headers_mut() = fields;
    Ok(request)
}

/// Passes the answer on. `uploaded`: the request body has been sent whole, so the guest's connection can be kept.
async fn relay<S: Sink>(
    plan: &Plan<'_>,
    answer: http::Response<RecvStream>,
    uploaded: bool,
    draft: &mut Draft,
    head: &RequestHead,
    sink: &mut S,
) -> Result<bool, Failed> {
    let upstream_us = draft.started().elapsed_us();
    let (parts, stream) = answer.into_parts();
    let close = head.close || !uploaded || plan.client.broker.draining.is_cancelled();
    let mut response = response_head(&parts, &stream, head, close);
    draft.note(|outcome| {
        outcome.upstream_status = Some(response.status);
        outcome.upstream_us = upstream_us;
        outcome.status = response.status;
    });
    plan.heard(response.status, &response.fields);
    let limit = response_limit(plan.grant);
    if let Length::Sized(length) = response.length
        && length > limit
    {
        return Err(Stop::with(Reason::ResponseTooLarge, format!("{length} bytes, at most {limit}")).into());
    }
    plan.check_answer(&response.fields, response.length)?;
    // A session that the upstream gives to our credential is not the guest's to keep (ATTACKS C05).
    if plan.material.is_some() && response.fields.remove("set-cookie") {
        draft.note(|outcome| outcome.stripped.push("set_cookie"));
    }
    relay_body(stream, &response, limit, draft, sink).await?;
    Ok(close)
}

fn response_head(
    parts: &http::response::Parts,
    stream: &RecvStream,
    head: &RequestHead,
    close: bool,
) -> ResponseHead {
    let mut fields = Fields::default();
    for (name, value) in &parts.headers {
        if forwards(role(name.as_str())) {
            fields.push(name.as_str(), value.as_bytes());
        }
    }
    let status = parts.status.as_u16();
    let stated = parts.headers.get(http::header::CONTENT_LENGTH).and_then(|value| decimal(value.as_bytes()));
    let bodiless = head.method == "HEAD" || matches!(status, 204 | 304);
    // An answer that ends with its head (also gRPC's "Trailers-Only") has no body; for HTTP/1.1 that is a length of 0.
    let (length, declared) = match (bodiless, stream.is_end_stream(), stated) {
        (true, _, stated) => (Length::None, stated.filter(|_| status != 204)),
        (false, true, _) => (Length::Sized(0), None),
        (false, false, Some(length)) => (Length::Sized(length), None),
        (false, false, None) => (Length::Unknown, None),
    };
    ResponseHead { status, fields, length, declared, close, websocket_accept: None }
}

/// Each piece is counted in the draft when it comes: a stream that is cut is recorded with what had passed.
async fn relay_body<S: Sink>(
    mut stream: RecvStream,
    response: &ResponseHead,
    limit: u64,
    draft: &mut Draft,
    sink: &mut S,
) -> Result<(), Failed> {
    if stream.is_end_stream() {
        return Ok(sink.begin(response, &[], true).await?);
    }
    // Head and first piece in one write where both are here; otherwise the head goes out at once (ATTACKS H22).
    let mut next = match here(&mut stream) {
        Poll::Ready(Some(piece)) => Some(piece.map_err(|error| failed(&error))?),
        Poll::Ready(None) | Poll::Pending => None,
    };
    if next.is_none() {
        sink.begin(response, &[], false).await?;
    }
    let mut total = 0;
    loop {
        if let Some(piece) = next.take() {
            total += piece.len() as u64;
            draft.note(|outcome| outcome.response_bytes = total);
            if total > limit {
                return Err(Stop::with(Reason::ResponseTooLarge, format!("more than {limit} bytes")).into());
            }
            if !sink.has_begun() {
                sink.begin(response, &piece, false).await?;
            } else if !piece.is_empty() {
                sink.data(&piece).await?;
            }
            // An error means that the stream is gone; the next read says so.
            let _ = stream.flow_control().release_capacity(piece.len());
        }
        let data = timeout(limits::RESPONSE_IDLE_TIMEOUT, poll_fn(|cx| stream.poll_data(cx))).await;
        match data.map_err(|_| Stop::new(Reason::UpstreamTimeout, "the response body stalled"))? {
            Some(piece) => next = Some(piece.map_err(|error| failed(&error))?),
            None => break,
        }
    }
    let trailers = timeout(limits::RESPONSE_IDLE_TIMEOUT, poll_fn(|cx| stream.poll_trailers(cx))).await;
    let trailers = trailers.map_err(|_| Stop::new(Reason::UpstreamTimeout, "the response body stalled"))?;
    let mut trailers = trailers.map_err(|error| failed(&error))?.map(|map| fields(&map));
    if let Some(trailers) = &mut trailers {
        keep_harmless(trailers);
        trailers.retain(|field| forwards(field.role));
    }
    Ok(sink.end(trailers.as_ref()).await?)
}

/// What is here without waiting.
fn here(stream: &mut RecvStream) -> Poll<Option<Result<Bytes, h2::Error>>> {
    stream.poll_data(&mut Context::from_waker(Waker::noop()))
}

fn fields(map: &HeaderMap) -> Fields {
    let mut fields = Fields::default();
    for (name, value) in map {
        fields.push(name.as_str(), value.as_bytes());
    }
    fields
}

fn map(fields: &Fields) -> Result<HeaderMap, Stop> {
    let mut map = HeaderMap::with_capacity(fields.len() + 3);
    for (name, value) in fields.iter() {
        let wrong = |_| Stop::malformed("a field cannot be sent over HTTP/2");
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|error| wrong(error.to_string()))?;
        map.append(name, HeaderValue::from_bytes(value).map_err(|error| wrong(error.to_string()))?);
    }
    Ok(map)
}

#[cfg(test)]
mod tests;
