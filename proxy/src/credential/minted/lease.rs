//! What a run has to give back when it ends.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::{Instant, timeout};

use super::{Minter, kind};
use crate::broker::Clock;
use crate::credential::Secret;
use crate::limits::{GIVE_BACK_TIMEOUT, LEASES_PER_RUN};

/// A token that its issuer takes back.
#[derive(Debug)]
pub struct Lease {
    minter: Arc<Minter>,
    token: Secret,
    until: Option<Instant>,
}

impl Lease {
    pub(super) fn new(minter: &Arc<Minter>, token: Secret, until: Option<Instant>) -> Self {
        Self { minter: Arc::clone(minter), token, until }
    }

    /// Tries once: a token that cannot be given back expires by itself, and the log says which.
    pub(super) async fn give_back(self) {
        let Self { minter, token, .. } = &self;
        let now_unix = Clock.now().unix_seconds();
        match timeout(GIVE_BACK_TIMEOUT, kind::give_back(minter, token, now_unix)).await {
            Ok(Ok(())) => tracing::info!(credential = %minter.name, "given back"),
            Ok(Err(error)) => tracing::warn!(credential = %minter.name, ?error, "not given back"),
            Err(_) => tracing::warn!(credential = %minter.name, "not given back: the issuer does not answer"),
        }
    }

    fn is_over(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }
}

/// The leases of one run.
#[derive(Debug)]
pub struct Leases {
    /// `None` once the run has ended.
    open: Mutex<Option<Vec<Lease>>>,
}

impl Default for Leases {
    fn default() -> Self {
        Self { open: Mutex::new(Some(Vec::new())) }
    }
}

impl Leases {
    /// Hands the lease back when the run has ended, or holds too many.
    pub(super) fn push(&self, lease: Lease) -> Result<(), Lease> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(open) = open.as_mut() else { return Err(lease) };
        open.retain(|lease| !lease.is_over());
        if open.len() >= LEASES_PER_RUN {
            return Err(lease);
        }
        open.push(lease);
        Ok(())
    }

    /// Gives everything back. Called when the run has ended and nothing of it is in flight any more.
    pub async fn give_back(&self, run: &Arc<str>) {
        let leases = self.open.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_default();
        let leases = leases.into_iter().filter(|lease| !lease.is_over());
        futures_util::future::join_all(leases.map(|lease| {
            lease.minter.forget(run);
            lease.give_back()
        }))
        .await;
    }
}
