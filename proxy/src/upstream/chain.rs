//! The proxy that upstreams are reached through, where a network has one and no other way out (HTTP CONNECT, RFC 9110 9.3.6).
//!
//! In: a destination that policy permits. Out: a connection to the proxy on which the destination answers, or the reason why
//! not; never a connection past the proxy. It sees names and amounts, not content: TLS is verified end to end inside the tunnel.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use freeboard_policy::{ApiView, Host, Reason};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use zeroize::Zeroizing;

use super::check;
use super::resolve::Resolver;
use crate::credential::secret_of_file;
use crate::error::Stop;
use crate::limits::UPSTREAM_PROXY_HEAD_BYTES;

/// The proxy, and how it is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    pub proxy: ProxyPlace,
    /// File with `USER:PASSWORD`; read for each connection, so that a replaced one is used at once.
    pub credential_file: Option<PathBuf>,
    pub resolving: Resolving,
    /// Names that are reached without the proxy.
    pub direct: HashSet<Host>,
}

/// Where the proxy is: it is configured, so its address is not checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProxyPlace {
    Name(Host, u16),
    Address(SocketAddr),
}

/// Who turns the names of upstreams into addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolving {
    /// The broker, to check the addresses as without a proxy; the proxy then gets the name, or where the certificate proves
    /// nothing the checked address.
    Check,
    /// The proxy alone. Only what the certificate proves is sent there.
    Proxy,
}

/// What proves that a connection ends where it should.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// The certificate, which is verified here.
    Certificate,
    /// Nothing but the address: the connection is passed on unread.
    Address,
}

impl ProxyPlace {
    /// `HOST:PORT`, `1.2.3.4:PORT` or `[::1]:PORT`.
    pub fn parse(text: &str) -> Option<Self> {
        if let Ok(address) = text.parse() {
            return Some(Self::Address(address));
        }
        let (host, port) = text.rsplit_once(':')?;
        let port = port.parse().ok().filter(|port| *port > 0)?;
        Some(Self::Name(Host::parse(host).ok()?, port))
    }
}

impl Chain {
    /// What the proxy is asked for.
    ///
    /// # Errors
    /// `upstream_unresolved` or `address_refused`: the proxy is not asked at all.
    pub(super) async fn target(
        &self,
        resolver: &Resolver,
        api: &ApiView,
        (host, port): (&Host, u16),
        proof: Proof,
    ) -> Result<String, Stop> {
        let by_name = format!("{host}:{port}");
        if self.resolving == Resolving::Proxy {
            return match proof {
                Proof::Certificate => Ok(by_name),
                // SECURITY: nobody could tell where such a connection ends.
                Proof::Address => Err(Stop::new(
                    Reason::AddressRefused,
                    "the proxy resolves names: what is passed on unread has no address that was checked",
                )),
            };
        }
        let checked = check::dialable(resolver.resolve(host, port).await?, &api.addresses)?;
        match (proof, checked.first()) {
            (Proof::Certificate, Some(_)) => Ok(by_name),
            (Proof::Address, Some(address)) => Ok(address.to_string()),
            (_, None) => Err(Reason::UpstreamUnresolved.into()),
        }
    }

    /// The proxy's own addresses.
    ///
    /// # Errors
    /// `upstream_proxy_unreachable`
    pub(super) async fn addresses(&self, resolver: &Resolver) -> Result<Vec<SocketAddr>, Stop> {
        match &self.proxy {
            ProxyPlace::Address(address) => Ok(vec![*address]),
            ProxyPlace::Name(host, port) => resolver.resolve(host, *port).await.map_err(unreachable),
        }
    }

    /// Asks for a tunnel on a fresh connection. Not a byte beyond the answer's head is read: what follows is the upstream's.
    ///
    /// # Errors
    /// `upstream_proxy_auth`, `upstream_proxy_refused`, `upstream_proxy_unreachable`
    pub(super) async fn ask(&self, stream: &mut TcpStream, target: &str) -> Result<(), Stop> {
        let request = self.request(target)?;
        stream.write_all(&request).await.map_err(broken_off)?;
        let head = read_head(stream).await?;
        match status(&head) {
            Some(200..=299) => Ok(()),
            Some(407) => Err(Stop::new(Reason::UpstreamProxyAuth, "the proxy answered 407")),
            Some(status) => {
                Err(Stop::with(Reason::UpstreamProxyRefused, format!("the proxy answered {status}")))
            }
            None => Err(Stop::new(Reason::UpstreamProxyRefused, "the proxy's answer is no HTTP/1.1")),
        }
    }

    fn request(&self, target: &str) -> Result<Zeroizing<Vec<u8>>, Stop> {
        // Room for everything at once: a vector that grows would leave the secret behind in freed memory.
        let mut out = Zeroizing::new(Vec::with_capacity(2 * UPSTREAM_PROXY_HEAD_BYTES));
        out.extend_from_slice(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n").as_bytes());
        if let Some(file) = &self.credential_file {
            let unusable = |why: String| Stop::with(Reason::UpstreamProxyAuth, why);
            let secret = secret_of_file(file).map_err(unusable)?;
            let plain = secret.expose();
            let usable = plain.contains(&b':') && !plain.iter().any(u8::is_ascii_control);
            if !usable || plain.len() > UPSTREAM_PROXY_HEAD_BYTES / 2 {
                return Err(unusable(format!("`{}` does not hold USER:PASSWORD", file.display())));
            }
            let mut encoded = Zeroizing::new(vec![0; plain.len().div_ceil(3) * 4]);
            let length = STANDARD.encode_slice(plain, &mut encoded).unwrap_or_default();
            out.extend_from_slice(b"Proxy-Authorization: Basic ");
            out.extend_from_slice(encoded.get(..length).unwrap_or_default());
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"\r\n");
        Ok(out)
    }
}

/// One byte at a time, so that none of the upstream's is taken: a hundred cheap calls before a handshake.
async fn read_head(stream: &mut TcpStream) -> Result<Vec<u8>, Stop> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= UPSTREAM_PROXY_HEAD_BYTES {
            return Err(Stop::new(
                Reason::UpstreamProxyRefused,
                "the head of the proxy's answer is too large",
            ));
        }
        head.push(stream.read_u8().await.map_err(broken_off)?);
    }
    Ok(head)
}

fn status(head: &[u8]) -> Option<u16> {
    const FIELDS: usize = 64;
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let mut answer = httparse::Response::new(&mut fields);
    answer.parse(head).ok().filter(httparse::Status::is_complete)?;
    answer.code
}

fn broken_off(error: std::io::Error) -> Stop {
    Stop::with(Reason::UpstreamProxyUnreachable, format!("the proxy broke off: {error}"))
}

/// What went wrong on the way to the proxy is no word about the upstream.
pub(super) fn unreachable(stop: Stop) -> Stop {
    Stop::with(Reason::UpstreamProxyUnreachable, format!("the way to the proxy: {stop}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_place_of_a_proxy() {
        let host = |text: &str| Host::parse(text).unwrap();
        for (text, place) in [
            ("proxy.corp:3128", Some(ProxyPlace::Name(host("proxy.corp"), 3128))),
            ("10.0.0.1:3128", Some(ProxyPlace::Address("10.0.0.1:3128".parse().unwrap()))),
            ("[::1]:3128", Some(ProxyPlace::Address("[::1]:3128".parse().unwrap()))),
            ("proxy.corp", None),
            ("proxy.corp:0", None),
            ("http://proxy.corp:3128", None),
            ("user:password@proxy.corp:3128", None),
        ] {
            assert_eq!(ProxyPlace::parse(text), place, "{text}");
        }
    }

    #[test]
    fn a_status_is_one_of_http() {
        assert_eq!(status(b"HTTP/1.1 200 Connection established\r\n\r\n"), Some(200));
        assert_eq!(status(b"HTTP/1.0 407 no\r\nProxy-Authenticate: Basic\r\n\r\n"), Some(407));
        assert_eq!(status(b"SSH-2.0-x\r\n\r\n"), None);
    }
}
