//! A guest's HTTP/1.1 connection: request after request, in order, each through the pipeline.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::Poll;

use freeboard_policy::Reason;
use tokio::time::{Instant, timeout};
use tokio_util::sync::WaitForCancellationFuture as Draining;

use crate::broker::{Broker, Moment};
use crate::error::Stop;
use crate::forward::Switched;
use crate::http1::body::{BodyError, Reader};
use crate::http1::{Input, Patience, Scratch, Stream, head, write};
use crate::limits;
use crate::pipeline::{After, Client, Lead, exchange, refuse_unread};
use crate::request::{Answered, Body, Fields, Length, Pace, RequestHead, Version};
use crate::respond::{ResponseHead, Sink};
use crate::upstream::send::Connection;
use crate::upstream::websocket::{Side, relay};

/// A guest's connection between two requests.
#[derive(Debug)]
pub struct Guest {
    pub stream: Stream,
    pub input: Input,
}

impl From<Stream> for Guest {
    fn from(stream: Stream) -> Self {
        Self { stream, input: Input::default() }
    }
}

/// What came next on a connection.
#[derive(Debug)]
pub enum Next {
    /// A head, or why it cannot be read, and when its first byte was there.
    Head(Moment, Result<Box<RequestHead>, Stop>),
    /// The guest closed, or nothing came for long, or the broker drains.
    Nothing,
}

/// Whether a connection brought a request, good or bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    Something,
    Nothing,
}

/// Serves every request of a connection whose run and place are known. Returns when the connection is done.
/// Dropping it cuts the connection; a request in flight is recorded as cut.
pub async fn serve(client: &Client, lead: &Lead, mut guest: Guest) -> Asked {
    let mut draining = pin!(client.broker.draining.cancelled());
    let mut asked = Asked::Nothing;
    loop {
        let Next::Head(started, head) = next(&client.broker, draining.as_mut(), &mut guest).await else {
            guest.stream.shutdown(limits::LINGER_TIMEOUT).await;
            return asked;
        };
        asked = Asked::Something;
        if !serve_one(client, lead, started, head, &mut guest).await {
            return asked;
        }
    }
}

/// Serves one request; false when the connection is done.
pub async fn serve_one(
    client: &Client,
    lead: &Lead,
    started: Moment,
    head: Result<Box<RequestHead>, Stop>,
    guest: &mut Guest,
) -> bool {
    // Boxed so that an idle connection does not carry the state of a whole exchange.
    let one: Pin<Box<dyn Future<Output = bool> + Send + '_>> = match head {
        Ok(head) => Box::pin(serve_head(client, lead, started, head, guest)),
        Err(stop) => Box::pin(async move {
            let mut sink = ResponseSink::new(&guest.stream, Version::Http11, false);
            refuse_unread(client, lead, Version::Http11, started, &stop, &mut sink).await;
            linger(guest).await;
            false
        }),
    };
    one.await
}

async fn serve_head(
    client: &Client,
    lead: &Lead,
    started: Moment,
    head: Box<RequestHead>,
    guest: &mut Guest,
) -> bool {
    let Guest { stream, input } = guest;
    let reader = match head.length {
        Length::None => Reader::none(),
        Length::Sized(length) => Reader::sized(length),
        Length::Unknown => Reader::chunked(),
    };
    let mut sink = ResponseSink::new(stream, head.version, head.method == "HEAD");
    let mut body = RequestBody { stream, input, reader, pace: Pace::new(head.length) };
    let after = exchange(client, lead, started, head, &mut body, &mut sink).await;
    let RequestBody { input, mut reader, .. } = body;
    reader.settle(input);
    let read = reader.is_done();
    match after {
        After::Keep if read => {
            input.release();
            true
        }
        After::Keep | After::Close => {
            if read {
                stream.shutdown(limits::LINGER_TIMEOUT).await;
            } else {
                linger(guest).await;
            }
            false
        }
        After::Gone => false,
        After::Websocket(switched) => {
            serve_websocket(client, guest, *switched).await;
            false
        }
    }
}

/// Relays a websocket until it ends or is no longer allowed, and ends its record.
async fn serve_websocket(client: &Client, guest: &mut Guest, mut switched: Switched) {
    let Some(mut held) = switched.held.take() else { return };
    let Connection { stream, input, .. } = &mut *switched.connection;
    let counted = held.draft.count();
    let guest = Side { stream: &guest.stream, input: &mut guest.input };
    let relayed = relay(guest, Side { stream, input }, switched.scrubber.as_deref(), &counted);
    let result = tokio::select! {
        biased;
        result = relayed => result,
        stop = held.revoked(client) => Err(stop),
    };
    match result {
        Ok(()) => held.draft.allowed(),
        Err(stop) => held.draft.stopped(&stop),
    }
}

/// Waits for the next head. Nothing is held while the connection is idle. `draining` is registered once per connection,
/// not once per request.
pub async fn next(broker: &Broker, mut draining: Pin<&mut Draining<'_>>, guest: &mut Guest) -> Next {
    let Guest { stream, input } = guest;
    if input.is_empty() {
        let patience = Patience::For(limits::CLIENT_IDLE_TIMEOUT);
        let mut fill = pin!(input.fill(stream, limits::MAX_HEAD_BYTES, patience));
        let waited = poll_fn(|cx| match fill.as_mut().poll(cx) {
            Poll::Ready(read) => Poll::Ready(Some(read)),
            Poll::Pending => draining.as_mut().poll(cx).map(|()| None),
        });
        match waited.await {
            Some(Ok(count)) if count > 0 => {}
            _ => return Next::Nothing,
        }
    }
    let started = broker.clock.now();
    let deadline = Instant::from_std(started.instant) + limits::HEAD_TIMEOUT;
    Next::Head(started, read_head(stream, input, deadline).await)
}

async fn read_head(stream: &Stream, input: &mut Input, deadline: Instant) -> Result<Box<RequestHead>, Stop> {
    let mut scanned = 0;
    loop {
        if let Some(end) = head::find_end(input.bytes(), &mut scanned).map_err(Stop::malformed)? {
            let parsed = head::request(input.bytes().get(..end).unwrap_or_default());
            input.consume(end);
            // Boxed: it is handed from future to future, each of which would carry a copy.
            return parsed.map(Box::new);
        }
        match input.fill(stream, limits::MAX_HEAD_BYTES, Patience::Until(deadline)).await {
            Ok(0) => return Err(Stop::new(Reason::ClientClosed, "closed inside the request head")),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                return Err(Stop::new(Reason::ClientTimeout, "the head did not arrive in time"));
            }
            Err(error) if error.kind() == io::ErrorKind::OutOfMemory => {
                return Err(Reason::HeadTooLarge.into());
            }
            Err(error) => return Err(Stop::with(Reason::ClientClosed, error.to_string())),
        }
    }
}

/// Ends our direction, then reads and drops what still comes, within bounds: closing on unread bytes would reset
/// the connection and take the answer away from the guest.
async fn linger(guest: &mut Guest) {
    let Guest { stream, input } = guest;
    stream.shutdown(limits::LINGER_TIMEOUT).await;
    let mut dropped = 0;
    let drain = async {
        while dropped < limits::LINGER_BYTES {
            input.consume(usize::MAX / 2);
            match input.fill(stream, limits::BUFFER_BYTES, Patience::Endless).await {
                Ok(count) if count > 0 => dropped += count as u64,
                _ => return,
            }
        }
    };
    // Time or bytes are used up: that is the bound.
    let _ = timeout(limits::LINGER_TIMEOUT, drain).await;
}

/// The body of one request.
#[derive(Debug)]
struct RequestBody<'a> {
    stream: &'a Stream,
    input: &'a mut Input,
    reader: Reader,
    pace: Pace,
}

impl Body for RequestBody<'_> {
    async fn next(&mut self) -> Result<Option<&[u8]>, Stop> {
        loop {
            let wait = self.pace.wait(Instant::now());
            let patience = wait.until().map_or(Patience::Endless, Patience::Until);
            match self.reader.fetch(self.stream, self.input, patience).await {
                Ok(Some(bytes)) => {
                    self.pace.brought(wait, Instant::now(), bytes);
                    return Ok(self.input.bytes().get(..bytes));
                }
                Ok(None) => return Ok(None),
                Err(BodyError::TimedOut) => self.pace.over(wait, Instant::now())?,
                Err(BodyError::Malformed(what)) => return Err(Stop::malformed(what)),
                Err(BodyError::Closed) => {
                    return Err(Stop::new(Reason::ClientClosed, "closed inside the request body"));
                }
                Err(BodyError::Failed(error)) => {
                    return Err(Stop::with(Reason::ClientClosed, error.to_string()));
                }
            }
        }
    }

    fn whole(&mut self) -> Option<&[u8]> {
        self.reader.whole(self.input)
    }

    fn is_done(&self) -> bool {
        self.reader.is_done()
    }

    fn trailers(&mut self) -> Option<Fields> {
        self.reader.take_trailers()
    }

    fn answered(&self) -> Option<&Answered> {
        self.pace.answered()
    }
}

/// Writes one response to an HTTP/1.1 or HTTP/1.0 guest.
#[derive(Debug)]
pub struct ResponseSink<'a> {
    stream: &'a Stream,
    version: Version,
    to_head: bool,
    begun: bool,
    chunked: bool,
    /// Body bytes that the announced length still has room for.
    left: Option<u64>,
}

impl<'a> ResponseSink<'a> {
    pub fn new(stream: &'a Stream, version: Version, to_head: bool) -> Self {
        Self { stream, version, to_head, begun: false, chunked: false, left: None }
    }

    async fn send(&self, bytes: &[u8]) -> Result<(), Stop> {
        let sent = self.stream.write_all(bytes, limits::CLIENT_WRITE_TIMEOUT).await;
        sent.map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut => Stop::new(Reason::ClientTimeout, "the guest does not read its answer"),
            _ => Stop::new(Reason::ClientClosed, "the guest closed before the end of its answer"),
        })
    }

    fn write_head(&mut self, out: &mut Vec<u8>, head: &ResponseHead) {
        write::status_line(out, head.status);
        write::fields(out, &head.fields);
        match head.length {
            Length::Sized(length) => {
                write::number_field(out, "content-length", length);
                self.left = Some(length);
            }
            Length::Unknown if self.version == Version::Http11 => {
                out.extend_from_slice(b"transfer-encoding: chunked\r\n");
                self.chunked = true;
            }
            // HTTP/1.0 knows no chunks: the end of the connection ends the body.
            Length::Unknown => {}
            Length::None => {
                if let Some(declared) = head.declared {
                    write::number_field(out, "content-length", declared);
                }
                self.left = Some(0);
            }
        }
        if let Some(accept) = &head.websocket_accept {
            out.extend_from_slice(b"connection: Upgrade\r\nupgrade: websocket\r\n");
            write::field(out, "sec-websocket-accept", accept);
        } else if head.close || self.ends_by_close(head) {
            out.extend_from_slice(b"connection: close\r\n");
        } else if self.version == Version::Http10 {
            out.extend_from_slice(b"connection: keep-alive\r\n");
        }
        out.extend_from_slice(b"\r\n");
    }

    fn ends_by_close(&self, head: &ResponseHead) -> bool {
        head.length == Length::Unknown && self.version == Version::Http10
    }

    /// SECURITY: no byte beyond the announced length, whatever the upstream sends (ATTACKS B36).
    fn take(&mut self, bytes: usize) -> Result<(), Stop> {
        let Some(left) = &mut self.left else { return Ok(()) };
        *left = left
            .checked_sub(bytes as u64)
            .ok_or(Stop::new(Reason::UpstreamMalformed, "the body is longer than its length"))?;
        Ok(())
    }
}

impl Sink for ResponseSink<'_> {
    async fn go_on(&mut self) -> Result<(), Stop> {
        self.send(b"HTTP/1.1 100 Continue\r\n\r\n").await
    }

    async fn begin(&mut self, head: &ResponseHead, first: &[u8], last: bool) -> Result<(), Stop> {
        let mut out = Scratch::take();
        self.begun = true;
        self.write_head(&mut out, head);
        if !self.to_head {
            self.take(first.len())?;
            if self.chunked {
                write::chunk(&mut out, first);
                if last {
                    write::last_chunk(&mut out, None);
                }
            } else {
                out.extend_from_slice(first);
            }
        }
        self.send(&out).await
    }

    async fn data(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        if self.to_head {
            return Ok(());
        }
        self.take(bytes.len())?;
        if !self.chunked {
            return self.send(bytes).await;
        }
        let mut out = Scratch::take();
        write::chunk(&mut out, bytes);
        self.send(&out).await
    }

    async fn end(&mut self, trailers: Option<&Fields>) -> Result<(), Stop> {
        if self.to_head || !self.chunked {
            return Ok(());
        }
        let mut out = Scratch::take();
        write::last_chunk(&mut out, trailers);
        self.send(&out).await
    }

    fn has_begun(&self) -> bool {
        self.begun
    }
}
