//! Reads large pieces from a socket for a reader that asks for small ones.
//!
//! rustls asks for 4 KiB at a time, five system calls for one record of 16 KiB; here one call takes several records. The
//! buffer comes from the pool and goes back as soon as it is empty, so that an idle connection holds none.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::buffer;

/// A stream with what was read from it and not asked for yet.
#[derive(Debug)]
pub struct ReadAhead<S> {
    inner: S,
    buffer: Option<Box<[u8]>>,
    start: usize,
    end: usize,
    /// Everything that was handed out, while somebody wants it back.
    tape: Option<Vec<u8>>,
}

impl<S> From<S> for ReadAhead<S> {
    fn from(inner: S) -> Self {
        Self { inner, buffer: None, start: 0, end: 0, tape: None }
    }
}

impl<S> ReadAhead<S> {
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// Puts bytes in front of everything that will be read.
    pub fn unread(&mut self, bytes: &[u8]) {
        let rest = self.buffer.as_deref().and_then(|buffer| buffer.get(self.start..self.end));
        let joined = [bytes, rest.unwrap_or_default()].concat();
        if !joined.is_empty() {
            (self.start, self.end) = (0, joined.len());
            self.buffer = Some(joined.into_boxed_slice());
        }
    }

    /// Keeps what is handed out from here on, for `rewind`. Whoever reads bounds how much that is.
    pub fn record(&mut self) {
        self.tape = Some(Vec::new());
    }

    /// Puts everything back that was handed out since `record`, and gives it to look at.
    pub fn rewind(&mut self) -> Vec<u8> {
        let tape = self.tape.take().unwrap_or_default();
        self.unread(&tape);
        tape
    }

    /// Hands out what is here.
    fn give(&mut self, out: &mut ReadBuf<'_>) {
        let here = self.buffer.as_deref().and_then(|buffer| buffer.get(self.start..self.end));
        let here = here.unwrap_or_default();
        let count = here.len().min(out.remaining());
        let given = here.get(..count).unwrap_or_default();
        out.put_slice(given);
        if let Some(tape) = &mut self.tape {
            tape.extend_from_slice(given);
        }
        self.start += count;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if let Some(a) = self.buffer.take() {
                buffer::give_wire(a);
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ReadAhead<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.start == self.end {
            let mut buffer = buffer::take_wire();
            let mut space = ReadBuf::new(&mut buffer);
            let poll = Pin::new(&mut self.inner).poll_read(cx, &mut space);
            let count = space.filled().len();
            if count == 0 {
                buffer::give_wire(buffer);
                return poll;
            }
            (self.start, self.end) = (0, count);
            self.buffer = Some(buffer);
            ready!(poll)?;
        }
        self.give(out);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ReadAhead<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match slices {
            // The plain call is the cheaper one, and most of what is written is one record.
            [one] => Pin::new(&mut self.inner).poll_write(cx, one),
            _ => Pin::new(&mut self.inner).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

impl<S> Drop for ReadAhead<S> {
    fn drop(&mut self) {
        if let Some(a) = self.buffer.take() {
            buffer::give_wire(a);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn gives_every_byte_once_in_order_and_then_the_end() {
        let (near, mut far) = tokio::net::UnixStream::pair().unwrap();
        let sent: Vec<u8> = (0..200_000_u32).map(|at| at.to_le_bytes()[0]).collect();
        let expected = [b"first".as_slice(), &sent].concat();
        let writer = tokio::spawn(async move {
            far.write_all(&sent).await.unwrap();
        });
        let mut reader: ReadAhead<tokio::net::UnixStream> = near.into();
        reader.unread(b"first");
        let (mut got, mut piece) = (Vec::new(), [0; 4096]);
        loop {
            let count = reader.read(&mut piece).await.unwrap();
            if count == 0 {
                break;
            }
            got.extend_from_slice(&piece[..count]);
        }
        writer.await.unwrap();
        assert!(got == expected);
        assert!(reader.buffer.is_none(), "an idle reader holds no buffer");
    }

    #[tokio::test]
    async fn gives_what_was_recorded_a_second_time() {
        let (near, mut far) = tokio::net::UnixStream::pair().unwrap();
        far.write_all(b"one two three").await.unwrap();
        drop(far);
        let mut reader: ReadAhead<tokio::net::UnixStream> = near.into();
        let mut piece = [0; 4];
        reader.read_exact(&mut piece).await.unwrap();
        reader.record();
        reader.read_exact(&mut piece).await.unwrap();
        assert_eq!(reader.rewind(), b"two ");
        let mut rest = String::new();
        reader.read_to_string(&mut rest).await.unwrap();
        assert_eq!(rest, "two three");
    }
}
