//! The body of one stream's request.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use freeboard_policy::Reason;
use h2::RecvStream;
use tokio::time::{Instant, timeout, timeout_at};

use super::metered::Allowance;
use crate::error::Stop;
use crate::limits;
use crate::request::{Answered, Body, Fields, Length, Pace};

/// Reads DATA frames; gives the guest room for more only as they are taken.
pub(super) struct StreamBody {
    stream: RecvStream,
    /// The piece that was handed out, or that came early.
    piece: Bytes,
    /// `piece` came while looking whether the whole body is there; it was not handed out yet.
    early: bool,
    done: bool,
    trailers: Option<Fields>,
    allowance: Arc<Allowance>,
    pace: Pace,
}

impl StreamBody {
    pub(super) fn new(stream: RecvStream, length: Length, allowance: Arc<Allowance>) -> Self {
        let done = length == Length::None;
        Self {
            stream,
            piece: Bytes::new(),
            early: false,
            done,
            trailers: None,
            allowance,
            pace: Pace::new(length),
        }
    }

    /// True when the guest has ended its side.
    pub(super) fn ended(&self) -> bool {
        self.done || self.stream.is_end_stream()
    }

    /// Gives the room of the last piece back.
    fn settle(&mut self) {
        let taken = std::mem::take(&mut self.piece).len();
        if taken > 0 {
            self.allowance.grant_data(taken);
            // An error means that the stream is gone; the next read says so.
            let _ = self.stream.flow_control().release_capacity(taken);
        }
    }

    /// Empty frames do not begin the time anew.
    async fn read(&mut self) -> Result<Option<Bytes>, Stop> {
        let mut empty = 0;
        let mut wait = self.pace.wait(Instant::now());
        loop {
            let next = poll_fn(|cx| self.stream.poll_data(cx));
            let next = match wait.until() {
                Some(until) => timeout_at(until, next).await,
                None => Ok(next.await),
            };
            match next {
                Err(_) => {
                    self.pace.over(wait, Instant::now())?;
                    wait = self.pace.wait(Instant::now());
                }
                Ok(Some(Ok(bytes))) if bytes.is_empty() => {
                    empty += 1;
                    if empty > limits::EMPTY_FRAMES_PER_READ {
                        return Err(Stop::malformed("too many empty DATA frames"));
                    }
                }
                Ok(Some(Ok(bytes))) => {
                    self.pace.brought(wait, Instant::now(), bytes.len());
                    return Ok(Some(bytes));
                }
                Ok(Some(Err(error))) => return Err(failed(&error)),
                Ok(None) => return Ok(None),
            }
        }
    }

    async fn read_trailers(&mut self) -> Result<(), Stop> {
        let trailers = timeout(limits::BODY_TIMEOUT, poll_fn(|cx| self.stream.poll_trailers(cx))).await;
        let trailers = trailers.map_err(|_| Stop::new(Reason::ClientTimeout, "the request body stalled"))?;
        if let Some(trailers) = trailers.map_err(|error| failed(&error))? {
            let bytes: usize = trailers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
            if bytes > limits::MAX_TRAILER_BYTES {
                return Err(Stop::malformed("the trailers are over the limit"));
            }
            self.trailers = Some(fields(&trailers));
        }
        Ok(())
    }
}

impl Body for StreamBody {
    async fn next(&mut self) -> Result<Option<&[u8]>, Stop> {
        if self.early {
            self.early = false;
            return Ok(Some(&self.piece));
        }
        self.settle();
        if self.done {
            return Ok(None);
        }
        match self.read().await? {
            Some(piece) => {
                self.piece = piece;
                Ok(Some(&self.piece))
            }
            None => {
                self.read_trailers().await?;
                self.done = true;
                Ok(None)
            }
        }
    }

    fn whole(&mut self) -> Option<&[u8]> {
        if self.done {
            return Some(&[]);
        }
        if self.early {
            return None;
        }
        self.settle();
        let mut context = Context::from_waker(Waker::noop());
        match self.stream.poll_data(&mut context) {
            Poll::Ready(Some(Ok(bytes))) => {
                self.piece = bytes;
                // True only when neither more data nor trailers can come.
                if self.stream.is_end_stream() {
                    self.done = true;
                    return Some(&self.piece);
                }
                self.early = !self.piece.is_empty();
                None
            }
            // An end without trailers; with trailers it is left to `next`.
            Poll::Ready(None) if self.stream.is_end_stream() => {
                self.done = true;
                Some(&[])
            }
            _ => None,
        }
    }

    fn is_done(&self) -> bool {
        self.done && !self.early
    }

    fn trailers(&mut self) -> Option<Fields> {
        self.trailers.take()
    }

    fn answered(&self) -> Option<&Answered> {
        self.pace.answered()
    }
}

/// Fields of a header map, names in lower case as HTTP/2 has them.
pub(super) fn fields(map: &http::HeaderMap) -> Fields {
    let mut fields = Fields::default();
    for (name, value) in map {
        fields.push(name.as_str(), value.as_bytes());
    }
    fields
}

fn failed(error: &h2::Error) -> Stop {
    if error.is_io() || error.is_remote() {
        Stop::with(Reason::ClientClosed, format!("inside the request body: {error}"))
    } else {
        Stop::with(Reason::Malformed, format!("HTTP/2: {error}"))
    }
}
