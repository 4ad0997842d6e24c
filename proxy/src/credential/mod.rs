//! Stage 5: from a reference in the policy to what is attached to one request, and taken out of its response.
//!
//! [`Store`] reads and mints in single flight, [`Material`] is what one request gets, [`Scrubber`] masks it in what
//! comes back. Secrets live in [`Secret`], which does not show itself.

mod jwt;
mod readiness;
mod scrub;
mod secret;
mod sieve;
mod source;
mod store;

#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use readiness::{Unready, unready};
pub use scrub::{Masked, Scrubber};
pub use secret::Secret;
pub use store::Store;

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
            Attach::Query { .. } => None,
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
}

impl Attach {
    /// Compares in constant time.
    fn same_secret(&self, other: &Self) -> bool {
        let (Self::Header { value: mine, .. } | Self::Query { value: mine, .. }) = self;
        let (Self::Header { value: theirs, .. } | Self::Query { value: theirs, .. }) = other;
        subtle::ConstantTimeEq::ct_eq(mine.expose(), theirs.expose()).into()
    }
}
