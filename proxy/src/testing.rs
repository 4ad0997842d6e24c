//! For tests of this crate: a broker in this process, with a policy, an upstream that records what it gets, and a run.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use freeboard_control::{Evidence, OpenGate};
use freeboard_policy::{Host, Policy, SourceFile, Tier};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::RootCertStore;
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::server::TlsStream;

use crate::broker::{Broker, Clock, Snapshot};
use crate::credential::Store;
use crate::error::Stop;
use crate::pipeline::{Client, Lead, Origin};
use crate::record::{LogSettings, Recorder, Writer};
use crate::request::Fields;
use crate::respond::{ResponseHead, Sink};
use crate::run::RunContext;
use crate::tls::{Authority, CertificateAuthority, NewCa};
use crate::upstream::dial::{DialSettings, Dialler};
use crate::upstream::trust::Trust;

/// What the upstream demands; guests must never see it.
pub(crate) const SECRET: &str = "s3cr3t-token-0123456789";

/// One request as the upstream got it.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

/// Everything that a test needs.
#[derive(Debug)]
pub(crate) struct Lab {
    pub(crate) client: Client,
    pub(crate) port: u16,
    pub(crate) received: Arc<Mutex<Vec<Received>>>,
    folder: tempfile::TempDir,
    _writer: Writer,
}

pub(crate) type Stream = TlsStream<TcpStream>;

/// An upstream on HTTP/1.1 for `api.test` (with a credential) and `pub.test` (without).
pub(crate) async fn lab<F>(answer: F) -> Lab
where
    F: Fn(&Received) -> Vec<u8> + Send + Sync + 'static,
{
    let answer = Arc::new(answer);
    lab_with(&["http/1.1"], move |stream, received| {
        Box::pin(serve_http1(stream, received, Arc::clone(&answer)))
    })
    .await
}

type Serving = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

/// An upstream that does what `serve` does with each of its connections.
pub(crate) async fn lab_with<F>(alpn: &[&str], serve: F) -> Lab
where
    F: Fn(Stream, Arc<Mutex<Vec<Received>>>) -> Serving + Send + Sync + 'static,
{
    let folder = tempfile::tempdir().unwrap();
    let ca_key = KeyPair::generate().unwrap();
    let mut ca = CertificateParams::default();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let ca_certificate = ca.self_signed(&ca_key).unwrap();
    let issuer = Issuer::new(ca, ca_key);
    let key = KeyPair::generate().unwrap();
    let names = vec!["api.test".to_owned(), "pub.test".to_owned()];
    let leaf = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![leaf.der().clone()],
            PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
        )
        .unwrap();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let received = Arc::new(Mutex::new(Vec::new()));
    let (serve, records) = (Arc::new(serve), Arc::clone(&received));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, serve, records) = (acceptor.clone(), Arc::clone(&serve), Arc::clone(&records));
            tokio::spawn(async move {
                stream.set_nodelay(true).unwrap();
                if let Ok(stream) = acceptor.accept(stream).await {
                    serve(stream, records).await;
                }
            });
        }
    });

    let secret = folder.path().join("secret");
    std::fs::write(&secret, SECRET).unwrap();
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    let policy = policy(port, secret.to_str().unwrap());
    let loaded = Policy::load(&[SourceFile::new("policy.toml", policy)]);
    let policy =
        loaded.unwrap_or_else(|problems| panic!("{}", freeboard_policy::render_all(&problems))).policy;
    let mut roots = RootCertStore::empty();
    roots.add(ca_certificate.der().clone()).unwrap();
    let here = vec![Ipv4Addr::LOCALHOST.into()];
    let hosts = ["api.test", "pub.test"].map(|name| (Host::parse(name).unwrap(), here.clone()));
    let settings = DialSettings { hosts: HashMap::from(hosts), ..Default::default() };
    let settings_of_log = LogSettings {
        folder: folder.path().join("audit"),
        file_bytes: 1 << 30,
        keep_files: None,
        sync_every: Duration::from_secs(1),
    };
    let (recorder, writer) = Recorder::start(settings_of_log, Clock).unwrap();
    let now = Clock.now().unix_seconds();
    let authority =
        Authority::new(Arc::new(CertificateAuthority::in_memory(&NewCa::default(), now).unwrap())).unwrap();
    let snapshot = Snapshot::new(policy, None, Store::default());
    let dialler = Dialler::new(settings, Trust::with_roots(roots));
    let broker = Arc::new(Broker::new(snapshot, authority, dialler, recorder));
    let gate = OpenGate {
        run: "0".repeat(32),
        caller: Some("tester".into()),
        grants: vec!["g".into()],
        evidence: Evidence { provider: "native".into(), tier: Tier::Container, facts: Vec::new() },
        expires_unix_ms: u64::MAX,
        trace_id: None,
        session: None,
        doors: Vec::new(),
    };
    let run = RunContext::open(&gate, None, &broker).unwrap();
    let client = Client { broker, run, door: "transparent" };
    Lab { client, port, received, folder, _writer: writer }
}

fn policy(port: u16, secret: &str) -> String {
    format!(
        r#"
[credential.c1]
kind = "bearer"
token = {{ file = "{secret}" }}

[api.api]
origins = ["https://api.test:{port}"]
credential = "c1"
addresses = ["127.0.0.1/32"]

[api.pub]
origins = ["https://pub.test:{port}"]
addresses = ["127.0.0.1/32"]

[grant.g]
callers = ["tester"]
budget = {{ calls = 100000, concurrent = 64 }}

[[grant.g.allow]]
api = "api"
routes = ["GET /v1/items/*", "POST /v1/items", "GET /echo/**", "POST /grpc.Service/**"]

[[grant.g.allow]]
api = "api"
routes = ["GET /ws"]
websocket = true

[[grant.g.allow]]
api = "pub"
routes = ["GET /**", "POST /**"]
"#
    )
}

impl Lab {
    /// A granted place.
    pub(crate) fn lead(&self, host: &str) -> Lead {
        Lead::Tunnel(Origin { host: Host::parse(host).unwrap(), port: self.port, refusal: None })
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    /// The audit log so far, one document per record.
    pub(crate) fn records(&self) -> Vec<serde_json::Value> {
        assert!(self.client.broker.recorder.flush(Duration::from_secs(10)));
        let text = std::fs::read_to_string(self.folder.path().join("audit/audit.jsonl")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Waits until `count` records hold `text`.
    pub(crate) async fn wait_for_records(&self, text: &str, count: usize) {
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        loop {
            let records = self.records();
            let found = records.iter().filter(|record| record.to_string().contains(text)).count();
            if found == count {
                return;
            }
            assert!(
                std::time::Instant::now() < deadline && found < count,
                "{found} records with `{text}`, not {count}: {records:#?}"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn serve_http1<F>(mut stream: Stream, received: Arc<Mutex<Vec<Received>>>, answer: Arc<F>)
where
    F: Fn(&Received) -> Vec<u8> + Send + Sync + 'static,
{
    let mut bytes = Vec::new();
    while let Some(request) = read_request(&mut stream, &mut bytes).await {
        received.lock().unwrap().push(request.clone());
        if stream.write_all(&answer(&request)).await.is_err() || stream.flush().await.is_err() {
            return;
        }
    }
}

/// Reads one request, its body still in the framing that it came in.
pub(crate) async fn read_request(stream: &mut Stream, bytes: &mut Vec<u8>) -> Option<Received> {
    let end = fill_until(stream, bytes, |bytes| find(bytes, b"\r\n\r\n").map(|at| at + 4)).await?;
    let head = String::from_utf8_lossy(bytes.get(..end)?).into_owned();
    bytes.drain(..end);
    let lower = head.to_ascii_lowercase();
    let length =
        lower.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next()?.parse().ok());
    let end = match length {
        Some(length) => fill_until(stream, bytes, |bytes| (bytes.len() >= length).then_some(length)).await?,
        None if lower.contains("transfer-encoding: chunked") => {
            fill_until(stream, bytes, |bytes| {
                let last = find(bytes, b"0\r\n")?;
                let end = find(bytes.get(last..)?, b"\r\n\r\n")? + last + 4;
                (last == 0 || bytes.get(last - 1) == Some(&b'\n')).then_some(end)
            })
            .await?
        }
        None => 0,
    };
    Some(Received { head, body: bytes.drain(..end).collect() })
}

async fn fill_until(
    stream: &mut Stream,
    bytes: &mut Vec<u8>,
    done: impl Fn(&[u8]) -> Option<usize>,
) -> Option<usize> {
    loop {
        if let Some(end) = done(bytes) {
            return Some(end);
        }
        let mut piece = [0; 4096];
        let read = stream.read(&mut piece).await.ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&piece[..read]);
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

/// `HTTP/1.1 200 OK` with a length.
pub(crate) fn ok(fields: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n{fields}\r\n{body}", body.len()).into_bytes()
}

/// Collects what a guest would get.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    pub(crate) head: Option<(u16, Fields)>,
    pub(crate) pieces: Vec<Vec<u8>>,
    pub(crate) trailers: Option<Fields>,
    pub(crate) ended: bool,
}

impl Collected {
    pub(crate) fn body(&self) -> String {
        String::from_utf8(self.pieces.concat()).unwrap()
    }
}

impl Sink for Collected {
    async fn go_on(&mut self) -> Result<(), Stop> {
        Ok(())
    }

    async fn begin(&mut self, head: &ResponseHead, first: &[u8], last: bool) -> Result<(), Stop> {
        self.head = Some((head.status, head.fields.clone()));
        self.pieces.push(first.to_vec());
        self.ended = last;
        Ok(())
    }

    async fn data(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        assert!(!bytes.is_empty());
        self.pieces.push(bytes.to_vec());
        Ok(())
    }

    async fn end(&mut self, trailers: Option<&Fields>) -> Result<(), Stop> {
        self.trailers = trailers.cloned();
        self.ended = true;
        Ok(())
    }

    fn has_begun(&self) -> bool {
        self.head.is_some()
    }
}
