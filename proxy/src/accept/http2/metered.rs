//! Holds a guest's bytes against what they bring about: a connection that sends control frames and nothing else is cut.
//!
//! PING, SETTINGS, PRIORITY, WINDOW_UPDATE and empty frames cost the sender 9 to 21 bytes and us an answer each
//! (ATTACKS E08). Requests and bodies earn room for them; a connection that has used up its room ends.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::unseen::{HEAD_BYTES, Unseen};
use crate::limits::CONTROL_BYTES_AHEAD;

/// Bytes that a connection may still send.
#[derive(Debug)]
pub(super) struct Allowance {
    left: AtomicU64,
    used_up: AtomicBool,
}

impl Default for Allowance {
    fn default() -> Self {
        Self { left: AtomicU64::new(CONTROL_BYTES_AHEAD), used_up: AtomicBool::new(false) }
    }
}

impl Allowance {
    /// More room, for something useful that the guest did. It does not pile up beyond twice what a connection starts
    /// with.
    pub(super) fn grant(&self, bytes: u64) {
        let add = |left: u64| Some(left.saturating_add(bytes).min(2 * CONTROL_BYTES_AHEAD));
        // The closure never declines.
        let _ = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// Room for a DATA frame whose content was taken.
    pub(super) fn grant_data(&self, bytes: usize) {
        self.grant((bytes + HEAD_BYTES) as u64);
    }

    /// The connection was cut because it had no room left.
    pub(super) fn is_used_up(&self) -> bool {
        self.used_up.load(Ordering::Relaxed)
    }

    fn spend(&self, bytes: u64) -> bool {
        let spent = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes))
            .is_ok();
        if !spent {
            self.used_up.store(true, Ordering::Relaxed);
        }
        spent
    }
}

/// A stream whose reads are counted, and whose frames are watched.
#[derive(Debug)]
pub(super) struct Metered<IO> {
    stream: IO,
    allowance: Arc<Allowance>,
    unseen: Unseen,
}

impl<IO> Metered<IO> {
    pub(super) fn new(stream: IO, allowance: Arc<Allowance>, unseen: Unseen) -> Self {
        Self { stream, allowance, unseen }
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Metered<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        let read = buffer.filled().len() - before;
        self.unseen.read(buffer.filled().get(before..).unwrap_or_default());
        if self.allowance.spend(read as u64) {
            Poll::Ready(Ok(()))
        } else {
            let what = "the connection sends frames that bring nothing about";
            Poll::Ready(Err(io::Error::new(io::ErrorKind::QuotaExceeded, what)))
        }
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Metered<IO> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes))?;
        self.unseen.written(bytes.get(..written).unwrap_or_default());
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, slices))?;
        let mut left = written;
        for slice in slices {
            let taken = left.min(slice.len());
            self.unseen.written(slice.get(..taken).unwrap_or_default());
            left -= taken;
        }
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
