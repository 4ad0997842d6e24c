//! Run: from a message to an order, and from what ran to an answer with its record.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use freeboard_policy::Tier;
use freeboard_wire::check;
use freeboard_wire::digest::{record_digest, request_digest, result_digest, rule_id};
use freeboard_wire::{
    Artifact, Code, ConnectError, JavaScriptResult, NotDispatchedReason, ProjectFile, ProjectOutcome,
    ProjectResult, RECORD_VERSION, RunRecord, RunRequest, RunResponse, StepResult,
};

use super::describe::policy_name;
use super::refuse;
use super::route::Context;
use crate::job::{Ending, JobFile, NoSink, Outcome, Payload, StepOutcome};
use crate::launch::{Order, Ran, Refusal, RunError, millis, new_run_id};
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
        Ok(ran) => answer(&request, &id, ran),
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
        artifact_limit: ARTIFACT_BYTES,
        released: Arc::default(),
    })
}

fn job_file(file: &ProjectFile) -> JobFile {
    JobFile { path: file.path.clone(), content: file.content.clone().into_bytes() }
}

/// The answer and its record: what the record says is what the answer says, byte for byte.
fn answer(request: &RunRequest, run: &str, ran: Ran) -> Result<RunResponse, ConnectError> {
    let mut response = RunResponse {
        sandbox: ran.evidence.provider.clone(),
        isolation: ran.evidence.tier.word().to_owned(),
        duration_ms: signed(millis(ran.duration)),
        environment: ran.environment,
        instance: format!("freeboard-run:{run}"),
        ..RunResponse::default()
    };
    if request.javascript.is_some() {
        response.javascript = Some(javascript(run, ran.outcome)?);
    } else {
        response.project = Some(project(ran.outcome));
    }
    let mut record = RunRecord {
        version: RECORD_VERSION,
        request_sha256: request_digest(request),
        result_sha256: result_digest(&response),
        provider: response.sandbox.clone(),
        isolation: response.isolation.clone(),
        environment: response.environment.clone(),
        policy: policy_name(&ran.policy_digest),
        started_unix_ms: signed(ran.started_unix_ms),
        ended_unix_ms: signed(ran.ended_unix_ms),
        software_rule_id: rule_id(request.software_rule.as_ref()),
        instance: response.instance.clone(),
        ..RunRecord::default()
    };
    record.record_sha256 = record_digest(&record).unwrap_or_default();
    response.record = Some(record);
    Ok(response)
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn javascript(run: &str, outcome: Outcome) -> Result<JavaScriptResult, ConnectError> {
    let timed_out = outcome.ending == Ending::TimedOut;
    match (outcome.ending, outcome.steps.into_iter().next()) {
        (Ending::Completed | Ending::TimedOut, Some(step)) => Ok(JavaScriptResult {
            exit_code: if timed_out { TIMED_OUT } else { step.exit_code },
            timed_out: timed_out || step.timed_out,
            stdout: step.stdout,
            stderr: step.stderr,
            stdout_truncated: step.stdout_truncated,
            stderr_truncated: step.stderr_truncated,
            advice: Vec::new(),
        }),
        (Ending::TimedOut, None) => {
            Ok(JavaScriptResult { exit_code: TIMED_OUT, timed_out: true, ..JavaScriptResult::default() })
        }
        // A snippet has no outcome field in which to say that the sandbox failed.
        _ => Err(refuse::internal(run, &SnippetFailed { detail: outcome.detail })),
    }
}

/// Exit code of a run that the deadline ended.
const TIMED_OUT: i32 = 124;

#[derive(Debug, thiserror::Error)]
#[error("the sandbox failed around a snippet: {detail}")]
struct SnippetFailed {
    detail: String,
}

fn project(outcome: Outcome) -> ProjectResult {
    let word = match outcome.ending {
        Ending::Completed => ProjectOutcome::Completed,
        Ending::TimedOut => ProjectOutcome::TimedOut,
        Ending::SetupFailed => ProjectOutcome::SetupFailed,
        Ending::RunnerFailed => ProjectOutcome::RunnerFailed,
    };
    let artifacts = outcome.artifacts.into_iter();
    ProjectResult {
        steps: outcome.steps.into_iter().map(step).collect(),
        outcome: word.into(),
        artifacts: artifacts.map(|file| Artifact { path: file.path, content: file.content }).collect(),
        outcome_detail: outcome.detail,
        artifacts_truncated: outcome.artifacts_truncated,
        advice: Vec::new(),
    }
}

fn step(step: StepOutcome) -> StepResult {
    StepResult {
        command: step.command,
        stdout: step.stdout,
        stderr: step.stderr,
        exit_code: step.exit_code,
        timed_out: step.timed_out,
        duration_ms: signed(millis(step.duration)),
        stdout_truncated: step.stdout_truncated,
        stderr_truncated: step.stderr_truncated,
    }
}
