//! What the broker counts, as data: the page of `/metrics` and its reference are made from this.

/// One family of samples.
#[derive(Debug, Clone, Copy)]
pub struct Family {
    pub name: &'static str,
    pub kind: FamilyKind,
    /// Names of its labels. Their values come from lists of ours or from the policy, never from a guest.
    pub labels: &'static [&'static str],
    pub help: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FamilyKind {
    Counter,
    Gauge,
    Histogram,
}

impl FamilyKind {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

macro_rules! families {
    ($($constant:ident: $kind:ident $name:literal [$($label:literal),*] $help:literal;)*) => {
        $(pub const $constant: Family = Family {
            name: $name, kind: FamilyKind::$kind, labels: &[$($label),*], help: $help,
        };)*
        /// Every family, in the order of the page.
        pub const ALL: &[Family] = &[$($constant),*];
    };
}

families! {
    INFO: Gauge "freeboard_info" ["version"] "1; the version of the broker.";
    DECISIONS: Counter "freeboard_decisions_total" ["kind", "verdict", "reason"]
        "Requests, tunnels, handshakes, connections and DNS questions by verdict and reason; `none` where there is no reason. A combination is listed from its first time on.";
    VERDICTS: Counter "freeboard_verdicts_total" ["verdict"] "The same by verdict alone, listed from the start.";
    REQUEST_SECONDS: Histogram "freeboard_request_seconds" ["verdict"]
        "From the first byte of a request to the end of its answer.";
    UPSTREAM_SECONDS: Histogram "freeboard_upstream_head_seconds" []
        "From the first byte of a request to the head of the API's answer.";
    BODY_BYTES: Counter "freeboard_body_bytes_total" ["direction"] "Bytes of bodies, `to_upstream` and `to_guest`.";
    MASKED: Counter "freeboard_answers_masked_total" ["what"]
        "Answers in which an attached secret (`secret`) or a token of an issuer (`token`) was found and masked.";
    HANDSHAKES: Counter "freeboard_guest_handshakes_total" ["outcome"]
        "TLS handshakes of guests that were `completed`, or `failed` or were refused.";
    ABORTS: Counter "freeboard_guest_aborts_after_leaf_total" ["how"]
        "Guests that went away once they had seen our certificate: by an `alert` that says so, `closed` inside the handshake, `silent` after it without a request. A program that pins its certificates, or does not know the CA.";
    LEAVES: Counter "freeboard_leaf_mints_total" ["outcome"] "Leaf certificates: `made`, or `failed` because the CA could not sign.";
    CREDENTIAL_MINTS: Counter "freeboard_credential_mints_total" ["credential", "outcome"]
        "Tokens asked of issuers since the credential was last changed: `made` or `failed`.";
    CREDENTIALS_UNREADY: Gauge "freeboard_credentials_unready" []
        "Credentials of the policy whose secret could not be used at the last load: their requests are refused.";
    BREAKERS: Gauge "freeboard_breaker_open" ["api"] "1 while nothing is sent to the API because it answered 429 or 503.";
    AUDIT_WRITABLE: Gauge "freeboard_audit_writable" [] "0 while the audit log cannot be written: every request is refused.";
    AUDIT_UNWRITTEN: Gauge "freeboard_audit_unwritten_records" [] "Records that are not in the file yet.";
    AUDIT_LAG: Gauge "freeboard_audit_lag_seconds" [] "Time since every record was in the file; 0 when all are.";
    AUDIT_SEQUENCE: Counter "freeboard_audit_records_total" []
        "Number of the last record of the hash chain. It grows over restarts.";
    AUDIT_FAILURES: Counter "freeboard_audit_failures_total" [] "Times that the audit log became unwritable.";
    AUDIT_LOST: Counter "freeboard_audit_lost_records_total" []
        "Refusals that found no room in the queue: counted in the log, not recorded one by one.";
    RELOADS: Counter "freeboard_policy_loads_total" ["outcome"]
        "Policies that were loaded, the first one included (`loaded`), or did not load (`refused`): the last good one stays.";
    LOADED_AT: Gauge "freeboard_policy_loaded_timestamp_seconds" [] "When the policy in force was loaded.";
    CA_EXPIRY: Gauge "freeboard_ca_expiry_timestamp_seconds" [] "When the interception CA ends.";
    RUNS: Gauge "freeboard_runs_open" [] "Runs that are open.";
    CONNECTIONS: Gauge "freeboard_guest_connections_open" [] "Connections of guests that are open.";
    APPROVALS: Gauge "freeboard_approvals_waiting" [] "Requests that wait for a person.";
    ACCEPT_FAILURES: Counter "freeboard_accept_failures_total" []
        "Connections that could not be accepted for lack of descriptors or memory.";
    OVER_LIMIT: Counter "freeboard_connections_over_limit_total" []
        "Connections to the explicit proxy or the guard that were closed at once because there were too many of all runs, or of one address that named no run. Those over the limit of one run are decisions with the reason `run_limit`.";
    SPANS: Counter "freeboard_spans_total" ["outcome"]
        "Spans for the collector of traces (`otlp_collector`): `sent`, or `lost` because it was not there or too slow.";
    PROBES: Counter "freeboard_probes_total" ["outcome"] "Answers of `/readyz`: `ready` or `unready`. Answers from memory are not counted.";
    CONFINED: Gauge "freeboard_confined" ["fence"]
        "1 where the broker keeps itself to its `files` (Landlock) and its system `calls` (seccomp).";
    OPEN_FILES: Gauge "process_open_fds" [] "Open file descriptors.";
    OPEN_FILES_MAX: Gauge "process_max_fds" [] "Most open file descriptors.";
    RESIDENT: Gauge "process_resident_memory_bytes" [] "Memory of the broker.";
    STARTED: Gauge "process_start_time_seconds" [] "When the broker started.";
}
