//! The guard's own TLS: a certificate of the appliance, for sandboxes that reach it over a network.
//!
//! In: two PEM files. Out: the configuration of the listener. It has nothing to do with the interception CA: a sandbox on another
//! machine verifies this certificate like any other server's.

use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::credential::secret_of_file;

/// Reads certificate chain and key. The key's file is a secret: only its owner may read it.
///
/// # Errors
/// What is wrong with which file.
pub fn guard_config(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>, String> {
    let bad = |path: &Path, what: String| format!("`{}`: {what}", path.display());
    let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect);
    let chain = chain.map_err(|error| bad(certificate, error.to_string()))?;
    let secret = secret_of_file(key)?;
    let private =
        PrivateKeyDer::from_pem_slice(secret.expose()).map_err(|error| bad(key, error.to_string()))?;
    let provider = Arc::new(crate::crypto::provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, private));
    let mut config = config.map_err(|error| bad(certificate, error.to_string()))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
