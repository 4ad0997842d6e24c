//! From the path's outcome to the audit event.

use std::sync::Arc;

use freeboard_audit::{Decided, Entry, Event, PolicyIdentity, RunIdentity, redact_query};

use super::outcome::{Kind, Outcome, Verdict};
use crate::run::RunContext;

/// When the outcome ended, and what the log holds about it.
pub(super) fn entry(outcome: Outcome) -> (u64, Entry) {
    let ended_unix_ms = outcome.started_unix_ms.saturating_add(outcome.duration_us / 1000);
    let policy =
        PolicyIdentity { digest: Arc::clone(&outcome.policy_digest), commit: outcome.policy_commit.clone() };
    let run = outcome.run.as_deref().map(run_identity).map(Arc::new);
    let kind = outcome.kind;
    let decided = decided(outcome);
    let event = match kind {
        Kind::Request => Event::Request(decided),
        Kind::Tunnel => Event::Tunnel(decided),
        Kind::Tls => Event::Tls(decided),
        Kind::Connection => Event::Connection(decided),
        Kind::Dns => Event::Dns(decided),
    };
    (ended_unix_ms, Entry { policy: Some(Arc::new(policy)), run, event })
}

/// Who a run is, as every record of it says.
pub fn run_identity(run: &RunContext) -> RunIdentity {
    RunIdentity {
        run: Arc::clone(&run.id),
        caller: run.caller.clone(),
        tier: Some(run.tier),
        provider: Some(Arc::clone(&run.provider)),
        trace_id: run.trace_id.clone(),
    }
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
