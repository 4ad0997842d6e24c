//! One exchange with the daemon on a connection of its own, bound by its request id.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use freeboard_wire::digest::hex;
use freeboard_wire::limits::MAX_RESPONSE_BYTES;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderMap, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::Error;

/// Longest exchange: a wait, and what comes before and after it.
const TIMEOUT: Duration = Duration::from_secs(60);

pub(super) struct Daemon {
    host: String,
    port: u16,
    /// `None` = clear text.
    tls: Option<TlsConnector>,
    token: String,
}

impl std::fmt::Debug for Daemon {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Daemon").field("host", &self.host).field("port", &self.port).finish_non_exhaustive()
    }
}

impl Daemon {
    pub(super) fn new(url: &str, token: &str) -> Result<Self, Error> {
        let wrong = || Error::Url(url.to_owned());
        let uri: Uri = url.parse().map_err(|_| wrong())?;
        let host = uri.host().ok_or_else(wrong)?.trim_matches(['[', ']']).to_owned();
        let loopback = matches!(host.as_str(), "127.0.0.1" | "::1" | "localhost");
        let (tls, port) = match uri.scheme_str() {
            Some("https") => (Some(connector()?), 443),
            Some("http") if loopback => (None, 80),
            _ => return Err(wrong()),
        };
        Ok(Self { host, port: uri.port_u16().unwrap_or(port), tls, token: token.to_owned() })
    }

    pub(super) async fn call<T: DeserializeOwned>(
        &self,
        procedure: &str,
        body: &[u8],
        headers: &[(&str, String)],
    ) -> Result<T, Error> {
        let asked = random_hex()?;
        let exchange = tokio::time::timeout(TIMEOUT, self.exchange(procedure, body, headers, &asked));
        let (status, headers, text) = exchange
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
            .map_err(Error::Unanswered)?;
        let failed = |message: &str| Error::Failed { message: message.to_owned(), run: None };
        let mut echoes = headers.get_all("freeboard-request-id").iter();
        let (Some(echo), None) = (echoes.next(), echoes.next()) else {
            return Err(failed("the answer is not bound to the request"));
        };
        if *echo != asked {
            return Err(failed("the answer is not bound to the request"));
        }
        if status == StatusCode::OK {
            return serde_json::from_slice(&text)
                .map_err(|error| failed(&format!("the answer does not decode: {error}")));
        }
        Err(refusal(status, &headers, &text))
    }

    async fn exchange(
        &self,
        procedure: &str,
        body: &[u8],
        headers: &[(&str, String)],
        asked: &str,
    ) -> io::Result<(StatusCode, HeaderMap, Bytes)> {
        let mut request = Request::post(format!("/{}/{procedure}", freeboard_wire::runs::SERVICE))
            .header(HOST, format!("{}:{}", self.host, self.port))
            .header(CONTENT_TYPE, "application/json")
            .header(AUTHORIZATION, format!("Bearer {}", self.token))
            .header("freeboard-request-id", asked);
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let request = request.body(Full::new(Bytes::copy_from_slice(body))).map_err(io::Error::other)?;
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        stream.set_nodelay(true)?;
        match &self.tls {
            None => send(stream, request).await,
            Some(tls) => {
                let name = ServerName::try_from(self.host.clone()).map_err(io::Error::other)?;
                send(tls.connect(name, stream).await?, request).await
            }
        }
    }
}

async fn send(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
) -> io::Result<(StatusCode, HeaderMap, Bytes)> {
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let driver = tokio::spawn(connection);
    let answered = async {
        let response = sender.send_request(request).await.map_err(io::Error::other)?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, MAX_RESPONSE_BYTES).collect().await.map_err(io::Error::other)?;
        Ok((head.status, head.headers, body.to_bytes()))
    };
    let answered = answered.await;
    driver.abort();
    answered
}

fn refusal(status: StatusCode, headers: &HeaderMap, text: &[u8]) -> Error {
    let error = freeboard_wire::error::read_error(text);
    let (code, message) = match error {
        Some(error) => (error.code.name().to_owned(), error.message),
        None => (format!("HTTP {}", status.as_u16()), String::from_utf8_lossy(text).trim().to_owned()),
    };
    let marks = ["freeboard-not-dispatched", "plimsoll-not-dispatched"];
    let reason = marks.iter().find_map(|name| headers.get(*name)?.to_str().ok());
    match reason {
        Some(reason) => Error::Refused { code, reason: reason.to_owned(), message },
        None => Error::Failed { message: format!("{code}: {message}"), run: None },
    }
}

/// The system's roots.
fn connector() -> Result<TlsConnector, Error> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Unanswered(io::Error::other(error)))?;
    Ok(TlsConnector::from(Arc::new(config.with_root_certificates(roots).with_no_client_auth())))
}

/// 128 random bits.
pub(super) fn random_hex() -> Result<String, Error> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes).map_err(|error| Error::Unanswered(io::Error::other(error)))?;
    Ok(hex(&bytes))
}
