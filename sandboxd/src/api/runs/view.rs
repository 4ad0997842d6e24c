//! What came of a run, as its caller is told.

use freeboard_wire::ConnectError;
use freeboard_wire::runs::{
    Ending, Executed, Fact, File, RECORD_VERSION, Record, Refusal, RefusedRequest, Requests, Run, RunResult,
    State, Step, record_digest, result_digest,
};

use crate::api::describe::policy_name;
use crate::api::refuse;
use crate::job;
use crate::launch::{Ran, RunError, millis};
use crate::runs::Entry;

/// The whole view of a run that has ended.
pub fn tell(entry: &Entry, ended: Result<Ran, RunError>) -> Run {
    let outline = Run { state: State::Ended, ..entry.outline() };
    match ended {
        Ok(ran) => {
            let (ending, result, record) = told(entry, ran);
            Run {
                ending: Some(ending),
                executed: Executed::Yes,
                result: Some(result),
                record: Some(record),
                ..outline
            }
        }
        Err(error) => {
            let (ending, executed) = match &error {
                RunError::Refused(_) => (Ending::Refused, Executed::No),
                RunError::Failed(_) => (Ending::RunnerFailed, Executed::Unknown),
            };
            let refusal = Some(refusal(&refuse::run_error(&entry.facts.run, &error)));
            Run { ending: Some(ending), executed, refusal, ..outline }
        }
    }
}

fn refusal(error: &ConnectError) -> Refusal {
    Refusal {
        code: error.code.name().to_owned(),
        reason: error.mark().map(|mark| mark.word().to_owned()).unwrap_or_default(),
        message: error.message.clone(),
    }
}

fn told(entry: &Entry, ran: Ran) -> (Ending, RunResult, Record) {
    let ending = match ran.outcome.ending {
        job::Ending::Completed => Ending::Completed,
        job::Ending::TimedOut => Ending::TimedOut,
        job::Ending::SetupFailed => Ending::SetupFailed,
        job::Ending::RunnerFailed => Ending::RunnerFailed,
    };
    let refused = ran.trace.iter().flat_map(|trace| &trace.calls);
    let refused = refused.filter(|call| call.verdict != "allowed").map(|call| RefusedRequest {
        verdict: call.verdict.clone(),
        method: call.method.clone(),
        host: call.host.clone(),
        path: call.path.clone(),
        reason: call.reason.map(|reason| reason.code().to_owned()).unwrap_or_default(),
    });
    let refused = refused.collect();
    let evidence = ran.evidence.facts.into_iter();
    let artifacts = ran.outcome.artifacts.into_iter();
    let result = RunResult {
        steps: ran.outcome.steps.into_iter().map(step).collect(),
        detail: ran.outcome.detail,
        artifacts: artifacts.map(|file| File { path: file.path, content: file.content }).collect(),
        artifacts_truncated: ran.outcome.artifacts_truncated,
        evidence: evidence.map(|fact| Fact { name: fact.name, value: fact.value, met: fact.met }).collect(),
        requests: ran.trace.map(|trace| Requests {
            allowed: trace.allowed,
            denied: trace.denied,
            failed: trace.failed,
            shed: trace.shed,
        }),
        refused,
        stdin: entry.input.as_ref().map(|input| input.taken()),
        duration_ms: millis(ran.duration),
    };
    let mut record = Record {
        version: RECORD_VERSION,
        run: entry.facts.run.clone(),
        request_sha256: entry.facts.request_sha256.clone(),
        result_sha256: result_digest(RECORD_VERSION, ending, &result),
        provider: ran.evidence.provider,
        isolation: ran.evidence.tier.word().to_owned(),
        environment: ran.environment,
        policy: policy_name(&ran.policy_digest),
        started_unix_ms: ran.started_unix_ms,
        ended_unix_ms: ran.ended_unix_ms,
        record_sha256: String::new(),
    };
    record.record_sha256 = record_digest(&record);
    (ending, result, record)
}

fn step(step: job::StepOutcome) -> Step {
    Step {
        command: step.command,
        exit_code: step.exit_code,
        stdout: step.stdout,
        stderr: step.stderr,
        stdout_truncated: step.stdout_truncated,
        stderr_truncated: step.stderr_truncated,
        timed_out: step.timed_out,
        duration_ms: millis(step.duration),
    }
}
