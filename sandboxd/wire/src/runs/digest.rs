//! Digests of results and records of freeboard.v1, made as those of plimsoll.v1 are: each field with name and length.

use super::message::{Ending, Record, RunResult};
use crate::digest::Fields;

/// Digest of a result and how it ended, as records of this version have it. Durations are not covered; nor were, in version 1,
/// requests and standard input.
pub fn result_digest(version: u32, ending: Ending, result: &RunResult) -> String {
    let mut fields = Fields::new(&format!("freeboard.run-result.v{version}"));
    fields.text("ending", ending.word());
    fields.text("detail", &result.detail);
    fields.count("steps", result.steps.len());
    for step in &result.steps {
        fields.text("step_command", &step.command);
        fields.number("step_exit_code", step.exit_code);
        fields.flag("step_timed_out", step.timed_out);
        fields.bytes("step_stdout", &step.stdout);
        fields.bytes("step_stderr", &step.stderr);
        fields.flag("step_stdout_truncated", step.stdout_truncated);
        fields.flag("step_stderr_truncated", step.stderr_truncated);
    }
    fields.count("artifacts", result.artifacts.len());
    for artifact in &result.artifacts {
        fields.text("artifact_path", &artifact.path);
        fields.bytes("artifact_content", &artifact.content);
    }
    fields.flag("artifacts_truncated", result.artifacts_truncated);
    fields.count("evidence", result.evidence.len());
    for fact in &result.evidence {
        fields.text("fact_name", &fact.name);
        fields.text("fact_value", &fact.value);
        fields.flag("fact_met", fact.met);
    }
    if version > 1 {
        requests(&mut fields, result);
        stdin(&mut fields, result);
    }
    fields.finish()
}

/// What is absent is not the same as what is zero.
fn requests(fields: &mut Fields, result: &RunResult) {
    fields.flag("requests", result.requests.is_some());
    if let Some(requests) = result.requests {
        fields.number("requests_allowed", requests.allowed);
        fields.number("requests_denied", requests.denied);
        fields.number("requests_failed", requests.failed);
        fields.number("requests_shed", requests.shed);
    }
    fields.count("refused", result.refused.len());
    for refused in &result.refused {
        fields.text("refused_verdict", &refused.verdict);
        fields.text("refused_method", &refused.method);
        fields.text("refused_host", &refused.host);
        fields.text("refused_path", &refused.path);
        fields.text("refused_reason", &refused.reason);
    }
}

fn stdin(fields: &mut Fields, result: &RunResult) {
    fields.flag("stdin", result.stdin.is_some());
    if let Some(taken) = &result.stdin {
        fields.number("stdin_bytes", taken.bytes);
        fields.text("stdin_sha256", &taken.sha256);
    }
}

/// Digest of a record: all its fields but the last.
pub fn record_digest(record: &Record) -> String {
    let mut fields = Fields::new(&format!("freeboard.run-record.v{}", record.version));
    fields.text("run", &record.run);
    fields.text("request_sha256", &record.request_sha256);
    fields.text("result_sha256", &record.result_sha256);
    fields.text("provider", &record.provider);
    fields.text("isolation", &record.isolation);
    fields.text("environment", &record.environment);
    fields.text("policy", &record.policy);
    fields.number("started_unix_ms", record.started_unix_ms);
    fields.number("ended_unix_ms", record.ended_unix_ms);
    fields.finish()
}
