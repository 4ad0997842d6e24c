//! What upstream certificates are trusted: the system's roots, or an API's own CA file, and pins.
//!
//! In: an API of the policy. Out: a `rustls::ClientConfig` that verifies the name, the chain and the pins. There is no
//! way to switch verification off (ATTACKS C28, H59).

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use freeboard_policy::ApiView;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use sha2::{Digest as _, Sha256};

use crate::credential::ClientCertificate;
use crate::limits::{CA_FILE_MAX_BYTES, TLS_SESSIONS_REMEMBERED, TRUST_CONFIGS_KEPT};

/// Application protocols offered to an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UpstreamProtocols {
    Http1,
    Http2,
    /// Both, h2 wanted more.
    Any,
}

impl UpstreamProtocols {
    fn alpn(self) -> Vec<Vec<u8>> {
        let (h1, h2) = (b"http/1.1".to_vec(), b"h2".to_vec());
        match self {
            Self::Http1 => vec![h1],
            Self::Http2 => vec![h2],
            Self::Any => vec![h2, h1],
        }
    }
}

/// Why there is no trust for an API; the request is refused, nothing is dialled.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TrustError {
    #[error("cannot read the CA file `{}`: {detail}", path.display())]
    Read { path: PathBuf, detail: String },
    #[error("the CA file `{}` holds no usable certificate", path.display())]
    NoCertificate { path: PathBuf },
    #[error("the pin `{0}` is not 64 lower-case hex digits")]
    Pin(String),
    #[error("the system has no root certificates")]
    NoSystemRoots,
    #[error("TLS cannot be set up: {0}")]
    Tls(String),
}

/// Builds and keeps client configurations. Sessions are remembered inside each, so that a new connection resumes
/// (half the client's cost of a handshake).
pub struct Trust {
    provider: Arc<CryptoProvider>,
    system: Arc<OnceLock<Arc<RootCertStore>>>,
    configs: Mutex<HashMap<Key, Arc<ClientConfig>>>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    ca_file: Option<(PathBuf, Stamp)>,
    pins: Vec<String>,
    protocols: UpstreamProtocols,
    /// Id of the certificate that we show.
    certificate: Option<u64>,
}

/// Tells a replaced CA file from the one that was read: a rotated file takes effect with the next connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Stamp {
    modified: Option<std::time::SystemTime>,
    length: u64,
}

impl Trust {
    /// The system's roots, or the Mozilla roots that are compiled in where the system has none. They are read beside
    /// everything else: parsing them takes longer than all of the broker's start.
    pub fn system() -> Self {
        let trust = Self::empty();
        let system = Arc::clone(&trust.system);
        let read = move || {
            let _ = system.get_or_init(read_system_roots);
        };
        // Without a thread they are read when the first connection needs them.
        let _ = std::thread::Builder::new().name("system-roots".to_owned()).spawn(read);
        trust
    }

    /// Trusts `roots` in place of the system's.
    pub fn with_roots(roots: RootCertStore) -> Self {
        let trust = Self::empty();
        // It was empty a line ago.
        let _ = trust.system.set(Arc::new(roots));
        trust
    }

    fn empty() -> Self {
        Self {
            provider: Arc::new(crate::crypto::provider()),
            system: Arc::default(),
            configs: Mutex::new(HashMap::new()),
        }
    }

    /// The configuration for one API. Reads the API's CA file when it is new or was replaced.
    pub fn config(
        &self,
        api: &ApiView,
        protocols: UpstreamProtocols,
        certificate: Option<&ClientCertificate>,
    ) -> Result<Arc<ClientConfig>, TrustError> {
        let ca_file = match &api.ca_file {
            Some(path) => Some((PathBuf::from(path), stamp(Path::new(path))?)),
            None => None,
        };
        let id = certificate.map(ClientCertificate::id);
        let key = Key { ca_file, pins: api.pin_sha256.clone(), protocols, certificate: id };
        if let Some(found) = self.lock().get(&key) {
            return Ok(Arc::clone(found));
        }
        let config = Arc::new(self.build(&key, certificate)?);
        let mut configs = self.lock();
        if configs.len() >= TRUST_CONFIGS_KEPT {
            configs.clear();
        }
        configs.insert(key, Arc::clone(&config));
        Ok(config)
    }

    fn build(&self, key: &Key, certificate: Option<&ClientCertificate>) -> Result<ClientConfig, TrustError> {
        let roots = match &key.ca_file {
            Some((path, _)) => Arc::new(read_roots(path)?),
            None => Arc::clone(self.system.get_or_init(read_system_roots)),
        };
        if roots.is_empty() {
            return Err(TrustError::NoSystemRoots);
        }
        let pins = key.pins.iter().map(|pin| parse_pin(pin)).collect::<Result<Vec<_>, _>>()?;
        let builder = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
            .map_err(|error| TrustError::Tls(error.to_string()))?;
        let builder = if pins.is_empty() {
            builder.with_root_certificates(roots)
        } else {
            let verifier = PinnedVerifier { roots, pins, provider: Arc::clone(&self.provider) };
            builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
        };
        let mut config = match certificate {
            Some(certificate) => builder.with_client_cert_resolver(certificate.resolver()),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = key.protocols.alpn();
        config.resumption = Resumption::in_memory_sessions(TLS_SESSIONS_REMEMBERED);
        config.enable_early_data = false;
        Ok(config)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Arc<ClientConfig>>> {
        self.configs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Trust {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trust").finish_non_exhaustive()
    }
}

fn read_system_roots() -> Arc<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let (_added, _ignored) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        tracing::warn!("the system has no root certificates; using the compiled-in Mozilla roots");
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    Arc::new(roots)
}

fn stamp(path: &Path) -> Result<Stamp, TrustError> {
    let metadata = std::fs::metadata(path).map_err(|error| unreadable(path, &error))?;
    if metadata.len() > CA_FILE_MAX_BYTES {
        return Err(TrustError::Read { path: path.to_owned(), detail: "it is too large".to_owned() });
    }
    Ok(Stamp { modified: metadata.modified().ok(), length: metadata.len() })
}

fn unreadable(path: &Path, error: &std::io::Error) -> TrustError {
    TrustError::Read { path: path.to_owned(), detail: error.to_string() }
}

fn read_roots(path: &Path) -> Result<RootCertStore, TrustError> {
    let pem = std::fs::read(path).map_err(|error| unreadable(path, &error))?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let none = || TrustError::NoCertificate { path: path.to_owned() };
        roots.add(certificate.map_err(|_| none())?).map_err(|_| none())?;
    }
    if roots.is_empty() {
        return Err(TrustError::NoCertificate { path: path.to_owned() });
    }
    Ok(roots)
}

fn parse_pin(text: &str) -> Result<[u8; 32], TrustError> {
    let wrong = || TrustError::Pin(text.to_owned());
    let mut pin = [0_u8; 32];
    if text.len() != 64 {
        return Err(wrong());
    }
    for (byte, pair) in pin.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let pair = std::str::from_utf8(pair).map_err(|_| wrong())?;
        if pair.bytes().any(|digit| digit.is_ascii_uppercase() || !digit.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        *byte = u8::from_str_radix(pair, 16).map_err(|_| wrong())?;
    }
    Ok(pin)
}

/// Ordinary verification, and beyond it: some public key on the path that was verified has a pinned digest.
#[derive(Debug)]
struct PinnedVerifier {
    roots: Arc<RootCertStore>,
    pins: Vec<[u8; 32]>,
    provider: Arc<CryptoProvider>,
}

impl PinnedVerifier {
    fn is_pinned(&self, public_key: &[u8]) -> bool {
        let digest: [u8; 32] = Sha256::digest(public_key).into();
        self.pins.contains(&digest)
    }
}

impl ServerCertVerifier for PinnedVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let leaf = webpki::EndEntityCert::try_from(end_entity).map_err(|_| CertificateError::BadEncoding)?;
        // SECURITY: the pin is looked for on the path that verified, not among whatever the server sent along: anybody
        // can send a copy of a pinned CA certificate. Guarded by `a_pinned_certificate_off_the_path_does_not_count`.
        let on_path = |path: &webpki::VerifiedPath<'_>| {
            let found = self.is_pinned(&path.end_entity().subject_public_key_info())
                || path.intermediate_certificates().any(|one| self.is_pinned(&one.subject_public_key_info()))
                || self.is_pinned(&webpki::spki_for_anchor(path.anchor()));
            if found { Ok(()) } else { Err(webpki::Error::UnknownIssuer) }
        };
        leaf.verify_for_usage(
            self.provider.signature_verification_algorithms.all,
            &self.roots.roots,
            intermediates,
            now,
            webpki::KeyUsage::server_auth(),
            None,
            Some(&on_path),
        )
        .map_err(as_certificate_error)?;
        leaf.verify_is_valid_for_subject_name(server_name).map_err(|_| CertificateError::NotValidForName)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

fn as_certificate_error(error: webpki::Error) -> CertificateError {
    match error {
        webpki::Error::CertExpired { .. } => CertificateError::Expired,
        webpki::Error::CertNotValidYet { .. } => CertificateError::NotValidYet,
        _ => CertificateError::UnknownIssuer,
    }
}
