//! A request body on its way to an HTTP/1.1 upstream while its answer may come already.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use freeboard_policy::Reason;
use tokio::time::timeout;

use super::Trouble;
use crate::error::Stop;
use crate::http1::{Scratch, Stream, write};
use crate::limits;
use crate::request::name::Role;
use crate::request::{Body, Fields, Length, RequestHead};
use crate::upstream::send::head_timeout;

/// A request body on its way while something else goes on.
pub(super) struct Upload<'a, F> {
    pub(super) future: Pin<&'a mut F>,
    pub(super) state: UploadState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UploadState {
    Running,
    Complete,
    /// The upstream takes no more of it: its answer says why.
    Unwanted,
}

pub(super) enum UploadEnd {
    Complete,
    Unwanted,
}

impl<F: Future<Output = Result<UploadEnd, Stop>>> Upload<'_, F> {
    /// Drives `other` to its end and the upload as far as it gets meanwhile. `patience` counts from the end of the
    /// upload.
    pub(super) async fn beside<G: Future>(
        &mut self,
        mut other: Pin<&mut G>,
        patience: Option<std::time::Duration>,
    ) -> Result<G::Output, Trouble> {
        let both = poll_fn(|cx| {
            if self.state == UploadState::Running
                && let Poll::Ready(end) = self.future.as_mut().poll(cx)
            {
                match end {
                    Ok(UploadEnd::Complete) => self.state = UploadState::Complete,
                    Ok(UploadEnd::Unwanted) => self.state = UploadState::Unwanted,
                    Err(stop) => return Poll::Ready(Err(stop)),
                }
            }
            match other.as_mut().poll(cx) {
                Poll::Ready(output) => Poll::Ready(Ok(Some(output))),
                Poll::Pending if self.state != UploadState::Running && patience.is_some() => {
                    Poll::Ready(Ok(None))
                }
                Poll::Pending => Poll::Pending,
            }
        });
        match (both.await?, patience) {
            (Some(output), _) => Ok(output),
            (None, patience) => {
                let patience = patience.unwrap_or(limits::RESPONSE_HEAD_TIMEOUT);
                timeout(patience, other).await.map_err(|_| head_timeout().into())
            }
        }
    }
}

/// How much of a body has gone, against what the grant takes and what the head announced.
pub(super) struct Tally {
    total: u64,
    limit: u64,
    announced: Option<u64>,
}

impl Tally {
    pub(super) fn new(limit: u64, head: &RequestHead) -> Self {
        let announced = match head.length {
            Length::Sized(length) => Some(length),
            Length::None => Some(0),
            Length::Unknown => None,
        };
        Self { total: 0, limit, announced }
    }

    /// Counts a piece before it goes; all bytes so far.
    pub(super) fn count(&mut self, piece: &[u8]) -> Result<u64, Stop> {
        self.total = self.total.saturating_add(piece.len() as u64);
        if self.total > self.limit {
            return Err(Stop::with(Reason::BodyTooLarge, format!("more than {} bytes", self.limit)));
        }
        // SECURITY: what goes beyond the announced length would be read as the next request. A guest's framing is checked where it
        // comes in; this holds it for whatever is done to a body on its way (ATTACKS B22, `a_body_never_outgrows_its_head`).
        if self.announced.is_some_and(|announced| self.total > announced) {
            return Err(Stop::new(Reason::Internal, "a body was about to be longer than its head says"));
        }
        Ok(self.total)
    }

    pub(super) fn end(&self) -> Result<(), Stop> {
        match self.announced {
            Some(announced) if self.total != announced => {
                Err(Stop::new(Reason::Internal, "a body ended before the length that its head says"))
            }
            _ => Ok(()),
        }
    }
}

/// Sends a body piece by piece in the framing that the head announced.
pub(super) async fn upload<B: Body>(
    stream: &Stream,
    body: &mut B,
    head: &RequestHead,
    limit: u64,
    sent: &AtomicU64,
) -> Result<UploadEnd, Stop> {
    let chunked = head.length == Length::Unknown;
    let mut tally = Tally::new(limit, head);
    let mut out = Scratch::take();
    while let Some(piece) = body.next().await? {
        let total = tally.count(piece)?;
        let bytes = if chunked {
            out.clear();
            write::chunk(&mut out, piece);
            &*out
        } else {
            piece
        };
        if stream.write_all(bytes, limits::CLIENT_WRITE_TIMEOUT).await.is_err() {
            return Ok(UploadEnd::Unwanted);
        }
        sent.store(total, Ordering::Relaxed);
    }
    tally.end()?;
    if chunked {
        let mut trailers = body.trailers();
        if let Some(trailers) = &mut trailers {
            keep_harmless(trailers);
        }
        out.clear();
        write::last_chunk(&mut out, trailers.as_ref());
        if stream.write_all(&out, limits::CLIENT_WRITE_TIMEOUT).await.is_err() {
            return Ok(UploadEnd::Unwanted);
        }
    }
    Ok(UploadEnd::Complete)
}

/// Trailers may not frame, route, authenticate or change the meaning of the head (RFC 9110 6.5.1, ATTACKS B26).
pub(super) fn keep_harmless(trailers: &mut Fields) {
    trailers.retain(|field| {
        field.role == Role::Ordinary
            && ![
                "cookie",
                "cache-control",
                "content-encoding",
                "content-type",
                "content-range",
                "range",
                "www-authenticate",
            ]
            .iter()
            .any(|other| other.eq_ignore_ascii_case(field.name))
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http1::head as parser;

    #[test]
    fn a_body_never_outgrows_its_head() {
        let head = |framing: &str| {
            parser::request(format!("POST / HTTP/1.1\r\nHost: a.test\r\n{framing}\r\n").as_bytes()).unwrap()
        };
        let sized = head("Content-Length: 5\r\n");
        let mut tally = Tally::new(100, &sized);
        assert_eq!((tally.count(b"abc").unwrap(), tally.end().unwrap_err().reason), (3, Reason::Internal));
        assert_eq!(tally.count(b"de").unwrap(), 5);
        assert!(tally.end().is_ok());
        assert_eq!(tally.count(b"f").unwrap_err().reason, Reason::Internal);
        assert_eq!(Tally::new(4, &sized).count(b"abcde").unwrap_err().reason, Reason::BodyTooLarge);
        let chunked = head("Transfer-Encoding: chunked\r\n");
        let mut tally = Tally::new(4, &chunked);
        assert!(tally.count(b"abcd").is_ok() && tally.end().is_ok());
        assert_eq!(tally.count(b"e").unwrap_err().reason, Reason::BodyTooLarge);
    }
}
