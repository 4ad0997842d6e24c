//! Real clients judge the leaves: OpenSSL strict, Python strict, Node, Java and curl, as far as this machine has them.

use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use freeboard_policy::{Host, Reason};
use rustls_pki_types::pem::PemObject as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{Authority, CaError, CertificateAuthority, LeafMint, LeafName, NewCa};

fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_secs()).unwrap()
}

fn host(text: &str) -> Host {
    Host::parse(text).unwrap()
}

fn in_memory() -> Arc<CertificateAuthority> {
    Arc::new(CertificateAuthority::in_memory(&NewCa::default(), now()).unwrap())
}

/// Runs a program where it is installed; `None` (said loudly) where it is not.
fn run(program: &str, arguments: &[&str]) -> Option<Output> {
    match Command::new(program).args(arguments).output() {
        Ok(output) => Some(output),
        Err(_) => {
            println!("SKIPPED: `{program}` is not installed here");
            None
        }
    }
}

fn assert_ok(output: Option<Output>) {
    let Some(output) = output else { return };
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
}

#[test]
fn creates_a_ca_whose_key_only_its_owner_reads_and_loads_it_again() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("ca.pem"), folder.path().join("ca.key"));
    let made = CertificateAuthority::create(&NewCa::default(), &certificate, &key, now()).unwrap();
    assert_eq!(std::fs::metadata(&key).unwrap().mode() & 0o777, 0o600);
    let loaded = CertificateAuthority::load(&certificate, &key, now()).unwrap();
    assert_eq!(made.fingerprint(), loaded.fingerprint());
    assert_eq!(loaded.anchor_pem(), std::fs::read_to_string(&certificate).unwrap());
    let again = CertificateAuthority::create(&NewCa::default(), &certificate, &key, now());
    assert!(matches!(again, Err(CaError::Exists { .. })));
}

#[test]
fn refuses_a_key_that_others_can_read() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("ca.pem"), folder.path().join("ca.key"));
    CertificateAuthority::create(&NewCa::default(), &certificate, &key, now()).unwrap();
    for mode in [0o640, 0o604, 0o660] {
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(mode)).unwrap();
        let error = CertificateAuthority::load(&certificate, &key, now()).unwrap_err();
        assert!(matches!(error, CaError::KeyMode { mode: found, .. } if found == mode), "{error}");
    }
}

#[test]
fn refuses_the_key_of_another_ca_and_what_is_no_ca() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    CertificateAuthority::create(&NewCa::default(), &path("a.pem"), &path("a.key"), now()).unwrap();
    CertificateAuthority::create(&NewCa::default(), &path("b.pem"), &path("b.key"), now()).unwrap();
    let mixed = CertificateAuthority::load(&path("a.pem"), &path("b.key"), now());
    assert!(matches!(mixed, Err(CaError::KeyMismatch)));

    let key = rcgen::KeyPair::generate().unwrap();
    let leaf = rcgen::CertificateParams::new(vec!["x.test".to_owned()]).unwrap().self_signed(&key).unwrap();
    std::fs::write(path("leaf.pem"), leaf.pem()).unwrap();
    std::fs::write(path("leaf.key"), key.serialize_pem()).unwrap();
    std::fs::set_permissions(path("leaf.key"), std::fs::Permissions::from_mode(0o600)).unwrap();
    let no_ca = CertificateAuthority::load(&path("leaf.pem"), &path("leaf.key"), now());
    assert!(matches!(no_ca, Err(CaError::Certificate(_))));
}

#[test]
fn refuses_an_expired_ca_and_mints_no_leaf_beyond_its_end() {
    let short = NewCa { lifetime: std::time::Duration::from_secs(3600), ..NewCa::default() };
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("ca.pem"), folder.path().join("ca.key"));
    let ca = Arc::new(CertificateAuthority::create(&short, &certificate, &key, now()).unwrap());
    let mint = LeafMint::new(Arc::clone(&ca)).unwrap();
    let leaf = mint.mint(&LeafName::Host(host("api.test")), now()).unwrap();
    assert_eq!(leaf.valid_until, ca.validity().1);
    assert!(mint.mint(&LeafName::Host(host("api.test")), now() + 3700).is_err());
    assert!(CertificateAuthority::load(&certificate, &key, now() + 3700).is_err());
}

/// A server on loopback that serves one canned HTTP answer for `names` with the authority's leaves.
async fn serve(authority: Authority) -> (SocketAddr, tokio::task::JoinHandle<()>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let authority = Arc::new(authority);
    let task = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let authority = Arc::clone(&authority);
            tokio::spawn(async move {
                let acceptor =
                    tokio_rustls::LazyConfigAcceptor::new(rustls::server::Acceptor::default(), stream);
                let Ok(start) = acceptor.await else { return };
                let name = start.client_hello().server_name().map(str::to_owned);
                let config = match name {
                    Some(name) => authority.server_config(&host(&name)),
                    None => authority.refusal_config(&LeafName::Address([127, 0, 0, 1].into()), || true),
                };
                let Ok(mut stream) = start.into_stream(config.unwrap()).await else { return };
                let mut head = [0_u8; 4096];
                let _ = stream.read(&mut head).await;
                let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
                let _ = stream.write_all(answer).await;
                let _ = stream.shutdown().await;
            });
        }
    });
    (address, task)
}

const PYTHON: &str = r"
import ssl, socket, sys
path, port, name, version = sys.argv[1:5]
context = ssl.create_default_context(cafile=path)
context.verify_flags |= ssl.VERIFY_X509_STRICT
if version == '1.2': context.maximum_version = ssl.TLSVersion.TLSv1_2
with socket.create_connection(('127.0.0.1', int(port))) as raw:
    with context.wrap_socket(raw, server_hostname=name) as tls:
        tls.sendall(b'GET / HTTP/1.1\r\nHost: x\r\n\r\n')
        assert b'200 OK' in tls.recv(4096)
";

const NODE: &str = r"
const [path, port, name] = process.argv.slice(1);
const tls = require('tls');
const ca = require('fs').readFileSync(path);
const socket = tls.connect({host: '127.0.0.1', port: +port, servername: name, ca}, () => {
  if (!socket.authorized) process.exit(2);
  socket.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
});
socket.on('data', data => process.exit(data.toString().includes('200 OK') ? 0 : 3));
socket.on('error', error => { console.error(error); process.exit(1); });
";

/// H02, H11: the strictest clients at hand verify chain, name, key identifiers and usages, on TLS 1.3 and 1.2.
#[tokio::test(flavor = "multi_thread")]
async fn h02_strict_clients_accept_the_leaves() {
    let folder = tempfile::tempdir().unwrap();
    let anchor = folder.path().join("ca.pem");
    let ca = in_memory();
    std::fs::write(&anchor, ca.anchor_pem()).unwrap();
    let (address, task) = serve(Authority::new(ca).unwrap()).await;
    let anchor = anchor.to_str().unwrap().to_owned();
    tokio::task::spawn_blocking(move || judge(&anchor, address.port())).await.unwrap();
    task.abort();
}

fn judge(anchor: &str, port: u16) {
    let port = port.to_string();
    let long = format!("{}.{}.api.test", "a".repeat(60), "b".repeat(60));
    for name in ["api.test", long.as_str()] {
        for version in ["1.3", "1.2"] {
            assert_ok(run("python3", &["-c", PYTHON, anchor, &port, name, version]));
        }
        assert_ok(run("node", &["-e", NODE, anchor, &port, name]));
        let resolve = format!("{name}:{port}:127.0.0.1");
        let url = format!("https://{name}:{port}/");
        assert_ok(run(
            "curl",
            &["-sS", "--http1.1", "--fail", "--cacert", anchor, "--resolve", &resolve, &url],
        ));
        let connect = format!("127.0.0.1:{port}");
        let strict = ["-x509_strict", "-verify_return_error", "-verify_hostname", name, "-servername", name];
        let arguments = [&["s_client", "-connect", &connect, "-CAfile", anchor][..], &strict].concat();
        assert_ok(Command::new("openssl").args(&arguments).stdin(std::process::Stdio::null()).output().ok());
        let priority =
            ["--x509cafile", anchor, "--sni-hostname", name, "--verify-hostname", name, "-p", &port];
        assert_ok(run("gnutls-cli", &[&priority[..], &["127.0.0.1"]].concat()));
    }
    // The other way round: a name that the leaf is not for, and a client that does not know the CA.
    let refused =
        run("python3", &["-c", PYTHON, "/etc/ssl/certs/ca-certificates.crt", &port, "api.test", "1.3"]);
    assert!(refused.is_none_or(|output| !output.status.success()));
    // D19: nothing below TLS 1.2.
    let connect = format!("127.0.0.1:{port}");
    let old =
        ["s_client", "-tls1_1", "-cipher", "ALL@SECLEVEL=0", "-connect", &connect, "-servername", "api.test"];
    let old = Command::new("openssl").args(old).stdin(std::process::Stdio::null()).output().ok();
    assert!(old.is_none_or(|output| !output.status.success()));
    // A client that spoke to a bare address gets a leaf for that address, so that it can read the refusal.
    let url = format!("https://127.0.0.1:{port}/");
    assert_ok(run("curl", &["-sS", "--http1.1", "--fail", "--cacert", anchor, &url]));
}

/// H06: Java's own verification, in single-file source mode.
#[tokio::test(flavor = "multi_thread")]
async fn h06_java_accepts_the_leaves() {
    let folder = tempfile::tempdir().unwrap();
    let ca = in_memory();
    std::fs::write(folder.path().join("ca.pem"), ca.anchor_pem()).unwrap();
    std::fs::write(folder.path().join("Client.java"), JAVA).unwrap();
    let (address, task) = serve(Authority::new(ca).unwrap()).await;
    let path = folder.path().to_owned();
    tokio::task::spawn_blocking(move || java(&path, address.port())).await.unwrap();
    task.abort();
}

fn java(folder: &Path, port: u16) {
    let file = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let Some(output) = run("java", &[&file("Client.java"), &file("ca.pem"), &port.to_string()]) else {
        return;
    };
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    if text.contains("jdk.compiler") || text.contains("ClassNotFoundException") {
        println!("SKIPPED: this Java has no compiler");
        return;
    }
    assert!(output.status.success(), "{text}");
}

const JAVA: &str = r#"
import java.io.*; import java.nio.file.*; import java.security.*; import java.security.cert.*; import javax.net.ssl.*;
public class Client {
  public static void main(String[] args) throws Exception {
    KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
    store.load(null, null);
    try (InputStream in = Files.newInputStream(Path.of(args[0]))) {
      store.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(in));
    }
    TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
    trust.init(store);
    SSLContext context = SSLContext.getInstance("TLS");
    context.init(null, trust.getTrustManagers(), null);
    java.net.Socket raw = new java.net.Socket("127.0.0.1", Integer.parseInt(args[1]));
    SSLSocket socket = (SSLSocket) context.getSocketFactory().createSocket(raw, "api.test", 443, true);
    SSLParameters parameters = socket.getSSLParameters();
    parameters.setEndpointIdentificationAlgorithm("HTTPS");
    socket.setSSLParameters(parameters);
    socket.startHandshake();
  }
}
"#;

/// H11: with an intermediate signer the whole chain is sent, and a client that holds the root alone is content.
#[test]
fn h11_sends_the_intermediate_signer() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let root_key = rcgen::KeyPair::generate().unwrap();
    let mut root = rcgen::CertificateParams::default();
    root.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    root.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign];
    root.distinguished_name.push(rcgen::DnType::CommonName, "root");
    root.not_after = super::ca::at(now() + 86_400).unwrap();
    let root_certificate = root.self_signed(&root_key).unwrap();
    let issuer = rcgen::Issuer::new(root, root_key);
    let key = rcgen::KeyPair::generate().unwrap();
    let mut signer = rcgen::CertificateParams::default();
    signer.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Constrained(0));
    signer.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign];
    signer.use_authority_key_identifier_extension = true;
    signer.distinguished_name.push(rcgen::DnType::CommonName, "signer");
    let signer = signer.signed_by(&key, &issuer).unwrap();
    std::fs::write(path("chain.pem"), signer.pem() + &root_certificate.pem()).unwrap();
    std::fs::write(path("alone.pem"), signer.pem()).unwrap();
    std::fs::write(path("ca.key"), key.serialize_pem()).unwrap();
    std::fs::set_permissions(path("ca.key"), std::fs::Permissions::from_mode(0o600)).unwrap();
    let load =
        |chain: &str| CertificateAuthority::load(Path::new(&path(chain)), Path::new(&path("ca.key")), now());
    assert!(load("alone.pem").is_err(), "without its root there is nothing that guests could trust");
    let ca = Arc::new(load("chain.pem").unwrap());
    assert_eq!(ca.anchor_pem().replace("\r\n", "\n"), root_certificate.pem().replace("\r\n", "\n"));
    let leaf = LeafMint::new(ca).unwrap().mint(&LeafName::Host(host("api.test")), now()).unwrap();
    assert_eq!(leaf.certified.cert.len(), 2);
    std::fs::write(path("root.pem"), root_certificate.pem()).unwrap();
    std::fs::write(path("leaf.pem"), super::ca::pem_of(&leaf.certified.cert[0])).unwrap();
    std::fs::write(path("sent.pem"), super::ca::pem_of(&leaf.certified.cert[1])).unwrap();
    let (root, sent, leaf) = (path("root.pem"), path("sent.pem"), path("leaf.pem"));
    let verify = ["verify", "-x509_strict", "-purpose", "sslserver", "-verify_hostname", "api.test"];
    let files = ["-CAfile", &root, "-untrusted", &sent, &leaf];
    assert_ok(run("openssl", &[&verify[..], &files].concat()));
}

#[test]
fn every_leaf_has_a_serial_of_its_own_and_one_exact_name() {
    use x509_parser::prelude::FromDer as _;
    let mint = LeafMint::new(in_memory()).unwrap();
    let mut serials = std::collections::HashSet::new();
    for _ in 0..32 {
        let leaf = mint.mint(&LeafName::Host(host("api.test")), now()).unwrap();
        let (_, parsed) =
            x509_parser::certificate::X509Certificate::from_der(&leaf.certified.cert[0]).unwrap();
        assert!(serials.insert(parsed.raw_serial().to_vec()));
        let names = parsed.subject_alternative_name().unwrap().unwrap().value.general_names.clone();
        assert_eq!(names, [x509_parser::extensions::GeneralName::DNSName("api.test")]);
        let validity = parsed.validity();
        assert!(validity.not_after.timestamp() - validity.not_before.timestamp() < 398 * 86_400);
    }
}

/// E12: names that are not granted cost a certificate only within the run's budget, and never push out granted ones.
#[test]
fn e12_mints_for_refusals_only_within_the_budget() {
    let authority = Authority::new(in_memory()).unwrap();
    let granted = authority.server_config(&host("api.test")).unwrap();
    let left = AtomicU32::new(300);
    let spend =
        || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
    let refusal =
        |index: u32| authority.refusal_config(&LeafName::Host(host(&format!("n{index}.evil.test"))), spend);
    for index in 0..300 {
        assert!(refusal(index).is_ok());
    }
    assert_eq!(refusal(300).unwrap_err(), Reason::RunLimit);
    assert!(refusal(299).is_ok(), "a cached one costs nothing");
    assert!(authority.is_cached(&host("n299.evil.test")));
    assert!(!authority.is_cached(&host("n0.evil.test")), "the cache is bounded");
    assert!(Arc::ptr_eq(&granted, &authority.server_config(&host("api.test")).unwrap()));
}

/// D26: no early data is offered, and a ticket of one name does not resume another.
#[test]
fn d26_offers_no_early_data() {
    let authority = Authority::new(in_memory()).unwrap();
    let config = authority.server_config(&host("api.test")).unwrap();
    assert_eq!(config.max_early_data_size, 0);
    assert_eq!(config.alpn_protocols, [b"h2".to_vec(), b"http/1.1".to_vec()]);
}

#[test]
fn d36_name_constraints_bind_strict_clients() {
    let new = NewCa { permitted_names: vec!["api.test".to_owned()], ..NewCa::default() };
    let ca = Arc::new(CertificateAuthority::in_memory(&new, now()).unwrap());
    assert_eq!(ca.permitted_names(), ["api.test"]);
    let anchor = rustls_pki_types::CertificateDer::from_pem_slice(ca.anchor_pem().as_bytes()).unwrap();
    let anchors = [webpki::anchor_from_trusted_cert(&anchor).unwrap()];
    let mint = LeafMint::new(ca).unwrap();
    let verify = |name: &str| {
        let leaf = mint.mint(&LeafName::Host(host(name)), now()).unwrap();
        let certificate = leaf.certified.cert[0].clone();
        let end = webpki::EndEntityCert::try_from(&certificate).unwrap();
        let algorithms = rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms.all;
        let usage = webpki::KeyUsage::server_auth();
        let now = rustls_pki_types::UnixTime::now();
        end.verify_for_usage(algorithms, &anchors, &[], now, usage, None, None).map(|_| ())
    };
    assert!(verify("v1.api.test").is_ok());
    assert!(verify("other.test").is_err());
}
