//! The dialler against servers of its own on loopback, good ones and bad ones.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use freeboard_policy::{AddressRange, ApiView, Host, Reason};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::RootCertStore;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use sha2::Digest as _;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;

use super::{Connected, DialSettings, Dialler, Offer, Protocol};
use crate::error::Stop;
use crate::upstream::trust::Trust;

struct Ca {
    issuer: Issuer<'static, KeyPair>,
    der: CertificateDer<'static>,
    pem: String,
}

fn ca(name: &str) -> Ca {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    let certificate = params.self_signed(&key).unwrap();
    Ca { der: certificate.der().clone(), pem: certificate.pem(), issuer: Issuer::new(params, key) }
}

struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: KeyPair,
}

impl Ca {
    fn leaf(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> Identity {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        change(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Identity { chain: vec![certificate.der().clone()], key }
    }
}

fn pin(key: &impl rcgen::PublicKeyData) -> String {
    let digest = sha2::Sha256::digest(key.subject_public_key_info());
    digest.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

/// A TLS server that counts the application bytes that it gets.
struct Server {
    port: u16,
    received: Arc<AtomicUsize>,
}

async fn server(identity: Identity, alpn: &[&str]) -> Server {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(identity.key.serialize_der()));
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(identity.chain, key)
        .unwrap();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let received = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&received);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, counter) = (acceptor.clone(), Arc::clone(&counter));
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let mut bytes = [0_u8; 1024];
                while let Ok(read @ 1..) = stream.read(&mut bytes).await {
                    counter.fetch_add(read, Ordering::SeqCst);
                }
            });
        }
    });
    Server { port, received }
}

fn host(text: &str) -> Host {
    Host::parse(text).unwrap()
}

/// `api.test` at these addresses, whose system roots are `roots`.
fn dialler(roots: &[&Ca], addresses: &[&str]) -> Dialler {
    let mut store = RootCertStore::empty();
    for ca in roots {
        store.add(ca.der.clone()).unwrap();
    }
    let addresses: Vec<IpAddr> = addresses.iter().map(|text| text.parse().unwrap()).collect();
    let settings =
        DialSettings { hosts: HashMap::from([(host("api.test"), addresses)]), ..Default::default() };
    Dialler::new(settings, Trust::with_roots(store))
}

fn api(addresses: &[&str]) -> ApiView {
    ApiView {
        name: "api".into(),
        origins: Vec::new(),
        ca_file: None,
        pin_sha256: Vec::new(),
        addresses: addresses.iter().map(|text| AddressRange::parse(text).unwrap()).collect(),
        traffic: freeboard_policy::Traffic::Requests,
        alias: None,
        hidden: false,
        credential: None,
        per_minute: None,
        health_check: None,
        placeholder: None,
    }
}

async fn connect(dialler: &Dialler, api: ApiView, port: u16, offer: Offer) -> Result<Connected, Stop> {
    dialler.connect(&Arc::new(api), &host("api.test"), port, offer).await
}

const LOOPBACK: &[&str] = &["127.0.0.0/8"];

#[tokio::test]
async fn connects_to_a_verified_origin_and_says_which_protocol_was_chosen() {
    let ca = ca("roots");
    let both = server(ca.leaf("api.test", |_| {}), &["h2", "http/1.1"]).await;
    let old = server(ca.leaf("api.test", |_| {}), &[]).await;
    let dialler = dialler(&[&ca], &["127.0.0.1"]);
    for (port, offer, expected) in [
        (both.port, Offer::Http1, Protocol::Http1),
        (both.port, Offer::Http1Only, Protocol::Http1),
        (both.port, Offer::Any, Protocol::Http2),
        (old.port, Offer::Any, Protocol::Http1),
        (old.port, Offer::Http1, Protocol::Http1),
    ] {
        let connected = connect(&dialler, api(LOOPBACK), port, offer).await.unwrap();
        assert_eq!(connected.protocol, expected, "{offer:?}");
        assert_eq!(connected.address.port(), port);
        assert!(connected.stream.get_ref().0.get_ref().nodelay().unwrap());
    }
}

/// H16: an origin that speaks h2 only is found out once and then asked for h2 at once.
#[tokio::test]
async fn h16_connects_again_with_h2_to_an_origin_that_speaks_only_h2() {
    let ca = ca("roots");
    let only = server(ca.leaf("api.test", |_| {}), &["h2"]).await;
    let dialler = dialler(&[&ca], &["127.0.0.1"]);
    for _ in 0..2 {
        let connected = connect(&dialler, api(LOOPBACK), only.port, Offer::Http1).await.unwrap();
        assert_eq!(connected.protocol, Protocol::Http2);
        assert!(dialler.speaks_only_http2(&host("api.test"), only.port));
    }
    let websocket = connect(&dialler, api(LOOPBACK), only.port, Offer::Http1Only).await;
    assert!(websocket.is_err());
}

/// C28: whatever is wrong with the certificate, nothing of the request is ever sent.
#[tokio::test]
async fn c28_refuses_every_bad_certificate_before_anything_is_sent() {
    let (roots, others) = (ca("roots"), ca("others"));
    let long_ago = |params: &mut CertificateParams| {
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2021, 1, 1);
    };
    let later = |params: &mut CertificateParams| params.not_before = rcgen::date_time_ymd(2090, 1, 1);
    let alone = KeyPair::generate().unwrap();
    let self_signed =
        CertificateParams::new(vec!["api.test".to_owned()]).unwrap().self_signed(&alone).unwrap();
    let bad = [
        ("expired", roots.leaf("api.test", long_ago)),
        ("not valid yet", roots.leaf("api.test", later)),
        ("another name", roots.leaf("evil.test", |_| {})),
        ("an unknown CA", others.leaf("api.test", |_| {})),
        ("self-signed", Identity { chain: vec![self_signed.der().clone()], key: alone }),
    ];
    let dialler = dialler(&[&roots], &["127.0.0.1"]);
    for (what, identity) in bad {
        let server = server(identity, &["http/1.1"]).await;
        let stop = connect(&dialler, api(LOOPBACK), server.port, Offer::Http1).await.unwrap_err();
        assert_eq!(stop.reason, Reason::UpstreamUntrusted, "{what}");
        assert_eq!(server.received.load(Ordering::SeqCst), 0, "{what}");
    }
}

fn write(folder: &tempfile::TempDir, name: &str, content: &str) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, content).unwrap();
    path
}

/// H59: an API with a CA file of its own trusts that alone, and a replaced file takes effect.
#[tokio::test]
async fn h59_trusts_the_ca_file_of_an_api_in_place_of_the_system() {
    let (system, own) = (ca("system"), ca("own"));
    let folder = tempfile::tempdir().unwrap();
    let path = write(&folder, "ca.pem", &own.pem);
    let with_file = || ApiView { ca_file: Some(path.to_str().unwrap().to_owned()), ..api(LOOPBACK) };
    let private = server(own.leaf("api.test", |_| {}), &[]).await;
    let public = server(system.leaf("api.test", |_| {}), &[]).await;
    let dialler = dialler(&[&system], &["127.0.0.1"]);
    assert!(connect(&dialler, with_file(), private.port, Offer::Http1).await.is_ok());
    assert!(connect(&dialler, with_file(), public.port, Offer::Http1).await.is_err());
    assert!(connect(&dialler, api(LOOPBACK), public.port, Offer::Http1).await.is_ok());
    assert!(connect(&dialler, api(LOOPBACK), private.port, Offer::Http1).await.is_err());
    write(&folder, "ca.pem", &format!("{}{}", system.pem, own.pem));
    assert!(connect(&dialler, with_file(), public.port, Offer::Http1).await.is_ok());
    for broken in ["", "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        write(&folder, "ca.pem", broken);
        let stop = connect(&dialler, with_file(), private.port, Offer::Http1).await.unwrap_err();
        assert_eq!(stop.reason, Reason::UpstreamUntrusted, "{broken}");
    }
    std::fs::remove_file(&path).unwrap();
    assert!(connect(&dialler, with_file(), private.port, Offer::Http1).await.is_err());
}

#[tokio::test]
async fn accepts_a_pinned_leaf_or_ca_and_nothing_else() {
    let ca = ca("roots");
    let identity = ca.leaf("api.test", |_| {});
    let (leaf_pin, ca_pin) = (pin(&identity.key), pin(ca.issuer.key()));
    let server = server(identity, &[]).await;
    let dialler = dialler(&[&ca], &["127.0.0.1"]);
    let pinned = |pins: &[&str]| ApiView {
        pin_sha256: pins.iter().map(|pin| (*pin).to_owned()).collect(),
        ..api(LOOPBACK)
    };
    let wrong = "0".repeat(64);
    for (pins, fine) in [
        (vec![leaf_pin.as_str()], true),
        (vec![ca_pin.as_str()], true),
        (vec![wrong.as_str(), leaf_pin.as_str()], true),
        (vec![wrong.as_str()], false),
        (vec!["not a pin"], false),
    ] {
        let answer = connect(&dialler, pinned(&pins), server.port, Offer::Http1).await;
        assert_eq!(answer.is_ok(), fine, "{pins:?}");
    }
}

/// A server may send any certificate along; a pin counts only for what the verified path goes through.
#[tokio::test]
async fn a_pinned_certificate_off_the_path_does_not_count() {
    let (used, pinned_ca) = (ca("used"), ca("pinned"));
    let mut identity = used.leaf("api.test", |_| {});
    identity.chain.push(pinned_ca.der.clone());
    let pins = vec![pin(pinned_ca.issuer.key())];
    let server = server(identity, &[]).await;
    let dialler = dialler(&[&used, &pinned_ca], &["127.0.0.1"]);
    let view = ApiView { pin_sha256: pins, ..api(LOOPBACK) };
    let stop = connect(&dialler, view, server.port, Offer::Http1).await.unwrap_err();
    assert_eq!(stop.reason, Reason::UpstreamUntrusted);
    assert_eq!(server.received.load(Ordering::SeqCst), 0);
}

/// D09, D10: a granted name that points inside is refused unless the API names the range; metadata always.
#[tokio::test]
async fn d09_refuses_inner_addresses_that_the_api_does_not_name() {
    let ca = ca("roots");
    let server = server(ca.leaf("api.test", |_| {}), &[]).await;
    for address in [
        "127.0.0.1",
        "::1",
        "10.0.0.5",
        "100.64.0.1",
        "198.18.0.1",
        "169.254.169.254",
        "fd00::1",
        "fd00:ec2::254",
        "0.0.0.0",
        "::ffff:127.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
    ] {
        let stop =
            connect(&dialler(&[&ca], &[address]), api(&[]), server.port, Offer::Http1).await.unwrap_err();
        assert_eq!(stop.reason, Reason::AddressRefused, "{address}");
    }
    let metadata = dialler(&[&ca], &["169.254.169.254"]);
    let stop = connect(&metadata, api(&["169.254.0.0/16"]), server.port, Offer::Http1).await.unwrap_err();
    assert_eq!(stop.reason, Reason::AddressRefused);
    let mapped = dialler(&[&ca], &["::ffff:127.0.0.1"]);
    assert!(connect(&mapped, api(LOOPBACK), server.port, Offer::Http1).await.is_ok());
}

/// D08: of a mixed answer only the addresses that pass are dialled.
#[tokio::test]
async fn d08_skips_refused_addresses_of_a_mixed_answer() {
    let ca = ca("roots");
    let server = server(ca.leaf("api.test", |_| {}), &[]).await;
    let mixed = dialler(&[&ca], &["10.0.0.5", "169.254.169.254", "127.0.0.1"]);
    let connected = connect(&mixed, api(&["127.0.0.1/32"]), server.port, Offer::Http1).await.unwrap();
    assert_eq!(connected.address.ip(), IpAddr::V4(Ipv4Addr::LOCALHOST));
}

#[tokio::test]
async fn goes_on_to_the_next_address_when_one_refuses() {
    let ca = ca("roots");
    let server = server(ca.leaf("api.test", |_| {}), &[]).await;
    let several = dialler(&[&ca], &["127.0.0.2", "127.0.0.3", "127.0.0.1"]);
    let connected = connect(&several, api(LOOPBACK), server.port, Offer::Http1).await.unwrap();
    assert_eq!(connected.address.ip(), IpAddr::V4(Ipv4Addr::LOCALHOST));
    let none = dialler(&[&ca], &["127.0.0.2", "127.0.0.3"]);
    let stop = connect(&none, api(LOOPBACK), server.port, Offer::Http1).await.unwrap_err();
    assert_eq!(stop.reason, Reason::UpstreamUnreachable);
    let view = Arc::new(api(LOOPBACK));
    let unknown = several.connect(&view, &host("no-such-name.invalid"), 443, Offer::Http1).await.unwrap_err();
    assert_eq!(unknown.reason, Reason::UpstreamUnresolved);
}

/// D11: the broker's own listeners are not upstreams, under whatever name and address of this host.
#[tokio::test]
async fn d11_never_dials_its_own_listeners() {
    let ca = ca("roots");
    let server = server(ca.leaf("api.test", |_| {}), &[]).await;
    for (listener, address, own) in [
        (Ipv4Addr::LOCALHOST, "127.0.0.1", true),
        (Ipv4Addr::UNSPECIFIED, "127.0.0.1", true),
        (Ipv4Addr::new(127, 0, 0, 7), "127.0.0.1", false),
    ] {
        let mut roots = RootCertStore::empty();
        roots.add(ca.der.clone()).unwrap();
        let settings = DialSettings {
            hosts: HashMap::from([(host("api.test"), vec![address.parse().unwrap()])]),
            own_listeners: vec![SocketAddr::from((listener, server.port))],
            ..Default::default()
        };
        let dialler = Dialler::new(settings, Trust::with_roots(roots));
        let answer = connect(&dialler, api(LOOPBACK), server.port, Offer::Http1).await;
        assert_eq!(answer.is_err(), own, "{listener} {address}");
        if let Err(stop) = answer {
            assert_eq!(stop.reason, Reason::AddressRefused);
        }
    }
}
