//! Credentials: from a reference in the policy to what is attached to one request.

use std::sync::Arc;

use crate::error::Stop;
use crate::run::RunContext;

mod secret;

pub use secret::Secret;

/// What is attached to a request.
#[derive(Debug)]
pub struct Material {
    /// Name of the credential, for the audit record.
    pub name: Arc<str>,
    /// Stable for one value of the credential: upstream connections are shared only under the same identity. Not
    /// derived from the secret in a way that can be reversed.
    pub identity: u64,
    pub attach: Attach,
}

/// Where the secret goes.
#[derive(Debug)]
pub enum Attach {
    /// Whole field value, for example `Bearer …`. `name` is lower case.
    Header { name: Box<str>, value: Secret },
    /// Query parameter; `value` is percent-encoded already.
    Query { parameter: Box<str>, value: Secret },
}

/// The credentials of one policy generation: reads, mints and refreshes in single flight.
#[derive(Debug, Default)]
pub struct Store {}

impl Store {
    /// Called by `pipeline` after the permit and before the upstream connection.
    ///
    /// # Errors
    /// `credential_unavailable` when it cannot be read or minted or is known to be expired. Never a stale one.
    #[expect(clippy::unused_async, reason = "minting waits")]
    pub async fn material(&self, _name: &Arc<str>, _run: &RunContext) -> Result<Arc<Material>, Stop> {
        Err(freeboard_policy::Reason::CredentialUnavailable.into())
    }
}
