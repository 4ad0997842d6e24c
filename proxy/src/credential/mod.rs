//! Stage 5: from a reference in the policy to what is attached to one request, and taken out of its response.
//!
//! [`Store`] reads and mints in single flight, [`Material`] is what one request gets, [`Scrubber`] masks it in what
//! comes back. Secrets live in [`Secret`], which does not show itself.

mod jwt;
pub mod minted;
mod placeholder;
mod readiness;
mod scrub;
mod secret;
mod sieve;
pub mod sigv4;
mod source;
mod store;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use placeholder::{Placeholder, Placeholders};
pub use readiness::{Unready, unready};
pub use scrub::{Masked, Scrubber};
pub use secret::Secret;
pub use store::Store;

/// The secret that a file holds, for what is configured beside the policy: the file's rules are the same.
///
/// # Errors
/// Why it cannot be used; never its content.
pub fn secret_of_file(path: &std::path::Path) -> Result<Secret, String> {
    source::read_file(path).map(|(secret, _)| secret).map_err(|error| error.to_string())
}

/// What is attached to a request.
#[derive(Debug)]
pub struct Material {
    /// Name of the credential, for the audit record.
    pub name: Arc<str>,
    /// Stable for one value of the credential (one key and caller for minted tokens): upstream connections are shared
    /// only under the same identity. A counter; it says nothing about the secret.
    pub identity: u64,
    pub attach: Attach,
    /// Masks this credential in responses.
    pub scrubber: Arc<Scrubber>,
}

impl Material {
    /// Name of the header field that it is attached as.
    pub fn header_name(&self) -> Option<&str> {
        match &self.attach {
            Attach::Header { name, .. } => Some(name),
            Attach::Sign(_) => Some("authorization"),
            Attach::Query { .. } | Attach::Certificate(_) => None,
        }
    }

    /// The certificate that connections with this credential show.
    pub fn certificate(&self) -> Option<&ClientCertificate> {
        match &self.attach {
            Attach::Certificate(certificate) => Some(certificate),
            _ => None,
        }
    }

    /// For one request: the same credential with the signature that was made for it.
    #[must_use]
    pub fn signed(&self, authorization: Secret) -> Self {
        Self {
            name: Arc::clone(&self.name),
            identity: self.identity,
            attach: Attach::Header { name: "authorization".into(), value: authorization },
            scrubber: Arc::clone(&self.scrubber),
        }
    }
}

/// Where the secret goes.
#[derive(Debug)]
pub enum Attach {
    /// Whole field value, for example `Bearer …`. `name` is lower case.
    Header { name: Box<str>, value: Secret },
    /// Query parameter; `value` is percent-encoded already.
    Query { parameter: Box<str>, value: Secret },
    /// Nothing as it is: each request is signed, and gets the signature as its `Authorization`.
    Sign(Box<sigv4::Signer>),
    /// Nothing in the request: the certificate of the connection.
    Certificate(ClientCertificate),
}

/// A certificate and its key, for the connections of one credential.
#[derive(Clone)]
pub struct ClientCertificate {
    resolver: Arc<dyn rustls::client::ResolvesClientCert>,
    /// Tells one certificate from the next: sessions and connections are not shared between them.
    id: u64,
}

impl ClientCertificate {
    fn new(resolver: Arc<dyn rustls::client::ResolvesClientCert>) -> Self {
        Self { resolver, id: next_identity() }
    }

    pub fn resolver(&self) -> Arc<dyn rustls::client::ResolvesClientCert> {
        Arc::clone(&self.resolver)
    }

    pub fn id(&self) -> u64 {
        self.id
    }
}

impl std::fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientCertificate").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Identities are numbers that say nothing about the secret.
fn next_identity() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Attach {
    /// Whether connections that carried the one before may carry this one: a token is in each request.
    fn is_renewable(&self) -> bool {
        match self {
            Self::Header { .. } | Self::Query { .. } | Self::Sign(_) => true,
            Self::Certificate(_) => false,
        }
    }

    fn value(&self) -> Option<&Secret> {
        match self {
            Self::Header { value, .. } | Self::Query { value, .. } => Some(value),
            Self::Sign(_) | Self::Certificate(_) => None,
        }
    }

    /// Compares in constant time.
    fn same_secret(&self, other: &Self) -> bool {
        let (Some(mine), Some(theirs)) = (self.value(), other.value()) else { return false };
        subtle::ConstantTimeEq::ct_eq(mine.expose(), theirs.expose()).into()
    }
}
