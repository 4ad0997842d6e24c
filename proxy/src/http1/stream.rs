//! One byte stream, whatever it runs over. Both directions work through `&self`, so that a request body can be
//! sent while the response comes in.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::{client, server};

use super::alarm::{Alarm, Deadline};
use super::{Patience, ReadAhead};

/// A stream to a guest or an upstream. The lock is held for one poll, never across an await.
#[derive(Debug)]
pub struct Stream(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    transport: Transport,
    reading: Alarm,
    writing: Alarm,
}

#[derive(Debug)]
enum Transport {
    /// A guest's TLS, ended by us.
    Guest(Box<server::TlsStream<Socket>>),
    /// A guest in clear text: plain HTTP that is refused, the proxy door, a run's worker.
    Clear(Box<Socket>),
    /// An upstream, its certificate verified.
    Upstream(Box<client::TlsStream<ReadAhead<TcpStream>>>),
}

impl From<Box<server::TlsStream<Socket>>> for Stream {
    fn from(stream: Box<server::TlsStream<Socket>>) -> Self {
        Transport::Guest(stream).into()
    }
}

impl From<Socket> for Stream {
    fn from(socket: Socket) -> Self {
        Transport::Clear(Box::new(socket)).into()
    }
}

impl From<client::TlsStream<ReadAhead<TcpStream>>> for Stream {
    fn from(stream: client::TlsStream<ReadAhead<TcpStream>>) -> Self {
        Transport::Upstream(Box::new(stream)).into()
    }
}

impl From<Transport> for Stream {
    fn from(transport: Transport) -> Self {
        Self(Mutex::new(Inner { transport, reading: Alarm::default(), writing: Alarm::default() }))
    }
}

impl Transport {
    fn pin(&mut self) -> Pin<&mut dyn Duplex> {
        match self {
            Self::Guest(stream) => Pin::new(stream.as_mut()),
            Self::Clear(stream) => Pin::new(stream.as_mut()),
            Self::Upstream(stream) => Pin::new(stream.as_mut()),
        }
    }

    /// Writes all of `rest`, which gets shorter, and flushes.
    fn poll_write_all(&mut self, cx: &mut Context<'_>, rest: &mut &[u8]) -> Poll<io::Result<()>> {
        let mut stream = self.pin();
        while !rest.is_empty() {
            let written = ready!(stream.as_mut().poll_write(cx, rest))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            *rest = rest.get(written..).unwrap_or_default();
        }
        stream.as_mut().poll_flush(cx)
    }
}

impl Stream {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads into `buffer`; 0 is the end.
    pub fn poll_read(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(buffer);
        ready!(self.inner().transport.pin().poll_read(cx, &mut buffer))?;
        Poll::Ready(Ok(buffer.filled().len()))
    }

    /// For a read that waits: ready once its time is over.
    pub(super) fn poll_patience(&self, cx: &mut Context<'_>, deadline: &mut Deadline) -> Poll<()> {
        self.inner().reading.poll(cx, deadline)
    }

    /// Writes all of `bytes` and flushes. When it is dropped midway, an unknown part has been sent: the stream is
    /// of no further use.
    ///
    /// # Errors
    /// The peer is gone, or took nothing for `patience`.
    pub async fn write_all(&self, bytes: &[u8], patience: Duration) -> io::Result<()> {
        let (mut rest, mut deadline) = (bytes, Deadline::from(Patience::For(patience)));
        poll_fn(|cx| {
            let Inner { transport, writing, .. } = &mut *self.inner();
            match transport.poll_write_all(cx, &mut rest) {
                Poll::Ready(result) => Poll::Ready(result),
                Poll::Pending => {
                    writing.poll(cx, &mut deadline).map(|()| Err(io::ErrorKind::TimedOut.into()))
                }
            }
        })
        .await
    }

    /// Ends our direction (close_notify, FIN).
    pub async fn shutdown(&self, patience: Duration) {
        let shutdown = poll_fn(|cx| self.inner().transport.pin().poll_shutdown(cx));
        // The peer may be gone already: there is nobody left to tell.
        let _ = tokio::time::timeout(patience, shutdown).await;
    }

    /// Takes a clear-text stream apart again, for TLS after a CONNECT.
    pub fn into_socket(self) -> Option<Socket> {
        match self.0.into_inner().unwrap_or_else(PoisonError::into_inner).transport {
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
    /// The guard's TLS, inside of which a guest speaks to a proxy.
    Guard(Box<server::TlsStream<Socket>>),
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
            Self::Guard(stream) => Pin::new(stream.as_mut()),
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
