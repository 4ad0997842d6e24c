//! Leaf certificates: one per name, all with one key.
//!
//! In: a name that was decided on. Out: a certificate and chain that strict clients accept (Python 3.13, Go, Java,
//! Node, OpenSSL `-x509_strict`, GnuTLS). It never looks at what a guest sent; callers decide first, then mint.

use std::net::IpAddr;
use std::sync::Arc;

use freeboard_policy::Host;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, SanType,
};
use rustls::crypto::aws_lc_rs::sign::any_ecdsa_type;
use rustls::sign::CertifiedKey;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use super::CertificateAuthority;
use super::ca::{CaError, at, random_serial};
use crate::limits::{LEAF_BACKDATE, LEAF_LIFETIME};

/// What a leaf is for. An address is minted only to tell a client that spoke to a bare address why it is refused.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum LeafName {
    Host(Host),
    Address(IpAddr),
}

/// Mints leaves. One key serves all of them: the key is ours in every case, and making one costs as much as signing.
pub struct LeafMint {
    ca: Arc<CertificateAuthority>,
    key: KeyPair,
    signing_key: Arc<dyn rustls::sign::SigningKey>,
}

/// A leaf and until when it may be served (Unix seconds).
#[derive(Debug, Clone)]
pub struct Leaf {
    pub certified: Arc<CertifiedKey>,
    pub valid_until: i64,
}

impl LeafMint {
    /// Makes the shared leaf key; it lives in memory only and dies with the process.
    pub fn new(ca: Arc<CertificateAuthority>) -> Result<Self, CaError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let signing_key = any_ecdsa_type(&der).map_err(|_| CaError::Key)?;
        Ok(Self { ca, key, signing_key })
    }

    pub fn ca(&self) -> &Arc<CertificateAuthority> {
        &self.ca
    }

    /// Signs a leaf for exactly `name`.
    pub fn mint(&self, name: &LeafName, now_unix: i64) -> Result<Leaf, CaError> {
        let (authority_from, authority_until) = self.ca.validity();
        let backdated = now_unix.saturating_sub_unsigned(LEAF_BACKDATE.as_secs()).max(authority_from);
        let valid_until = now_unix.saturating_add_unsigned(LEAF_LIFETIME.as_secs()).min(authority_until);
        if valid_until <= now_unix {
            return Err(CaError::Certificate("it has expired"));
        }
        let params = parameters(name, backdated, valid_until)?;
        let leaf = params.signed_by(&self.key, self.ca.issuer())?;
        let chain: Vec<CertificateDer<'static>> =
            std::iter::once(leaf.der().clone()).chain(self.ca.intermediates().iter().cloned()).collect();
        let certified = Arc::new(CertifiedKey::new(chain, Arc::clone(&self.signing_key)));
        Ok(Leaf { certified, valid_until })
    }
}

impl std::fmt::Debug for LeafMint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LeafMint").field("ca", &self.ca).finish_non_exhaustive()
    }
}

fn parameters(name: &LeafName, from: i64, until: i64) -> Result<CertificateParams, CaError> {
    let (common_name, san) = match name {
        LeafName::Host(host) => {
            let text = host.as_str().to_owned();
            (text.clone(), SanType::DnsName(text.try_into()?))
        }
        LeafName::Address(address) => (address.to_string(), SanType::IpAddress(*address)),
    };
    let mut params = CertificateParams::default();
    let mut subject = DistinguishedName::new();
    // A common name holds at most 64 characters (RFC 5280 A.1, ub-common-name); the SAN is what clients compare.
    let common_name = if common_name.len() <= 64 { common_name } else { "Freeboard".to_owned() };
    subject.push(DnType::CommonName, common_name);
    params.distinguished_name = subject;
    params.subject_alt_names = vec![san];
    params.serial_number = Some(random_serial()?);
    params.not_before = at(from)?;
    params.not_after = at(until)?;
    // `ExplicitNoCa` is what makes rcgen write the subject key identifier, which strict verifiers want on a leaf.
    params.is_ca = IsCa::ExplicitNoCa;
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    Ok(params)
}
