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

/// Sends a body piece by piece in the framing that the head announced.
pub(super) async fn upload<B: Body>(
    stream: &Stream,
    body: &mut B,
    head: &RequestHead,
    limit: u64,
    sent: &AtomicU64,
) -> Result<UploadEnd, Stop> {
    let chunked = head.length == Length::Unknown;
    let mut total = 0_u64;
    let mut out = Scratch::take();
    while let Some(piece) = body.next().await? {
        total = total.saturating_add(piece.len() as u64);
        if total > limit {
            return Err(Stop::with(Reason::BodyTooLarge, format!("more than {limit} bytes")));
        }
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
