//! From what ran to an answer with its record: what the record says is what the answer says, byte for byte.

use freeboard_wire::digest::{CallContent, record_digest, request_digest, result_digest, rule_id};
use freeboard_wire::{
    Artifact, CellResult, ConnectError, JavaScriptResult, ProjectOutcome, ProjectResult, RECORD_VERSION,
    RunRecord, RunResponse, StepResult,
};

use super::describe::policy_name;
use super::refuse;
use crate::job::{Ending, Outcome, StepOutcome};
use crate::launch::{Ran, millis};
use crate::provider::CellEnd;

/// Which result was asked for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wanted {
    JavaScript,
    Project,
    Cell(CellEnd),
}

/// The place of a call in the records of its session; empty for a single run.
#[derive(Debug, Clone, Default)]
pub(super) struct Link {
    pub(super) session: String,
    pub(super) sequence: u64,
    pub(super) previous: String,
}

/// The answer to a run with this id.
pub(super) fn answer(
    call: CallContent<'_>,
    wanted: Wanted,
    run: &str,
    ran: Ran,
    link: Link,
) -> Result<RunResponse, ConnectError> {
    let mut response = RunResponse {
        sandbox: ran.evidence.provider.clone(),
        isolation: ran.evidence.tier.word().to_owned(),
        duration_ms: signed(millis(ran.duration)),
        environment: ran.environment,
        instance: instance(run),
        ..RunResponse::default()
    };
    match wanted {
        Wanted::JavaScript => response.javascript = Some(javascript(run, ran.outcome)?),
        Wanted::Project => response.project = Some(project(ran.outcome)),
        Wanted::Cell(end) => response.cell = Some(cell(run, ran.outcome, end)?),
    }
    let mut record = RunRecord {
        version: RECORD_VERSION,
        request_sha256: request_digest(call),
        result_sha256: result_digest(&response),
        provider: response.sandbox.clone(),
        isolation: response.isolation.clone(),
        environment: response.environment.clone(),
        policy: policy_name(&ran.policy_digest),
        started_unix_ms: signed(ran.started_unix_ms),
        ended_unix_ms: signed(ran.ended_unix_ms),
        software_rule_id: rule_id(call.software_rule),
        instance: response.instance.clone(),
        session: link.session,
        sequence: link.sequence,
        previous_sha256: link.previous,
        ..RunRecord::default()
    };
    record.record_sha256 = record_digest(&record).unwrap_or_default();
    response.record = Some(record);
    Ok(response)
}

/// How records name what ran: by the id that the audit log has, too.
pub(super) fn instance(run: &str) -> String {
    format!("freeboard-run:{run}")
}

pub(super) fn signed(value: u64) -> i64 {
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

/// A cell has the result of a snippet, and what became of its interpreter.
fn cell(run: &str, outcome: Outcome, end: CellEnd) -> Result<CellResult, ConnectError> {
    let result = javascript(run, outcome)?;
    Ok(CellResult {
        stdout: result.stdout,
        stderr: result.stderr,
        exit_code: result.exit_code,
        timed_out: result.timed_out,
        stdout_truncated: result.stdout_truncated,
        stderr_truncated: result.stderr_truncated,
        interpreter_started: end.started,
        interpreter_ended: end.ended,
    })
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
