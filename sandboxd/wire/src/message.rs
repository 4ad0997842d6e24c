//! The messages. Field numbers are protobuf's and never change their meaning; numbers that are left out are reserved.

use crate::json::{JsonMessage, read_plain, read_word, write_plain, write_word};
use crate::word::{NotDispatchedReason, ProjectOutcome, SessionEnd};

macro_rules! read_one {
    ($field:expr, $map:ident, $word:ident) => {
        read_word::<$word, A>($field, $map)
    };
    ($field:expr, $map:ident) => {
        read_plain($field, $map)
    };
}

macro_rules! write_one {
    ($field:expr, $name:literal, $map:ident, $word:ident) => {
        write_word::<$word, S>(*$field, $name, $map)
    };
    ($field:expr, $name:literal, $map:ident) => {
        write_plain($field, $name, $map)
    };
}

macro_rules! messages {
    ($($(#[$doc:meta])* $name:ident {
        $($(#[$note:meta])* $field:ident: $kind:ty [$($prost:tt)+] $camel:literal $(as $word:ident)?;)*
    })+) => { $(
        $(#[$doc])*
        #[derive(Clone, PartialEq, prost::Message)]
        pub struct $name {
            $($(#[$note])* #[prost($($prost)+)] pub $field: $kind,)*
        }

        impl JsonMessage for $name {
            const NAMES: &'static [(&'static str, &'static str)] = &[$(($camel, stringify!($field)),)*];

            fn read_field<'de, A: serde::de::MapAccess<'de>>(
                &mut self,
                camel: &str,
                map: &mut A,
            ) -> Result<bool, A::Error> {
                match camel {
                    $($camel => read_one!(&mut self.$field, map $(, $word)?),)*
                    _ => map.next_value::<serde::de::IgnoredAny>().map(|_| false),
                }
            }

            #[allow(unused_variables, reason = "messages without fields write nothing")]
            fn write_fields<S: serde::ser::SerializeMap>(&self, map: &mut S) -> Result<(), S::Error> {
                $(write_one!(&self.$field, $camel, map $(, $word)?)?;)*
                Ok(())
            }
        }
    )+ };
}

messages! {
    /// Asks what this daemon is.
    DescribeRequest {}

    /// What this daemon is and can do.
    DescribeResponse {
        sandbox: String [string, tag = "1"] "sandbox";
        isolation: String [string, tag = "2"] "isolation";
        supports_project: bool [bool, tag = "3"] "supportsProject";
        supports_javascript_grants: bool [bool, tag = "4"] "supportsJavascriptGrants";
        supports_project_grants: bool [bool, tag = "5"] "supportsProjectGrants";
        supports_module: bool [bool, tag = "8"] "supportsModule";
        protocol: u32 [uint32, tag = "9"] "protocol";
        javascript_environment: Option<PayloadEnvironment> [message, optional, tag = "10"] "javascriptEnvironment";
        project_environment: Option<PayloadEnvironment> [message, optional, tag = "11"] "projectEnvironment";
        module_environment: Option<PayloadEnvironment> [message, optional, tag = "12"] "moduleEnvironment";
        resources: Option<RunResources> [message, optional, tag = "13"] "resources";
        policy: String [string, tag = "14"] "policy";
        supports_sessions: bool [bool, tag = "15"] "supportsSessions";
        session_lifetime_ms: u32 [uint32, tag = "16"] "sessionLifetimeMs";
        session_idle_timeout_ms: u32 [uint32, tag = "17"] "sessionIdleTimeoutMs";
        session_environment: Option<PayloadEnvironment> [message, optional, tag = "18"] "sessionEnvironment";
        max_sessions_per_caller: u32 [uint32, tag = "19"] "maxSessionsPerCaller";
        max_sessions_per_owner: u32 [uint32, tag = "20"] "maxSessionsPerOwner";
    }

    /// Where one kind of payload runs.
    PayloadEnvironment {
        identity: String [string, tag = "1"] "identity";
        max_timeout_ms: u32 [uint32, tag = "2"] "maxTimeoutMs";
        software_identity: String [string, tag = "3"] "softwareIdentity";
        languages: Vec<String> [string, repeated, tag = "4"] "languages";
    }

    /// What one run may use; 0 = the provider's default.
    RunResources {
        memory_mb: u32 [uint32, tag = "1"] "memoryMb";
        cpus: f64 [double, tag = "2"] "cpus";
        pids: u32 [uint32, tag = "3"] "pids";
        disk_mb: u32 [uint32, tag = "4"] "diskMb";
    }

    /// One run.
    RunRequest {
        protocol: u32 [uint32, tag = "1"] "protocol";
        minimum_isolation: String [string, tag = "2"] "minimumIsolation";
        trace_id: String [string, tag = "3"] "traceId";
        timeout_ms: i32 [int32, tag = "4"] "timeoutMs";
        software_rule: Option<SoftwareRule> [message, optional, tag = "5"] "softwareRule";
        javascript: Option<JavaScriptRun> [message, optional, tag = "10"] "javascript";
        project: Option<ProjectRun> [message, optional, tag = "11"] "project";
        module: Option<ModuleRun> [message, optional, tag = "12"] "module";
        cell: Option<CellRun> [message, optional, tag = "13"] "cell";
    }

    /// Which software the caller accepts.
    SoftwareRule {
        mode: String [string, tag = "1"] "mode";
        identities: Vec<String> [string, repeated, tag = "2"] "identities";
    }

    JavaScriptRun {
        code: String [string, tag = "1"] "code";
        grant_profile: String [string, tag = "2"] "grantProfile";
    }

    ProjectRun {
        files: Vec<ProjectFile> [message, repeated, tag = "1"] "files";
        steps: Vec<String> [string, repeated, tag = "2"] "steps";
        artifacts: Vec<String> [string, repeated, tag = "4"] "artifacts";
        grant_profile: String [string, tag = "5"] "grantProfile";
    }

    ProjectFile {
        path: String [string, tag = "1"] "path";
        content: String [string, tag = "2"] "content";
    }

    ModuleRun {
        model: String [string, tag = "1"] "model";
        rows: Vec<ModuleRow> [message, repeated, tag = "2"] "rows";
        end_time: f64 [double, tag = "3"] "endTime";
        step: f64 [double, tag = "4"] "step";
    }

    ModuleRow {
        values: Vec<f64> [double, repeated, tag = "1"] "values";
    }

    CellRun {
        language: String [string, tag = "1"] "language";
        code: String [string, tag = "2"] "code";
        files: Vec<ProjectFile> [message, repeated, tag = "3"] "files";
    }

    /// The answer to a run that was released.
    RunResponse {
        sandbox: String [string, tag = "1"] "sandbox";
        isolation: String [string, tag = "2"] "isolation";
        duration_ms: i64 [int64, tag = "3"] "durationMs";
        record: Option<RunRecord> [message, optional, tag = "4"] "record";
        software_identity: String [string, tag = "5"] "softwareIdentity";
        environment: String [string, tag = "6"] "environment";
        instance: String [string, tag = "7"] "instance";
        javascript: Option<JavaScriptResult> [message, optional, tag = "10"] "javascript";
        project: Option<ProjectResult> [message, optional, tag = "11"] "project";
        module: Option<ModuleResult> [message, optional, tag = "12"] "module";
        cell: Option<CellResult> [message, optional, tag = "13"] "cell";
    }

    JavaScriptResult {
        stdout: Vec<u8> [bytes = "vec", tag = "1"] "stdout";
        stderr: Vec<u8> [bytes = "vec", tag = "2"] "stderr";
        exit_code: i32 [int32, tag = "3"] "exitCode";
        timed_out: bool [bool, tag = "4"] "timedOut";
        stdout_truncated: bool [bool, tag = "8"] "stdoutTruncated";
        stderr_truncated: bool [bool, tag = "9"] "stderrTruncated";
        advice: Vec<AdviceFinding> [message, repeated, tag = "10"] "advice";
    }

    ProjectResult {
        steps: Vec<StepResult> [message, repeated, tag = "1"] "steps";
        outcome: i32 [enumeration = "ProjectOutcome", tag = "3"] "outcome" as ProjectOutcome;
        artifacts: Vec<Artifact> [message, repeated, tag = "4"] "artifacts";
        outcome_detail: String [string, tag = "6"] "outcomeDetail";
        artifacts_truncated: bool [bool, tag = "7"] "artifactsTruncated";
        advice: Vec<AdviceFinding> [message, repeated, tag = "8"] "advice";
    }

    StepResult {
        command: String [string, tag = "1"] "command";
        stdout: Vec<u8> [bytes = "vec", tag = "2"] "stdout";
        stderr: Vec<u8> [bytes = "vec", tag = "3"] "stderr";
        exit_code: i32 [int32, tag = "4"] "exitCode";
        timed_out: bool [bool, tag = "5"] "timedOut";
        duration_ms: i64 [int64, tag = "6"] "durationMs";
        stdout_truncated: bool [bool, tag = "7"] "stdoutTruncated";
        stderr_truncated: bool [bool, tag = "8"] "stderrTruncated";
    }

    Artifact {
        path: String [string, tag = "1"] "path";
        content: Vec<u8> [bytes = "vec", tag = "2"] "content";
    }

    ModuleResult {
        runs: Vec<ModuleRowResult> [message, repeated, tag = "1"] "runs";
        width: i32 [int32, tag = "2"] "width";
        outcome: i32 [enumeration = "ProjectOutcome", tag = "5"] "outcome" as ProjectOutcome;
        outcome_detail: String [string, tag = "6"] "outcomeDetail";
        stdout: Vec<u8> [bytes = "vec", tag = "7"] "stdout";
        stderr: Vec<u8> [bytes = "vec", tag = "8"] "stderr";
    }

    ModuleRowResult {
        status: i32 [int32, tag = "1"] "status";
        outputs: Vec<f64> [double, repeated, tag = "2"] "outputs";
    }

    CellResult {
        stdout: Vec<u8> [bytes = "vec", tag = "1"] "stdout";
        stderr: Vec<u8> [bytes = "vec", tag = "2"] "stderr";
        exit_code: i32 [int32, tag = "3"] "exitCode";
        timed_out: bool [bool, tag = "4"] "timedOut";
        stdout_truncated: bool [bool, tag = "5"] "stdoutTruncated";
        stderr_truncated: bool [bool, tag = "6"] "stderrTruncated";
        interpreter_started: bool [bool, tag = "7"] "interpreterStarted";
        interpreter_ended: bool [bool, tag = "8"] "interpreterEnded";
    }

    AdviceFinding {
        pattern: String [string, tag = "1"] "pattern";
        severity: String [string, tag = "2"] "severity";
        remedy: String [string, tag = "3"] "remedy";
        method: String [string, tag = "4"] "method";
        route: String [string, tag = "5"] "route";
        detail: String [string, tag = "6"] "detail";
        suggested_method: String [string, tag = "7"] "suggestedMethod";
        suggested_route: String [string, tag = "8"] "suggestedRoute";
        extra_calls: i32 [int32, tag = "9"] "extraCalls";
        added_latency_ms: i64 [int64, tag = "10"] "addedLatencyMs";
        bytes_moved: i64 [int64, tag = "11"] "bytesMoved";
    }

    /// What the daemon vouches for; see `digest`.
    RunRecord {
        version: u32 [uint32, tag = "1"] "version";
        request_sha256: String [string, tag = "2"] "requestSha256";
        result_sha256: String [string, tag = "3"] "resultSha256";
        provider: String [string, tag = "4"] "provider";
        isolation: String [string, tag = "5"] "isolation";
        environment: String [string, tag = "6"] "environment";
        policy: String [string, tag = "7"] "policy";
        started_unix_ms: i64 [int64, tag = "8"] "startedUnixMs";
        ended_unix_ms: i64 [int64, tag = "9"] "endedUnixMs";
        session: String [string, tag = "10"] "session";
        sequence: u64 [uint64, tag = "11"] "sequence";
        previous_sha256: String [string, tag = "12"] "previousSha256";
        record_sha256: String [string, tag = "13"] "recordSha256";
        software_identity: String [string, tag = "14"] "softwareIdentity";
        software_rule_id: String [string, tag = "15"] "softwareRuleId";
        unanswered: String [string, tag = "16"] "unanswered";
        instance: String [string, tag = "17"] "instance";
    }

    OpenSessionRequest {
        protocol: u32 [uint32, tag = "1"] "protocol";
        minimum_isolation: String [string, tag = "2"] "minimumIsolation";
        trace_id: String [string, tag = "3"] "traceId";
        lifetime_ms: u32 [uint32, tag = "4"] "lifetimeMs";
        idle_timeout_ms: u32 [uint32, tag = "5"] "idleTimeoutMs";
        software_rule: Option<SoftwareRule> [message, optional, tag = "6"] "softwareRule";
        languages: Vec<String> [string, repeated, tag = "7"] "languages";
        owner: String [string, tag = "8"] "owner";
    }

    OpenSessionResponse {
        session_id: String [string, tag = "1"] "sessionId";
        session: String [string, tag = "2"] "session";
        sandbox: String [string, tag = "3"] "sandbox";
        isolation: String [string, tag = "4"] "isolation";
        expires_unix_ms: i64 [int64, tag = "5"] "expiresUnixMs";
        idle_timeout_ms: u32 [uint32, tag = "6"] "idleTimeoutMs";
        software_identity: String [string, tag = "7"] "softwareIdentity";
    }

    SessionRunRequest {
        protocol: u32 [uint32, tag = "1"] "protocol";
        minimum_isolation: String [string, tag = "2"] "minimumIsolation";
        trace_id: String [string, tag = "3"] "traceId";
        timeout_ms: i32 [int32, tag = "4"] "timeoutMs";
        session_id: String [string, tag = "5"] "sessionId";
        software_rule: Option<SoftwareRule> [message, optional, tag = "6"] "softwareRule";
        javascript: Option<JavaScriptRun> [message, optional, tag = "10"] "javascript";
        project: Option<ProjectRun> [message, optional, tag = "11"] "project";
        cell: Option<CellRun> [message, optional, tag = "12"] "cell";
    }

    SessionRunResponse {
        run: Option<RunResponse> [message, optional, tag = "1"] "run";
        ended: i32 [enumeration = "SessionEnd", tag = "2"] "ended" as SessionEnd;
        end_detail: String [string, tag = "3"] "endDetail";
    }

    CloseSessionRequest {
        protocol: u32 [uint32, tag = "1"] "protocol";
        session_id: String [string, tag = "2"] "sessionId";
    }

    CloseSessionResponse {
        session: String [string, tag = "1"] "session";
        calls: u64 [uint64, tag = "2"] "calls";
        last_record_sha256: String [string, tag = "3"] "lastRecordSha256";
        ended: i32 [enumeration = "SessionEnd", tag = "4"] "ended" as SessionEnd;
    }

    /// Error detail: nothing ran.
    NotDispatched {
        reason: i32 [enumeration = "NotDispatchedReason", tag = "1"] "reason" as NotDispatchedReason;
    }

    /// Error detail: the session is over.
    SessionEnded {
        reason: i32 [enumeration = "SessionEnd", tag = "1"] "reason" as SessionEnd;
        detail: String [string, tag = "2"] "detail";
    }

    /// Error detail: a session call that may have run and has no answer.
    UnansweredCall {
        record: Option<RunRecord> [message, optional, tag = "1"] "record";
    }
}
