//! One session: who may use it, its turns, its chain of records, its end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use freeboard_control::{Evidence, SessionOfCall};
use freeboard_wire::{SessionEnd, SoftwareRule};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::unclaimed_after;
use crate::admission::{Full, Place};
use crate::launch::unix_ms;
use crate::limits::ENDED_KEPT;
use crate::provider::{Description, Session};

/// What was stated when the session was opened, and holds for all its calls.
#[derive(Debug, Clone)]
pub struct Facts {
    pub evidence: Evidence,
    pub description: Description,
    pub rule: Option<SoftwareRule>,
    /// Of the gate, besides those that every gate has.
    pub ports: Vec<u16>,
    pub lifetime: Duration,
    /// Zero = never suspended.
    pub idle: Duration,
}

/// A session, open or ended.
pub struct Entry {
    /// SHA-256 of the id.
    pub fingerprint: String,
    pub caller: Option<String>,
    pub owner: Option<String>,
    pub facts: Facts,
    pub(super) opened: Instant,
    turn: Arc<Semaphore>,
    waiting: AtomicBool,
    changed: Arc<Notify>,
    state: Mutex<State>,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry").field("fingerprint", &self.fingerprint).finish_non_exhaustive()
    }
}

/// The sandbox of an open session.
pub(super) struct Live {
    pub(super) session: Box<dyn Session>,
    /// Its place among the runs; `None` while it is suspended.
    pub(super) place: Option<Place>,
}

pub(super) struct State {
    /// `None` when the session has ended, and while a call has it.
    live: Option<Live>,
    suspended: bool,
    claimed: bool,
    used: Instant,
    chain: Chain,
    ended: Option<Ended>,
}

/// The records of a session so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chain {
    /// Calls that were answered, or may have run.
    pub calls: u64,
    /// Digest of the last one's record; empty before the first.
    pub last: String,
}

/// Why a session serves no more calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    pub end: SessionEnd,
    pub detail: String,
    pub since: Instant,
}

/// What is to be done about a session as time passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    Expire,
    Unclaimed,
    Suspend,
    Forget,
}

impl Entry {
    pub(super) fn new(
        fingerprint: String,
        caller: Option<String>,
        owner: Option<String>,
        facts: Facts,
        live: Live,
        changed: Arc<Notify>,
    ) -> Self {
        let now = Instant::now();
        let state = State {
            live: Some(live),
            suspended: false,
            claimed: false,
            used: now,
            chain: Chain::default(),
            ended: None,
        };
        Self {
            fingerprint,
            caller,
            owner,
            facts,
            opened: now,
            turn: Arc::new(Semaphore::new(1)),
            waiting: AtomicBool::new(false),
            changed,
            state: Mutex::new(state),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request has named the session: it is not closed as unclaimed.
    pub(super) fn claim(&self) {
        self.state().claimed = true;
    }

    pub fn ended(&self) -> Option<Ended> {
        self.state().ended.clone()
    }

    pub fn chain(&self) -> Chain {
        self.state().chain.clone()
    }

    pub fn expires(&self) -> Instant {
        self.opened + self.facts.lifetime
    }

    /// As the broker is told with each of its calls.
    pub fn of_call(&self) -> SessionOfCall {
        let left = self.expires().saturating_duration_since(Instant::now());
        SessionOfCall {
            fingerprint: self.fingerprint.clone(),
            expires_unix_ms: unix_ms(SystemTime::now() + left),
        }
    }

    pub(super) fn used(&self) -> Instant {
        self.state().used
    }

    /// Nobody has the turn.
    pub(super) fn is_idle(&self) -> bool {
        self.turn.available_permits() > 0
    }

    /// The turn to call, after one call in progress at most; dropped while it waits, the wait is over.
    pub async fn turn(self: &Arc<Self>) -> Result<Turn, Full> {
        if let Some(turn) = self.try_turn() {
            return Ok(turn);
        }
        if self.waiting.swap(true, Ordering::SeqCst) {
            return Err(Full::SessionBusy);
        }
        let _waiting = Waiting(&self.waiting);
        self.last_turn().await.ok_or(Full::SessionBusy)
    }

    pub(super) fn try_turn(self: &Arc<Self>) -> Option<Turn> {
        let permit = Arc::clone(&self.turn).try_acquire_owned().ok()?;
        Some(self.with(permit))
    }

    /// The turn to end the session, after everybody who has it or waits for it.
    pub(super) async fn last_turn(self: &Arc<Self>) -> Option<Turn> {
        let permit = Arc::clone(&self.turn).acquire_owned().await.ok()?;
        Some(self.with(permit))
    }

    fn with(self: &Arc<Self>, permit: OwnedSemaphorePermit) -> Turn {
        let notice = Notice(Arc::clone(&self.changed));
        Turn { entry: Arc::clone(self), _permit: permit, _notice: notice }
    }

    /// What time brings next, and when. Busy sessions are looked at when their call is over.
    pub(super) fn due(&self) -> (Instant, Due) {
        let state = self.state();
        if let Some(ended) = &state.ended {
            return (ended.since + ENDED_KEPT, Due::Forget);
        }
        let mut next = (self.expires(), Due::Expire);
        let idle = self.facts.idle;
        if !state.claimed {
            next = next.min_by_time((self.opened + unclaimed_after(idle), Due::Unclaimed));
        } else if !idle.is_zero() && !state.suspended {
            next = next.min_by_time((state.used + idle, Due::Suspend));
        }
        next
    }
}

trait Earlier {
    fn min_by_time(self, other: Self) -> Self;
}

impl Earlier for (Instant, Due) {
    fn min_by_time(self, other: Self) -> Self {
        if other.0 < self.0 { other } else { self }
    }
}

/// Takes back that somebody waits.
struct Waiting<'a>(&'a AtomicBool);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

/// Dropped after the permit, so that who is woken finds the turn free.
#[derive(Debug)]
struct Notice(Arc<Notify>);

impl Drop for Notice {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

/// The right to do something with a session's sandbox: at most one exists.
#[derive(Debug)]
pub struct Turn {
    pub(super) entry: Arc<Entry>,
    _permit: OwnedSemaphorePermit,
    _notice: Notice,
}

impl Turn {
    pub fn entry(&self) -> &Arc<Entry> {
        &self.entry
    }

    /// Takes the sandbox out for a call. It is put back, or the session ends.
    pub(super) fn take(&self) -> Option<Live> {
        self.entry.state().live.take()
    }

    pub(super) fn put_back(&self, live: Live) {
        let mut state = self.entry.state();
        state.suspended = live.place.is_none();
        state.used = Instant::now();
        state.live = Some(live);
    }

    /// Counts a call that was answered, or may have run.
    pub fn count(&self, record_sha256: &str) {
        let mut state = self.entry.state();
        state.chain.calls += 1;
        record_sha256.clone_into(&mut state.chain.last);
    }

    /// Ends the session, unless it has ended, and destroys its sandbox.
    pub(super) async fn end(&self, end: SessionEnd, detail: impl Into<String>) {
        let live = {
            let mut state = self.entry.state();
            if state.ended.is_none() {
                let detail = detail.into();
                tracing::info!(session = self.entry.fingerprint, end = ?end, detail, "a session ended");
                state.ended = Some(Ended { end, detail, since: Instant::now() });
            }
            state.live.take()
        };
        if let Some(live) = live {
            live.session.end().await;
        }
    }
}
