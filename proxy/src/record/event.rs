//! From the path's outcome to the audit event.

use std::sync::Arc;

use freeboard_audit::{
    CloseCause, Decided, Digest, Entry, Event, GateClosed, GateOpened, Measured, RunIdentity, RunRefused,
    redact_query, rfc3339_ms,
};
use freeboard_control::{OpenGate, RunNote, Trace};
use freeboard_policy::Tier;

use super::outcome::{Kind, Outcome, Verdict};
use crate::run::RunContext;

/// When the outcome ended, and what the log holds about it.
pub(super) fn entry(outcome: Outcome) -> (u64, Entry) {
    let ended_unix_ms = outcome.started_unix_ms.saturating_add(outcome.duration_us / 1000);
    let policy = Arc::clone(&outcome.policy);
    let run = outcome.run.as_deref().map(|run| Arc::clone(&run.identity));
    let kind = outcome.kind;
    let decided = decided(outcome);
    let event = match kind {
        Kind::Request => Event::Request(decided),
        Kind::Tunnel => Event::Tunnel(decided),
        Kind::Tls => Event::Tls(decided),
        Kind::Connection => Event::Connection(decided),
        Kind::Dns => Event::Dns(decided),
    };
    (ended_unix_ms, Entry { policy: Some(policy), run, event })
}

fn decided(outcome: Outcome) -> Decided {
    Decided {
        request_id: outcome.request_id.to_string().into(),
        verdict: verdict(outcome.verdict),
        reason: outcome.reason,
        grant: outcome.grant,
        rule: outcome.rule,
        api: outcome.api,
        credential: outcome.credential,
        approved_by: outcome.approved_by,
        door: outcome.door,
        protocol: outcome.protocol,
        method: outcome.method,
        host: outcome.host,
        port: outcome.port,
        path: match redact_query(&outcome.path, &[]) {
            std::borrow::Cow::Borrowed(_) => outcome.path,
            std::borrow::Cow::Owned(redacted) => redacted.into(),
        },
        status: Some(outcome.status).filter(|status| *status != 0),
        upstream_status: outcome.upstream_status,
        upstream: outcome.upstream_address.map(|address| address.to_string().into()),
        request_bytes: outcome.request_bytes,
        response_bytes: outcome.response_bytes,
        duration_us: outcome.duration_us,
        upstream_us: Some(outcome.upstream_us).filter(|us| *us != 0),
        uninspected: outcome.uninspected,
        stripped: outcome.stripped.as_slice().into(),
        detail: outcome.detail.map(|detail| detail.into_owned().into()),
    }
}

const fn verdict(verdict: Verdict) -> freeboard_audit::Verdict {
    match verdict {
        Verdict::Allowed => freeboard_audit::Verdict::Allowed,
        Verdict::Denied => freeboard_audit::Verdict::Denied,
        Verdict::Failed => freeboard_audit::Verdict::Failed,
        Verdict::Shed => freeboard_audit::Verdict::Shed,
    }
}

/// The opening of a gate with what was measured.
pub fn gate_opened(run: &RunContext, gate: &OpenGate, floor: Option<Tier>) -> Event {
    let evidence = serde_json::to_vec(&run.evidence).unwrap_or_default();
    let measured = run.evidence.facts.iter().map(|fact| Measured {
        name: fact.name.as_str().into(),
        value: fact.value.as_str().into(),
        met: fact.met,
    });
    Event::GateOpened(GateOpened {
        grants: run.grants.iter().map(|grant| Arc::from(grant.as_str())).collect(),
        floor,
        evidence: Digest::of(&evidence).to_string().into(),
        measured: measured.collect(),
        expires: rfc3339_ms(run.expires_unix_ms).into(),
        doors: gate.doors.len(),
    })
}

pub fn gate_closed(cause: CloseCause, trace: &Trace) -> Event {
    Event::GateClosed(GateClosed {
        cause,
        allowed: trace.allowed,
        denied: trace.denied,
        failed: trace.failed,
        shed: trace.shed,
    })
}

/// A run that was refused before it had a gate, as sandboxd tells it.
pub fn run_refused(note: RunNote) -> (Arc<RunIdentity>, Event) {
    let run = RunIdentity {
        run: note.run.into(),
        caller: note.caller.map(Arc::from),
        tier: note.tier,
        provider: None,
        trace_id: None,
        session: note.session.map(Arc::from),
    };
    let event = Event::RunRefused(RunRefused {
        reason: note.reason,
        grants: note.grants.into_iter().map(Arc::from).collect(),
        floor: note.floor,
        detail: note.detail.into(),
    });
    (Arc::new(run), event)
}
