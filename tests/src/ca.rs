//! A certificate authority for upstreams, and the ways in which an upstream's certificate can be wrong.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// Signs leaves for the upstreams of one lab.
#[derive(Debug)]
pub struct TestCa {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// What is wrong with an upstream's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    None,
    Expired,
    NotYetValid,
    WrongName,
    SelfSigned,
    UnknownAuthority,
}

impl TestCa {
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "lab authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// The authority's certificate, for `ca_file`.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// A leaf for `names` and its key, both PEM, for servers that read files.
    pub fn leaf_pem(&self, names: &[&str]) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let leaf = leaf_params(names, Flaw::None).signed_by(&key, &self.issuer).unwrap();
        (leaf.pem(), key.serialize_pem())
    }

    /// A TLS server configuration for `names`, with a flaw or without.
    pub fn server(&self, names: &[&str], flaw: Flaw, protocols: &[&[u8]]) -> Arc<rustls::ServerConfig> {
        let key = KeyPair::generate().unwrap();
        let params = leaf_params(names, flaw);
        let leaf = match flaw {
            Flaw::SelfSigned => params.self_signed(&key),
            Flaw::UnknownAuthority => params.signed_by(&key, &Self::new().issuer),
            _ => params.signed_by(&key, &self.issuer),
        };
        let chain = vec![CertificateDer::from(leaf.unwrap().der().to_vec())];
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Arc::new(config)
    }
}

impl Default for TestCa {
    fn default() -> Self {
        Self::new()
    }
}

fn leaf_params(names: &[&str], flaw: Flaw) -> CertificateParams {
    let names: Vec<String> = match flaw {
        Flaw::WrongName => vec!["somebody-else.test".to_owned()],
        _ => names.iter().map(|name| (*name).to_owned()).collect(),
    };
    let mut params = CertificateParams::new(names).unwrap();
    params.use_authority_key_identifier_extension = true;
    params.extended_key_usages =
        vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth, rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    let (from, to) = match flaw {
        Flaw::Expired => (2020, 2021),
        Flaw::NotYetValid => (2098, 2099),
        _ => (2024, 2099),
    };
    params.not_before = rcgen::date_time_ymd(from, 1, 1);
    params.not_after = rcgen::date_time_ymd(to, 1, 1);
    params
}
