//! `mtls`: a certificate that the broker shows to the upstream.

use std::sync::Arc;
use std::time::Duration;

use freeboard_policy::credential::MtlsView;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::MintError;
use super::kind::Minted;
use super::reading::Reading;
use crate::credential::{Attach, ClientCertificate, Scrubber};

pub(super) async fn mint(view: &MtlsView, reading: &mut Reading, now_unix: i64) -> Result<Minted, MintError> {
    let certificate = reading.secret(&view.certificate).await?;
    let key = reading.secret(&view.key).await?;
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(certificate.expose())
        .collect::<Result<_, _>>()
        .map_err(|_| MintError::unavailable("the certificate is not PEM"))?;
    let first = chain.first().ok_or_else(|| MintError::unavailable("there is no certificate in the file"))?;
    let (_, parsed) = X509Certificate::from_der(first)
        .map_err(|_| MintError::unavailable("the certificate does not parse"))?;
    let left = parsed.validity().not_after.timestamp().saturating_sub(now_unix);
    let left = u64::try_from(left).ok().filter(|left| *left > 0);
    let left = left.ok_or_else(|| MintError::unavailable("the certificate has expired"))?;
    let key = PrivateKeyDer::from_pem_slice(key.expose())
        .map_err(|_| MintError::unavailable("the key is not a PEM private key"))?;
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let key = provider.key_provider.load_private_key(key);
    let key = key.map_err(|_| MintError::unavailable("the key is of a kind that cannot be used"))?;
    let certified = CertifiedKey::new(chain, key);
    certified.keys_match().map_err(|_| MintError::unavailable("the key is not the certificate's"))?;
    let certificate = ClientCertificate::new(Arc::new(SingleCertAndKey::from(certified)));
    Ok(Minted {
        attach: Attach::Certificate(certificate),
        scrubber: Scrubber::nothing(),
        lifetime: Some(Duration::from_secs(left)),
        give_back: None,
    })
}
