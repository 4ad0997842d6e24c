//! One call of a session, by whoever has its turn.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use freeboard_control::Prepared;
use freeboard_netns::STANDING_PORTS;
use freeboard_wire::SessionEnd;

use super::entry::{Ended, Live, Turn};
use super::table::Sessions;
use crate::admission::Full;
use crate::job::{Job, NoSink};
use crate::launch::{Clock, Launcher, Order, Ran, Refusal, close_gate, noted, open_gate, prepare, timeout};
use crate::placement::Unplaced;
use crate::provider::{CallFailure, Cancel, CellEnd, Over, ReadBack, RunFailure};

/// Why a call has no outcome.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The session is over. Nothing ran.
    #[error("the session has ended")]
    Over(Ended),
    #[error(transparent)]
    Refused(Refusal),
    /// A file of a cell could not be placed. Nothing ran.
    #[error("{0}")]
    Files(String),
    /// The cell's code was not sent to any interpreter.
    #[error("the interpreter cannot start: {0}")]
    NoInterpreter(String),
    /// The sandbox could not be measured; nothing ran, and the session goes on.
    #[error("the session's sandbox could not be read back")]
    ReadBack(#[source] ReadBack),
    /// Code may have run.
    #[error(transparent)]
    Failed(RunFailure),
}

impl Turn {
    /// Runs one call. Not to be dropped midway: the session ends then, since nobody knows what its sandbox is doing.
    pub async fn call(
        &self,
        launcher: &Launcher,
        sessions: &Sessions,
        order: &Order,
        cancel: Cancel,
    ) -> Result<(Ran, CellEnd), CallError> {
        let over = || self.entry.ended().map(CallError::Over);
        if let Some(over) = over() {
            return Err(over);
        }
        if Instant::now() >= self.entry.expires() {
            self.expire().await;
        }
        let Some(mut live) = self.take() else {
            // A call that broke off took the sandbox with it.
            self.end(SessionEnd::BoundaryFailed, "an earlier call broke off").await;
            return Err(over().unwrap_or(CallError::Failed(RunFailure::Cancelled)));
        };
        let result = self.call_in(&mut live, launcher, order, cancel).await;
        let lost = match &result {
            Ok((_, _, over)) => over.map(|over| match over {
                Over::MainProcessEnded => (SessionEnd::MainProcessEnded, "the sandbox's memory was used up"),
                Over::BoundaryFailed => (SessionEnd::BoundaryFailed, "a call left something behind"),
            }),
            Err(CallError::ReadBack(ReadBack::Changed(_))) => Some((SessionEnd::SandboxChanged, "")),
            Err(CallError::ReadBack(ReadBack::Gone) | CallError::Failed(_)) => {
                Some((SessionEnd::MainProcessEnded, "the sandbox's first process is gone"))
            }
            Err(_) => None,
        };
        self.put_back(live);
        if let Some((end, detail)) = lost {
            self.end(end, detail).await;
        } else if Instant::now() >= self.entry.expires() {
            self.expire().await;
        } else if sessions.is_stopping() {
            self.end(SessionEnd::Shutdown, "the daemon stops").await;
        }
        match result {
            Ok((ran, cell, _)) => Ok((ran, cell)),
            // Nothing ran, and nothing will: the same answer as for the next call.
            Err(CallError::ReadBack(ReadBack::Changed(_) | ReadBack::Gone)) => {
                Err(over().unwrap_or(CallError::Failed(RunFailure::Cancelled)))
            }
            Err(error) => Err(error),
        }
    }

    pub(super) async fn expire(&self) {
        self.end(SessionEnd::Expired, "its lifetime is over").await;
    }

    async fn call_in(
        &self,
        live: &mut Live,
        launcher: &Launcher,
        order: &Order,
        cancel: Cancel,
    ) -> Result<(Ran, CellEnd, Option<Over>), CallError> {
        let facts = &self.entry.facts;
        let refused = CallError::Refused;
        let full = |full: Full| refused(Refusal::Full(full));
        let caller = order.caller.as_deref();
        match &live.place {
            Some(_) => launcher.admission().charge(caller, Instant::now()).map_err(full)?,
            // A suspended session takes a place again, like a run.
            None => live.place = Some(launcher.admission().run(caller, Instant::now()).map_err(full)?),
        }
        let link = launcher.link(&order.grants).await.map_err(refused)?;
        let prepared = prepare(link.as_ref(), order).await.map_err(refused)?;
        if let Some(prepared) = &prepared
            && let Err(refusal) = self.fits(order, prepared)
        {
            return Err(refused(noted(link.as_ref(), order, prepared.floor, refusal).await));
        }
        live.session.read_back().map_err(CallError::ReadBack)?;
        let mut job = self.job(order);
        // First, as for a run of its own.
        job.environment.splice(0..0, prepared.iter().flat_map(|prepared| prepared.variables.iter().cloned()));
        let started = Clock::start();
        let gate = match &link {
            Some(link) => {
                let doors = live.session.doors().map_err(|source| {
                    let step = "hand the gate's sockets over once more".to_owned();
                    refused(Refusal::Create(crate::provider::CreateError::Step { step, source }))
                })?;
                Some(
                    open_gate(link, &job, Some(&self.entry.of_call()), &facts.evidence, doors)
                        .await
                        .map_err(refused)?,
                )
            }
            None => None,
        };
        order.released.store(true, Ordering::SeqCst);
        let called = live.session.call(job, cancel, Arc::new(NoSink)).await;
        // Authority ends before anything else is done with the result.
        let trace = close_gate(gate, &order.run).await;
        let called = called.map_err(|failure| match failure {
            CallFailure::Files(detail) => CallError::Files(detail),
            CallFailure::NoInterpreter(detail) => CallError::NoInterpreter(detail),
            CallFailure::Lost(failure) => CallError::Failed(failure),
        })?;
        let (started_unix_ms, ended_unix_ms, duration) = started.stop();
        let ran = Ran {
            evidence: facts.evidence.clone(),
            environment: facts.description.environment.clone(),
            outcome: called.outcome,
            trace,
            policy_digest: prepared.map(|prepared| prepared.policy_digest).unwrap_or_default(),
            started_unix_ms,
            ended_unix_ms,
            duration,
        };
        Ok((ran, called.cell, called.over))
    }

    /// Whether the sandbox that is there is enough for these grants.
    ///
    /// SECURITY: the boundary was measured before anybody knew which grants its calls would name (ATTACKS F, G). Guarded by
    /// `a_call_whose_grant_has_a_stronger_floor_is_refused`.
    fn fits(&self, order: &Order, prepared: &Prepared) -> Result<(), Refusal> {
        let facts = &self.entry.facts;
        let measured = facts.evidence.tier;
        if let Some(needed) = prepared.floor.filter(|needed| measured < *needed) {
            return Err(Refusal::Unplaced(Unplaced::TooWeak { needed, best: measured, why: None }));
        }
        if order.grants.is_empty() {
            // The ports are those that other calls could need.
            return Ok(());
        }
        let has = |port: &u16| STANDING_PORTS.contains(port) || facts.ports.contains(port);
        match prepared.ports.iter().find(|port| !has(port)) {
            Some(port) => Err(Refusal::Port(*port)),
            None => Ok(()),
        }
    }

    /// The order within what is left of the session.
    fn job(&self, order: &Order) -> Job {
        let left = self.entry.expires().saturating_duration_since(Instant::now());
        Job {
            run: order.run.clone(),
            caller: order.caller.clone(),
            trace_id: order.trace_id.clone(),
            grants: order.grants.clone(),
            floor: order.floor,
            timeout: timeout(order, &self.entry.facts.description).min(left),
            payload: order.payload.clone(),
            files: order.files.clone(),
            artifacts: order.artifacts.clone(),
            environment: order.environment.clone(),
            output_limit: order.output_limit,
            less: order.less,
            input: order.input.clone(),
            artifact_limit: order.artifact_limit,
        }
    }
}
