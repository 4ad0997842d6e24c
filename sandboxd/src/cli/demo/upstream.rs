//! The API that the demo's programs call: HTTPS with a CA of its own, in a thread of its own. It answers nobody without
//! the bearer token, so an answer proves that the token arrived.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls_pki_types::PrivateKeyDer;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::Failure;

/// The API's name; only the broker's configuration says where that is.
pub(super) const HOST: &str = "api.demo.test";
/// Largest body that the API reads.
const MAX_BODY_BYTES: usize = 64 << 10;

/// The running API. Its thread ends with the process.
#[derive(Debug)]
pub(super) struct Upstream {
    pub(super) port: u16,
    /// The CA that signed its certificate, PEM.
    pub(super) ca_pem: String,
    pub(super) counts: Arc<Counts>,
}

/// What the API saw.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) with_token: AtomicU32,
    pub(super) without_token: AtomicU32,
}

/// Starts the API on a free port of this host.
pub(super) fn start(token: &str) -> Result<Upstream, Failure> {
    let (ca_pem, acceptor) = certificates()?;
    let listener = std::net::TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    listener.set_nonblocking(true)?;
    let port = listener.local_addr()?.port();
    let counts = Arc::new(Counts::default());
    let app = Api { expected: format!("Bearer {token}"), counts: Arc::clone(&counts) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("demo-api".into()).spawn(move || {
        runtime.block_on(async move {
            if let Ok(listener) = TcpListener::from_std(listener) {
                serve(listener, acceptor, Arc::new(app)).await;
            }
        });
    })?;
    Ok(Upstream { port, ca_pem, counts })
}

fn certificates() -> Result<(String, TlsAcceptor), Failure> {
    let mut ca = CertificateParams::new(Vec::new())?;
    ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    ca.distinguished_name.push(DnType::CommonName, "demo API's own CA");
    let ca_key = KeyPair::generate()?;
    let ca_certificate = ca.self_signed(&ca_key)?;
    let issuer = Issuer::new(ca, ca_key);

    let mut leaf = CertificateParams::new(vec![HOST.to_owned()])?;
    leaf.use_authority_key_identifier_extension = true;
    leaf.distinguished_name.push(DnType::CommonName, HOST);
    let key = KeyPair::generate()?;
    let certificate = leaf.signed_by(&key, &issuer)?;

    let private = PrivateKeyDer::try_from(key.serialize_der()).map_err(std::io::Error::other)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private)?;
    Ok((ca_certificate.pem(), TlsAcceptor::from(Arc::new(config))))
}

struct Api {
    expected: String,
    counts: Arc<Counts>,
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, api: Arc<Api>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, api) = (acceptor.clone(), Arc::clone(&api));
        tokio::spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let service = service_fn(move |request| {
                let api = Arc::clone(&api);
                async move { Ok::<_, std::convert::Infallible>(api.answer(request).await) }
            });
            // A connection that breaks is the broker's matter.
            let _ = Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

impl Api {
    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        if request.headers().get(AUTHORIZATION).is_none_or(|value| value != self.expected.as_str()) {
            self.counts.without_token.fetch_add(1, Ordering::Relaxed);
            return json(StatusCode::UNAUTHORIZED, r#"{"error":"no token"}"#);
        }
        self.counts.with_token.fetch_add(1, Ordering::Relaxed);
        match (request.method().clone(), request.uri().path()) {
            (Method::GET, "/v1/items") => {
                json(StatusCode::OK, r#"{"items":["anchor","chart"],"authenticated":true}"#)
            }
            (Method::GET, "/v1/secrets") => json(StatusCode::OK, r#"{"secret":"nobody should read this"}"#),
            (Method::POST, "/v1/notes") => {
                let body = Limited::new(request.into_body(), MAX_BODY_BYTES).collect().await;
                let kept = body.map_or(0, |body| body.to_bytes().len());
                json(StatusCode::CREATED, &format!(r#"{{"kept_bytes":{kept}}}"#))
            }
            _ => json(StatusCode::NOT_FOUND, r#"{"error":"no such thing"}"#),
        }
    }
}

fn json(status: StatusCode, body: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body.to_owned()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
