//! Credentials that somebody else hands out: fetched when they are needed, renewed before they expire, given back when
//! their run ends.
//!
//! In: a credential's description and who asks. Out: what to attach, not expired. One request to an issuer at a time for
//! each credential and holder, whoever waits for it, and a pause after a failure, so that an issuer in trouble is not
//! asked by every request. A token that is known to be expired is never handed out; one that will expire soon is, while its
//! successor is fetched beside the requests.

mod asking;
mod aws;
mod exec;
mod gcp;
mod github;
mod kind;
mod lease;
mod mtls;
mod oauth2;
mod reading;
mod rotated;
mod slot;
mod vault;

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use freeboard_policy::{CredentialView, Reason};
use lru::LruCache;
use tokio::sync::OwnedMutexGuard;
use tokio::time::timeout;

pub use asking::{IssuerAnswer, IssuerRequest, Issuers};
pub use lease::{Lease, Leases};

use self::kind::{Minted, Sharing};
use self::reading::Reading;
use self::slot::{Look, Slot};
use super::{Material, Secret};
use crate::error::Stop;
use crate::limits::{MINT_TIMEOUT, MINTED_TOKENS_PER_CREDENTIAL};

/// Every minter of the broker. They outlive a reload of the policy where the credential's definition stays the same: a
/// reload costs no tokens, and a refresh token that was replaced is not forgotten.
#[derive(Debug)]
pub struct Mints {
    issuers: Arc<dyn Issuers>,
    minters: Mutex<HashMap<Arc<str>, Arc<Minter>>>,
}

/// Who asks for a credential.
#[derive(Debug, Clone, Copy)]
pub struct Holder<'a> {
    pub run: &'a Arc<str>,
    pub caller: Option<&'a Arc<str>>,
    /// What to give back when the run ends.
    pub leases: &'a Arc<Leases>,
}

/// One credential's tokens.
#[derive(Debug)]
pub struct Minter {
    name: Arc<str>,
    view: CredentialView,
    issuers: Arc<dyn Issuers>,
    slots: Mutex<LruCache<Option<Arc<str>>, Arc<Slot>>>,
    /// What one token leaves for the next.
    kept: Mutex<Kept>,
    made: AtomicU64,
    failed: AtomicU64,
}

/// See [`Minter::kept`].
#[derive(Debug, Default)]
struct Kept {
    /// A refresh token that the issuer gave in place of the one with this SHA-256.
    refresh_token: Option<([u8; 32], Secret)>,
    /// Of a GitHub App, as looked up.
    installation: Option<u64>,
}

/// Why nothing was minted. Nothing of a secret is in it.
#[derive(Debug)]
pub(super) enum MintError {
    /// The issuer cannot be reached or fails: it may be better soon.
    Issuer { detail: String, retry_after: Option<Duration> },
    /// The issuer refuses, what it gave cannot be used, or a secret cannot be read: somebody has to look.
    Unavailable(String),
    /// A secret cannot be read here: looking again costs little, and whoever repairs it should see that soon.
    Unreadable(String),
}

impl MintError {
    fn unavailable(what: impl Into<String>) -> Self {
        Self::Unavailable(what.into())
    }
}

impl Mints {
    /// `issuers` is how issuers are asked: the broker's own dialler, or a stand-in of a test.
    pub fn new(issuers: Arc<dyn Issuers>) -> Self {
        Self { issuers, minters: Mutex::default() }
    }

    /// True for credentials that come from here, false for those that are read and attached as they are.
    pub fn mints(view: &CredentialView) -> bool {
        kind::is_minted(view)
    }

    /// Credentials by name, with the tokens that were made and the attempts that failed.
    pub fn counts(&self) -> Vec<(Arc<str>, u64, u64)> {
        let minters = self.minters.lock().unwrap_or_else(PoisonError::into_inner);
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counts = minters
            .values()
            .map(|minter| (Arc::clone(&minter.name), read(&minter.made), read(&minter.failed)));
        let mut counts: Vec<_> = counts.collect();
        counts.sort_unstable();
        counts
    }

    /// The minter of this definition. Ask once per policy generation.
    pub fn minter(&self, name: &Arc<str>, view: &CredentialView) -> Arc<Minter> {
        let mut minters = self.minters.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(minter) = minters.get(name).filter(|minter| minter.view == *view) {
            return Arc::clone(minter);
        }
        let slots = NonZeroUsize::new(MINTED_TOKENS_PER_CREDENTIAL).unwrap_or(NonZeroUsize::MIN);
        let minter = Arc::new(Minter {
            name: Arc::clone(name),
            view: view.clone(),
            issuers: Arc::clone(&self.issuers),
            slots: Mutex::new(LruCache::new(slots)),
            kept: Mutex::default(),
            made: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        });
        minters.insert(Arc::clone(name), Arc::clone(&minter));
        minter
    }
}

impl Minter {
    /// What to attach for this holder. Dropping the future does not stop a token on its way: the next request finds it.
    ///
    /// # Errors
    /// `issuer_unavailable` or `credential_unavailable`.
    pub async fn material(
        self: &Arc<Self>,
        holder: Holder<'_>,
        now_unix: i64,
    ) -> Result<Arc<Material>, Stop> {
        let slot = self.slot(holder);
        match slot.look(now_unix) {
            Look::Fresh(material) => return Ok(material),
            Look::Aging(material) => {
                if let Ok(turn) = Arc::clone(&slot.working).try_lock_owned()
                    && slot.failure().is_none()
                {
                    tokio::spawn(Arc::clone(self).mint(slot, holder.owned(), now_unix, turn));
                }
                return Ok(material);
            }
            Look::Nothing => {}
        }
        let turn = Arc::clone(&slot.working).lock_owned().await;
        // Whoever had the turn before may have brought it.
        if let Look::Fresh(material) | Look::Aging(material) = slot.look(now_unix) {
            return Ok(material);
        }
        if let Some(stop) = slot.failure() {
            return Err(stop);
        }
        let minting = tokio::spawn(Arc::clone(self).mint(slot, holder.owned(), now_unix, turn));
        minting.await.unwrap_or_else(|_| Err(Stop::new(Reason::Internal, "minting failed")))
    }

    fn slot(&self, holder: Holder<'_>) -> Arc<Slot> {
        let key = match kind::sharing(&self.view) {
            Sharing::All => None,
            Sharing::Caller => holder.caller.cloned(),
            Sharing::Run => Some(Arc::clone(holder.run)),
        };
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(slots.get_or_insert(key, Arc::default))
    }

    /// Mints while it holds the turn. A task of its own, bounded by `MINT_TIMEOUT`: a guest that leaves must not lose a
    /// refresh token that the issuer has just replaced.
    async fn mint(
        self: Arc<Self>,
        slot: Arc<Slot>,
        holder: OwnedHolder,
        now_unix: i64,
        _turn: OwnedMutexGuard<()>,
    ) -> Result<Arc<Material>, Stop> {
        let mut reading = Reading::default();
        let asked = tokio::time::Instant::now();
        let minting = kind::mint(&self, &mut reading, holder.caller.as_deref(), now_unix);
        let minted = timeout(MINT_TIMEOUT, minting).await.unwrap_or_else(|_| {
            let detail = format!("no token within {} s", MINT_TIMEOUT.as_secs());
            Err(MintError::Issuer { detail, retry_after: None })
        });
        match minted {
            Ok(Minted { attach, scrubber, lifetime, give_back }) => {
                self.made.fetch_add(1, Ordering::Relaxed);
                let material = slot.keep(&self.name, (attach, scrubber), lifetime, asked, now_unix, reading);
                tracing::info!(credential = %self.name, lifetime = ?lifetime, "minted");
                if let Some(token) = give_back {
                    let lease = Lease::new(&self, token, lifetime.map(|lifetime| asked + lifetime));
                    self.keep_lease(&holder, lease).await;
                }
                Ok(material)
            }
            Err(error) => {
                self.failed.fetch_add(1, Ordering::Relaxed);
                let stop = slot.fail(&self.name, error);
                tracing::warn!(credential = %self.name, %stop, "no token");
                Err(stop)
            }
        }
    }

    /// A run that ended while its token was on its way has nobody left to give it back.
    async fn keep_lease(&self, holder: &OwnedHolder, lease: Lease) {
        if let Err(lease) = holder.leases.push(lease) {
            lease.give_back().await;
        }
    }

    fn forget(&self, run: &Arc<str>) {
        if kind::sharing(&self.view) == Sharing::Run {
            self.slots.lock().unwrap_or_else(PoisonError::into_inner).pop(&Some(Arc::clone(run)));
        }
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A [`Holder`] for a task of its own.
#[derive(Debug)]
struct OwnedHolder {
    caller: Option<Arc<str>>,
    leases: Arc<Leases>,
}

impl Holder<'_> {
    fn owned(self) -> OwnedHolder {
        OwnedHolder { caller: self.caller.cloned(), leases: Arc::clone(self.leases) }
    }
}
