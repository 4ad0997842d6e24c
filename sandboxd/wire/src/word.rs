//! The closed word lists. A word means the same on the wire, in digests and in records.

/// Tiers, weakest first; a floor is one of these words, exactly.
pub const TIERS: [&str; 4] = ["process", "container", "kernel", "vm"];

/// How a project or module run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum ProjectOutcome {
    /// Never sent.
    Unspecified = 0,
    /// The plan finished, a failing step included.
    Completed = 1,
    /// No step began.
    SetupFailed = 2,
    /// The time was over.
    TimedOut = 3,
    /// There is no readable report; code may have run.
    ProtocolError = 4,
    /// The runner failed after a step had begun.
    RunnerFailed = 5,
}

/// Why a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum SessionEnd {
    /// Still open.
    Unspecified = 0,
    Closed = 1,
    Expired = 2,
    DiskExceeded = 3,
    MainProcessEnded = 4,
    BoundaryFailed = 5,
    SandboxChanged = 6,
    Shutdown = 7,
    Replaced = 8,
    NotFound = 9,
    Unclaimed = 10,
}

/// Why nothing ran. Sent only where that is certain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum NotDispatchedReason {
    Unspecified = 0,
    Request = 1,
    Permission = 2,
    Protocol = 3,
    Unsupported = 4,
    Isolation = 5,
    Capacity = 6,
    Environment = 7,
}

impl NotDispatchedReason {
    /// The word of the `Plimsoll-Not-Dispatched` header.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Unspecified => "unknown",
            Self::Request => "request",
            Self::Permission => "permission",
            Self::Protocol => "protocol",
            Self::Unsupported => "unsupported",
            Self::Isolation => "isolation",
            Self::Capacity => "capacity",
            Self::Environment => "environment",
        }
    }
}

/// An enumeration as JSON carries it.
pub(crate) trait Word: Copy + TryFrom<i32> + Into<i32> + 'static {
    /// Every value with its JSON name.
    fn names() -> &'static [(&'static str, i32)];
}

macro_rules! words {
    ($enumeration:ident: $($name:literal = $number:literal),+ $(,)?) => {
        impl Word for $enumeration {
            fn names() -> &'static [(&'static str, i32)] {
                &[$(($name, $number)),+]
            }
        }
    };
}

words!(ProjectOutcome:
    "PROJECT_OUTCOME_UNSPECIFIED" = 0,
    "PROJECT_OUTCOME_COMPLETED" = 1,
    "PROJECT_OUTCOME_SETUP_FAILED" = 2,
    "PROJECT_OUTCOME_TIMED_OUT" = 3,
    "PROJECT_OUTCOME_PROTOCOL_ERROR" = 4,
    "PROJECT_OUTCOME_RUNNER_FAILED" = 5,
);
words!(SessionEnd:
    "SESSION_END_UNSPECIFIED" = 0,
    "SESSION_END_CLOSED" = 1,
    "SESSION_END_EXPIRED" = 2,
    "SESSION_END_DISK_EXCEEDED" = 3,
    "SESSION_END_MAIN_PROCESS_ENDED" = 4,
    "SESSION_END_BOUNDARY_FAILED" = 5,
    "SESSION_END_SANDBOX_CHANGED" = 6,
    "SESSION_END_SHUTDOWN" = 7,
    "SESSION_END_REPLACED" = 8,
    "SESSION_END_NOT_FOUND" = 9,
    "SESSION_END_UNCLAIMED" = 10,
);
words!(NotDispatchedReason:
    "NOT_DISPATCHED_REASON_UNSPECIFIED" = 0,
    "NOT_DISPATCHED_REASON_REQUEST" = 1,
    "NOT_DISPATCHED_REASON_PERMISSION" = 2,
    "NOT_DISPATCHED_REASON_PROTOCOL" = 3,
    "NOT_DISPATCHED_REASON_UNSUPPORTED" = 4,
    "NOT_DISPATCHED_REASON_ISOLATION" = 5,
    "NOT_DISPATCHED_REASON_CAPACITY" = 6,
    "NOT_DISPATCHED_REASON_ENVIRONMENT" = 7,
);
