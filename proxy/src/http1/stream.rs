//! One byte stream, whatever it runs over. Both directions work through `&self`, so that a request body can be
//! sent while the response comes in.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::{client, server};

use super::ReadAhead;

/// A stream to a guest or an upstream. The lock is held for one poll, never across an await.
#[derive(Debug)]
pub struct Stream(Mutex<Transport>);

#[derive(Debug)]
enum Transport {
    /// A guest's TLS, ended by us.
    Guest(Box<server::TlsStream<Socket>>),
    /// A guest in clear text: plain HTTP that is refused, the proxy door, a run's worker.
    Clear(Box<Socket>),
    /// An upstream, its certificate verified.
    Upstream(Box<client::TlsStream<ReadAhead<TcpStream>>>),
}

impl From<server::TlsStream<Socket>> for Stream {
    fn from(stream: server::TlsStream<Socket>) -> Self {
        Self(Mutex::new(Transport::Guest(Box::new(stream))))
    }
}

impl From<Socket> for Stream {
    fn from(socket: Socket) -> Self {
        Self(Mutex::new(Transport::Clear(Box::new(socket))))
    }
}

impl From<client::TlsStream<ReadAhead<TcpStream>>> for Stream {
    fn from(stream: client::TlsStream<ReadAhead<TcpStream>>) -> Self {
        Self(Mutex::new(Transport::Upstream(Box::new(stream))))
    }
}

impl Stream {
    fn with<T>(&self, poll: impl FnOnce(Pin<&mut dyn Duplex>) -> T) -> T {
        let mut transport = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *transport {
            Transport::Guest(stream) => poll(Pin::new(stream.as_mut())),
            Transport::Clear(stream) => poll(Pin::new(stream.as_mut())),
            Transport::Upstream(stream) => poll(Pin::new(stream.as_mut())),
        }
    }

    /// Reads into `buffer`; 0 is the end.
    pub fn poll_read(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(buffer);
        ready!(self.with(|stream| stream.poll_read(cx, &mut buffer)))?;
        Poll::Ready(Ok(buffer.filled().len()))
    }

    /// Writes all of `bytes` and flushes. When it is dropped midway, an unknown part has been sent: the stream is
    /// of no further use.
    ///
    /// # Errors
    /// The peer is gone, or took nothing for `patience`.
    pub async fn write_all(&self, bytes: &[u8], patience: Duration) -> io::Result<()> {
        let mut rest = bytes;
        let write = poll_fn(|cx| {
            self.with(|mut stream| {
                while !rest.is_empty() {
                    let written = ready!(stream.as_mut().poll_write(cx, rest))?;
                    if written == 0 {
                        return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                    }
                    rest = rest.get(written..).unwrap_or_default();
                }
                stream.as_mut().poll_flush(cx)
            })
        });
        tokio::time::timeout(patience, write).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Ends our direction (close_notify, FIN).
    pub async fn shutdown(&self, patience: Duration) {
        let shutdown = poll_fn(|cx| self.with(|stream| stream.poll_shutdown(cx)));
        // The peer may be gone already: there is nobody left to tell.
        let _ = tokio::time::timeout(patience, shutdown).await;
    }

    /// Takes a clear-text stream apart again, for TLS after a CONNECT.
    pub fn into_socket(self) -> Option<Socket> {
        match self.0.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Transport::Clear(socket) => Some(*socket),
            Transport::Guest(_) | Transport::Upstream(_) => None,
        }
    }
}

trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Duplex for T {}

/// A guest's socket, with what was read ahead of its reader.
pub type Socket = ReadAhead<Wire>;

/// What a guest's bytes come by.
#[derive(Debug)]
pub enum Wire {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl From<TcpStream> for Socket {
    fn from(stream: TcpStream) -> Self {
        Self::from(Wire::Tcp(stream))
    }
}

impl From<UnixStream> for Socket {
    fn from(stream: UnixStream) -> Self {
        Self::from(Wire::Unix(stream))
    }
}

impl Wire {
    fn pin(self: Pin<&mut Self>) -> Pin<&mut dyn Duplex> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream),
            Self::Unix(stream) => Pin::new(stream),
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.pin().poll_read(cx, buffer)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.pin().poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.pin().poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pin().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pin().poll_shutdown(cx)
    }
}
