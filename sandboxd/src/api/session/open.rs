//! OpenSession: a measured sandbox that stays, and the id that is the right to use it.

use std::time::{Duration, Instant, SystemTime};

use freeboard_policy::Tier;
use freeboard_wire::{
    Code, ConnectError, NotDispatchedReason, OpenSessionRequest, OpenSessionResponse, check,
};

use crate::api::answer::signed;
use crate::api::refuse;
use crate::api::route::Context;
use crate::job::Payload;
use crate::launch::{InSession, Order, millis, new_run_id, unix_ms};
use crate::limits::{ARTIFACT_BYTES, OUTPUT_BYTES};
use crate::session::{OpenError, Wish};

/// Opens a session. Dropped when the client goes away: what was made is then destroyed.
pub(in crate::api) async fn open(
    context: &Context<'_>,
    request: &OpenSessionRequest,
) -> Result<OpenSessionResponse, ConnectError> {
    let run = new_run_id().map_err(|refusal| refuse::run_error("", &refusal.into()))?;
    let (order, wish) = order(context, request, run.clone())?;
    let opening = context.app.sessions.open(&context.app.launcher, &order, wish);
    let opened = match context.deadline {
        None => opening.await,
        Some(deadline) => tokio::time::timeout(deadline, opening).await.map_err(|_| {
            let text = "the caller's deadline passed";
            ConnectError::refused(Code::DeadlineExceeded, NotDispatchedReason::Capacity, text)
        })?,
    };
    let (id, entry) = opened.map_err(|error| match error {
        OpenError::NotOffered => refuse::unsupported(error.to_string()),
        OpenError::Full(full) => refuse::full(full),
        OpenError::Refused(refusal) => refuse::run_error(&run, &refusal.into()),
    })?;
    let left = entry.expires().saturating_duration_since(Instant::now());
    Ok(OpenSessionResponse {
        session_id: id,
        session: entry.fingerprint.clone(),
        sandbox: entry.facts.evidence.provider.clone(),
        isolation: entry.facts.evidence.tier.word().to_owned(),
        expires_unix_ms: signed(unix_ms(SystemTime::now() + left)),
        idle_timeout_ms: u32::try_from(millis(entry.facts.idle)).unwrap_or(u32::MAX),
        software_identity: String::new(),
    })
}

/// Checks in the order of the contract.
fn order(
    context: &Context<'_>,
    request: &OpenSessionRequest,
    run: String,
) -> Result<(Order, Wish), ConnectError> {
    refuse::protocol(request.protocol)?;
    let invalid = |error| refuse::invalid(&error);
    let floor = check::floor(&request.minimum_isolation).map_err(invalid)?;
    let rule = check::rule(request.software_rule.as_ref()).map_err(invalid)?;
    let owner = check::owner(&request.owner).map_err(invalid)?;
    // A hint: interpreters start with their first cell, which is when the caller is told that they did.
    request.languages.iter().try_for_each(|word| check::language(word)).map_err(invalid)?;
    let order = Order {
        run,
        caller: context.caller.clone(),
        trace_id: check::trace_id(&request.trace_id).map(str::to_owned),
        grants: Vec::new(),
        floor: floor.and_then(Tier::from_word),
        timeout: None,
        software: rule.map(|rule| rule.identities.clone()).unwrap_or_default(),
        payload: Payload::Session,
        files: Vec::new(),
        artifacts: Vec::new(),
        environment: Vec::new(),
        output_limit: OUTPUT_BYTES,
        less: crate::job::Less::default(),
        input: None,
        artifact_limit: ARTIFACT_BYTES,
        released: std::sync::Arc::default(),
        wait: None,
        witness: None,
        session: InSession::Opens,
    };
    let wish = Wish {
        owner: owner.map(str::to_owned),
        rule: rule.cloned(),
        lifetime: Duration::from_millis(request.lifetime_ms.into()),
        idle: Duration::from_millis(request.idle_timeout_ms.into()),
    };
    Ok((order, wish))
}
