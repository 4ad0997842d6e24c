//! Run: from a message to an order, which is run once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use freeboard_policy::Tier;
use freeboard_wire::check;
use freeboard_wire::{Code, ConnectError, NotDispatchedReason, ProjectFile, RunRequest, RunResponse};

use super::answer::{Link, Wanted, answer};
use super::refuse;
use super::route::Context;
use crate::job::{JobFile, NoSink, Payload};
use crate::launch::{InSession, Order, Refusal, RunError, new_run_id};
use crate::limits::{ARTIFACT_BYTES, OUTPUT_BYTES};

/// Runs one request. Dropped when the client goes away: the run is then killed and removed.
pub(super) async fn run(context: &Context<'_>, request: RunRequest) -> Result<RunResponse, ConnectError> {
    let id = new_run_id().map_err(|refusal| refuse::run_error("", &refusal.into()))?;
    let order = order(context, &request, id)?;
    let id = order.run.clone();
    let released = Arc::clone(&order.released);
    let running = context.app.launcher.run(order, Arc::new(NoSink));
    let ran = match context.deadline {
        None => running.await,
        Some(deadline) => match tokio::time::timeout(deadline, running).await {
            Ok(result) => result,
            Err(_) => return Err(deadline_passed(&released)),
        },
    };
    match ran {
        Ok(ran) => {
            let wanted = if request.javascript.is_some() { Wanted::JavaScript } else { Wanted::Project };
            answer((&request).into(), wanted, &id, ran, Link::default())
        }
        Err(error) => Err(refuse::run_error(&id, &error)),
    }
}

/// The caller's own deadline: marked only while no code had been released.
fn deadline_passed(released: &AtomicBool) -> ConnectError {
    let text = "the caller's deadline passed";
    if released.load(Ordering::SeqCst) {
        ConnectError::new(Code::DeadlineExceeded, text)
    } else {
        ConnectError::refused(Code::DeadlineExceeded, NotDispatchedReason::Capacity, text)
    }
}

/// Checks in the order of the contract: protocol, floor, rule, payload, limits, grant names.
fn order(context: &Context<'_>, request: &RunRequest, run: String) -> Result<Order, ConnectError> {
    refuse::protocol(request.protocol)?;
    let floor = check::floor(&request.minimum_isolation).map_err(|error| refuse::invalid(&error))?;
    let rule = check::rule(request.software_rule.as_ref()).map_err(|error| refuse::invalid(&error))?;
    let payload = check::payload(request).map_err(|error| refuse::invalid(&error))?;
    let (payload, grant_profile, files, artifacts) = match payload {
        check::Payload::JavaScript(run) => {
            (Payload::JavaScript { code: run.code.clone() }, &run.grant_profile, Vec::new(), Vec::new())
        }
        check::Payload::Project(run) => (
            Payload::Steps { steps: run.steps.clone() },
            &run.grant_profile,
            run.files.iter().map(job_file).collect(),
            run.artifacts.clone(),
        ),
        check::Payload::Module(_) => return Err(refuse::unsupported("this daemon runs no modules")),
    };
    let grants = check::grants(grant_profile).map_err(|error| refuse::invalid(&error))?;
    if !grants.is_empty() && context.caller.is_none() {
        // An anonymous caller has no grant; it learns nothing else.
        return Err(refuse::run_error(&run, &RunError::Refused(Refusal::Grant)));
    }
    Ok(Order {
        run,
        caller: context.caller.clone(),
        trace_id: check::trace_id(&request.trace_id).map(str::to_owned),
        grants,
        floor: floor.and_then(Tier::from_word),
        timeout: u64::try_from(request.timeout_ms).ok().filter(|ms| *ms > 0).map(Duration::from_millis),
        software: rule.map(|rule| rule.identities.clone()).unwrap_or_default(),
        payload,
        files,
        artifacts,
        environment: Vec::new(),
        output_limit: OUTPUT_BYTES,
        less: crate::job::Less::default(),
        input: None,
        artifact_limit: ARTIFACT_BYTES,
        released: Arc::default(),
        wait: None,
        witness: None,
        session: InSession::No,
    })
}

pub(super) fn job_file(file: &ProjectFile) -> JobFile {
    JobFile { path: file.path.clone(), content: file.content.clone().into_bytes() }
}
