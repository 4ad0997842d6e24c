//! The proxy of hudsucker as its documentation builds it: intercepts, adds the credential, verifies the upstream by one CA.
//! Usage: bench-hudsucker ADDRESS:PORT CA.pem CA.key UPSTREAM-CA.pem TOKEN

use std::error::Error;

use hudsucker::certificate_authority::RcgenAuthority;
use hudsucker::hyper::Request;
use hudsucker::hyper::header::{AUTHORIZATION, HeaderValue};
use hudsucker::rcgen::{Issuer, KeyPair};
use hudsucker::rustls::crypto::aws_lc_rs;
use hudsucker::rustls::{ClientConfig, RootCertStore};
use hudsucker::{Body, HttpContext, HttpHandler, Proxy, RequestOrResponse};
use hyper_rustls::HttpsConnectorBuilder;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

#[derive(Clone)]
struct Inject(HeaderValue);

impl HttpHandler for Inject {
    async fn handle_request(&mut self, _: &HttpContext, mut request: Request<Body>) -> RequestOrResponse {
        request.headers_mut().insert(AUTHORIZATION, self.0.clone());
        request.into()
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Box<dyn Error>> {
    let [address, certificate, key, upstream_ca, token] =
        <[String; 5]>::try_from(std::env::args().skip(1).collect::<Vec<_>>())
            .map_err(|_| "five arguments are wanted")?;
    let key = KeyPair::from_pem(&std::fs::read_to_string(key)?)?;
    let issuer = Issuer::from_ca_cert_pem(&std::fs::read_to_string(certificate)?, key)?;
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(upstream_ca)?)?;
    let provider = aws_lc_rs::default_provider();
    let tls = ClientConfig::builder_with_provider(provider.clone().into())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().build();
    let proxy = Proxy::builder()
        .with_addr(address.parse()?)
        .with_ca(RcgenAuthority::new(issuer, 1_000, provider))
        .with_http_connector(connector)
        .with_http_handler(Inject(HeaderValue::from_str(&format!("Bearer {token}"))?))
        .build()?;
    proxy.start().await?;
    Ok(())
}
