//! HTTP/2 sessions with upstreams: one connection per origin and credential identity of a run, many requests on it.
//!
//! In: a verified connection on which `h2` was agreed. Out: handles to send requests with. The task that drives a
//! connection lives as long as somebody holds its session.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::Bytes;
use freeboard_policy::Reason;
use h2::client::SendRequest;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::dial::Connected;
use crate::error::Stop;
use crate::limits;

/// One connection. Clones share it.
#[derive(Debug, Clone)]
pub struct Session {
    sender: SendRequest<Bytes>,
    pub address: SocketAddr,
    /// It has carried a request before.
    pub reused: bool,
    driver: Arc<Driver>,
    pub(super) used: Instant,
}

#[derive(Debug)]
struct Driver(AbortHandle);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Session {
    /// Starts HTTP/2 on a verified connection.
    ///
    /// # Errors
    /// `upstream_unreachable`, `upstream_timeout`.
    pub async fn start(connected: Connected) -> Result<Self, Stop> {
        let Connected { stream, address, .. } = connected;
        let mut settings = h2::client::Builder::new();
        settings
            .enable_push(false)
            .initial_window_size(limits::STREAM_WINDOW_BYTES)
            .initial_connection_window_size(limits::CONNECTION_WINDOW_BYTES)
            .max_header_list_size(u32::try_from(limits::MAX_HEAD_BYTES).unwrap_or(u32::MAX))
            .max_send_buffer_size(limits::STREAM_SEND_BUFFER_BYTES);
        let handshake = timeout(limits::CONNECT_TIMEOUT, settings.handshake(stream)).await;
        let (sender, connection) = handshake
            .map_err(|_| Stop::new(Reason::UpstreamTimeout, "no HTTP/2 in time"))?
            .map_err(|error| failed(&error))?;
        let driver = tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%address, %error, "an HTTP/2 connection to an upstream ended");
            }
        });
        let driver = Arc::new(Driver(driver.abort_handle()));
        Ok(Self { sender, address, reused: false, driver, used: Instant::now() })
    }

    /// A handle that may open a stream now. Waits while the upstream takes no more streams.
    ///
    /// # Errors
    /// The connection is over: `upstream_unreachable`, or `upstream_timeout`.
    pub async fn ready(&self) -> Result<SendRequest<Bytes>, Stop> {
        let ready = timeout(limits::CONNECT_TIMEOUT, self.sender.clone().ready()).await;
        ready
            .map_err(|_| Stop::new(Reason::UpstreamTimeout, "the upstream takes no more streams"))?
            .map_err(|error| failed(&error))
    }

    /// False once the connection is over or will take no more streams.
    pub(super) fn is_open(&mut self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        !matches!(self.sender.poll_ready(&mut context), Poll::Ready(Err(_)))
    }

    /// Nobody but the pool holds it.
    pub(super) fn is_idle(&self) -> bool {
        Arc::strong_count(&self.driver) == 1
    }
}

/// Whose fault an error of the protocol is.
pub fn failed(error: &h2::Error) -> Stop {
    let reason = if error.is_io() || error.is_go_away() || error.is_reset() {
        Reason::UpstreamUnreachable
    } else {
        Reason::UpstreamMalformed
    };
    Stop::with(reason, format!("HTTP/2: {error}"))
}

/// True when the upstream says that it did not look at the request (RFC 9113 8.7): sending it again is safe.
pub fn is_unprocessed(error: &h2::Error) -> bool {
    let refused = error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM);
    refused || (error.is_go_away() && error.is_remote())
}
