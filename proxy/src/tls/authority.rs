//! The TLS configuration to serve for a name: leaf and `rustls::ServerConfig`, cached and bounded.
//!
//! In: a name after the decision. Out: an `Arc<ServerConfig>` ready for a handshake. Granted names and refused ones
//! are kept apart, so that a guest that floods refusals cannot push out the configurations of granted names (E12).

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use freeboard_policy::{Host, Reason};
use lru::LruCache;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::server::{NoServerSessionStorage, ProducesTickets};
use rustls::sign::SingleCertAndKey;

use super::ca::{CaError, CertificateAuthority};
use super::leaf::{Leaf, LeafMint, LeafName};
use crate::limits::{GRANTED_LEAF_CACHE, LEAF_RENEW_BEFORE, REFUSED_LEAF_CACHE};

/// Shared by all workers; a lookup takes one short lock and never waits for a signature of another name.
pub struct Authority {
    mint: LeafMint,
    provider: Arc<CryptoProvider>,
    ticketer: Arc<dyn ProducesTickets>,
    granted: Mutex<LruCache<Host, Entry>>,
    refused: Mutex<LruCache<LeafName, Entry>>,
    made: AtomicU64,
    failed: AtomicU64,
}

#[derive(Clone)]
struct Entry {
    config: Arc<ServerConfig>,
    renew_at: i64,
}

/// Why no configuration can be served.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    #[error("the interception CA cannot sign")]
    Ca(#[from] CaError),
    #[error("TLS cannot be set up")]
    Tls(#[from] rustls::Error),
}

impl Authority {
    /// Called by `app` with the loaded CA.
    ///
    /// # Errors
    /// The leaf key or the ticket key could not be made: the system gives no random bytes.
    pub fn new(ca: Arc<CertificateAuthority>) -> Result<Self, AuthorityError> {
        let cache = |size: usize| NonZeroUsize::new(size).unwrap_or(NonZeroUsize::MIN);
        Ok(Self {
            mint: LeafMint::new(ca)?,
            provider: Arc::new(crate::crypto::provider()),
            ticketer: rustls::crypto::aws_lc_rs::Ticketer::new()?,
            granted: Mutex::new(LruCache::new(cache(GRANTED_LEAF_CACHE))),
            refused: Mutex::new(LruCache::new(cache(REFUSED_LEAF_CACHE))),
            made: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        })
    }

    /// The CA that guests must trust.
    pub fn ca(&self) -> &Arc<CertificateAuthority> {
        self.mint.ca()
    }

    /// The configuration with the leaf for a host that policy lets this run reach (ALPN `h2`, `http/1.1`), minted
    /// or from the cache. Called by `accept` after the decision only.
    ///
    /// # Errors
    /// `internal` when the CA cannot sign, for example because it has expired.
    pub fn server_config(&self, host: &Host) -> Result<Arc<ServerConfig>, Reason> {
        let now = now_unix();
        if let Some(found) = fresh(&self.granted, host, now) {
            return Ok(found);
        }
        let entry = self.build(&LeafName::Host(host.clone()), now).map_err(report)?;
        let config = Arc::clone(&entry.config);
        lock(&self.granted).put(host.clone(), entry);
        Ok(config)
    }

    /// The configuration for a name that is refused, so that the client can read why. `may_mint` is asked only when a
    /// certificate must be made: it takes one from the run's budget and says whether there was one.
    ///
    /// # Errors
    /// `run_limit` when `may_mint` says no, `internal` when the CA cannot sign.
    pub fn refusal_config(
        &self,
        name: &LeafName,
        may_mint: impl FnOnce() -> bool,
    ) -> Result<Arc<ServerConfig>, Reason> {
        let now = now_unix();
        if let LeafName::Host(host) = name
            && let Some(found) = fresh(&self.granted, host, now)
        {
            return Ok(found);
        }
        if let Some(found) = fresh(&self.refused, name, now) {
            return Ok(found);
        }
        // SECURITY: without the budget, a guest that asks for fresh names would make the broker sign at line rate.
        // Guarded by `e12_mints_for_refusals_only_within_the_budget`.
        if !may_mint() {
            return Err(Reason::RunLimit);
        }
        let entry = self.build(name, now).map_err(report)?;
        let config = Arc::clone(&entry.config);
        lock(&self.refused).put(name.clone(), entry);
        Ok(config)
    }

    /// True when serving `host` would not mint.
    pub fn is_cached(&self, host: &Host) -> bool {
        let now = now_unix();
        fresh(&self.granted, host, now).is_some()
            || fresh(&self.refused, &LeafName::Host(host.clone()), now).is_some()
    }

    /// Leaves that were made, and that could not be.
    pub fn mints(&self) -> (u64, u64) {
        (self.made.load(Ordering::Relaxed), self.failed.load(Ordering::Relaxed))
    }

    fn build(&self, name: &LeafName, now_unix: i64) -> Result<Entry, AuthorityError> {
        let entry = self.build_uncounted(name, now_unix);
        let count = if entry.is_ok() { &self.made } else { &self.failed };
        count.fetch_add(1, Ordering::Relaxed);
        entry
    }

    fn build_uncounted(&self, name: &LeafName, now_unix: i64) -> Result<Entry, AuthorityError> {
        let Leaf { certified, valid_until } = self.mint.mint(name, now_unix)?;
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        // The cheap suite for every guest that has it, whatever it lists first.
        config.ignore_client_order = true;
        // Stateless tickets: resumption costs the broker no memory. rustls resumes only for the same SNI.
        config.ticketer = Arc::clone(&self.ticketer);
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 1;
        // INVARIANT: no 0-RTT (RFC 8470, ATTACKS D26): a replayed request would be sent upstream twice.
        config.max_early_data_size = 0;
        Ok(Entry {
            config: Arc::new(config),
            renew_at: valid_until.saturating_sub_unsigned(LEAF_RENEW_BEFORE.as_secs()),
        })
    }
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").field("mint", &self.mint).finish_non_exhaustive()
    }
}

fn report(error: AuthorityError) -> Reason {
    tracing::error!(error = &error as &dyn std::error::Error, "no leaf certificate can be served");
    Reason::Internal
}

fn now_unix() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(i64::MAX, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

fn fresh<K: std::hash::Hash + Eq>(
    cache: &Mutex<LruCache<K, Entry>>,
    key: &K,
    now_unix: i64,
) -> Option<Arc<ServerConfig>> {
    let mut cache = lock(cache);
    let entry = cache.get(key)?;
    (entry.renew_at > now_unix).then(|| Arc::clone(&entry.config))
}

/// A panic while the lock was held cannot leave an LRU cache half written in a way that matters: the worst case is a
/// leaf that is minted again (ATTACKS E30: one bad request does not poison the process).
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
