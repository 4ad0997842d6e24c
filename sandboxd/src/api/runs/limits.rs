//! Limits: what a caller may have and has; all of them, for one who administers callers.

use freeboard_wire::ConnectError;
use freeboard_wire::runs::{CallerLimits, LimitsRequest, LimitsResponse, Standing};

use super::{administers, decode};
use crate::api::route::Context;
use crate::callers::{Caller, SCOPE_ADMIN, SCOPE_RUN, SCOPE_SESSION};

pub(super) fn limits(context: &Context<'_>, body: &[u8]) -> Result<LimitsResponse, ConnectError> {
    let request: LimitsRequest = decode(body)?;
    if !request.everybody {
        let scopes = context.scopes;
        let named = [(SCOPE_RUN, scopes.run), (SCOPE_SESSION, scopes.sessions), (SCOPE_ADMIN, scopes.admin)];
        let scopes = named.into_iter().filter(|(_, has)| *has).map(|(scope, _)| scope.to_owned()).collect();
        let own = CallerLimits {
            caller: context.caller.clone().unwrap_or_default(),
            scopes,
            standing: standing(context, context.caller.as_deref()),
        };
        return Ok(LimitsResponse { daemon: None, callers: vec![own] });
    }
    administers(context)?;
    let callers = context.app.doorkeeper.callers().unwrap_or_default();
    let one = |caller: &Caller| CallerLimits {
        caller: caller.id.clone(),
        scopes: caller.scopes.clone(),
        standing: standing(context, Some(&caller.id)),
    };
    let mut daemon = context.app.launcher.admission().overall();
    daemon.max_sessions = context.app.sessions.settings.most;
    Ok(LimitsResponse { daemon: Some(daemon), callers: callers.entries().iter().map(one).collect() })
}

fn standing(context: &Context<'_>, caller: Option<&str>) -> Standing {
    let admission = context.app.launcher.admission();
    let sessions = admission.own(caller).sessions.unwrap_or(context.app.sessions.settings.per_caller);
    Standing { max_sessions: sessions, ..admission.standing(caller) }
}
