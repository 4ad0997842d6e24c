//! A verified TLS connection to one origin of an API.

use std::net::SocketAddr;
use std::sync::Arc;

use freeboard_policy::{ApiView, Host, Reason};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::error::Stop;

/// Resolves, checks, dials and verifies.
#[derive(Debug, Default)]
pub struct Dialler {}

/// A connection whose certificate was verified for the host that was asked for.
#[derive(Debug)]
pub struct Connected {
    pub stream: TlsStream<TcpStream>,
    pub protocol: Protocol,
    pub address: SocketAddr,
}

/// What ALPN chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Http1,
    Http2,
}

/// Which protocols to offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// `http/1.1` only: HTTP/1.1 guests (the lean path) and websocket handshakes.
    Http1,
    /// `h2` and `http/1.1`.
    Any,
}

impl Dialler {
    /// Called by `upstream::send` when the pool has no connection. Sets TCP_NODELAY.
    ///
    /// # Errors
    /// `upstream_unresolved`, `address_refused`, `upstream_unreachable`, `upstream_untrusted`, `upstream_timeout`.
    #[expect(clippy::unused_async, reason = "written by the dial part")]
    pub async fn connect(
        &self,
        _api: &Arc<ApiView>,
        _host: &Host,
        _port: u16,
        _offer: Offer,
    ) -> Result<Connected, Stop> {
        Err(Reason::UpstreamUnreachable.into())
    }
}
