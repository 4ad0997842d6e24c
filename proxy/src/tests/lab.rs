//! A broker with one run, a recording upstream behind TLS, and guests on socket pairs.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use freeboard_control::{Evidence, OpenGate};
use freeboard_policy::{Host, Policy, SourceFile, Tier};
use rustls_pki_types::ServerName;
use rustls_pki_types::pem::PemObject as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, UnixStream};
use tokio::time::timeout;

use crate::accept::http1::Guest;
use crate::accept::proxy::serve_connection as proxy_connection;
use crate::broker::{Broker, Clock, Snapshot};
use crate::credential::Store;
use crate::http1::{Socket, Stream};
use crate::pipeline::Client;
use crate::record::{LogSettings, Recorder, Writer};
use crate::run::RunContext;
use crate::tls::{Authority, CertificateAuthority, NewCa};
use crate::upstream::dial::{DialSettings, Dialler};
use crate::upstream::trust::Trust;

pub(super) const SECRET: &str = "canary-7f3a9c51d2";
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// What an upstream connection does: all bytes so far in, bytes to send out; `None` reads on.
pub(super) type Script = Arc<dyn Fn(&[u8]) -> Reaction + Send + Sync>;

pub(super) enum Reaction {
    ReadOn,
    /// Send, forget what was read, go on.
    Send(Vec<u8>),
    /// Send and close.
    SendAndClose(Vec<u8>),
}

/// Answers every request with a body of known length, once its head (and a body of known length) is whole.
pub(super) fn ok(seen: &[u8]) -> Reaction {
    if whole(seen) {
        Reaction::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_vec())
    } else {
        Reaction::ReadOn
    }
}

pub(super) fn whole(seen: &[u8]) -> bool {
    let text = String::from_utf8_lossy(seen);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")?.parse::<usize>().ok());
    match length {
        Some(length) => body.len() >= length,
        None if head.contains("Transfer-Encoding: chunked") => {
            body.ends_with("\r\n\r\n") && (body.starts_with("0\r\n") || body.contains("\r\n0\r\n"))
        }
        None => true,
    }
}

pub(super) struct Lab {
    pub(super) client: Client,
    pub(super) seen: Arc<Mutex<Vec<Vec<u8>>>>,
    port: u16,
    roots: rustls::RootCertStore,
    _folder: tempfile::TempDir,
    _writer: Writer,
}

impl Lab {
    pub(super) async fn start(script: impl Fn(&[u8]) -> Reaction + Send + Sync + 'static) -> Self {
        Self::with_budget(script, "").await
    }

    pub(super) async fn with_budget(
        script: impl Fn(&[u8]) -> Reaction + Send + Sync + 'static,
        budget: &str,
    ) -> Self {
        Self::with_rules(script, budget, "").await
    }

    /// With more rules of the grant `g`.
    pub(super) async fn with_rules(
        script: impl Fn(&[u8]) -> Reaction + Send + Sync + 'static,
        budget: &str,
        rules: &str,
    ) -> Self {
        let now = Clock.now().unix_seconds();
        let ca = |name: &str| {
            let new = NewCa { name: name.into(), ..NewCa::default() };
            Arc::new(CertificateAuthority::in_memory(&new, now).unwrap())
        };
        let folder = tempfile::tempdir().unwrap();
        let (upstream_ca, guest_ca) = (ca("upstream"), ca("guests"));
        let ca_file = folder.path().join("upstream.pem");
        std::fs::write(&ca_file, upstream_ca.anchor_pem()).unwrap();
        let secret_file = folder.path().join("token");
        std::fs::write(&secret_file, SECRET).unwrap();
        std::os::unix::fs::PermissionsExt::set_mode(
            &mut secret_file.metadata().unwrap().permissions(),
            0o600,
        );
        std::fs::set_permissions(&secret_file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();

        let seen = Arc::new(Mutex::new(Vec::new()));
        let port = upstream(Authority::new(upstream_ca).unwrap(), Arc::new(script), Arc::clone(&seen)).await;
        let policy = format!(
            r#"
[credential.token]
kind = "bearer"
token = {{ file = "{secret}" }}

[api.api]
origins = ["https://api.test:{port}"]
credential = "token"
trust = {{ ca_file = "{ca}" }}
addresses = ["127.0.0.1/32"]

[api.pub]
origins = ["https://pub.test:{port}"]
trust = {{ ca_file = "{ca}" }}
addresses = ["127.0.0.1/32"]

[grant.g]
callers = ["tester"]
{budget}

[[grant.g.allow]]
api = "api"
routes = ["GET|HEAD /v1/items/*", "POST /v1/items", "GET /v1/find?q={{any}}"]

[[grant.g.allow]]
api = "pub"
routes = ["* /**"]

{rules}
"#,
            secret = secret_file.display(),
            ca = ca_file.display(),
        );
        let policy = Policy::load(&[SourceFile::new("lab.toml", policy)]).unwrap().policy;
        let local = vec!["127.0.0.1".parse().unwrap()];
        let hosts = ["api.test", "pub.test"].map(|name| (Host::parse(name).unwrap(), local.clone()));
        let settings = DialSettings { hosts: hosts.into(), ..Default::default() };
        let dialler = Dialler::new(settings, Trust::with_roots(rustls::RootCertStore::empty()));
        let mut roots = rustls::RootCertStore::empty();
        let anchor =
            rustls_pki_types::CertificateDer::from_pem_slice(guest_ca.anchor_pem().as_bytes()).unwrap();
        roots.add(anchor).unwrap();
        let log = LogSettings {
            folder: folder.path().join("audit"),
            file_bytes: 1 << 20,
            keep_files: None,
            sync_every: Duration::from_secs(1),
        };
        let (recorder, writer) = Recorder::start(log, Clock).unwrap();
        let snapshot = Snapshot::new(policy, None, Store::default());
        let broker = Arc::new(Broker::new(snapshot, Authority::new(guest_ca).unwrap(), dialler, recorder));
        let gate = OpenGate {
            run: "0123456789abcdef0123456789abcdef".into(),
            caller: Some("tester".into()),
            grants: vec!["g".into()],
            evidence: Evidence { provider: "test".into(), tier: Tier::Process, facts: Vec::new() },
            expires_unix_ms: u64::MAX,
            trace_id: None,
            session: None,
            doors: Vec::new(),
        };
        let run = RunContext::open(&gate, Some(freeboard_audit::Digest::of(b"proxy-token").bytes()), &broker)
            .unwrap();
        assert!(broker.runs.insert(&run));
        let client = Client { broker, run, door: "proxy" };
        Self { client, seen, port, roots, _folder: folder, _writer: writer }
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// A clear-text connection to the proxy door.
    pub(super) fn clear(&self) -> UnixStream {
        self.clear_at("proxy")
    }

    pub(super) fn clear_at(&self, door: &'static str) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let client = Client { door, ..self.client.clone() };
        tokio::spawn(async move {
            proxy_connection(&client, Guest::from(Stream::from(Socket::from(theirs)))).await;
        });
        ours
    }

    /// A tunnel to `host`, with TLS for `sni` in it.
    pub(super) async fn tunnel(&self, host: &str, sni: &str) -> tokio_rustls::client::TlsStream<UnixStream> {
        let mut stream = self.clear();
        let connect =
            format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n", port = self.port);
        stream.write_all(connect.as_bytes()).await.unwrap();
        let answer = read_until(&mut stream, b"\r\n\r\n").await;
        assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", answer.escape_ascii());
        let config = rustls::ClientConfig::builder_with_provider(Arc::new(
            rustls::crypto::aws_lc_rs::default_provider(),
        ))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(self.roots.clone())
        .with_no_client_auth();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        connector.connect(ServerName::try_from(sni.to_owned()).unwrap(), stream).await.unwrap()
    }

    /// `lines` with `PORT` filled in and CRLF ends.
    pub(super) fn raw(&self, lines: &str) -> Vec<u8> {
        lines.replace("PORT", &self.port.to_string()).replace('\n', "\r\n").into_bytes()
    }

    /// Sends raw bytes to `api.test` inside TLS and reads to the end of the connection.
    pub(super) async fn api(&self, lines: &str) -> String {
        let mut stream = self.tunnel("api.test", "api.test").await;
        stream.write_all(&self.raw(lines)).await.unwrap();
        stream.shutdown().await.unwrap();
        read_all(&mut stream).await
    }

    /// Puts another policy in force.
    pub(super) fn replace_policy(&self, policy: Policy) {
        self.client.broker.replace(Snapshot::new(policy, None, Store::default()));
    }

    /// Everything that reached the upstream.
    pub(super) fn upstream_text(&self) -> String {
        let seen = self.seen.lock().unwrap();
        seen.iter()
            .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
            .collect::<Vec<_>>()
            .join("\n---\n")
    }

    pub(super) fn upstream_connections(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    /// `verdict reason` of every record so far, in order.
    pub(super) fn records(&self) -> Vec<String> {
        let trace = self.client.run.trace();
        let word = |call: &freeboard_control::Call| match call.reason {
            Some(reason) => format!("{} {reason}", call.verdict),
            None => call.verdict.clone(),
        };
        trace.calls.iter().map(word).collect()
    }

    /// Waits for this many records.
    pub(super) async fn wait_for_records(&self, count: usize) -> Vec<String> {
        let wait = async {
            while self.records().len() < count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("records: {:?}", self.records()));
        self.records()
    }
}

async fn upstream(authority: Authority, script: Script, seen: Arc<Mutex<Vec<Vec<u8>>>>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let (script, seen) = (Arc::clone(&script), Arc::clone(&seen));
            let start = tokio_rustls::LazyConfigAcceptor::new(rustls::server::Acceptor::default(), socket);
            let Ok(start) = start.await else { continue };
            let host = Host::parse(start.client_hello().server_name().unwrap()).unwrap();
            let mut config = rustls::ServerConfig::clone(&authority.server_config(&host).unwrap());
            config.alpn_protocols = vec![b"http/1.1".to_vec()];
            tokio::spawn(async move {
                let Ok(stream) = start.into_stream(Arc::new(config)).await else { return };
                serve(stream, &script, &seen).await;
            });
        }
    });
    port
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    script: &Script,
    seen: &Mutex<Vec<Vec<u8>>>,
) {
    let place = {
        let mut seen = seen.lock().unwrap();
        seen.push(Vec::new());
        seen.len() - 1
    };
    let mut pending = Vec::new();
    let mut buffer = vec![0; 65536];
    loop {
        let Ok(count) = stream.read(&mut buffer).await else { return };
        if count == 0 {
            return;
        }
        seen.lock().unwrap()[place].extend_from_slice(&buffer[..count]);
        pending.extend_from_slice(&buffer[..count]);
        match script(&pending) {
            Reaction::ReadOn => {}
            Reaction::Send(bytes) => {
                pending.clear();
                stream.write_all(&bytes).await.unwrap();
                stream.flush().await.unwrap();
            }
            Reaction::SendAndClose(bytes) => {
                stream.write_all(&bytes).await.unwrap();
                let _ = stream.shutdown().await;
                return;
            }
        }
    }
}

pub(super) async fn read_until<S: AsyncRead + Unpin>(stream: &mut S, end: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let read = async {
        while !bytes.ends_with(end) {
            match stream.read_u8().await {
                Ok(byte) => bytes.push(byte),
                Err(_) => break,
            }
        }
    };
    let _ = timeout(PATIENCE, read).await;
    bytes
}

pub(super) async fn read_all<S: AsyncRead + Unpin>(stream: &mut S) -> String {
    let mut bytes = Vec::new();
    let mut buffer = vec![0; 65536];
    let read = async {
        while let Ok(count) = stream.read(&mut buffer).await {
            if count == 0 {
                break;
            }
            bytes.extend_from_slice(&buffer[..count]);
        }
    };
    timeout(PATIENCE, read).await.expect("the connection does not end");
    String::from_utf8_lossy(&bytes).into_owned()
}
