//! The secrets that a token was minted with, and whether they are still the same.

use freeboard_policy::SecretReference;

use super::MintError;
use crate::credential::Secret;
use crate::credential::source::{self, Stamp};

/// What was read for one token, in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Reading {
    read: Vec<(SecretReference, Stamp)>,
}

impl Reading {
    pub(super) async fn secret(&mut self, reference: &SecretReference) -> Result<Secret, MintError> {
        let (secret, stamp) =
            source::read(reference).await.map_err(|error| MintError::Unreadable(error.to_string()))?;
        self.read.push((reference.clone(), stamp));
        Ok(secret)
    }

    /// As text, for names and tokens that go into a form.
    pub(super) async fn text(&mut self, reference: &SecretReference) -> Result<Secret, MintError> {
        let secret = self.secret(reference).await?;
        if secret.expose().iter().all(|byte| matches!(byte, b' '..=b'~')) {
            Ok(secret)
        } else {
            Err(MintError::unavailable("a secret has bytes that are not visible ASCII"))
        }
    }

    /// True when a helper printed some of it: nothing tells that it would print something else now.
    pub(super) fn ages(&self) -> bool {
        self.read.iter().any(|(_, stamp)| *stamp == Stamp::Ages)
    }

    /// False once a file was replaced. What a helper printed stays until the token itself is renewed.
    pub(super) fn is_current(&self) -> bool {
        self.read.iter().all(|(reference, stamp)| source::stamp(reference) == Some(*stamp))
    }
}
