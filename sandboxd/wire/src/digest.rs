//! Digests of requests, results and records. Nothing is computed over JSON or protobuf bytes: every listed field is
//! written with its name and length, zero values too, so that any language can recompute it.

use sha2::{Digest, Sha256};

use crate::message::{
    CellRun, JavaScriptRun, ModuleRun, ProjectFile, ProjectRun, RunRecord, RunRequest, RunResponse,
    SessionRunRequest, SoftwareRule,
};

/// Fields of one digest so far.
pub(crate) struct Fields {
    hash: Sha256,
    #[cfg(test)]
    length: usize,
}

impl Fields {
    pub(crate) fn new(domain: &str) -> Self {
        let mut fields = Self {
            hash: Sha256::new(),
            #[cfg(test)]
            length: 0,
        };
        fields.value(domain.as_bytes());
        fields
    }

    fn value(&mut self, bytes: &[u8]) {
        self.hash.update((bytes.len() as u64).to_be_bytes());
        self.hash.update(bytes);
        #[cfg(test)]
        {
            self.length += bytes.len() + 8;
        }
    }

    pub(crate) fn bytes(&mut self, name: &str, content: &[u8]) {
        self.value(name.as_bytes());
        self.value(content);
    }

    pub(crate) fn text(&mut self, name: &str, content: &str) {
        self.bytes(name, content.as_bytes());
    }

    pub(crate) fn number(&mut self, name: &str, content: impl Into<i128>) {
        self.text(name, &content.into().to_string());
    }

    pub(crate) fn count(&mut self, name: &str, content: usize) {
        self.text(name, &content.to_string());
    }

    pub(crate) fn flag(&mut self, name: &str, content: bool) {
        self.text(name, if content { "true" } else { "false" });
    }

    fn doubles(&mut self, name: &str, content: &[f64]) {
        // Every NaN is the one that JSON can carry.
        const NAN: u64 = 0x7ff8_0000_0000_0000;
        let bits = content.iter().map(|value| if value.is_nan() { NAN } else { value.to_bits() });
        let bytes: Vec<u8> = bits.flat_map(u64::to_be_bytes).collect();
        self.bytes(name, &bytes);
    }

    fn files(&mut self, files: &[ProjectFile]) {
        self.count("files", files.len());
        for file in files {
            self.text("file_path", &file.path);
            self.text("file_content", &file.content);
        }
    }

    pub(crate) fn finish(self) -> String {
        hex(&self.hash.finalize())
    }
}

/// Lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    let digit = |value: u8| DIGITS.get(usize::from(value & 15)).copied().unwrap_or_default();
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect()
}

/// SHA-256 as lower-case hex.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// The parts of a call that its request digest covers: a run and a session call with the same content agree.
#[derive(Debug, Clone, Copy)]
pub struct CallContent<'a> {
    pub protocol: u32,
    pub minimum_isolation: &'a str,
    pub timeout_ms: i32,
    pub software_rule: Option<&'a SoftwareRule>,
    pub payload: Option<Payload<'a>>,
}

/// The payload of a call.
#[derive(Debug, Clone, Copy)]
pub enum Payload<'a> {
    JavaScript(&'a JavaScriptRun),
    Project(&'a ProjectRun),
    Module(&'a ModuleRun),
    Cell(&'a CellRun),
}

impl<'a> From<&'a RunRequest> for CallContent<'a> {
    fn from(request: &'a RunRequest) -> Self {
        let javascript = request.javascript.as_ref().map(Payload::JavaScript);
        let project = request.project.as_ref().map(Payload::Project);
        let module = request.module.as_ref().map(Payload::Module);
        let cell = request.cell.as_ref().map(Payload::Cell);
        Self {
            protocol: request.protocol,
            minimum_isolation: &request.minimum_isolation,
            timeout_ms: request.timeout_ms,
            software_rule: request.software_rule.as_ref(),
            payload: javascript.or(project).or(module).or(cell),
        }
    }
}

impl<'a> From<&'a SessionRunRequest> for CallContent<'a> {
    fn from(request: &'a SessionRunRequest) -> Self {
        let javascript = request.javascript.as_ref().map(Payload::JavaScript);
        let project = request.project.as_ref().map(Payload::Project);
        let cell = request.cell.as_ref().map(Payload::Cell);
        Self {
            protocol: request.protocol,
            minimum_isolation: &request.minimum_isolation,
            timeout_ms: request.timeout_ms,
            software_rule: request.software_rule.as_ref(),
            payload: javascript.or(project).or(cell),
        }
    }
}

/// Digest of a request as it was received, before any default or clamp.
pub fn request_digest<'a>(call: impl Into<CallContent<'a>>) -> String {
    request_fields(&call.into()).finish()
}

fn request_fields(call: &CallContent<'_>) -> Fields {
    let domain = if call.protocol >= 2 { "plimsoll.run-request.v2" } else { "plimsoll.run-request.v1" };
    let mut fields = Fields::new(domain);
    fields.number("protocol", call.protocol);
    fields.text("minimum_isolation", call.minimum_isolation);
    fields.number("timeout_ms", call.timeout_ms);
    if call.protocol >= 2 {
        let none = SoftwareRule::default();
        let rule = call.software_rule.unwrap_or(&none);
        fields.text("software_mode", &rule.mode);
        fields.count("software_identities", rule.identities.len());
        for identity in &rule.identities {
            fields.text("software_identity", identity);
        }
    }
    match call.payload {
        Some(Payload::JavaScript(run)) => {
            fields.text("kind", "javascript");
            fields.text("code", &run.code);
            fields.text("grant_profile", &run.grant_profile);
        }
        Some(Payload::Cell(run)) => {
            fields.text("kind", "cell");
            fields.text("language", &run.language);
            fields.text("code", &run.code);
            fields.files(&run.files);
        }
        Some(Payload::Project(run)) => {
            fields.text("kind", "project");
            fields.text("grant_profile", &run.grant_profile);
            fields.files(&run.files);
            fields.count("steps", run.steps.len());
            for step in &run.steps {
                fields.text("step_command", step);
            }
            fields.count("artifacts", run.artifacts.len());
            for path in &run.artifacts {
                fields.text("artifact_path", path);
            }
        }
        Some(Payload::Module(run)) => {
            fields.text("kind", "module");
            fields.text("model", &run.model);
            fields.doubles("end_time", &[run.end_time]);
            fields.doubles("step", &[run.step]);
            fields.count("rows", run.rows.len());
            for row in &run.rows {
                fields.doubles("row_values", &row.values);
            }
        }
        // A call without a payload is refused before anything is hashed.
        None => fields.text("kind", ""),
    }
    fields
}

/// Digest of the result in an answer; durations and advice are not covered.
pub fn result_digest(response: &RunResponse) -> String {
    result_fields(response).finish()
}

fn result_fields(response: &RunResponse) -> Fields {
    let mut fields = Fields::new("plimsoll.run-result.v1");
    if let Some(result) = &response.javascript {
        fields.text("kind", "javascript");
        fields.number("exit_code", result.exit_code);
        fields.flag("timed_out", result.timed_out);
        fields.bytes("stdout", &result.stdout);
        fields.bytes("stderr", &result.stderr);
        fields.flag("stdout_truncated", result.stdout_truncated);
        fields.flag("stderr_truncated", result.stderr_truncated);
    } else if let Some(result) = &response.cell {
        fields.text("kind", "cell");
        fields.number("exit_code", result.exit_code);
        fields.flag("timed_out", result.timed_out);
        fields.bytes("stdout", &result.stdout);
        fields.bytes("stderr", &result.stderr);
        fields.flag("stdout_truncated", result.stdout_truncated);
        fields.flag("stderr_truncated", result.stderr_truncated);
        fields.flag("interpreter_started", result.interpreter_started);
        fields.flag("interpreter_ended", result.interpreter_ended);
    } else if let Some(result) = &response.project {
        fields.text("kind", "project");
        fields.number("outcome", result.outcome);
        fields.text("outcome_detail", &result.outcome_detail);
        fields.flag("artifacts_truncated", result.artifacts_truncated);
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
    } else if let Some(result) = &response.module {
        fields.text("kind", "module");
        fields.number("outcome", result.outcome);
        fields.text("outcome_detail", &result.outcome_detail);
        fields.number("width", result.width);
        fields.bytes("stdout", &result.stdout);
        fields.bytes("stderr", &result.stderr);
        fields.count("runs", result.runs.len());
        for run in &result.runs {
            fields.number("run_status", run.status);
            fields.doubles("run_outputs", &run.outputs);
        }
    }
    fields
}

/// Digest of a record of version 1 to 4; the version is covered as part of the domain. `None` for another version.
pub fn record_digest(record: &RunRecord) -> Option<String> {
    record_fields(record).map(Fields::finish)
}

fn record_fields(record: &RunRecord) -> Option<Fields> {
    let version = record.version;
    if !(1..=4).contains(&version) {
        return None;
    }
    let mut fields = Fields::new(&format!("plimsoll.run-record.v{version}"));
    fields.text("request_sha256", &record.request_sha256);
    fields.text("result_sha256", &record.result_sha256);
    if version >= 3 {
        fields.text("unanswered", &record.unanswered);
    }
    fields.text("provider", &record.provider);
    fields.text("isolation", &record.isolation);
    fields.text("environment", &record.environment);
    fields.text("policy", &record.policy);
    if version >= 2 {
        fields.text("software_identity", &record.software_identity);
        fields.text("software_rule_id", &record.software_rule_id);
    }
    if version >= 4 {
        fields.text("instance", &record.instance);
    }
    fields.number("started_unix_ms", record.started_unix_ms);
    fields.number("ended_unix_ms", record.ended_unix_ms);
    fields.text("session", &record.session);
    fields.number("sequence", record.sequence);
    fields.text("previous_sha256", &record.previous_sha256);
    Some(fields)
}

/// The name of a rule on records: by its identities, not by its mode.
pub fn rule_id(rule: Option<&SoftwareRule>) -> String {
    let identities = rule.map(|rule| rule.identities.as_slice()).unwrap_or_default();
    match identities {
        [] => String::new(),
        [one] => format!("exact:{one}"),
        several => {
            let mut sorted: Vec<&[u8]> = several.iter().map(String::as_bytes).collect();
            sorted.sort_unstable();
            format!("approved:sha256:{}", sha256_hex(&sorted.join(&0)))
        }
    }
}

/// How records name a session without telling its id.
pub fn session_fingerprint(session_id: &str) -> String {
    sha256_hex(session_id.as_bytes())
}

/// The opaque name that clients send for the owner of a session: HMAC-SHA256 (RFC 2104) under a key of the token.
pub fn owner_name(token: &str, owner: &str) -> String {
    const BLOCK_BYTES: usize = 64;
    let key = Sha256::digest([b"plimsoll session owner key v2\n", token.as_bytes()].concat());
    let pad = |byte: u8| -> Vec<u8> {
        let padded = key.iter().copied().chain(std::iter::repeat(0)).take(BLOCK_BYTES);
        padded.map(|k| k ^ byte).collect()
    };
    let inner = Sha256::new()
        .chain_update(pad(0x36))
        .chain_update(b"plimsoll session owner v2\n")
        .chain_update(owner.as_bytes())
        .finalize();
    hex(&Sha256::new().chain_update(pad(0x5c)).chain_update(inner).finalize())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::from_json;

    #[test]
    fn digest_inputs_have_the_lengths_of_the_contract() {
        let request: RunRequest =
            from_json(br#"{"protocol":4,"javascript":{"code":"console.log(1+1)"}}"#).unwrap();
        assert_eq!(request_fields(&(&request).into()).length, 276);
        let response: RunResponse = from_json(br#"{"javascript":{"stdout":"Mgo="}}"#).unwrap();
        assert_eq!(result_fields(&response).length, 236);
        let record = RunRecord {
            version: 4,
            request_sha256: request_digest(&request),
            result_sha256: result_digest(&response),
            provider: "mock".into(),
            isolation: "process".into(),
            started_unix_ms: 1_700_000_000_000,
            ended_unix_ms: 1_700_000_000_042,
            ..RunRecord::default()
        };
        assert_eq!(record_fields(&record).unwrap().length, 606);
    }
}
