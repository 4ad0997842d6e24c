//! What sandboxd must know before it builds a boundary: floor, ports, CA, client surface. Opens nothing.

use freeboard_control::{AnswerBody, PrepareRun, Prepared, SurfaceApi};
use freeboard_policy::{Reason, ScopeQuestion};

use super::refused;
use crate::broker::Broker;

pub(super) fn prepare(broker: &Broker, run: &PrepareRun) -> AnswerBody {
    if broker.draining.is_cancelled() {
        return refused(Reason::ShuttingDown, "the broker is shutting down");
    }
    let snapshot = broker.snapshot();
    let mut prepared = Prepared {
        policy_digest: snapshot.policy.digest().to_string(),
        floor: None,
        ttl_seconds: None,
        ports: Vec::new(),
        // Also for a run without grants: its attempts are refused over TLS, and it should be able to read why.
        ca_pem: broker.authority.ca().guests_trust(),
        surface: Vec::new(),
        variables: Vec::new(),
    };
    if run.grants.is_empty() {
        if run.session {
            prepared.ports = snapshot.policy.session_ports(run.caller.as_deref());
        }
        return AnswerBody::Prepared(prepared);
    }
    match broker.revocations.left(run.caller.as_deref(), &run.grants) {
        Ok(left) if left.len() == run.grants.len() => {}
        Ok(_) => return refused(Reason::GrantRevoked, "a grant that the run names was revoked"),
        Err(stop) => return refused(stop.reason, stop.to_string()),
    }
    let question = ScopeQuestion {
        caller: run.caller.as_deref(),
        grants: &run.grants,
        tier: None,
        session: run.session,
        now_unix: broker.clock.now().unix_seconds(),
    };
    let scope = match snapshot.policy.scope(&question) {
        Ok(scope) => scope,
        Err(refusal) => {
            let grants = run.grants.join(",");
            let caller = run.caller.as_deref().unwrap_or("(anonymous)");
            return refused(refusal.reason, format!("grants `{grants}` for caller `{caller}`"));
        }
    };
    prepared.floor = scope.floor;
    prepared.ttl_seconds = scope.ttl_seconds;
    prepared.ports = scope.ports.to_vec();
    let surface = snapshot.policy.surface(&scope);
    for placeholder in surface.iter().filter_map(|api| snapshot.placeholders.of(&api.api)) {
        let variable = (placeholder.variable.clone(), placeholder.value.clone());
        // An API with several origins is there once for each.
        if !prepared.variables.contains(&variable) {
            prepared.variables.push(variable);
        }
    }
    prepared.surface = surface
        .into_iter()
        .map(|api| SurfaceApi {
            api: api.api.to_string(),
            base_url: api.base_url,
            routes: api.routes.iter().map(ToString::to_string).collect(),
        })
        .collect();
    AnswerBody::Prepared(prepared)
}
