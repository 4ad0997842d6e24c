//! What all runs share. One [`Broker`] per process, in an `Arc`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use freeboard_audit::PolicyIdentity;
use freeboard_policy::{ApiView, CredentialView, GrantView, Policy, Reason};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::approvals::Approvals;
use crate::credential::minted::{Holder, Minter, Mints};
use crate::credential::{Material, Placeholders, Store};
use crate::decide::breaker::Breakers;
use crate::decide::rates::Rates;
use crate::decide::revocations::Revocations;
use crate::error::Stop;
use crate::metrics::Metrics;
use crate::record::{Outcome, Recorder};
use crate::run::{RunContext, Runs};
use crate::session::Sessions;
use crate::tls::Authority;
use crate::traces::Traces;
use crate::upstream::dial::Dialler;

/// Shared state. `app` builds it; `accept`, `dns`, `pipeline` and `control_server` get it as `Arc<Broker>`.
#[derive(Debug)]
pub struct Broker {
    /// The policy in force with what was made from it. Take one snapshot per request (`snapshot`).
    policy: ArcSwap<Snapshot>,
    /// Mints leaves for intercepted hosts.
    pub authority: Arc<Authority>,
    /// Resolves, checks and dials upstream names.
    pub dialler: Arc<Dialler>,
    /// Tokens that issuers hand out.
    pub mints: Mints,
    /// The audit log. Use [`Broker::record`], which also keeps the run's trace.
    pub recorder: Recorder,
    /// What is counted, for those who watch.
    pub metrics: Metrics,
    /// What APIs said of their load.
    pub breakers: Breakers,
    /// Grants that people took away.
    pub revocations: Arc<Revocations>,
    /// Open runs, for the explicit door on a shared address and for the control server.
    pub runs: Runs,
    /// What the calls of one session have in common.
    pub sessions: Sessions,
    /// Where decisions are told besides the audit log.
    pub traces: Option<Traces>,
    pub clock: Clock,
    /// Requests that wait for a person.
    pub approvals: Approvals,
    /// Requests of all runs together, by API and by caller.
    pub rates: Rates,
    /// Told when a new generation is in force, and when time took a permission away: what is in flight asks again whether
    /// it may go on.
    pub ask_again: Notify,
    /// Cancelled when the broker stops taking new requests; those in flight get the grace time of `shutdown`.
    pub draining: CancellationToken,
}

/// One generation of policy and credentials. A request never sees half a reload.
#[derive(Debug)]
pub struct Snapshot {
    pub policy: Policy,
    /// Digest, and commit of the policy folder where it is a git work tree, as every record says them.
    pub identity: Arc<PolicyIdentity>,
    pub credentials: Store,
    /// What guests hold in place of credentials.
    pub placeholders: Placeholders,
    apis: Mutex<HashMap<Arc<str>, Arc<ApiView>>>,
    minters: Mutex<HashMap<Arc<str>, Arc<Minter>>>,
}

impl Snapshot {
    /// Called by `app` at the start and by `reload`.
    pub fn new(policy: Policy, commit: Option<Arc<str>>, credentials: Store) -> Self {
        let identity = Arc::new(PolicyIdentity { digest: Arc::clone(policy.digest()), commit });
        let placeholders = Placeholders::new(&policy);
        let minters = Mutex::default();
        Self { policy, identity, credentials, placeholders, apis: Mutex::default(), minters }
    }

    /// The API's facts, made once per generation. The `Arc` is the same for the same generation, so that it can be
    /// a cache key (`upstream::trust`).
    pub fn api(&self, name: &Arc<str>) -> Option<Arc<ApiView>> {
        let mut apis = self.apis.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(api) = apis.get(name) {
            return Some(Arc::clone(api));
        }
        let api = Arc::new(self.policy.api(name)?.clone());
        apis.insert(Arc::clone(name), Arc::clone(&api));
        Some(api)
    }

    /// What to attach for this credential and run. Called by `pipeline` after the permit and before the upstream
    /// connection.
    ///
    /// # Errors
    /// `credential_unavailable` when it cannot be read or minted or is known to be expired, `issuer_unavailable` when its
    /// issuer fails. Never a stale one.
    pub async fn material(
        &self,
        mints: &Mints,
        name: &Arc<str>,
        run: &RunContext,
        now: Moment,
    ) -> Result<Arc<Material>, Stop> {
        let unknown = || Stop::new(Reason::CredentialUnavailable, "the policy has no such credential");
        let view = self.policy.credential(name).ok_or_else(unknown)?;
        if Mints::mints(view) {
            let minter = self.minter(mints, name, view);
            let holder = Holder { run: &run.id, caller: run.caller.as_ref(), leases: &run.leases };
            // Boxed: most requests never need this state.
            return Box::pin(async move { minter.material(holder, now.unix_seconds()).await }).await;
        }
        self.credentials.material(name, view, run.caller.as_ref(), now.unix_seconds()).await
    }

    fn minter(&self, mints: &Mints, name: &Arc<str>, view: &CredentialView) -> Arc<Minter> {
        let mut minters = self.minters.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(minter) = minters.get(name) {
            return Arc::clone(minter);
        }
        let minter = mints.minter(name, view);
        minters.insert(Arc::clone(name), Arc::clone(&minter));
        minter
    }

    /// The grant's facts.
    pub fn grant(&self, name: &str) -> Option<&GrantView> {
        self.policy.grant(name)
    }
}

impl Broker {
    /// Called by `app` only.
    pub fn new(
        snapshot: Snapshot,
        authority: impl Into<Arc<Authority>>,
        dialler: Dialler,
        recorder: Recorder,
    ) -> Self {
        let dialler = Arc::new(dialler);
        Self {
            policy: ArcSwap::from_pointee(snapshot),
            authority: authority.into(),
            mints: Mints::new(Arc::<Dialler>::clone(&dialler)),
            dialler,
            recorder,
            metrics: Metrics::default(),
            breakers: Breakers::default(),
            revocations: Arc::default(),
            runs: Runs::default(),
            sessions: Sessions::default(),
            traces: None,
            clock: Clock,
            approvals: Approvals::default(),
            rates: Rates::default(),
            ask_again: Notify::new(),
            draining: CancellationToken::new(),
        }
    }

    /// The generation in force now. Hold it for one request or one handshake, not longer.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.policy.load_full()
    }

    /// Puts a new generation in force. Called by `reload`.
    pub fn replace(&self, snapshot: Snapshot) {
        self.policy.store(Arc::new(snapshot));
        self.ask_again.notify_waiters();
    }

    /// Writes down what happened to one request, connection or query: trace of the run and audit log. Called
    /// exactly once for each, by `pipeline`, `accept` and `dns`.
    pub fn record(&self, outcome: Box<Outcome>) {
        if let Some(run) = &outcome.run {
            run.note(&outcome);
        }
        self.metrics.note(&outcome);
        if let Some(traces) = &self.traces {
            traces.note(&outcome);
        }
        self.recorder.record(outcome);
    }
}

/// Wall and monotonic time of one moment.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    pub unix_ms: u64,
    pub instant: Instant,
}

impl Moment {
    pub fn unix_seconds(self) -> i64 {
        i64::try_from(self.unix_ms / 1000).unwrap_or(i64::MAX)
    }

    /// Whole microseconds since this moment.
    pub fn elapsed_us(self) -> u64 {
        u64::try_from(self.instant.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

/// The system's clock. A wall clock before 1970 reads as the end of time, so that everything has expired.
#[derive(Debug, Clone, Copy, Default)]
pub struct Clock;

impl Clock {
    pub fn now(&self) -> Moment {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let unix_ms = since.map_or(u64::MAX, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
        Moment { unix_ms, instant: Instant::now() }
    }
}
