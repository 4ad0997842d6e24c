//! The public keys of an issuer: read from a file or fetched over verified TLS, kept for a while, asked for again when a token
//! names one that is not among them.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::rt::TokioIo;
use jsonwebtoken::jwk::Jwk;
use rustls::RootCertStore;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::issuers::Settings;
use crate::limits::{JWKS_FRESH, JWKS_KEPT, JWKS_PAUSE, JWKS_TIMEOUT, MAX_JWKS_BYTES};

/// Why keys are not known.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    #[error("`{}` cannot be read", .0.display())]
    File(PathBuf, #[source] io::Error),
    #[error("`{0}` does not give them")]
    Url(String, #[source] io::Error),
    #[error("they are no set of keys")]
    Parse(#[source] serde_json::Error),
}

/// Where they are.
#[derive(Debug)]
enum Place {
    File(PathBuf),
    Url { url: Uri, ca: Option<PathBuf> },
}

/// The keys of one issuer.
#[derive(Debug)]
pub(super) struct Keys {
    place: Place,
    known: Mutex<Option<Known>>,
    /// One asks at a time; the others wait for its answer.
    asking: tokio::sync::Mutex<Asked>,
}

#[derive(Debug, Clone)]
struct Known {
    keys: Arc<[Jwk]>,
    since: Instant,
    /// Of a file: when it was written.
    written: Option<SystemTime>,
}

/// When was last asked, whatever came of it.
#[derive(Debug, Default)]
struct Asked(Option<Instant>);

impl Keys {
    pub(super) fn of(settings: &Settings) -> Result<Self, &'static str> {
        let place = match (&settings.jwks_file, &settings.jwks_url) {
            (Some(file), None) if settings.jwks_ca_file.is_none() => Place::File(file.clone()),
            (None, Some(url)) => {
                let url: Uri = url.parse().map_err(|_| "`jwks_url` is no URL")?;
                // SECURITY: who can answer here can make callers. Guarded by keys_are_fetched_over_verified_tls_only.
                if url.scheme_str() != Some("https") || url.host().is_none() {
                    return Err("`jwks_url` is not https");
                }
                Place::Url { url, ca: settings.jwks_ca_file.clone() }
            }
            _ => {
                return Err(
                    "exactly one of `jwks_file` and `jwks_url` is needed, `jwks_ca_file` for a URL only",
                );
            }
        };
        Ok(Self { place, known: Mutex::default(), asking: tokio::sync::Mutex::default() })
    }

    /// What `fits` finds among the keys. They are asked for again when they are old, and once more when it finds nothing: the
    /// issuer may have a new key. Keys that cannot be had again count for a while longer.
    pub(super) async fn find<T>(&self, fits: impl Fn(&[Jwk]) -> Option<T>) -> Result<Option<T>, KeysError> {
        if let Some(known) = self.known().filter(|known| self.is_fresh(known))
            && let Some(found) = fits(&known.keys)
        {
            return Ok(Some(found));
        }
        let seen = self.known().map(|known| known.since);
        let mut asked = self.asking.lock().await;
        // Somebody else may have asked while this one waited.
        let changed = self.known().map(|known| known.since) != seen;
        // SECURITY: tokens with made-up key names must not make us flood the issuer. Guarded by
        // unknown_keys_are_asked_for_at_intervals_only.
        let may_ask =
            matches!(self.place, Place::File(_)) || asked.0.is_none_or(|then| then.elapsed() >= JWKS_PAUSE);
        let mut failed = None;
        if !changed && may_ask {
            asked.0 = Some(Instant::now());
            failed = self.ask().await.err();
        }
        drop(asked);
        match (self.known().filter(|known| known.since.elapsed() < JWKS_KEPT), failed) {
            (Some(known), failed) => {
                if let Some(error) = failed {
                    tracing::warn!(
                        error = crate::causes::chain(&error),
                        "the keys of an issuer stay as they were"
                    );
                }
                Ok(fits(&known.keys))
            }
            (None, Some(error)) => Err(error),
            (None, None) => Err(KeysError::Url(self.name(), io::Error::other("it was asked a moment ago"))),
        }
    }

    fn is_fresh(&self, known: &Known) -> bool {
        match &self.place {
            Place::File(path) => known.written.is_some() && known.written == written(path),
            Place::Url { .. } => known.since.elapsed() < JWKS_FRESH,
        }
    }

    async fn ask(&self) -> Result<(), KeysError> {
        let (text, written) = match &self.place {
            Place::File(path) => {
                let written = written(path);
                (read(path).map_err(|error| KeysError::File(path.clone(), error))?, written)
            }
            Place::Url { url, ca } => {
                let fetched = tokio::time::timeout(JWKS_TIMEOUT, fetch(url, ca.as_deref())).await;
                let fetched = fetched.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
                (fetched.map_err(|error| KeysError::Url(self.name(), error))?, None)
            }
        };
        let set: Set = serde_json::from_slice(&text).map_err(KeysError::Parse)?;
        // A key of a kind that is not known here is none for us; it does not spoil the others.
        let keys = set.keys.into_iter().filter_map(|key| serde_json::from_value(key).ok()).collect();
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(Known { keys, since: Instant::now(), written });
        Ok(())
    }

    fn known(&self) -> Option<Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn name(&self) -> String {
        match &self.place {
            Place::File(path) => path.display().to_string(),
            Place::Url { url, .. } => url.to_string(),
        }
    }
}

/// A set of keys (RFC 7517, 5) that are looked at one by one.
#[derive(Debug, serde::Deserialize)]
struct Set {
    keys: Vec<serde_json::Value>,
}

fn written(path: &std::path::Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}

fn read(path: &std::path::Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let file = File::open(path)?;
    // SECURITY: who can write these keys can be any caller. Guarded by a_file_of_keys_is_read_again_when_it_changes.
    if file.metadata()?.mode() & 0o022 != 0 {
        return Err(io::Error::other("it may be written by others; use 0600 or 0644"));
    }
    file.take(MAX_JWKS_BYTES as u64 + 1).read_to_end(&mut text)?;
    if text.len() > MAX_JWKS_BYTES { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(text) }
}

/// One GET on a connection of its own. Redirects are not followed: they would choose another place than the operator did.
async fn fetch(url: &Uri, ca: Option<&std::path::Path>) -> io::Result<Vec<u8>> {
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let port = url.port_u16().unwrap_or(443);
    let stream = TcpStream::connect((host.as_str(), port)).await?;
    let name = ServerName::try_from(host).map_err(io::Error::other)?;
    let stream = connector(ca)?.connect(name, stream).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let driver = tokio::spawn(connection);
    let answered = async {
        let path = url.path_and_query().map_or("/", |path| path.as_str());
        let authority = url.authority().map_or("", |authority| authority.as_str());
        let request = Request::get(path).header(http::header::HOST, authority);
        let request = request.body(Empty::<bytes::Bytes>::new()).map_err(io::Error::other)?;
        let response = sender.send_request(request).await.map_err(io::Error::other)?;
        if response.status() != StatusCode::OK {
            return Err(io::Error::other(format!("it answers {}", response.status())));
        }
        let body = Limited::new(response.into_body(), MAX_JWKS_BYTES).collect().await;
        Ok(body.map_err(io::Error::other)?.to_bytes().to_vec())
    };
    let answered = answered.await;
    driver.abort();
    answered
}

fn connector(ca: Option<&std::path::Path>) -> io::Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    match ca {
        None => drop(roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
        Some(file) => {
            for certificate in CertificateDer::pem_file_iter(file).map_err(io::Error::other)? {
                roots.add(certificate.map_err(io::Error::other)?).map_err(io::Error::other)?;
            }
        }
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(io::Error::other)?.with_root_certificates(roots).with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}
