//! Looks at a policy's secrets before a request needs them, so that what would be refused later is said at once.
//!
//! In: a policy. Out: the credentials that could not be used now, and why. Nothing is kept, and helpers are not run: they may
//! cost something or expect to be asked rarely.

use std::sync::Arc;

use freeboard_policy::{Policy, SecretReference};

use crate::confine;

use super::source::{self, SourceError};

/// A new folder of secrets came with a reload.
const FENCED: &str = ": the running broker confined itself to the folders of its start; start it anew";

/// A credential that requests would be refused for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unready {
    pub credential: Arc<str>,
    /// Names the reference, never the secret.
    pub problem: String,
    /// The reference could not be looked at by this user. The broker's own user may be another one.
    pub hidden: bool,
    /// Other users may read the secret.
    pub open: bool,
}

/// Every credential of the policy whose secret cannot be used as it is now.
pub fn unready(policy: &Policy) -> Vec<Unready> {
    let looked = policy.credentials().filter_map(|(name, view)| {
        let error = view.references().into_iter().find_map(|reference| look(reference).err())?;
        let hidden = matches!(
            &error,
            SourceError::Read { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied
        );
        let open = matches!(&error, SourceError::Mode { .. });
        let fenced =
            matches!(&error, SourceError::Read { path, .. } if hidden && !confine::state().may_read(path));
        let fenced = if fenced { FENCED } else { "" };
        Some(Unready { credential: Arc::clone(name), problem: format!("{error}{fenced}"), hidden, open })
    });
    let mut found: Vec<Unready> = looked.collect();
    found.sort_by(|one, other| one.credential.cmp(&other.credential));
    found
}

fn look(reference: &SecretReference) -> Result<(), SourceError> {
    match reference {
        SecretReference::Exec(_) => Ok(()),
        other => source::read_now(other).map(drop),
    }
}
