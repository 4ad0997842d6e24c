//! Requests that wait for a person. A rule with `approve` holds its requests here until somebody who may says yes or no,
//! its time is over, the run ends, or the policy changes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use freeboard_control::PendingApproval;
use freeboard_policy::{Approval, Reason};
use tokio::sync::oneshot;

use crate::broker::Broker;
use crate::error::Stop;
use crate::limits;
use crate::run::RunContext;

/// What waits now, by number. Numbers are not used again while the broker runs.
#[derive(Debug, Default)]
pub struct Approvals {
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    last: u64,
    by_id: BTreeMap<u64, Held>,
}

#[derive(Debug)]
struct Held {
    view: PendingApproval,
    answer: oneshot::Sender<Word>,
}

#[derive(Debug)]
enum Word {
    Approved { by: Box<str> },
    Denied { by: Box<str> },
}

/// Why a person's word changed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecideError {
    #[error("no request with this number waits: it was decided, timed out, or its run has ended")]
    NotWaiting,
    #[error("the rule does not name this person among those who may approve")]
    NotAllowed,
    #[error("a name has 1 to 128 printable characters without spaces")]
    BadName,
}

/// How a person is named: 1 to 128 printable characters without spaces.
pub fn is_name(by: &str) -> bool {
    (1..=128).contains(&by.len()) && by.bytes().all(|byte| byte.is_ascii_graphic())
}

/// What a person is shown of a request.
#[derive(Debug)]
pub struct Asked<'a> {
    pub request_id: String,
    pub grant: &'a Arc<str>,
    pub rule: String,
    pub method: &'a str,
    pub host: &'a str,
    pub path: &'a str,
    pub body_bytes: u64,
}

/// Takes the entry out however its wait ends, also when the wait is dropped.
struct Entry<'b> {
    approvals: &'b Approvals,
    id: u64,
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.approvals.lock().by_id.remove(&self.id);
    }
}

impl Approvals {
    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a person. Answers with the name of who approved. `still` says whether the request would be allowed
    /// anew. Dropped midway, the request waits no more.
    ///
    /// # Errors
    /// What `still` says, `approval_denied`, `approval_timeout`, `run_ended`, `run_limit`.
    pub async fn wait(
        broker: &Broker,
        run: &RunContext,
        approval: &Approval,
        asked: Asked<'_>,
        still: impl Fn() -> Result<(), Stop>,
    ) -> Result<Box<str>, Stop> {
        let (entry, mut answer) = broker.approvals.enter(broker.clock.now().unix_ms, run, approval, asked)?;
        let time = Duration::from_secs(approval.timeout_seconds);
        let deadline = tokio::time::Instant::now() + time;
        let word = loop {
            // Made before the look, so that no change is missed.
            let ask_again = broker.ask_again.notified();
            still()?;
            tokio::select! {
                biased;
                () = run.ended.cancelled() => return Err(Reason::RunEnded.into()),
                word = &mut answer => break Some(word),
                () = ask_again => {}
                () = tokio::time::sleep_until(deadline) => break None,
            }
        };
        drop(entry);
        match word {
            // SECURITY: what was allowed when the wait began may not be any more.
            Some(Ok(Word::Approved { by })) => still().map(|()| by),
            Some(Ok(Word::Denied { by })) => {
                Err(Stop::with(Reason::ApprovalDenied, format!("denied by {by}")))
            }
            Some(Err(_)) => Err(Stop::new(Reason::Internal, "an approval was lost")),
            None => Err(Stop::with(Reason::ApprovalTimeout, format!("nobody in {} s", time.as_secs()))),
        }
    }

    fn enter(
        &self,
        now_unix_ms: u64,
        run: &RunContext,
        approval: &Approval,
        asked: Asked<'_>,
    ) -> Result<(Entry<'_>, oneshot::Receiver<Word>), Stop> {
        let (answer, answered) = oneshot::channel();
        let mut waiting = self.lock();
        let of_run = waiting.by_id.values().filter(|held| *held.view.run == *run.id).count();
        if of_run >= limits::APPROVALS_PER_RUN || waiting.by_id.len() >= limits::APPROVALS {
            return Err(Stop::new(Reason::RunLimit, "too many requests wait for a person"));
        }
        waiting.last += 1;
        let id = waiting.last;
        let view = PendingApproval {
            id,
            request_id: asked.request_id,
            run: run.id.to_string(),
            caller: run.caller.as_deref().map(str::to_owned),
            grant: asked.grant.to_string(),
            rule: asked.rule,
            method: asked.method.to_owned(),
            host: asked.host.to_owned(),
            path: asked.path.to_owned(),
            body_bytes: asked.body_bytes,
            by: approval.by.iter().map(ToString::to_string).collect(),
            asked_unix_ms: now_unix_ms,
            until_unix_ms: now_unix_ms.saturating_add(approval.timeout_seconds.saturating_mul(1000)),
        };
        waiting.by_id.insert(id, Held { view, answer });
        drop(waiting);
        Ok((Entry { approvals: self, id }, answered))
    }

    /// What waits, oldest first.
    pub fn list(&self) -> Vec<PendingApproval> {
        self.lock().by_id.values().map(|held| held.view.clone()).collect()
    }

    /// A person's word on one request.
    ///
    /// # Errors
    /// Nothing was changed.
    pub fn decide(&self, id: u64, approve: bool, by: &str) -> Result<(), DecideError> {
        if !is_name(by) {
            return Err(DecideError::BadName);
        }
        let mut waiting = self.lock();
        let held = waiting.by_id.get(&id).ok_or(DecideError::NotWaiting)?;
        // Everybody who is let in may say no; only who is named may say yes.
        if approve && !held.view.by.is_empty() && !held.view.by.iter().any(|name| name == by) {
            return Err(DecideError::NotAllowed);
        }
        let held = waiting.by_id.remove(&id).ok_or(DecideError::NotWaiting)?;
        let by = by.into();
        let word = if approve { Word::Approved { by } } else { Word::Denied { by } };
        held.answer.send(word).map_err(|_| DecideError::NotWaiting)
    }
}
