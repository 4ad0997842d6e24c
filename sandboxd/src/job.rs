//! What is to be run, and what came of it. The same for every provider and for every way in (wire, command line).

use std::sync::Arc;
use std::time::Duration;

pub use freeboard_guest::protocol::Language;
use freeboard_policy::Tier;

use crate::input::Input;

/// One run as admitted: everything checked against the limits, nothing defaulted any more.
#[derive(Debug, Clone)]
pub struct Job {
    /// 32 lower-case hex digits, random.
    pub run: String,
    pub caller: Option<String>,
    pub trace_id: Option<String>,
    pub grants: Vec<String>,
    /// Strongest of the request's and the operator's floor; the grants' floor comes from the broker.
    pub floor: Option<Tier>,
    /// Wall time from release to the end of the last step.
    pub timeout: Duration,
    pub payload: Payload,
    /// Files placed in the work directory first; relative paths, checked.
    pub files: Vec<JobFile>,
    /// Relative paths that are captured after the last step where they exist.
    pub artifacts: Vec<String>,
    /// Extra environment of the guest. Never secrets.
    pub environment: Vec<(String, String)>,
    /// Bytes kept per stream and step; more is cut and flagged.
    pub output_limit: usize,
    /// What it gets less of than it may have.
    pub less: Less,
    /// Standard input of the program; `None` = it is empty.
    pub input: Option<Arc<Input>>,
    /// Bytes of artifacts kept in all.
    pub artifact_limit: usize,
}

impl Job {
    /// Without a caller, grants or files.
    pub fn of_nobody(run: String, payload: Payload, timeout: Duration) -> Self {
        Self {
            run,
            caller: None,
            trace_id: None,
            grants: Vec::new(),
            floor: None,
            timeout,
            payload,
            files: Vec::new(),
            artifacts: Vec::new(),
            environment: Vec::new(),
            output_limit: 0,
            less: Less::default(),
            input: None,
            artifact_limit: 0,
        }
    }
}

/// Limits of one run below those of its provider; `None` = the provider's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Less {
    pub time: Option<Duration>,
    pub memory_mib: Option<u32>,
    pub pids: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobFile {
    pub path: String,
    pub content: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payload {
    /// A JavaScript snippet: the engine of the `wasm` provider, `node` elsewhere.
    JavaScript { code: String },
    /// Shell steps, in order, each through `sh -c` in the work directory; stops after the first that fails.
    Steps { steps: Vec<String> },
    /// One command, not through a shell.
    Command { argv: Vec<String> },
    /// Nothing yet: the calls of a session follow.
    Session,
    /// Code for the living interpreter of a session; runs in a session only.
    Cell { language: Language, code: String },
}

/// Result of a run whose code was released.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    pub steps: Vec<StepOutcome>,
    pub ending: Ending,
    /// Text for people where the ending needs it.
    pub detail: String,
    pub artifacts: Vec<JobFile>,
    pub artifacts_truncated: bool,
}

/// A snippet, a command and a cell have exactly one step.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StepOutcome {
    pub command: String,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub stdout_truncated: bool,
    pub stderr_truncated: bool,
    /// The guest's own status, 128 + signal when killed by one, 124 at the deadline, 134 for a trap of the engine,
    /// 137 when memory ran out.
    pub exit_code: i32,
    pub timed_out: bool,
    pub duration: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// All steps ran, or one failed by itself.
    Completed,
    /// The time was over.
    TimedOut,
    /// No step began.
    SetupFailed,
    /// The sandbox failed after a step began.
    RunnerFailed,
}

impl Ending {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::TimedOut => "timed_out",
            Self::SetupFailed => "setup_failed",
            Self::RunnerFailed => "runner_failed",
        }
    }
}

/// Where output goes while it appears, besides being kept for the result. `sandboxd run` prints it.
pub trait OutputSink: Send + Sync {
    fn stdout(&self, bytes: &[u8]);
    fn stderr(&self, bytes: &[u8]);

    /// Whether bytes beyond the kept part are wanted too. When not, a provider may throw them away where they arise.
    fn wants_all(&self) -> bool {
        false
    }
}

/// Keeps nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSink;

impl OutputSink for NoSink {
    fn stdout(&self, _bytes: &[u8]) {}
    fn stderr(&self, _bytes: &[u8]) {}
}
