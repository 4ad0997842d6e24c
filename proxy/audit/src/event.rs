//! What can happen, one type per kind of record. No field ever holds the value of a secret.

use std::sync::Arc;

use freeboard_policy::{Reason, RuleId, Tier};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One thing that happened; `kind` on the line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Event {
    /// A request was decided, and, when allowed, answered.
    Request(Decided),
    /// A tunnel (CONNECT) was refused.
    Tunnel(Decided),
    /// A TLS handshake was refused or failed.
    Tls(Decided),
    /// A connection, or a datagram, that never became a request: other ports, limits, unknown first bytes.
    Connection(Decided),
    /// A DNS question was refused.
    Dns(Decided),
    /// A run's gate was opened with this evidence.
    GateOpened(GateOpened),
    /// A run's gate was closed; nothing of the run is served any more.
    GateClosed(GateClosed),
    /// A run was refused before it had a gate: nothing ran.
    RunRefused(RunRefused),
    /// A policy took effect.
    PolicyLoaded(PolicyLoaded),
    /// A reload was refused; the policy named on this line stays in force.
    ReloadRefused(ReloadRefused),
    /// Somebody took grants away; what was in flight under them was cut.
    Revoked(Revoked),
    /// The broker started.
    Started(Started),
    /// The broker stopped in order. Its absence before a `started` record means a crash.
    Stopped(Stopped),
    /// Something an operator should look at.
    Finding(Finding),
    /// Equal refusals that were counted instead of written one by one.
    Suppressed(Suppressed),
    /// The log was continued after a torn last line.
    Recovered(Recovered),
}

impl Event {
    /// The decision, for kinds that are one.
    pub const fn decided(&self) -> Option<&Decided> {
        match self {
            Self::Request(decided)
            | Self::Tunnel(decided)
            | Self::Tls(decided)
            | Self::Connection(decided)
            | Self::Dns(decided) => Some(decided),
            _ => None,
        }
    }
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Permitted and answered by the upstream.
    Allowed,
    /// Refused: nothing was sent upstream.
    Denied,
    /// Permitted, but no complete answer came: the world's fault or ours.
    Failed,
    /// Permitted, but held back because the API is overloaded; costs no budget.
    Shed,
}

impl Verdict {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Failed => "failed",
            Self::Shed => "shed",
        }
    }
}

/// One decision: a request, or what never became one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Decided {
    /// Also in the answer that the guest got.
    pub request_id: Box<str>,
    pub verdict: Verdict,
    /// Why not allowed; or, for an allowed request whose answer broke off, why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grant: Option<Arc<str>>,
    /// The rule that allowed or denied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<RuleId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api: Option<Arc<str>>,
    /// Name of the credential that was attached; never its value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credential: Option<Arc<str>>,
    /// Who let the request go on, where its rule wants a person to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approved_by: Option<Box<str>>,
    /// By which way the guest came in: `transparent`, `proxy`, `catch_all`, `streams`, `dns`, `explicit`.
    pub door: &'static str,
    /// What the guest spoke: `http/1.1`, `h2`, `websocket`, `tls`, `tcp`, `udp`, `dns`.
    pub protocol: &'static str,
    /// Method; for a DNS question its type.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub method: Box<str>,
    /// Host as the guest named it; an address where it dialled one.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub host: Box<str>,
    pub port: u16,
    /// Path and query; values of parameters that look like secrets are replaced.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub path: Box<str>,
    /// Status that the guest got; absent when it got none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream_status: Option<u16>,
    /// Address that was dialled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream: Option<Box<str>>,
    /// Body bytes from the guest; of a connection that is passed on unread all of them.
    pub request_bytes: u64,
    /// Body bytes to the guest; of a connection that is passed on unread all of them.
    pub response_bytes: u64,
    /// From the first byte to the end of the answer, microseconds.
    pub duration_us: u64,
    /// Until the head of the upstream's answer, microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream_us: Option<u64>,
    /// Passed on unread: nobody looked at what went over the connection.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub uninspected: bool,
    /// What was taken off or changed, for example `authorization`.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub stripped: Box<[&'static str]>,
    /// Facts for operators, for example the error of the upstream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<Box<str>>,
}

/// One fact that was measured about the run before its code was released.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Measured {
    pub name: Box<str>,
    pub value: Box<str>,
    pub met: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct GateOpened {
    pub grants: Vec<Arc<str>>,
    /// Strongest floor of the grants; met by the run's tier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub floor: Option<Tier>,
    /// SHA-256 of the evidence as JSON, lower-case hex.
    pub evidence: Box<str>,
    pub measured: Vec<Measured>,
    pub expires: Box<str>,
    pub doors: usize,
}

/// Why a gate was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CloseCause {
    /// The run ended.
    Closed,
    /// Its time was over.
    Expired,
    /// The control connection that owned it went away.
    ConnectionLost,
    /// The broker stopped.
    Shutdown,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct GateClosed {
    pub cause: CloseCause,
    pub allowed: u64,
    pub denied: u64,
    pub failed: u64,
    pub shed: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RunRefused {
    pub reason: Reason,
    pub grants: Vec<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub floor: Option<Tier>,
    pub detail: Box<str>,
}

/// Why a policy was loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Loaded {
    Start,
    /// SIGHUP.
    Signal,
    /// The files changed.
    FileChange,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PolicyLoaded {
    /// Counts up from 1 with each policy that took effect since the broker started.
    pub generation: u64,
    pub cause: Loaded,
    pub files: usize,
    pub warnings: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ReloadRefused {
    /// The generation that stays in force.
    pub generation: u64,
    pub cause: Loaded,
    pub problems: usize,
    /// The first problem, with its place.
    pub detail: Box<str>,
}

/// From whom grants were taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RevokedFrom {
    /// From one run, all of its grants.
    Run,
    /// From one session, all grants, in every call of it.
    Session,
    /// From a caller, in every run, all grants.
    Caller,
    /// From everybody, one grant.
    Grant,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Revoked {
    pub of: RevokedFrom,
    /// The run's id, the session's fingerprint, the caller's name or the grant's name.
    pub name: Box<str>,
    /// Who said so.
    pub by: Box<str>,
    /// Open runs that had them.
    pub runs: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Started {
    pub version: Box<str>,
    pub pid: u32,
    pub uid: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Stopped {
    /// `SIGTERM`, `SIGINT` or what failed.
    pub cause: Box<str>,
    /// Requests that the grace time cut short.
    pub cut: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Info,
    Warning,
    Error,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Finding {
    pub severity: Severity,
    /// Stable, for example `credential_unavailable`.
    pub code: Box<str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credential: Option<Arc<str>>,
    pub detail: Box<str>,
}

/// The first records of a flood, and its last, are written; this one counts those between.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Suppressed {
    /// Kind of the records that were counted.
    pub of: Box<str>,
    pub reason: Reason,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<Box<str>>,
    pub count: u64,
    pub first: Box<str>,
    pub last: Box<str>,
}

/// The line before this one was torn by a crash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Recovered {
    pub torn_bytes: u64,
    /// SHA-256 of the torn bytes, lower-case hex: nothing else may stand there.
    pub torn_sha256: Box<str>,
}
