//! What was read from a stream and not used yet.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};

use super::alarm::Deadline;
use super::{Patience, Stream, buffer};
use crate::limits::PIECE_BYTES;

/// Read side of a connection. It holds a buffer only while there are bytes in it.
#[derive(Debug, Default)]
pub struct Input {
    buffer: Option<Box<[u8]>>,
    start: usize,
    end: usize,
    /// An error that came after bytes which were handed out first.
    failed: Option<io::Error>,
}

impl Input {
    /// The bytes that are here.
    pub fn bytes(&self) -> &[u8] {
        self.buffer.as_deref().and_then(|buffer| buffer.get(self.start..self.end)).unwrap_or_default()
    }

    /// The bytes that are here, to be changed in place.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let here = self.start..self.end;
        self.buffer.as_deref_mut().and_then(|buffer| buffer.get_mut(here)).unwrap_or_default()
    }

    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Nothing was read beyond what was used, and no error is held back: another message may follow.
    pub fn is_clean(&self) -> bool {
        self.is_empty() && self.failed.is_none()
    }

    /// Marks the first `count` bytes as used.
    pub fn consume(&mut self, count: usize) {
        self.start = (self.start + count).min(self.end);
    }

    /// Puts bytes in front of everything that will be read, for what another reader had read ahead.
    pub fn preload(&mut self, bytes: &[u8]) {
        let mut buffer = vec![0; bytes.len().max(crate::limits::BUFFER_BYTES)];
        for (place, byte) in buffer.iter_mut().zip(bytes) {
            *place = *byte;
        }
        (self.buffer, self.start, self.end) = (Some(buffer.into_boxed_slice()), 0, bytes.len());
    }

    /// Reads once more; `Ok(0)` is the end of the stream. Holds at most `limit` unused bytes: with that many there
    /// already it answers `OutOfMemory`. Dropping the future loses nothing.
    ///
    /// # Errors
    /// The stream failed, the limit is reached, or nothing came in time (`TimedOut`).
    pub async fn fill(&mut self, stream: &Stream, limit: usize, patience: Patience) -> io::Result<usize> {
        let mut deadline = Deadline::from(patience);
        poll_fn(|cx| match self.poll_fill(cx, stream, limit) {
            Poll::Ready(result) => Poll::Ready(result),
            Poll::Pending => timed_out(stream.poll_patience(cx, &mut deadline)),
        })
        .await
    }

    /// Reads as much as is here, up to `PIECE_BYTES`: the pieces of a large body are few and large. Meant for an input in
    /// which nothing is left. Otherwise as `fill`.
    ///
    /// # Errors
    /// The stream failed, or nothing came in time (`TimedOut`).
    pub async fn fill_much(&mut self, stream: &Stream, patience: Patience) -> io::Result<usize> {
        let mut deadline = Deadline::from(patience);
        poll_fn(|cx| match self.poll_fill_much(cx, stream) {
            Poll::Ready(result) => Poll::Ready(result),
            Poll::Pending => timed_out(stream.poll_patience(cx, &mut deadline)),
        })
        .await
    }

    fn poll_fill_much(&mut self, cx: &mut Context<'_>, stream: &Stream) -> Poll<io::Result<usize>> {
        if let Some(error) = self.failed.take() {
            return Poll::Ready(Err(error));
        }
        if !self.is_empty() {
            return self.poll_fill(cx, stream, 2 * PIECE_BYTES);
        }
        self.release();
        let mut buffer = buffer::take_wire();
        let mut count = 0;
        let last = loop {
            let space = buffer.get_mut(count..PIECE_BYTES).unwrap_or_default();
            if space.is_empty() {
                break Poll::Pending;
            }
            match stream.poll_read(cx, space) {
                Poll::Ready(Ok(read)) if read > 0 => count += read,
                // SECURITY: an error is told once; forgotten here, a body that ends with its connection would pass for
                // whole when it was cut. Guarded by `b36_a_large_body_that_is_cut_does_not_pass_for_whole`.
                Poll::Ready(Err(error)) if count > 0 => {
                    self.failed = Some(error);
                    break Poll::Pending;
                }
                other => break other,
            }
        };
        if count == 0 {
            buffer::give(buffer);
            return last;
        }
        // The end of the stream comes up again at the next read.
        (self.buffer, self.start, self.end) = (Some(buffer), 0, count);
        Poll::Ready(Ok(count))
    }

    /// See `fill`. While it waits with nothing in the buffer, the buffer is in the pool.
    pub fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        stream: &Stream,
        limit: usize,
    ) -> Poll<io::Result<usize>> {
        if let Some(error) = self.failed.take() {
            return Poll::Ready(Err(error));
        }
        if self.end - self.start >= limit {
            return Poll::Ready(Err(io::ErrorKind::OutOfMemory.into()));
        }
        let mut buffer = self.buffer.take().unwrap_or_else(buffer::take);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end == buffer.len() {
            if self.start > 0 {
                buffer.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
            } else {
                let mut larger = vec![0; (buffer.len() * 2).min(limit.max(buffer.len() + 1))];
                for (place, byte) in larger.iter_mut().zip(buffer.iter()) {
                    *place = *byte;
                }
                buffer = larger.into_boxed_slice();
            }
        }
        let space = buffer.get_mut(self.end..).unwrap_or_default();
        let poll = stream.poll_read(cx, space);
        if let Poll::Ready(Ok(count)) = poll {
            self.end += count;
        }
        if self.start == self.end {
            buffer::give(buffer);
        } else {
            self.buffer = Some(buffer);
        }
        poll
    }

    /// Gives the buffer back when nothing is in it.
    pub fn release(&mut self) {
        if self.is_empty()
            && let Some(buffer) = self.buffer.take()
        {
            (self.start, self.end) = (0, 0);
            buffer::give(buffer);
        }
    }
}

fn timed_out(poll: Poll<()>) -> Poll<io::Result<usize>> {
    poll.map(|()| Err(io::ErrorKind::TimedOut.into()))
}

impl Drop for Input {
    fn drop(&mut self) {
        self.start = self.end;
        self.release();
    }
}
