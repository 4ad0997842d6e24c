//! The API over TLS: for callers on other machines, and for those who are known by a certificate instead of a token.
//!
//! A client certificate is asked for where there is an authority for them, and not needed: who comes without one brings a token.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// Rights that others must not have on the file of the private key.
const RIGHTS_OF_OTHERS: u32 = 0o077;

/// The files of the listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Of the authority that makes callers' certificates.
    pub client_ca: Option<PathBuf>,
}

/// Why TLS cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("`{}` cannot be read as PEM", .0.display())]
    Pem(PathBuf, #[source] rustls_pki_types::pem::Error),
    #[error("the private key `{}` can be read by others (mode {mode:o}); run `chmod 600` on it", .file.display())]
    Mode { file: PathBuf, mode: u32 },
    #[error("`{}` cannot be read", .0.display())]
    Read(PathBuf, #[source] io::Error),
    #[error("certificate, key and authority do not go together")]
    Config(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// What connections are accepted with; replaced when the files are.
#[derive(Debug)]
pub struct Tls {
    files: TlsFiles,
    current: RwLock<Arc<ServerConfig>>,
}

/// Names of the certificate that a client has shown and that its authority has signed: URIs and DNS names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ClientNames(pub(super) Arc<[String]>);

impl Tls {
    pub fn new(files: TlsFiles) -> Result<Self, TlsError> {
        let current = RwLock::new(Arc::new(config(&files)?));
        Ok(Self { files, current })
    }

    /// Reads the files again. What cannot be used changes nothing.
    pub fn reload(&self) -> Result<(), TlsError> {
        let fresh = Arc::new(config(&self.files)?);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }

    pub fn files(&self) -> &TlsFiles {
        &self.files
    }

    pub(super) async fn accept(&self, stream: TcpStream) -> io::Result<(TlsStream<TcpStream>, ClientNames)> {
        let config = Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner));
        let stream = TlsAcceptor::from(config).accept(stream).await?;
        let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let names = shown.map(|certificate| names(certificate)).unwrap_or_default();
        Ok((stream, names))
    }
}

fn config(files: &TlsFiles) -> Result<ServerConfig, TlsError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let wrong = |error: rustls::Error| TlsError::Config(error.into());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions().map_err(wrong)?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(file) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(file)? {
                roots.add(certificate).map_err(wrong)?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier = verifier.allow_unauthenticated().build();
            builder.with_client_cert_verifier(verifier.map_err(|error| TlsError::Config(error.into()))?)
        }
    };
    let config = builder.with_single_cert(certificates(&files.certificate)?, private_key(&files.key)?);
    let mut config = config.map_err(wrong)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |error| TlsError::Pem(file.to_owned(), error);
    CertificateDer::pem_file_iter(file).map_err(failed)?.map(|one| one.map_err(failed)).collect()
}

fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    use std::os::unix::fs::MetadataExt as _;
    let mode =
        std::fs::metadata(file).map_err(|error| TlsError::Read(file.to_owned(), error))?.mode() & 0o7777;
    if mode & RIGHTS_OF_OTHERS != 0 {
        return Err(TlsError::Mode { file: file.to_owned(), mode });
    }
    PrivateKeyDer::from_pem_file(file).map_err(|error| TlsError::Pem(file.to_owned(), error))
}

/// The names for which its authority answers. The subject's common name is none: it says whatever somebody wrote there.
fn names(certificate: &CertificateDer<'_>) -> ClientNames {
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else { return ClientNames::default() };
    let Ok(Some(alternative)) = parsed.subject_alternative_name() else { return ClientNames::default() };
    let name = |name: &GeneralName<'_>| match name {
        GeneralName::URI(text) | GeneralName::DNSName(text) => Some((*text).to_owned()),
        _ => None,
    };
    ClientNames(alternative.value.general_names.iter().filter_map(name).collect())
}
