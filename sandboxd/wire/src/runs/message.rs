//! The objects of freeboard.v1. Field names are camelCase in JSON; an unknown field is refused, an absent one is empty.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::base64_text;

/// What is to be run. Exactly one form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Program {
    /// A snippet.
    Javascript(String),
    /// A program for `python3`.
    Python(String),
    /// A program for `sh`.
    Shell(String),
    /// One command, not through a shell.
    Command(Vec<String>),
    /// Shell steps, in order, until one fails.
    Steps(Vec<String>),
}

/// A file: of a Start, placed in the work folder first; of a result, captured at the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct File {
    /// Relative, below the work folder.
    pub path: String,
    /// The bytes, in base64.
    #[serde(with = "base64_text")]
    pub content: Vec<u8>,
}

/// A variable of the program's environment. Never a secret: the program can read it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Variable {
    pub name: String,
    pub value: String,
}

/// Whose turn it is among waiting runs. Higher first, then in the order in which they came.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Priority {
    Low,
    #[default]
    Normal,
    High,
}

/// Limits of one run below those of the daemon; 0 = the daemon's. One above the daemon's is refused, never clamped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Limits {
    /// Time of the program in milliseconds.
    #[serde(default)]
    pub time_ms: u64,
    #[serde(default)]
    pub memory_mib: u32,
    /// Processes and threads.
    #[serde(default)]
    pub pids: u32,
    /// Bytes of output that are kept of each stream of a step, and of each stream for Watch.
    #[serde(default)]
    pub output_bytes: u64,
}

impl Limits {
    /// Nothing is asked for.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// Standard input of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Stdin {
    /// What there is from the start, in base64.
    #[serde(default, with = "base64_text")]
    pub data: Vec<u8>,
    /// More follows, with Write, until one says that it is the end.
    #[serde(default)]
    pub open: bool,
}

/// Asks for one run. With the header `Idempotency-Key` the same Start sent again is answered with the same run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StartRequest {
    pub program: Program,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<File>,
    /// Paths that are captured at the end where they exist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub environment: Vec<Variable>,
    /// Names of grants, all of which the run gets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<String>,
    /// The weakest tier that is accepted; empty = any.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub minimum_isolation: String,
    /// Longest time of the program in milliseconds; 0 = the provider's default, more than allowed is clamped.
    #[serde(default)]
    pub timeout_ms: u64,
    /// What the run must not have more of.
    #[serde(default, skip_serializing_if = "Limits::is_none")]
    pub limits: Limits,
    /// Standard input of the program; absent = it is empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<Stdin>,
    /// How long the run may wait for a place in milliseconds; 0 = it is refused when there is none.
    #[serde(default)]
    pub queue_ms: u64,
    #[serde(default)]
    pub priority: Priority,
    /// For the audit log: 1 to 64 of letters, digits, `._:-`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub trace_id: String,
}

/// Asks for one run, by its id or by the key that it was started with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GetRequest {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub run: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub idempotency_key: String,
}

/// Asks for the caller's runs, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListRequest {
    /// Only runs in this state; absent = all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    /// The runs of all callers, for one with the scope `code:admin`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub everybody: bool,
}

/// Asks what the caller may have and has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LimitsRequest {
    /// All callers and the daemon, for one with the scope `code:admin`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub everybody: bool,
}

/// Answer to a Limits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LimitsResponse {
    /// Of the whole daemon; where all were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daemon: Option<Standing>,
    pub callers: Vec<CallerLimits>,
}

/// What one caller may have and has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallerLimits {
    /// Empty for the anonymous one.
    pub caller: String,
    pub scopes: Vec<String>,
    #[serde(flatten)]
    pub standing: Standing,
}

/// Places, and how many of them are taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Standing {
    /// Runs at once.
    pub max_concurrent: u32,
    pub running: u32,
    /// Runs that wait for a place.
    pub waiting: u32,
    /// Runs a minute of each caller; 0 = no limit.
    pub rate_per_minute: u32,
    /// Sessions at once; 0 = no cap.
    pub max_sessions: u32,
}

/// Asks for the output after a place, and waits for some when there is none yet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WatchRequest {
    pub run: String,
    /// The `next` of the answer before; 0 = from the start.
    #[serde(default)]
    pub after: u64,
    /// How long to wait for output or the end in milliseconds.
    #[serde(default)]
    pub wait_ms: u64,
}

/// Gives a run more standard input. Sent again it changes nothing: bytes before what is there already are not taken twice.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WriteRequest {
    pub run: String,
    /// Where in the input `data` begins: bytes given before, those of the Start included.
    #[serde(default)]
    pub offset: u64,
    #[serde(default, with = "base64_text")]
    pub data: Vec<u8>,
    /// Nothing follows; counts only when all of `data` was taken.
    #[serde(default)]
    pub end: bool,
    /// How long to wait for room in milliseconds, when the program does not read.
    #[serde(default)]
    pub wait_ms: u64,
}

/// Answer to a Write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WriteResponse {
    pub state: State,
    /// Bytes of input that were taken so far: the `offset` of the next Write.
    pub taken: u64,
    /// The end was said.
    pub ended: bool,
}

/// Ends a run. What it left is killed; nothing of it runs on when the answer comes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CancelRequest {
    pub run: String,
}

/// Where a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It waits for a place. Nothing ran.
    Queued,
    /// Its boundary is being built or its program runs.
    Running,
    /// It is over; `ending` says how.
    Ended,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// The program ended by itself, well or not.
    Completed,
    /// The time was over.
    TimedOut,
    /// No step began.
    SetupFailed,
    /// The sandbox failed after a step began.
    RunnerFailed,
    /// It was refused: nothing ran.
    Refused,
    /// Somebody cancelled it, or the daemon stopped.
    Cancelled,
    /// The daemon was lost while the program may have run.
    Lost,
}

impl Ending {
    /// The word on the wire.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::TimedOut => "timed_out",
            Self::SetupFailed => "setup_failed",
            Self::RunnerFailed => "runner_failed",
            Self::Refused => "refused",
            Self::Cancelled => "cancelled",
            Self::Lost => "lost",
        }
    }
}

/// Whether code of the run was executed: what a caller asks before it sends the same again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Executed {
    /// Certainly not.
    No,
    /// It was released.
    Yes,
    /// It may have been. Never said of a run that certainly did not run.
    Unknown,
}

/// A run as its caller sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// 32 lower-case hex digits; the audit log has the same.
    pub run: String,
    pub state: State,
    pub executed: Executed,
    pub created_unix_ms: u64,
    /// Whose it is; told only to somebody else, who has the scope `code:admin`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<Ending>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<Refusal>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<RunResult>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<Record>,
    /// The record signed by a key that the daemon does not hold; absent where there is no such key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attestation: Option<Envelope>,
}

/// A DSSE envelope around an in-toto statement. The bytes of the payload are what is signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Envelope {
    pub payload_type: String,
    #[serde(with = "base64_text")]
    pub payload: Vec<u8>,
    pub signatures: Vec<EnvelopeSignature>,
    /// What the TPM of the signing host said of the same bytes. DSSE leaves fields that it does not know alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quote: Option<Quote>,
}

/// A quote of a TPM 2.0, whose qualifying data is the SHA-256 of what the envelope's signatures are made over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quote {
    /// `TPMS_ATTEST`, as the TPM signed it.
    #[serde(with = "base64_text")]
    pub attested: Vec<u8>,
    /// ECDSA in DER, or RSA (PKCS #1 v1.5); with SHA-256.
    #[serde(with = "base64_text")]
    pub sig: Vec<u8>,
    /// Values of the quoted registers of the bank SHA-256, by number; 64 hex digits each.
    pub registers: BTreeMap<u8, String>,
}

/// One signature of an envelope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvelopeSignature {
    /// A hint which key it is of.
    pub keyid: String,
    #[serde(with = "base64_text")]
    pub sig: Vec<u8>,
}

/// Why nothing ran, in the words of plimsoll.v1: a Connect code, one of the seven reasons, a text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    pub code: String,
    /// Empty where the error is not a refusal.
    pub reason: String,
    pub message: String,
}

/// What came of a run that was released.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunResult {
    /// In order; a snippet and a command have one.
    pub steps: Vec<Step>,
    /// For people, where the ending needs it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<File>,
    #[serde(default)]
    pub artifacts_truncated: bool,
    /// What was measured before release.
    pub evidence: Vec<Fact>,
    /// Requests of the run at the broker, by verdict. Absent without a broker, or when it was lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<Requests>,
    /// Requests of the run that were not allowed, the first of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RefusedRequest>,
    /// What was taken of standard input. Absent when there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<Taken>,
    pub duration_ms: u64,
}

/// Standard input as it was taken from the caller; the program may have read less of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Taken {
    pub bytes: u64,
    pub sha256: String,
}

/// A request of the run that the broker did not let through, or that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RefusedRequest {
    /// `denied`, `failed` or `shed`.
    pub verdict: String,
    pub method: String,
    pub host: String,
    pub path: String,
    /// A reason code, or empty.
    pub reason: String,
}

/// What one step wrote and how it ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub command: String,
    /// As of a shell: 124 at the deadline, 128 + signal when killed by one.
    pub exit_code: i32,
    #[serde(with = "base64_text")]
    pub stdout: Vec<u8>,
    #[serde(with = "base64_text")]
    pub stderr: Vec<u8>,
    #[serde(default)]
    pub stdout_truncated: bool,
    #[serde(default)]
    pub stderr_truncated: bool,
    #[serde(default)]
    pub timed_out: bool,
    pub duration_ms: u64,
}

/// One thing that was measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fact {
    pub name: String,
    pub value: String,
    /// Whether it is what the tier needs.
    pub met: bool,
}

/// Decisions of the broker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Requests {
    pub allowed: u64,
    pub denied: u64,
    pub failed: u64,
    pub shed: u64,
}

/// What a run promises to have been; each field is covered by the last one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    pub version: u32,
    pub run: String,
    /// SHA-256 of the body of the Start, as it was sent.
    pub request_sha256: String,
    pub result_sha256: String,
    pub provider: String,
    /// The tier that was measured.
    pub isolation: String,
    /// Content-addressed identity of the engine or root, or empty.
    pub environment: String,
    /// `policy:sha256:…` of the policy in force, or empty without a broker.
    pub policy: String,
    pub started_unix_ms: u64,
    pub ended_unix_ms: u64,
    pub record_sha256: String,
}

/// Answer to a List.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListResponse {
    /// Without results and records: a Get has those.
    pub runs: Vec<Run>,
}

/// Asks what grants open.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GrantsRequest {
    pub grants: Vec<String>,
}

/// Answer to a Grants.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GrantsResponse {
    /// In the order asked for; a grant that this caller does not have makes the whole call a refusal.
    pub grants: Vec<GrantSurface>,
}

/// What one grant opens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GrantSurface {
    pub grant: String,
    /// The weakest tier at which it can be used; empty = any.
    pub floor: String,
    pub apis: Vec<ApiSurface>,
}

/// One API of a grant as a program sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiSurface {
    pub api: String,
    /// `https://host[:port]`.
    pub base_url: String,
    /// Route lines as the policy has them.
    pub routes: Vec<String>,
}

/// Which stream a piece of output is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    Stdout,
    Stderr,
}

/// A piece of output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Output {
    pub stream: Stream,
    #[serde(with = "base64_text")]
    pub data: Vec<u8>,
}

/// Answer to a Watch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WatchResponse {
    pub state: State,
    pub output: Vec<Output>,
    /// The `after` of the next Watch.
    pub next: u64,
    /// Output of the run that is not kept: before what is here, or beyond the limit.
    pub truncated: bool,
}
