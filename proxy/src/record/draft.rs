//! A record in the making. Whatever happens to the exchange, exactly one record comes of it: a draft that is dropped
//! unfinished (run ended, panic, connection cut) is recorded as such.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use freeboard_policy::{Fault, Reason};

use super::{Kind, Outcome, RequestId, Verdict};
use crate::broker::{Broker, Moment, Snapshot};
use crate::error::Stop;
use crate::run::RunContext;
use crate::upstream::counted::Counted;

/// Made at the first byte of a request or at an accepted connection; finished by `allowed` or `stopped`.
#[derive(Debug)]
pub struct Draft {
    outcome: Option<Box<Outcome>>,
    broker: Arc<Broker>,
    started: Moment,
    /// The guest has cancelled: that is why an unfinished draft ends.
    left: Option<Arc<AtomicBool>>,
    /// What moves now, beside the bytes that were noted: a body that is cut is recorded with what had passed.
    counted: Option<Arc<Counted>>,
}

impl Draft {
    pub fn new(
        broker: &Arc<Broker>,
        run: Option<&Arc<RunContext>>,
        snapshot: &Snapshot,
        kind: Kind,
        door: &'static str,
        protocol: &'static str,
        started: Moment,
    ) -> Self {
        let outcome = Outcome {
            kind,
            request_id: random_id(),
            run: run.cloned(),
            door,
            protocol,
            verdict: Verdict::Failed,
            reason: None,
            detail: None,
            method: Box::default(),
            host: Box::default(),
            port: 0,
            path: Box::default(),
            policy: Arc::clone(&snapshot.identity),
            grant: None,
            rule: None,
            api: None,
            credential: None,
            approved_by: None,
            status: 0,
            upstream_status: None,
            upstream_address: None,
            request_bytes: 0,
            response_bytes: 0,
            started_unix_ms: started.unix_ms,
            duration_us: 0,
            upstream_us: 0,
            uninspected: false,
            stripped: smallvec::SmallVec::new(),
            slot: None,
        };
        Self {
            outcome: Some(Box::new(outcome)),
            broker: Arc::clone(broker),
            started,
            left: None,
            counted: None,
        }
    }

    /// Looks at this when the draft is dropped unfinished.
    pub fn watch(&mut self, left: Option<Arc<AtomicBool>>) {
        self.left = left;
    }

    /// Notes facts as they become known.
    pub fn note(&mut self, note: impl FnOnce(&mut Outcome)) {
        if let Some(outcome) = &mut self.outcome {
            note(outcome);
        }
    }

    /// Counters for whoever moves a body piece by piece.
    pub fn count(&mut self) -> Arc<Counted> {
        Arc::clone(self.counted.insert(Arc::default()))
    }

    pub fn request_id(&self) -> RequestId {
        self.outcome.as_ref().map_or(RequestId(0), |outcome| outcome.request_id)
    }

    pub fn started(&self) -> Moment {
        self.started
    }

    /// The request was sent and answered.
    pub fn allowed(mut self) {
        self.finish(Verdict::Allowed, None);
    }

    /// The request did not go on, or failed midway.
    pub fn stopped(mut self, stop: &Stop) {
        let sent = self.outcome.as_ref().is_some_and(|outcome| outcome.upstream_address.is_some());
        let verdict = match verdict(stop.reason) {
            // Cut after it had been let through: not "nothing was sent".
            Verdict::Denied if sent && stop.reason.fault() == Fault::Policy => Verdict::Failed,
            verdict => verdict,
        };
        self.finish(verdict, Some(stop));
    }

    fn finish(&mut self, verdict: Verdict, stop: Option<&Stop>) {
        let Some(mut outcome) = self.outcome.take() else { return };
        outcome.verdict = verdict;
        if let Some(stop) = stop {
            outcome.reason = Some(stop.reason);
            outcome.detail.clone_from(&stop.detail);
            if stop.rule.is_some() {
                outcome.rule.clone_from(&stop.rule);
            }
        }
        if let Some(counted) = &self.counted {
            outcome.request_bytes += counted.to_upstream.load(Ordering::Relaxed);
            outcome.response_bytes += counted.to_guest.load(Ordering::Relaxed);
        }
        outcome.duration_us = self.started.elapsed_us();
        self.broker.record(outcome);
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        let Some(outcome) = &self.outcome else { return };
        let ended = outcome.run.as_ref().is_some_and(|run| run.ended.is_cancelled());
        let left = self.left.as_ref().is_some_and(|left| left.load(Ordering::Relaxed));
        let reason = if left {
            Reason::ClientClosed
        } else if ended {
            Reason::RunEnded
        } else if self.broker.draining.is_cancelled() {
            Reason::ShuttingDown
        } else {
            Reason::Internal
        };
        self.finish(Verdict::Failed, Some(&Stop::new(reason, "cut before its end")));
    }
}

/// Refused by policy or because of what the guest sent, or failed because of the world or us.
fn verdict(reason: Reason) -> Verdict {
    match (reason, reason.fault()) {
        (Reason::Shed, _) => Verdict::Shed,
        (Reason::ClientClosed | Reason::ClientTimeout, _) => Verdict::Failed,
        (_, Fault::Client | Fault::Policy) => Verdict::Denied,
        (_, Fault::Upstream | Fault::Ours) => Verdict::Failed,
    }
}

/// 128 bits from the system, asked for in batches.
fn random_id() -> RequestId {
    const BATCH: usize = 1024;
    thread_local! {
        static RANDOM: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    let id = RANDOM.with_borrow_mut(|random| {
        if random.len() < 16 {
            random.resize(BATCH, 0);
            if getrandom::fill(random).is_err() {
                // Ids then come from clock and address space alone: they name records, nothing trusts them.
                random.clear();
                return None;
            }
        }
        let rest = random.len().checked_sub(16)?;
        let id = random.get(rest..)?.try_into().ok().map(u128::from_ne_bytes);
        random.truncate(rest);
        id
    });
    RequestId(id.unwrap_or_default())
}
