//! A verified TLS connection to one origin of an API.
//!
//! In: an API and one of its origins, after the permit. Out: a connection whose certificate was verified for exactly
//! that name. The name is resolved once, each address is checked, only checked addresses are dialled, and nothing of
//! the request is sent before the certificate has been verified (ATTACKS C28, D08).

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use freeboard_policy::{ApiView, ConnectionPermit, Host, Reason, Route};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::chain::{self, Chain, Proof};
use super::resolve::Resolver;
use super::trust::{Trust, UpstreamProtocols};
use super::{check, trust::TrustError};
use crate::credential::ClientCertificate;
use crate::error::Stop;
use crate::http1::ReadAhead;
use crate::limits::{CONNECT_ATTEMPT_DELAY, CONNECT_TIMEOUT};

/// Resolves, checks, dials and verifies.
#[derive(Debug)]
pub struct Dialler {
    resolver: Resolver,
    trust: Trust,
    /// Listeners of this broker, which are never dialled.
    own: Vec<SocketAddr>,
    /// The proxy that upstreams are reached through.
    chain: Option<Chain>,
    /// Origins that answered HTTP/1.1 with "no such protocol" once: asked for h2 at once from then on.
    http2_only: Mutex<HashSet<(Host, u16)>>,
}

/// What the configuration says about dialling.
#[derive(Debug, Default)]
pub struct DialSettings {
    /// Addresses of names that the host's resolver is not asked for.
    pub hosts: HashMap<Host, Vec<IpAddr>>,
    /// Addresses that this broker listens on (explicit door, metrics, guard).
    pub own_listeners: Vec<SocketAddr>,
    /// The proxy that upstreams are reached through, where there is one.
    pub chain: Option<Chain>,
}

/// A connection whose certificate was verified for the host that was asked for.
#[derive(Debug)]
pub struct Connected {
    pub stream: TlsStream<ReadAhead<TcpStream>>,
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
    /// `http/1.1`: HTTP/1.1 guests (the lean path). An origin that speaks only h2 is connected again with h2.
    Http1,
    /// `http/1.1` and nothing else: websocket handshakes.
    Http1Only,
    /// `h2` and `http/1.1`.
    Any,
}

impl Default for Dialler {
    fn default() -> Self {
        Self::new(DialSettings::default(), Trust::system())
    }
}

impl Dialler {
    /// Called by `app`.
    pub fn new(settings: DialSettings, trust: Trust) -> Self {
        Self {
            resolver: Resolver::new(settings.hosts),
            trust,
            own: settings.own_listeners,
            chain: settings.chain,
            http2_only: Mutex::default(),
        }
    }

    /// Called by `upstream::send` when the pool has no connection. Sets TCP_NODELAY. Dropping the future closes
    /// whatever was being dialled.
    ///
    /// # Errors
    /// `upstream_unresolved`, `address_refused`, `upstream_unreachable`, `upstream_untrusted`, `upstream_timeout`.
    pub async fn connect(
        &self,
        api: &Arc<ApiView>,
        host: &Host,
        port: u16,
        offer: Offer,
    ) -> Result<Connected, Stop> {
        self.connect_as(api, host, port, offer, None).await
    }

    /// [`Dialler::connect`] with a certificate to show.
    ///
    /// # Errors
    /// As for `connect`.
    pub async fn connect_as(
        &self,
        api: &Arc<ApiView>,
        host: &Host,
        port: u16,
        offer: Offer,
        certificate: Option<&ClientCertificate>,
    ) -> Result<Connected, Stop> {
        let known_http2_only = offer == Offer::Http1 && self.speaks_only_http2(host, port);
        let protocols = match offer {
            Offer::Http1 if known_http2_only => UpstreamProtocols::Http2,
            Offer::Http1 | Offer::Http1Only => UpstreamProtocols::Http1,
            Offer::Any => UpstreamProtocols::Any,
        };
        match self.connect_with(api, host, port, protocols, certificate).await {
            Err(Failure::NoSharedProtocol(stop)) if offer == Offer::Http1 => {
                let other =
                    if known_http2_only { UpstreamProtocols::Http1 } else { UpstreamProtocols::Http2 };
                let connected = self.connect_with(api, host, port, other, certificate).await;
                self.remember(host, port, !known_http2_only && connected.is_ok());
                connected.map_err(|failure| match failure {
                    Failure::NoSharedProtocol(_) => stop,
                    Failure::Other(other) => other,
                })
            }
            other => other.map_err(Failure::into_stop),
        }
    }

    /// A TCP connection to a destination whose connections are passed on unread. Consumes the permit: one permit, one
    /// connection. Nothing of the guest's is sent before its end was checked.
    ///
    /// # Errors
    /// `upstream_unresolved`, `address_refused`, `upstream_unreachable`, `upstream_timeout`.
    pub async fn connect_unread(
        &self,
        permit: ConnectionPermit,
        api: &ApiView,
        route: &Route,
    ) -> Result<(TcpStream, SocketAddr), Stop> {
        if permit.api() != &api.name || route.api != api.name {
            return Err(Stop::new(Reason::Internal, "permit and destination do not belong together"));
        }
        let (stream, address, _) = self.connect_checked(api, &route.host, route.port, Proof::Address).await?;
        Ok((stream, address))
    }

    /// Resolves, checks, dials, and looks where the connection ended.
    async fn connect_checked(
        &self,
        api: &ApiView,
        host: &Host,
        port: u16,
        proof: Proof,
    ) -> Result<(TcpStream, SocketAddr, Instant), Stop> {
        // SECURITY: with a proxy there is no other way, also when it fails. Guarded by `chaining.rs`.
        if let Some(chain) = self.chain.as_ref().filter(|chain| !chain.direct.contains(host)) {
            // Boxed: most brokers never need this state.
            return Box::pin(self.connect_through(chain, api, (host, port), proof)).await;
        }
        let resolved = self.resolver.resolve(host, port).await?;
        let addresses = check::dialable(resolved, &api.addresses)?;
        let deadline = Instant::now() + CONNECT_TIMEOUT;
        let stream = timeout_at(deadline, first_to_connect(addresses)).await.map_err(late)??;
        let address = self.prepare(&stream)?;
        Ok((stream, address, deadline))
    }

    /// The same through the proxy, whose address is the one that was dialled.
    async fn connect_through(
        &self,
        chain: &Chain,
        api: &ApiView,
        place: (&Host, u16),
        proof: Proof,
    ) -> Result<(TcpStream, SocketAddr, Instant), Stop> {
        let target = chain.target(&self.resolver, api, place, proof).await?;
        let addresses = chain.addresses(&self.resolver).await?;
        let silent = |_| Stop::new(Reason::UpstreamProxyUnreachable, "the proxy did not answer in time");
        let deadline = Instant::now() + CONNECT_TIMEOUT;
        let stream = timeout_at(deadline, first_to_connect(addresses)).await.map_err(silent)?;
        let mut stream = stream.map_err(chain::unreachable)?;
        let address = self.prepare(&stream)?;
        timeout_at(deadline, chain.ask(&mut stream, &target)).await.map_err(silent)??;
        Ok((stream, address, Instant::now() + CONNECT_TIMEOUT))
    }

    async fn connect_with(
        &self,
        api: &ApiView,
        host: &Host,
        port: u16,
        protocols: UpstreamProtocols,
        certificate: Option<&ClientCertificate>,
    ) -> Result<Connected, Failure> {
        let config = self.trust.config(api, protocols, certificate).map_err(untrusted)?;
        let (stream, address, deadline) = self.connect_checked(api, host, port, Proof::Certificate).await?;
        let name = ServerName::try_from(host.as_str().to_owned())
            .map_err(|_| Stop::new(Reason::UpstreamUntrusted, "the name cannot be verified"))?;
        let handshake = TlsConnector::from(config).connect(name, ReadAhead::from(stream));
        let stream = timeout_at(deadline, handshake).await.map_err(late)?.map_err(Failure::of_handshake)?;
        let protocol = match stream.get_ref().1.alpn_protocol() {
            Some(b"h2") => Protocol::Http2,
            _ if protocols == UpstreamProtocols::Http2 => {
                let stop = Stop::new(Reason::UpstreamUnreachable, "h2 was asked for and not chosen");
                return Err(Failure::NoSharedProtocol(stop));
            }
            _ => Protocol::Http1,
        };
        Ok(Connected { stream, protocol, address })
    }

    fn prepare(&self, stream: &TcpStream) -> Result<SocketAddr, Stop> {
        let unreachable = |error: std::io::Error| Stop::with(Reason::UpstreamUnreachable, error.to_string());
        let (local, peer) =
            (stream.local_addr().map_err(unreachable)?, stream.peer_addr().map_err(unreachable)?);
        if check::is_own_listener(local, peer, &self.own) {
            return Err(Stop::with(Reason::AddressRefused, format!("{peer} is the broker itself")));
        }
        // Without it about half of all new connections wait 40 ms for a delayed acknowledgement (measured).
        stream.set_nodelay(true).map_err(unreachable)?;
        Ok(peer)
    }

    /// True when the origin is known to have no HTTP/1.1.
    pub fn speaks_only_http2(&self, host: &Host, port: u16) -> bool {
        let known = self.http2_only.lock().unwrap_or_else(PoisonError::into_inner);
        !known.is_empty() && known.contains(&(host.clone(), port))
    }

    fn remember(&self, host: &Host, port: u16, http2_only: bool) {
        let mut known = self.http2_only.lock().unwrap_or_else(PoisonError::into_inner);
        if http2_only {
            known.insert((host.clone(), port));
        } else {
            known.remove(&(host.clone(), port));
        }
    }
}

/// A stop, and whether another protocol could help.
enum Failure {
    NoSharedProtocol(Stop),
    Other(Stop),
}

impl Failure {
    fn into_stop(self) -> Stop {
        match self {
            Self::NoSharedProtocol(stop) | Self::Other(stop) => stop,
        }
    }

    fn of_handshake(error: std::io::Error) -> Self {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(tls @ rustls::Error::AlertReceived(rustls::AlertDescription::NoApplicationProtocol)) => {
                Self::NoSharedProtocol(Stop::with(Reason::UpstreamUntrusted, tls.to_string()))
            }
            Some(tls) => Self::Other(Stop::with(Reason::UpstreamUntrusted, tls.to_string())),
            None => Self::Other(Stop::with(Reason::UpstreamUnreachable, error.to_string())),
        }
    }
}

impl From<Stop> for Failure {
    fn from(stop: Stop) -> Self {
        Self::Other(stop)
    }
}

fn late(_: tokio::time::error::Elapsed) -> Stop {
    Stop::new(Reason::UpstreamTimeout, "connecting took too long")
}

fn untrusted(error: TrustError) -> Stop {
    Stop::with(Reason::UpstreamUntrusted, error.to_string())
}

/// Happy eyeballs without its sorting (RFC 8305 5): the resolver's order is kept, the next address starts when one
/// failed or has not answered for a while, the first connection wins and the others are dropped.
async fn first_to_connect(addresses: Vec<SocketAddr>) -> Result<TcpStream, Stop> {
    let mut attempts = FuturesUnordered::new();
    let mut last = Stop::new(Reason::UpstreamUnresolved, "the name has no address");
    let mut waiting = addresses.into_iter();
    let mut more = true;
    loop {
        if more {
            match waiting.next() {
                Some(address) => attempts.push(async move { (address, TcpStream::connect(address).await) }),
                None => more = false,
            }
        }
        if attempts.is_empty() && !more {
            return Err(last);
        }
        let pause = async {
            if more {
                tokio::time::sleep(CONNECT_ATTEMPT_DELAY).await;
            } else {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            Some((address, outcome)) = attempts.next() => match outcome {
                Ok(stream) => return Ok(stream),
                Err(error) => last = Stop::with(Reason::UpstreamUnreachable, format!("{address}: {error}")),
            },
            () = pause => {}
        }
    }
}

#[cfg(test)]
mod tests;
