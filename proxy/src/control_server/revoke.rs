//! `Revoke`: takes grants away, cuts what was in flight under them, and records who said so.

use std::sync::Arc;

use freeboard_audit::{Event, Revoked as Record, RevokedFrom};
use freeboard_control::{AnswerBody, Revocation, Revoked};
use freeboard_policy::Reason;

use super::refused;
use crate::approvals::is_name;
use crate::broker::Broker;
use crate::error::Stop;
use crate::run::RunContext;

pub(super) fn revoke(broker: &Broker, revocation: &Revocation) -> AnswerBody {
    let Revocation { of, name, by } = revocation;
    if !is_name(by) {
        return refused(Reason::Malformed, "a name has 1 to 128 printable characters without spaces");
    }
    let runs = broker.runs.which(|run| has(run, *of, name));
    if let Err(stop) = take(broker, *of, name, &runs) {
        return refused(stop.reason, stop.to_string());
    }
    // In flight is cut now, before anything is written.
    broker.ask_again.notify_waiters();
    for run in runs.iter().filter(|run| run.grants_left().is_err()) {
        let (leases, id) = (Arc::clone(&run.leases), Arc::clone(&run.id));
        tokio::spawn(async move { leases.give_back(&id).await });
    }
    tracing::warn!(?of, name, by, runs = runs.len(), "revoked");
    let runs = runs.len() as u64;
    let from = match of {
        Revoked::Run => RevokedFrom::Run,
        Revoked::Session => RevokedFrom::Session,
        Revoked::Caller => RevokedFrom::Caller,
        Revoked::Grant => RevokedFrom::Grant,
    };
    let event = Event::Revoked(Record { of: from, name: name.as_str().into(), by: by.as_str().into(), runs });
    let policy = crate::reload::identity(&broker.snapshot());
    match broker.recorder.event(None, Some(policy), event) {
        Ok(()) => AnswerBody::Revoked(runs),
        Err(reason) => refused(reason, "it is revoked, and the audit log cannot be written"),
    }
}

fn has(run: &RunContext, of: Revoked, name: &str) -> bool {
    match of {
        Revoked::Run => *run.id == *name,
        Revoked::Session => run.identity.session.as_deref() == Some(name),
        Revoked::Caller => run.caller.as_deref() == Some(name),
        Revoked::Grant => run.grants.iter().any(|grant| grant == name),
    }
}

fn take(broker: &Broker, of: Revoked, name: &str, runs: &[Arc<RunContext>]) -> Result<(), Stop> {
    match of {
        Revoked::Run if runs.is_empty() => Err(Stop::new(Reason::RunEnded, "no run with this id is open")),
        Revoked::Run => {
            for run in runs {
                run.revoke();
            }
            Ok(())
        }
        Revoked::Session if !broker.sessions.revoke(name) => {
            Err(Stop::new(Reason::RunEnded, "no session with this fingerprint has had a call here"))
        }
        Revoked::Session => {
            broker.revocations.of_run();
            Ok(())
        }
        Revoked::Caller => broker.revocations.of_caller(name),
        Revoked::Grant if runs.is_empty() && broker.snapshot().grant(name).is_none() => {
            Err(Stop::new(Reason::GrantNotAvailable, "the policy has no grant of this name"))
        }
        Revoked::Grant => broker.revocations.of_grant(name),
    }
}
