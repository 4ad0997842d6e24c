//! The interception CA: made once per appliance, loaded from two files or kept in memory.
//!
//! In: paths, or nothing. Out: an [`CertificateAuthority`] that signs leaves for [`super::LeafMint`] and hands guests the public
//! certificate. It never hands out the private key, and refuses a key file that others can read.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, GeneralSubtree, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, NameConstraints, PKCS_ECDSA_P256_SHA256, PublicKeyData as _, SerialNumber,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::rotation::Rotation;
use crate::limits::{CA_BACKDATE, CA_FILE_MAX_BYTES, CA_LIFETIME};

/// The certificate authority whose leaves guests see in place of the real servers' certificates.
pub struct CertificateAuthority {
    issuer: Issuer<'static, KeyPair>,
    /// Certificates that are sent after each leaf: the signer and its parents, the self-signed root left out
    /// (RFC 8446 4.4.2 permits that; a guest must hold the root anyhow).
    intermediates: Vec<CertificateDer<'static>>,
    anchor: CertificateDer<'static>,
    valid_from: i64,
    valid_until: i64,
    /// Where name constraints or the operator limit it, these names only.
    permitted_names: Vec<String>,
    /// Certificates that guests trust as well while the authority is being replaced, PEM.
    also_trusted: String,
}

/// What a new authority shall look like.
#[derive(Debug, Clone)]
pub struct NewCa {
    /// Common name; shows up in clients' certificate dialogs.
    pub name: String,
    pub lifetime: std::time::Duration,
    /// Name constraints: with entries, clients accept leaves for these domains (and below) only. An extra fence, not
    /// a replacement for the decision: some clients ignore it (ATTACKS D36).
    pub permitted_names: Vec<String>,
}

impl Default for NewCa {
    fn default() -> Self {
        Self {
            name: "Freeboard interception CA".to_owned(),
            lifetime: CA_LIFETIME,
            permitted_names: Vec::new(),
        }
    }
}

/// Why there is no authority.
#[derive(Debug, thiserror::Error)]
pub enum CaError {
    #[error("cannot read `{}`", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("cannot write `{}`", path.display())]
    Write { path: PathBuf, source: std::io::Error },
    #[error("`{}` exists already; an interception CA is never overwritten", path.display())]
    Exists { path: PathBuf },
    #[error("`{}` has mode {mode:03o}; only its owner may read a private key (mode 600)", path.display())]
    KeyMode { path: PathBuf, mode: u32 },
    #[error("`{}` is larger than {CA_FILE_MAX_BYTES} bytes", path.display())]
    TooLarge { path: PathBuf },
    #[error("the CA certificate cannot be used: {0}")]
    Certificate(&'static str),
    #[error("the private key is not one of the CA certificate")]
    KeyMismatch,
    #[error("the private key does not parse (PKCS#8 or SEC1 PEM is wanted)")]
    Key,
    #[error("cannot make a certificate")]
    Crypto(#[from] rcgen::Error),
    #[error("no random bytes from the system")]
    Random,
}

impl CertificateAuthority {
    /// Makes an authority that lives in memory only. Guests of an earlier process do not trust it.
    pub fn in_memory(new: &NewCa, now_unix: i64) -> Result<Self, CaError> {
        let (certificate, key) = generate(new, now_unix)?;
        Self::assemble(vec![certificate], key, now_unix)
    }

    /// Makes an authority and stores it: the certificate readable for all, the key with mode 600. Existing files are
    /// never overwritten: replacing the CA under running guests is a decision, not an accident.
    pub fn create(
        new: &NewCa,
        certificate_path: &Path,
        key_path: &Path,
        now_unix: i64,
    ) -> Result<Self, CaError> {
        if let Some(path) = [certificate_path, key_path].into_iter().find(|path| path.exists()) {
            return Err(CaError::Exists { path: path.to_owned() });
        }
        let (certificate, key) = generate(new, now_unix)?;
        let pem = zeroize::Zeroizing::new(key.serialize_pem());
        write_new(key_path, pem.as_bytes(), 0o600)?;
        if let Err(error) = write_new(certificate_path, pem_of(&certificate).as_bytes(), 0o644) {
            let _best_effort = std::fs::remove_file(key_path);
            return Err(error);
        }
        Self::assemble(vec![certificate], key, now_unix)
    }

    /// Loads an authority. The certificate file holds the signer first and, where that is an intermediate, its
    /// parents up to the self-signed root.
    pub fn load(certificate_path: &Path, key_path: &Path, now_unix: i64) -> Result<Self, CaError> {
        let certificates = read(certificate_path)?;
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&certificates)
            .collect::<Result<_, _>>()
            .map_err(|_| CaError::Certificate("the file is not PEM certificates"))?;
        // SECURITY: with a key that others on the host can read, anybody there can pose as every site to every guest.
        // Guarded by `refuses_a_key_that_others_can_read`.
        let metadata = std::fs::metadata(key_path)
            .map_err(|source| CaError::Read { path: key_path.to_owned(), source })?;
        if metadata.mode() & others(key_path) != 0 {
            return Err(CaError::KeyMode { path: key_path.to_owned(), mode: metadata.mode() & 0o777 });
        }
        let pem = zeroize::Zeroizing::new(read(key_path)?);
        let text = std::str::from_utf8(&pem).map_err(|_| CaError::Key)?;
        let key = KeyPair::from_pem(text).map_err(|_| CaError::Key)?;
        let mut authority = Self::assemble(chain, key, now_unix)?;
        authority.also_trusted = Rotation::new(certificate_path, key_path).also_trusted()?;
        Ok(authority)
    }

    fn assemble(chain: Vec<CertificateDer<'static>>, key: KeyPair, now_unix: i64) -> Result<Self, CaError> {
        let signer_der = chain.first().ok_or(CaError::Certificate("there is no certificate"))?;
        let anchor = chain.last().cloned().ok_or(CaError::Certificate("there is no certificate"))?;
        let signer = parse(signer_der)?;
        check_signer(&signer, now_unix)?;
        if signer.public_key().raw != key.subject_public_key_info() {
            return Err(CaError::KeyMismatch);
        }
        let root = parse(&anchor)?;
        if root.subject().as_raw() != root.issuer().as_raw() {
            return Err(CaError::Certificate(
                "the chain must end in its self-signed root, which guests trust",
            ));
        }
        let valid_from = signer.validity().not_before.timestamp();
        let valid_until = signer.validity().not_after.timestamp().min(root.validity().not_after.timestamp());
        let permitted_names = permitted_names(&signer);
        let issuer = Issuer::from_ca_cert_der(signer_der, key)?;
        let kept = chain.len() - 1;
        let intermediates = chain.into_iter().take(kept).collect();
        Ok(Self {
            issuer,
            intermediates,
            anchor,
            valid_from,
            valid_until,
            permitted_names,
            also_trusted: String::new(),
        })
    }

    /// The certificate that guests must trust, PEM. Public.
    pub fn anchor_pem(&self) -> String {
        pem_of(&self.anchor)
    }

    /// What guests of new runs trust, PEM: the certificate above, and those of a rotation.
    pub fn guests_trust(&self) -> String {
        format!("{}{}", self.anchor_pem(), self.also_trusted)
    }

    /// SHA-256 of the trusted certificate, lower-case hex.
    pub fn fingerprint(&self) -> String {
        Sha256::digest(&self.anchor).iter().fold(String::with_capacity(64), |mut text, byte| {
            use std::fmt::Write as _;
            let _infallible = write!(text, "{byte:02x}");
            text
        })
    }

    /// First and last second (Unix time) at which leaves of this authority can be valid.
    pub fn validity(&self) -> (i64, i64) {
        (self.valid_from, self.valid_until)
    }

    /// Domains of the name constraints; empty = not constrained.
    pub fn permitted_names(&self) -> &[String] {
        &self.permitted_names
    }

    pub(super) fn issuer(&self) -> &Issuer<'static, KeyPair> {
        &self.issuer
    }

    pub(super) fn intermediates(&self) -> &[CertificateDer<'static>] {
        &self.intermediates
    }
}

impl std::fmt::Debug for CertificateAuthority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CertificateAuthority")
            .field("fingerprint", &self.fingerprint())
            .finish_non_exhaustive()
    }
}

fn generate(new: &NewCa, now_unix: i64) -> Result<(CertificateDer<'static>, KeyPair), CaError> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let mut params = CertificateParams::default();
    let mut subject = DistinguishedName::new();
    subject.push(DnType::OrganizationName, "Freeboard");
    subject.push(DnType::CommonName, new.name.as_str());
    params.distinguished_name = subject;
    params.serial_number = Some(random_serial()?);
    let lifetime = i64::try_from(new.lifetime.as_secs()).unwrap_or(i64::MAX);
    params.not_before = at(now_unix.saturating_sub_unsigned(CA_BACKDATE.as_secs()))?;
    params.not_after = at(now_unix.saturating_add(lifetime))?;
    // Strict verifiers (Python 3.13, `openssl -x509_strict`) want on a CA: critical basicConstraints, keyUsage with
    // keyCertSign, and a subject key identifier. No authority key identifier: it is its own authority.
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    if !new.permitted_names.is_empty() {
        params.name_constraints = Some(NameConstraints {
            permitted_subtrees: new.permitted_names.iter().cloned().map(GeneralSubtree::DnsName).collect(),
            excluded_subtrees: Vec::new(),
        });
    }
    let certificate = params.self_signed(&key)?;
    Ok((certificate.der().clone(), key))
}

/// 127 random bits. RFC 5280 4.1.2.2 wants a positive serial that is unique per issuer; rcgen's default is derived
/// from the public key, which all our leaves share, and NSS refuses two certificates with one serial.
pub(super) fn random_serial() -> Result<SerialNumber, CaError> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes).map_err(|_| CaError::Random)?;
    bytes[0] = (bytes[0] & 0x3f) | 0x40;
    Ok(SerialNumber::from_slice(&bytes))
}

pub(super) fn at(unix: i64) -> Result<OffsetDateTime, CaError> {
    OffsetDateTime::from_unix_timestamp(unix).map_err(|_| CaError::Certificate("a time is out of range"))
}

fn parse<'a>(der: &'a CertificateDer<'static>) -> Result<X509Certificate<'a>, CaError> {
    X509Certificate::from_der(der)
        .map(|(_, certificate)| certificate)
        .map_err(|_| CaError::Certificate("it does not parse as X.509"))
}

/// Everything that a strict client would refuse later is refused now, when the operator is looking.
fn check_signer(signer: &X509Certificate<'_>, now_unix: i64) -> Result<(), CaError> {
    let wrong = |what| Err(CaError::Certificate(what));
    let constraints = signer.basic_constraints().ok().flatten();
    if !constraints.as_ref().is_some_and(|found| found.critical && found.value.ca) {
        return wrong("basicConstraints must be critical and say CA");
    }
    if !signer.key_usage().ok().flatten().is_some_and(|found| found.value.key_cert_sign()) {
        return wrong("keyUsage must contain keyCertSign");
    }
    let has_subject_key_id = signer.extensions().iter().any(|extension| {
        matches!(
            extension.parsed_extension(),
            x509_parser::extensions::ParsedExtension::SubjectKeyIdentifier(_)
        )
    });
    if !has_subject_key_id {
        return wrong("the subject key identifier is missing; strict clients need it");
    }
    if signer.validity().not_after.timestamp() <= now_unix {
        return wrong("it has expired");
    }
    if signer.validity().not_before.timestamp() > now_unix {
        return wrong("it is not valid yet");
    }
    Ok(())
}

fn permitted_names(signer: &X509Certificate<'_>) -> Vec<String> {
    let Some(constraints) = signer.name_constraints().ok().flatten() else { return Vec::new() };
    let permitted = constraints.value.permitted_subtrees.iter().flatten();
    permitted
        .filter_map(|subtree| match &subtree.base {
            x509_parser::extensions::GeneralName::DNSName(name) => Some((*name).to_owned()),
            _ => None,
        })
        .collect()
}

pub(super) fn pem_of(certificate: &CertificateDer<'_>) -> String {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(certificate);
    let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, tail) = rest.split_at(rest.len().min(64));
        pem.push_str(line);
        pem.push('\n');
        rest = tail;
    }
    pem.push_str("-----END CERTIFICATE-----\n");
    pem
}

fn read(path: &Path) -> Result<Vec<u8>, CaError> {
    let failed = |source| CaError::Read { path: path.to_owned(), source };
    let length = std::fs::metadata(path).map_err(failed)?.len();
    if length > CA_FILE_MAX_BYTES {
        return Err(CaError::TooLarge { path: path.to_owned() });
    }
    std::fs::read(path).map_err(failed)
}

/// The certificate of a file that guests trust: its last one, PEM.
pub(super) fn anchor_of(path: &Path) -> Result<String, CaError> {
    let pem = read(path)?;
    let chain = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|_| CaError::Certificate("a file of the rotation is not PEM certificates"))?;
    chain.last().map(pem_of).ok_or(CaError::Certificate("a file of the rotation has no certificate"))
}

/// The mode bits that let others read a key. What a service manager hands over may be readable by an access list for this
/// user, which shows as the group's bit (systemd.exec(5), `LoadCredential=`); its folder is closed to all others.
fn others(key_path: &Path) -> u32 {
    let handed_over =
        std::env::var_os("CREDENTIALS_DIRECTORY").is_some_and(|folder| key_path.starts_with(folder));
    if handed_over { 0o037 } else { 0o077 }
}

fn write_new(path: &Path, content: &[u8], mode: u32) -> Result<(), CaError> {
    let failed = |source| CaError::Write { path: path.to_owned(), source };
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path).map_err(failed)?;
    file.write_all(content).and_then(|()| file.sync_all()).map_err(failed)
}
