//! The API over TLS: callers by certificate, by token, and by neither.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic like the tests themselves")]

mod support;

use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::sync::Arc;

use freeboard_sandboxd::api::{Entrance, Tls, TlsFiles, serve_all};
use freeboard_sandboxd::callers::{Callers, Grants, add_certificate};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};
use rustls::RootCertStore;
use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName};
use support::{Daemon, Setup, answered};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    der: CertificateDer<'static>,
}

struct Made {
    pem: String,
    der: CertificateDer<'static>,
    key: KeyPair,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        Self { pem: certificate.pem(), der: certificate.der().clone(), issuer: Issuer::new(params, key) }
    }

    fn make(&self, names: Vec<SanType>) -> Made {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, "spiffe://acme/worker");
        params.subject_alt_names = names;
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Made { pem: certificate.pem(), der: certificate.der().clone(), key }
    }
}

fn uri(name: &str) -> Vec<SanType> {
    vec![SanType::URI(name.try_into().unwrap())]
}

struct World {
    daemon: Daemon,
    authority: Authority,
    address: std::net::SocketAddr,
    files: TlsFiles,
    tls: Arc<Tls>,
    server: tokio::task::JoinHandle<()>,
    _folder: tempfile::TempDir,
}

impl Drop for World {
    fn drop(&mut self) {
        self.server.abort();
    }
}

fn write(path: PathBuf, mode: u32, text: &str) -> PathBuf {
    use std::io::Write as _;
    let mut file =
        std::fs::File::options().write(true).create(true).truncate(true).mode(mode).open(&path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
    path
}

impl World {
    async fn new() -> Self {
        let daemon = Setup::new(answered("", 0)).start().await;
        add_certificate(&daemon.callers_file, "worker", "spiffe://acme/worker", &Grants::default()).unwrap();
        daemon.app.replace_callers(Callers::load(&daemon.callers_file).unwrap());
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new();
        let own = authority.make(vec![SanType::DnsName("localhost".try_into().unwrap())]);
        let at = |name: &str| folder.path().join(name);
        let files = TlsFiles {
            certificate: write(at("api.pem"), 0o644, &own.pem),
            key: write(at("api.key"), 0o600, &own.key.serialize_pem()),
            client_ca: Some(write(at("ca.pem"), 0o644, &authority.pem)),
        };
        let tls = Arc::new(Tls::new(files.clone()).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let entrances = vec![Entrance { listener, tls: Some(Arc::clone(&tls)) }];
        let app = Arc::clone(&daemon.app);
        let server = tokio::spawn(async move {
            serve_all(app, entrances, std::future::pending()).await.unwrap();
        });
        Self { daemon, authority, address, files, tls, server, _folder: folder }
    }

    /// The status of a run, or why there is none.
    async fn run(&self, shown: Option<&Made>, token: Option<&str>) -> std::io::Result<u16> {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.der.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match shown {
            None => config.with_no_client_auth(),
            Some(made) => {
                let key = PrivatePkcs8KeyDer::from(made.key.serialize_der());
                config.with_client_auth_cert(vec![made.der.clone()], key.into()).unwrap()
            }
        };
        let stream = TcpStream::connect(self.address).await?;
        let name = ServerName::try_from("localhost").unwrap();
        let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
        let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
        let body = r#"{"program":{"shell":"x"}}"#;
        let head = format!(
            "POST /freeboard.v1.Runs/Start HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Prefer: wait=20\r\n{token}Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(head.as_bytes()).await?;
        let mut answer = Vec::new();
        let ended = stream.read_to_end(&mut answer).await;
        let text = String::from_utf8_lossy(&answer).into_owned();
        let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
        status.ok_or_else(|| ended.err().unwrap_or_else(|| std::io::Error::other(text)))
    }
}

#[tokio::test]
async fn a_caller_is_known_by_its_certificate_or_its_token_and_by_nothing_else() {
    let world = World::new().await;
    let worker = world.authority.make(uri("spiffe://acme/worker"));
    assert_eq!(world.run(Some(&worker), None).await.unwrap(), 200);
    assert_eq!(world.daemon.plans.lock().unwrap()[0].job.caller.as_deref(), Some("worker"));
    let alice = world.daemon.alice.clone();
    assert_eq!(world.run(None, Some(&alice)).await.unwrap(), 200);
    assert_eq!(world.run(Some(&worker), Some(&alice)).await.unwrap(), 200);
    assert_eq!(
        world.daemon.plans.lock().unwrap()[2].job.caller.as_deref(),
        Some("alice"),
        "the token counts"
    );
    assert_eq!(world.run(Some(&worker), Some("wrong")).await.unwrap(), 401, "not by the certificate then");
    assert_eq!(world.run(None, None).await.unwrap(), 401);
    let other = world.authority.make(uri("spiffe://acme/other"));
    assert_eq!(world.run(Some(&other), None).await.unwrap(), 401);
    let common_name_only = world.authority.make(Vec::new());
    assert_eq!(world.run(Some(&common_name_only), None).await.unwrap(), 401);
    let forged = Authority::new().make(uri("spiffe://acme/worker"));
    assert!(world.run(Some(&forged), None).await.is_err(), "another authority's");
    assert_eq!(world.daemon.counts.all().0, 3);
    let mut clear = TcpStream::connect(world.address).await.unwrap();
    clear.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _ = clear.read_to_end(&mut answer).await;
    assert!(!answer.starts_with(b"HTTP/"), "clear text is not served here");
}

#[tokio::test]
async fn certificates_are_read_again_and_bad_ones_change_nothing() {
    let world = World::new().await;
    let alice = world.daemon.alice.clone();
    write(world.files.certificate.clone(), 0o644, "nonsense");
    assert!(world.tls.reload().is_err());
    assert_eq!(world.run(None, Some(&alice)).await.unwrap(), 200);
    // Callers' certificates of another authority from now on.
    let own = world.authority.make(vec![SanType::DnsName("localhost".try_into().unwrap())]);
    let next = Authority::new();
    write(world.files.certificate.clone(), 0o644, &own.pem);
    write(world.files.key.clone(), 0o600, &own.key.serialize_pem());
    write(world.files.client_ca.clone().unwrap(), 0o644, &next.pem);
    world.tls.reload().unwrap();
    assert_eq!(world.run(Some(&next.make(uri("spiffe://acme/worker"))), None).await.unwrap(), 200);
    assert!(world.run(Some(&world.authority.make(uri("spiffe://acme/worker"))), None).await.is_err());
    std::fs::set_permissions(&world.files.key, std::fs::Permissions::from_mode(0o640)).unwrap();
    assert!(world.tls.reload().unwrap_err().to_string().contains("chmod 600"));
}
