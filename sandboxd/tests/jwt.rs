//! Callers who come with the token of an identity provider: one of our own, whose keys are fetched over TLS, and every way in which
//! such a token does not hold.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic like the tests themselves")]

mod support;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use freeboard_sandboxd::callers::Callers;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use rcgen::{CertificateParams, KeyPair, PublicKeyData as _};
use rustls_pki_types::PrivatePkcs8KeyDer;
use serde_json::{Value, json};
use support::{Daemon, Setup, answered};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

const AUDIENCE: &str = "freeboard";
const RUN: &str = r#"{"program":{"shell":"x"}}"#;

/// A signing key, and its public half as issuers publish it.
struct Signing {
    id: &'static str,
    pair: KeyPair,
}

impl Signing {
    fn new(id: &'static str) -> Self {
        Self { id, pair: KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap() }
    }

    fn jwk(&self) -> Value {
        let point = self.pair.der_bytes();
        let part = |from: usize| URL_SAFE_NO_PAD.encode(point.get(from..from + 32).unwrap());
        json!({"kty": "EC", "crv": "P-256", "use": "sig", "kid": self.id, "x": part(1), "y": part(33)})
    }

    fn token(&self, kid: Option<&str>, claims: &Value) -> String {
        let header = Header { kid: kid.map(str::to_owned), ..Header::new(Algorithm::ES256) };
        let key = EncodingKey::from_ec_der(self.pair.serialized_der());
        jsonwebtoken::encode(&header, claims, &key).unwrap()
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// Serves keys over TLS.
struct Issuer {
    url: String,
    ca: String,
    keys: Arc<Mutex<Value>>,
    asked: Arc<AtomicU32>,
    broken: Arc<AtomicBool>,
    server: tokio::task::JoinHandle<()>,
}

impl Drop for Issuer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Issuer {
    async fn start(keys: &[&Signing]) -> Self {
        let pair = KeyPair::generate().unwrap();
        let certificate =
            CertificateParams::new(["localhost".to_owned()]).unwrap().self_signed(&pair).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivatePkcs8KeyDer::from(pair.serialize_der()).into(),
            )
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://localhost:{}/keys", listener.local_addr().unwrap().port());
        let set = Arc::new(Mutex::new(Self::set(keys)));
        let (asked, broken) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
        let (served, counted, fails) = (Arc::clone(&set), Arc::clone(&asked), Arc::clone(&broken));
        let server = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(mut stream) = acceptor.accept(stream).await else { continue };
                let mut head = [0; 2048];
                let _ = stream.read(&mut head).await;
                counted.fetch_add(1, Ordering::SeqCst);
                let body = served.lock().unwrap().to_string();
                let status = if fails.load(Ordering::SeqCst) { "500 No" } else { "200 OK" };
                let head = format!(
                    "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                    body.len()
                );
                let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
                let _ = stream.shutdown().await;
            }
        });
        Self { url, ca: certificate.pem(), keys: set, asked, broken, server }
    }

    fn set(keys: &[&Signing]) -> Value {
        // One of a kind that nobody knows does not spoil the others.
        let mut all = vec![json!({"kty": "future", "kid": "f"})];
        all.extend(keys.iter().map(|key| key.jwk()));
        json!({ "keys": all })
    }

    fn publish(&self, keys: &[&Signing]) {
        *self.keys.lock().unwrap() = Self::set(keys);
    }

    fn asked(&self) -> u32 {
        self.asked.load(Ordering::SeqCst)
    }

    fn claims(&self) -> Value {
        let (iat, exp) = (now(), now() + 300);
        json!({"iss": self.url, "aud": AUDIENCE, "sub": "repo:acme/x", "iat": iat, "exp": exp})
    }
}

struct World {
    daemon: Daemon,
    folder: tempfile::TempDir,
}

impl World {
    /// A daemon with one caller, `ci`, who is a subject of the issuer.
    async fn new(issuer: &str, place: &str) -> Self {
        let daemon = Setup::new(answered("", 0)).start().await;
        let world = Self { daemon, folder: tempfile::tempdir().unwrap() };
        world.reload(issuer, place);
        world
    }

    async fn of(issuer: &Issuer) -> Self {
        let world = Self::new(&issuer.url, "").await;
        let ca = world.folder.path().join("ca.pem");
        std::fs::write(&ca, &issuer.ca).unwrap();
        world.reload(&issuer.url, &url_place(issuer, &ca));
        world
    }

    fn reload(&self, issuer: &str, place: &str) {
        let place = if place.is_empty() { "jwks_file = \"/nonexistent\"" } else { place };
        let text = format!(
            "[[issuer]]\nissuer = {issuer:?}\naudience = {AUDIENCE:?}\nalgorithms = [\"ES256\"]\n{place}\n\
             [[caller]]\nid = \"ci\"\nissuer = {issuer:?}\nsubject = \"repo:acme/x\"\nmax_concurrent = 1\n"
        );
        let file = self.folder.path().join("callers.toml");
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        self.daemon.app.replace_callers(Callers::load(&file).unwrap());
    }

    async fn status(&self, token: &str) -> u16 {
        self.daemon.own(token, "Start", "Prefer: wait=20\r\n", RUN).await.status
    }
}

fn url_place(issuer: &Issuer, ca: &Path) -> String {
    format!("jwks_url = {:?}\njwks_ca_file = \"{}\"", issuer.url, ca.display())
}

#[tokio::test]
async fn a_token_of_the_issuer_is_the_caller_that_the_file_names() {
    let key = Signing::new("one");
    let issuer = Issuer::start(&[&key]).await;
    let world = World::of(&issuer).await;
    for _ in 0..3 {
        assert_eq!(world.status(&key.token(Some("one"), &issuer.claims())).await, 200);
    }
    assert_eq!(world.status(&key.token(None, &issuer.claims())).await, 200, "the only key needs no name");
    assert_eq!(issuer.asked(), 1, "keys are kept");
    assert_eq!(world.daemon.plans.lock().unwrap()[0].job.caller.as_deref(), Some("ci"));
    let limits = world.daemon.own(&key.token(Some("one"), &issuer.claims()), "Limits", "", "{}").await;
    let limits: Value = serde_json::from_slice(&limits.body).unwrap();
    assert_eq!(
        (&limits["callers"][0]["caller"], &limits["callers"][0]["maxConcurrent"]),
        (&json!("ci"), &json!(1))
    );
    // The file is read again: what was fetched stays.
    world.reload(&issuer.url, &url_place(&issuer, &world.folder.path().join("ca.pem")));
    assert_eq!(world.status(&key.token(Some("one"), &issuer.claims())).await, 200);
    assert_eq!(issuer.asked(), 1);
}

#[tokio::test]
async fn a_token_that_does_not_hold_is_not_believed() {
    let key = Signing::new("one");
    let issuer = Issuer::start(&[&key]).await;
    let world = World::of(&issuer).await;
    let with = |name: &str, value: Value| {
        let mut claims = issuer.claims();
        claims[name] = value;
        key.token(Some("one"), &claims)
    };
    let without = |name: &str| {
        let mut claims = issuer.claims();
        claims.as_object_mut().unwrap().remove(name);
        key.token(Some("one"), &claims)
    };
    assert_eq!(world.status(&with("aud", json!(["other", AUDIENCE]))).await, 200);
    assert_eq!(world.status(&with("exp", json!(now() - 5))).await, 200, "within the skew of clocks");
    assert_eq!(world.status(&with("nbf", json!(now() + 5))).await, 200, "within the skew of clocks");
    let good = key.token(Some("one"), &issuer.claims());
    let mut parts = good.split('.');
    let (head, _, signature) = (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
    let mut other = issuer.claims();
    other["exp"] = json!(now() + 9000);
    let changed = URL_SAFE_NO_PAD.encode(other.to_string());
    for (what, token) in [
        ("another audience", with("aud", json!("elsewhere"))),
        ("another issuer", with("iss", json!("https://elsewhere.test"))),
        ("another subject", with("sub", json!("repo:acme/y"))),
        ("expired", with("exp", json!(now() - 120))),
        ("not yet", with("nbf", json!(now() + 120))),
        ("no time", without("exp")),
        ("no audience", without("aud")),
        ("no subject", without("sub")),
        ("no issuer", without("iss")),
        ("changed claims", format!("{head}.{changed}.{signature}")),
        ("no signature", format!("{head}.{changed}.")),
        ("another's key", Signing::new("one").token(Some("one"), &issuer.claims())),
        ("a piece more", format!("{good}.x")),
        ("a large one", key.token(Some("one"), &json!({"iss": issuer.url, "x": "x".repeat(9000)}))),
    ] {
        let reply = world.daemon.own(&token, "Start", "Prefer: wait=20\r\n", RUN).await;
        let header = reply.header("freeboard-not-dispatched");
        assert_eq!((reply.refusal().0.as_str(), header), ("unauthenticated", Some("permission")), "{what}");
    }
}

#[tokio::test]
async fn a_token_that_chooses_its_own_algorithm_is_not_believed() {
    let key = Signing::new("one");
    let issuer = Issuer::start(&[&key]).await;
    let world = World::of(&issuer).await;
    assert_eq!(world.status(&key.token(Some("one"), &issuer.claims())).await, 200);
    let claims = URL_SAFE_NO_PAD.encode(issuer.claims().to_string());
    let none = URL_SAFE_NO_PAD.encode(r#"{"alg":"none","typ":"JWT"}"#);
    assert_eq!(world.status(&format!("{none}.{claims}.")).await, 401);
    // The public key as a shared secret: in each form in which a careless verifier could take it.
    let der = key.pair.subject_public_key_info();
    let pem = key.pair.public_key_pem();
    for secret in [key.pair.der_bytes(), der.as_slice(), pem.as_bytes()] {
        let header = Header { kid: Some("one".into()), ..Header::new(Algorithm::HS256) };
        let forged = jsonwebtoken::encode(&header, &issuer.claims(), &EncodingKey::from_secret(secret));
        assert_eq!(world.status(&forged.unwrap()).await, 401);
    }
    // A shared secret among the published keys is no key, and another kind of key than was pinned is none.
    let secret = URL_SAFE_NO_PAD.encode(b"0123456789abcdef0123456789abcdef");
    let edwards = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let x = URL_SAFE_NO_PAD.encode(edwards.der_bytes());
    *issuer.keys.lock().unwrap() = json!({"keys": [
        {"kty": "oct", "kid": "s", "k": secret},
        {"kty": "OKP", "crv": "Ed25519", "kid": "e", "x": x},
    ]});
    let world = World::of(&issuer).await;
    let header = Header { kid: Some("e".into()), ..Header::new(Algorithm::EdDSA) };
    let signed = EncodingKey::from_ed_der(edwards.serialized_der());
    assert_eq!(world.status(&jsonwebtoken::encode(&header, &issuer.claims(), &signed).unwrap()).await, 401);
    let header = Header { kid: Some("s".into()), ..Header::new(Algorithm::HS256) };
    let signed = EncodingKey::from_secret(b"0123456789abcdef0123456789abcdef");
    assert_eq!(world.status(&jsonwebtoken::encode(&header, &issuer.claims(), &signed).unwrap()).await, 401);
    let as_pinned = key.token(Some("e"), &issuer.claims());
    assert_eq!(world.status(&as_pinned).await, 401);
}

#[tokio::test]
async fn a_new_key_is_taken_and_unknown_keys_are_asked_for_at_intervals_only() {
    let (first, second) = (Signing::new("one"), Signing::new("two"));
    let issuer = Issuer::start(&[&first]).await;
    let world = World::of(&issuer).await;
    issuer.publish(&[&first, &second]);
    // The first question of all: nothing was known yet.
    assert_eq!(world.status(&second.token(Some("two"), &issuer.claims())).await, 200);
    assert_eq!(world.status(&first.token(Some("one"), &issuer.claims())).await, 200);
    for _ in 0..20 {
        assert_eq!(world.status(&first.token(Some("made-up"), &issuer.claims())).await, 401);
    }
    assert_eq!(issuer.asked(), 1, "made-up names do not flood the issuer");
    // Known keys count while the issuer is down.
    issuer.broken.store(true, Ordering::SeqCst);
    assert_eq!(world.status(&second.token(Some("two"), &issuer.claims())).await, 200);
}

#[tokio::test]
async fn a_file_of_keys_is_read_again_when_it_changes() {
    let (first, second) = (Signing::new("one"), Signing::new("two"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys.json");
    let write = |keys: &[&Signing], at: u64| {
        std::fs::write(&file, Issuer::set(keys).to_string()).unwrap();
        let time = UNIX_EPOCH + std::time::Duration::from_secs(at);
        std::fs::File::options().write(true).open(&file).unwrap().set_modified(time).unwrap();
    };
    write(&[&first], 1_000_000);
    let name = "https://issuer.test";
    let world = World::new(name, &format!("jwks_file = \"{}\"", file.display())).await;
    let claims = json!({"iss": name, "aud": AUDIENCE, "sub": "repo:acme/x", "exp": now() + 300});
    assert_eq!(world.status(&first.token(Some("one"), &claims)).await, 200);
    assert_eq!(world.status(&second.token(Some("two"), &claims)).await, 401);
    write(&[&second], 2_000_000);
    assert_eq!(world.status(&second.token(Some("two"), &claims)).await, 200);
    assert_eq!(world.status(&first.token(Some("one"), &claims)).await, 401, "a key that was taken back");
    // SECURITY: who can write the keys can be any caller.
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).unwrap();
    write(&[&first], 3_000_000);
    assert_eq!(world.status(&first.token(Some("one"), &claims)).await, 401);
}

#[tokio::test]
async fn keys_are_fetched_over_verified_tls_only() {
    let key = Signing::new("one");
    let issuer = Issuer::start(&[&key]).await;
    let other = Issuer::start(&[&key]).await;
    let world = World::of(&issuer).await;
    let ca: PathBuf = world.folder.path().join("other.pem");
    std::fs::write(&ca, &other.ca).unwrap();
    world.reload(&issuer.url, &url_place(&issuer, &ca));
    let reply = world.daemon.own(&key.token(Some("one"), &issuer.claims()), "Start", "", RUN).await;
    assert_eq!(reply.refusal().0, "unavailable", "it is not the bearer's doing");
    assert_eq!(reply.header("freeboard-not-dispatched"), Some("environment"));
    assert_eq!((issuer.asked(), world.daemon.counts.all().0), (0, 0));
}
