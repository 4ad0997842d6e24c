//! The response of one stream.

use std::future::poll_fn;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use freeboard_policy::Reason;
use h2::SendStream;
use h2::server::SendResponse;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use tokio::time::timeout;

use super::metered::Allowance;
use super::{Frames, lock};
use crate::error::Stop;
use crate::limits;
use crate::record::RequestId;
use crate::request::{Fields, Length};
use crate::respond::{Refused, ResponseHead, Sink, refused};

/// Writes HEADERS, DATA and trailers as far as the guest's windows allow.
pub(super) struct StreamSink {
    respond: Arc<Mutex<SendResponse<Frames>>>,
    /// Set by `begin`; taken when the stream was ended.
    body: Option<SendStream<Frames>>,
    begun: bool,
    to_head: bool,
    is_grpc: bool,
    /// Body bytes that the announced length still has room for.
    room: Option<u64>,
    allowance: Arc<Allowance>,
    /// The guest has cancelled the stream.
    left: Arc<AtomicBool>,
}

impl StreamSink {
    pub(super) fn new(
        respond: &Arc<Mutex<SendResponse<Frames>>>,
        request: &http::request::Parts,
        allowance: Arc<Allowance>,
        left: Arc<AtomicBool>,
    ) -> Self {
        let kind = request.headers.get(http::header::CONTENT_TYPE);
        Self {
            respond: Arc::clone(respond),
            body: None,
            begun: false,
            to_head: request.method == http::Method::HEAD,
            is_grpc: kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc")),
            room: None,
            allowance,
            left,
        }
    }

    /// Ends what is left of the stream after a whole answer. A guest that still sends is told to stop
    /// (RFC 9113 8.1: NO_ERROR).
    pub(super) fn finish(&mut self, guest_has_ended: bool) {
        if !guest_has_ended {
            lock(&self.respond).send_reset(h2::Reason::NO_ERROR);
        }
    }

    /// Tells the guest that the answer is not whole.
    pub(super) fn reset(&mut self) {
        lock(&self.respond).send_reset(h2::Reason::INTERNAL_ERROR);
    }

    async fn send(&mut self, mut bytes: Bytes, last: bool) -> Result<(), Stop> {
        let Some(stream) = &mut self.body else { return Err(gone()) };
        // A guest opens its window as it reads.
        self.allowance
            .grant(limits::CONTROL_BYTES_PER_PIECE + bytes.len() as u64 / limits::CONTROL_BYTES_SHARE);
        while !bytes.is_empty() {
            stream.reserve_capacity(bytes.len());
            let room = timeout(limits::CLIENT_WRITE_TIMEOUT, poll_fn(|cx| stream.poll_capacity(cx))).await;
            let room = room
                .map_err(|_| Stop::new(Reason::ClientTimeout, "the guest does not read its answer"))?
                .ok_or_else(gone)?
                .map_err(|_| gone())?;
            let piece = bytes.split_to(room.min(bytes.len()));
            let end = last && bytes.is_empty();
            stream.send_data(piece, end).map_err(|_| gone())?;
        }
        if last {
            self.body = None;
        }
        Ok(())
    }

    /// SECURITY: no byte beyond the announced length, whatever the upstream sends (ATTACKS B36).
    fn take(&mut self, bytes: usize) -> Result<(), Stop> {
        let Some(room) = &mut self.room else { return Ok(()) };
        *room = room
            .checked_sub(bytes as u64)
            .ok_or(Stop::new(Reason::UpstreamMalformed, "the body is longer than its length"))?;
        Ok(())
    }

    fn start(&mut self, status: u16, headers: HeaderMap, end: bool) -> Result<(), Stop> {
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::from_u16(status)
            .map_err(|_| Stop::new(Reason::UpstreamMalformed, "the status is not one of HTTP"))?;
        *response.headers_mut() = headers;
        let stream = lock(&self.respond).send_response(response, end).map_err(|_| gone())?;
        self.begun = true;
        self.body = (!end).then_some(stream);
        Ok(())
    }
}

impl Sink for StreamSink {
    async fn go_on(&mut self) -> Result<(), Stop> {
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::CONTINUE;
        lock(&self.respond).send_informational(response).map_err(|_| gone())
    }

    async fn begin(&mut self, head: &ResponseHead, first: &[u8], last: bool) -> Result<(), Stop> {
        let mut headers = header_map(&head.fields)?;
        let stated = match head.length {
            Length::Sized(length) => Some(length),
            Length::None => head.declared,
            Length::Unknown => None,
        };
        if let Some(length) = stated {
            headers.insert(http::header::CONTENT_LENGTH, HeaderValue::from(length));
        }
        self.room = match head.length {
            Length::Sized(length) => Some(length),
            Length::None => Some(0),
            Length::Unknown => None,
        };
        let bodiless = self.to_head || head.length == Length::None;
        let end = bodiless || (last && first.is_empty());
        self.start(head.status, headers, end)?;
        if end || first.is_empty() {
            return Ok(());
        }
        self.take(first.len())?;
        self.send(Bytes::copy_from_slice(first), last).await
    }

    async fn data(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        if self.to_head {
            return Ok(());
        }
        self.take(bytes.len())?;
        self.send(Bytes::copy_from_slice(bytes), false).await
    }

    async fn end(&mut self, trailers: Option<&Fields>) -> Result<(), Stop> {
        let Some(mut stream) = self.body.take() else { return Ok(()) };
        match trailers {
            Some(trailers) => stream.send_trailers(header_map(trailers)?).map_err(|_| gone()),
            None => stream.send_data(Bytes::new(), true).map_err(|_| gone()),
        }
    }

    fn has_begun(&self) -> bool {
        self.begun
    }

    fn left(&self) -> Option<Arc<AtomicBool>> {
        Some(Arc::clone(&self.left))
    }

    /// gRPC clients read a status in the head of a response without a body (gRPC over HTTP/2, "Trailers-Only").
    async fn refuse(&mut self, stop: &Stop, id: RequestId, close: bool) -> Result<u16, Stop> {
        let Refused { head, body } = refused(stop, id, close);
        if !self.is_grpc {
            self.begin(&head, &body, true).await?;
            return Ok(head.status);
        }
        let mut headers = header_map(&head.fields)?;
        headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(HeaderName::from_static("grpc-status"), HeaderValue::from(grpc_status(head.status)));
        let message = format!("freeboard: {} (request {id})", stop.reason.code());
        if let Ok(message) = HeaderValue::try_from(message) {
            headers.insert(HeaderName::from_static("grpc-message"), message);
        }
        self.start(200, headers, true)?;
        Ok(200)
    }
}

/// The gRPC status that fits an HTTP status of ours.
const fn grpc_status(status: u16) -> u16 {
    match status {
        400 | 413 | 417 | 421 | 431 => 3, // INVALID_ARGUMENT
        401 | 407 => 16,                  // UNAUTHENTICATED
        403 => 7,                         // PERMISSION_DENIED
        408 | 504 => 4,                   // DEADLINE_EXCEEDED
        429 => 8,                         // RESOURCE_EXHAUSTED
        500 => 13,                        // INTERNAL
        _ => 14,                          // UNAVAILABLE
    }
}

/// Lower-case names, as HTTP/2 needs them.
fn header_map(fields: &Fields) -> Result<HeaderMap, Stop> {
    let wrong = || Stop::new(Reason::UpstreamMalformed, "a field cannot be sent on HTTP/2");
    let mut map = HeaderMap::with_capacity(fields.len() + 1);
    for (name, value) in fields.iter() {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?;
        map.append(name, HeaderValue::from_bytes(value).map_err(|_| wrong())?);
    }
    Ok(map)
}

fn gone() -> Stop {
    Stop::new(Reason::ClientClosed, "the guest closed before the end of its answer")
}

/// For what can be recorded but not answered.
pub(super) struct Nowhere;

impl Sink for Nowhere {
    async fn go_on(&mut self) -> Result<(), Stop> {
        Err(gone())
    }

    async fn begin(&mut self, _head: &ResponseHead, _first: &[u8], _last: bool) -> Result<(), Stop> {
        Err(gone())
    }

    async fn data(&mut self, _bytes: &[u8]) -> Result<(), Stop> {
        Err(gone())
    }

    async fn end(&mut self, _trailers: Option<&Fields>) -> Result<(), Stop> {
        Err(gone())
    }

    fn has_begun(&self) -> bool {
        false
    }
}
