//! What belongs to one run: identity, scope, budgets, names, upstream connections, trace and end.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwapOption;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use freeboard_audit::RunIdentity;
use freeboard_control::{Call, Evidence, OpenGate, ProxyToken, Trace};
use freeboard_policy::{Reason, RunScope, ScopeQuestion, Tier};
use rustix::process::{Resource, getrlimit};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use crate::broker::{Broker, Moment, Snapshot};
use crate::credential::minted::Leases;
use crate::decide::revocations::Revocations;
use crate::error::Stop;
use crate::limits;
use crate::record::{Outcome, Verdict};
use crate::request::held::Room;
use crate::session::Account;
use crate::upstream::pool::Pool;

/// One run, from the opening of its gate to its end. Shared by the gate's doors in an `Arc`.
#[derive(Debug)]
pub struct RunContext {
    /// 32 lower-case hex digits.
    pub id: Arc<str>,
    pub caller: Option<Arc<str>>,
    /// Measured tier.
    pub tier: Tier,
    pub grants: Vec<String>,
    pub evidence: Evidence,
    /// The same as every record of the run says it.
    pub identity: Arc<RunIdentity>,
    pub opened: Moment,
    /// When the run ends at the latest, milliseconds since 1970 UTC. `control_server` cancels it then.
    pub expires_unix_ms: u64,
    /// What it uses up; that of its session where it is a call of one.
    pub account: Arc<Account>,
    /// Idle upstream connections. INVARIANT: they belong to one run, so no run can meet another's leftovers (B37).
    pub pool: Pool,
    /// Tokens that are given back when the run has ended.
    pub leases: Arc<Leases>,
    /// Cancelled at the end of the run: every connection of its gate is cut.
    pub ended: CancellationToken,
    /// SHA-256 of the token that the explicit door on a shared address asks for.
    proxy_token: Mutex<Option<[u8; 32]>>,
    scope: ArcSwapOption<Scoped>,
    /// The broker's.
    revocations: Arc<Revocations>,
    trace: Mutex<Trace>,
    connections: AtomicUsize,
    most_connections: usize,
    refusal_leaves: AtomicU32,
    /// Places for TLS handshakes that go on at once. Those that find none wait in order: a run that opens connections as fast as it
    /// can fills this queue and not that of the processors.
    pub handshakes: Semaphore,
    /// Bytes of request bodies that are held for rules that look at them.
    held: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Scoped {
    generation: std::sync::Weak<Snapshot>,
    revocations: u64,
    scope: Result<Arc<RunScope>, Stop>,
}

impl RunContext {
    /// Called by `control_server` for `Open`, and for the static runs of the configuration. `proxy_token` is the SHA-256
    /// of what the run must present on the explicit door of a shared address; `None` when it has none.
    ///
    /// # Errors
    /// The grants are not this caller's, have expired, or need a stronger tier than was measured.
    pub fn open(gate: &OpenGate, proxy_token: Option<[u8; 32]>, broker: &Broker) -> Result<Arc<Self>, Stop> {
        let identity = Arc::new(RunIdentity {
            run: Arc::from(gate.run.as_str()),
            caller: gate.caller.as_deref().map(Arc::from),
            tier: Some(gate.evidence.tier),
            provider: Some(Arc::from(gate.evidence.provider.as_str())),
            trace_id: gate.trace_id.as_deref().map(Arc::from),
            session: gate.session.as_ref().map(|session| Arc::from(session.fingerprint.as_str())),
        });
        let opened = broker.clock.now();
        let account = match &gate.session {
            Some(session) => broker.sessions.account(session, identity.caller.as_ref(), opened)?,
            None => Arc::new(Account::new(opened)),
        };
        let run = Self {
            id: Arc::clone(&identity.run),
            caller: identity.caller.clone(),
            tier: gate.evidence.tier,
            grants: gate.grants.clone(),
            evidence: gate.evidence.clone(),
            identity,
            opened,
            expires_unix_ms: gate.expires_unix_ms,
            account,
            pool: Pool::default(),
            leases: Arc::default(),
            ended: CancellationToken::new(),
            proxy_token: Mutex::new(proxy_token),
            scope: ArcSwapOption::empty(),
            revocations: Arc::clone(&broker.revocations),
            trace: Mutex::default(),
            connections: AtomicUsize::new(0),
            most_connections: most_connections(getrlimit(Resource::Nofile).current),
            refusal_leaves: AtomicU32::new(0),
            handshakes: Semaphore::new(limits::HANDSHAKES_PER_RUN),
            held: Arc::default(),
        };
        if !run.grants.is_empty() {
            run.scope(&broker.snapshot(), run.opened)?;
        }
        Ok(Arc::new(run))
    }

    /// The run's grants under this generation of policy: resolved once per generation and revocation, so that what is
    /// taken away is gone at the next request.
    ///
    /// # Errors
    /// The run has ended, its time for the grants is over, or policy no longer gives them. A run without grants
    /// is refused as `host_not_granted`.
    pub fn scope(&self, snapshot: &Arc<Snapshot>, now: Moment) -> Result<Arc<RunScope>, Stop> {
        if self.ended.is_cancelled() || now.unix_ms >= self.expires_unix_ms {
            return Err(Reason::RunEnded.into());
        }
        if self.grants.is_empty() {
            return Err(Stop::new(Reason::HostNotGranted, "the run has no grants"));
        }
        let revocations = self.revocations.count();
        let cached = self.scope.load();
        let scope = match cached.as_ref() {
            Some(scoped)
                if std::ptr::eq(scoped.generation.as_ptr(), Arc::as_ptr(snapshot))
                    && scoped.revocations == revocations =>
            {
                scoped.scope.clone()?
            }
            _ => self.resolve(snapshot, revocations, now)?,
        };
        let ttl_over = scope.ttl_seconds.is_some_and(|ttl| {
            now.unix_ms.saturating_sub(self.account.since.unix_ms) >= ttl.saturating_mul(1000)
        });
        if ttl_over { Err(Stop::new(Reason::GrantExpired, "the run's time is over")) } else { Ok(scope) }
    }

    /// When time takes something away from this run under this generation, in milliseconds since 1970 UTC: the end of
    /// each grant's `ttl`, and of its last day.
    pub fn permission_ends(&self, snapshot: &Snapshot) -> impl Iterator<Item = u64> {
        let grants = self.grants.iter().filter_map(|name| snapshot.policy.grant(name));
        let since = self.account.since.unix_ms;
        grants.flat_map(move |grant| {
            let ttl = grant.ttl_seconds.map(|ttl| since.saturating_add(ttl.saturating_mul(1000)));
            let day = grant.expires_unix.and_then(|end| u64::try_from(end).ok());
            [ttl, day.map(|end| end.saturating_mul(1000))].into_iter().flatten()
        })
    }

    fn resolve(
        &self,
        snapshot: &Arc<Snapshot>,
        revocations: u64,
        now: Moment,
    ) -> Result<Arc<RunScope>, Stop> {
        let scope = self.grants_left().and_then(|grants| {
            let question = ScopeQuestion {
                caller: self.caller.as_deref(),
                grants: &grants,
                tier: Some(self.tier),
                session: self.identity.session.is_some(),
                now_unix: now.unix_seconds(),
            };
            snapshot.policy.scope(&question).map(Arc::new).map_err(Stop::from)
        });
        let generation = Arc::downgrade(snapshot);
        self.scope.store(Some(Arc::new(Scoped { generation, revocations, scope: scope.clone() })));
        scope
    }

    /// The grants that nobody has taken away.
    ///
    /// # Errors
    /// `grant_revoked`
    pub fn grants_left(&self) -> Result<Vec<String>, Stop> {
        if self.account.is_revoked() {
            return Err(Stop::new(Reason::GrantRevoked, "the run's grants were revoked"));
        }
        self.revocations.left(self.caller.as_deref(), &self.grants)
    }

    /// Takes all grants from this run, and from its session where it is a call of one.
    pub fn revoke(&self) {
        self.account.revoke();
        self.revocations.of_run();
    }

    /// See [`Revocations::count`].
    pub fn revocations(&self) -> u64 {
        self.revocations.count()
    }

    /// Makes the credential of the doors that are not its gate's, in place of one before. Only its hash is kept; the random
    /// 256 bits need no slow hash.
    ///
    /// # Errors
    /// The run has ended, or the system gives no random bytes.
    pub fn issue_proxy_token(&self) -> Result<ProxyToken, Stop> {
        if self.ended.is_cancelled() {
            return Err(Reason::RunEnded.into());
        }
        let mut random = Zeroizing::new([0_u8; 32]);
        getrandom::fill(&mut *random)
            .map_err(|_| Stop::new(Reason::Internal, "the system gives no random bytes"))?;
        let token = URL_SAFE_NO_PAD.encode(*random);
        let hash: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        *self.proxy_token.lock().unwrap_or_else(PoisonError::into_inner) = Some(hash);
        Ok(ProxyToken(token))
    }

    /// Room for a body that is held.
    pub fn room(&self) -> Room {
        Room::new(&self.held)
    }

    /// Counts a guest connection for as long as the guard lives; `None` at the limit of the run.
    pub fn admit(self: &Arc<Self>) -> Option<Admitted> {
        let before = self.connections.fetch_add(1, Ordering::Relaxed);
        let admitted = Admitted { run: Arc::clone(self) };
        (before < self.most_connections).then_some(admitted)
    }

    /// Guest connections that are open now.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Takes one of the leaves that the run may cause for names that are not granted to it.
    pub fn spend_refusal_leaf(&self) -> bool {
        self.refusal_leaves.fetch_add(1, Ordering::Relaxed) < limits::REFUSAL_LEAVES_PER_RUN
    }

    /// Adds an outcome to the trace. Called by `Broker::record`.
    pub fn note(&self, outcome: &Outcome) {
        let mut trace = self.trace.lock().unwrap_or_else(PoisonError::into_inner);
        match outcome.verdict {
            Verdict::Allowed => trace.allowed += 1,
            Verdict::Denied => trace.denied += 1,
            Verdict::Failed => trace.failed += 1,
            Verdict::Shed => trace.shed += 1,
        }
        if trace.calls.len() < limits::TRACE_CALLS {
            trace.calls.push(call(outcome));
        } else {
            trace.dropped += 1;
        }
    }

    /// What the run did so far. `control_server` sends it as the answer to `Close`.
    pub fn trace(&self) -> Trace {
        self.trace.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Connections that one run may have where the broker may have so many files open.
fn most_connections(open_files: Option<u64>) -> usize {
    let share = open_files.map_or(u64::MAX, |files| files / limits::OPEN_FILES_PER_CONNECTION_OF_A_RUN);
    usize::try_from(share).unwrap_or(usize::MAX).clamp(1, limits::CONNECTIONS_PER_RUN)
}

fn call(outcome: &Outcome) -> Call {
    Call {
        request_id: outcome.request_id.to_string(),
        method: outcome.method.to_string(),
        host: outcome.host.to_string(),
        path: outcome.path.chars().take(limits::TRACE_PATH_BYTES).collect(),
        verdict: outcome.verdict.word().to_owned(),
        reason: outcome.reason,
        status: outcome.upstream_status,
        latency_ms: outcome.duration_us / 1000,
    }
}

/// One counted guest connection.
#[derive(Debug)]
pub struct Admitted {
    run: Arc<RunContext>,
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.run.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The open runs. `control_server` inserts and removes.
#[derive(Debug, Default)]
pub struct Runs {
    by_id: Mutex<HashMap<Arc<str>, Arc<RunContext>>>,
}

impl Runs {
    /// False, and nothing changed, when a run of this id is open already.
    pub fn insert(&self, run: &Arc<RunContext>) -> bool {
        let mut runs = self.by_id.lock().unwrap_or_else(PoisonError::into_inner);
        if runs.contains_key(&run.id) {
            return false;
        }
        runs.insert(Arc::clone(&run.id), Arc::clone(run));
        true
    }

    /// Takes the run out and ends it: all its connections are cut.
    pub fn end(&self, id: &str) -> Option<Arc<RunContext>> {
        let run = self.by_id.lock().unwrap_or_else(PoisonError::into_inner).remove(id)?;
        run.ended.cancel();
        Some(run)
    }

    /// Ends every run. Called at the end of the process.
    pub fn end_all(&self) {
        let runs = std::mem::take(&mut *self.by_id.lock().unwrap_or_else(PoisonError::into_inner));
        for run in runs.values() {
            run.ended.cancel();
        }
    }

    /// Guest connections of all runs that are open now.
    pub fn connections(&self) -> usize {
        let runs = self.by_id.lock().unwrap_or_else(PoisonError::into_inner);
        runs.values().map(|run| run.connections()).sum()
    }

    /// The open runs of which this holds.
    pub fn which(&self, holds: impl Fn(&RunContext) -> bool) -> Vec<Arc<RunContext>> {
        let runs = self.by_id.lock().unwrap_or_else(PoisonError::into_inner);
        runs.values().filter(|run| holds(run)).cloned().collect()
    }

    pub fn find(&self, id: &str) -> Option<Arc<RunContext>> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    /// The run that this proxy credential names: its id as user and its token. The time taken does not depend on
    /// how much of the token is right.
    pub fn authenticate(&self, id: &str, token: &[u8]) -> Option<Arc<RunContext>> {
        let run = self.find(id)?;
        let expected = (*run.proxy_token.lock().unwrap_or_else(PoisonError::into_inner))?;
        let given: [u8; 32] = Sha256::digest(token).into();
        bool::from(subtle::ConstantTimeEq::ct_eq(&given[..], &expected[..])).then_some(run)
    }
}

#[cfg(test)]
mod tests {
    use freeboard_policy::{Policy, SourceFile};

    use super::*;
    use crate::credential::Store;
    use crate::testing::{lab, ok};

    #[test]
    fn e15_one_run_gets_a_share_of_the_open_files() {
        assert_eq!(most_connections(Some(1024)), 128);
        assert_eq!(most_connections(Some(1 << 20)), limits::CONNECTIONS_PER_RUN);
        assert_eq!(most_connections(None), limits::CONNECTIONS_PER_RUN);
        assert_eq!(most_connections(Some(4)), 1, "one at least");
    }

    #[tokio::test]
    async fn time_ends_permissions_by_ttl_and_by_the_last_day() {
        let lab = lab(|_| ok("", "")).await;
        let run = &lab.client.run;
        let ends = |more: &str| {
            let grants = run.grants.iter().map(|name| {
                format!(
                    "[grant.{name}]\ncallers = [\"*\"]\n{more}\n[[grant.{name}.allow]]\napi = \"one\"\nroutes = [\"GET /{name}\"]\n"
                )
            });
            let text = format!("[api.one]\norigins = [\"https://api.test\"]\n{}", grants.collect::<String>());
            let policy = Policy::load(&[SourceFile::new("policy.toml", text)]).unwrap().policy;
            let mut ends: Vec<u64> =
                run.permission_ends(&Snapshot::new(policy, None, Store::default())).collect();
            ends.dedup();
            ends
        };
        let (opened, after_the_last_day) = (run.opened.unix_ms, 1_801_440_000_000);
        assert!(ends("").is_empty());
        assert_eq!(ends("ttl = \"15m\""), [opened + 900_000]);
        assert_eq!(ends("expires = 2027-01-31"), [after_the_last_day]);
        assert_eq!(ends("ttl = \"1h\"\nexpires = 2027-01-31")[..2], [opened + 3_600_000, after_the_last_day]);
    }
}
