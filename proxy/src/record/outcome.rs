//! The facts of one outcome, as the path knows them. `record` turns them into an audit event.

use std::sync::Arc;

use freeboard_audit::PolicyIdentity;
use freeboard_policy::{Reason, RuleId};

use super::Slot;
use crate::run::RunContext;

/// 128 random bits; the guest reads it in a refusal, the operator finds the record by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestId(pub u128);

impl std::fmt::Display for RequestId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// What the record is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// One HTTP request.
    Request,
    /// A CONNECT that was refused. One that was accepted is not recorded: its requests are.
    Tunnel,
    /// A TLS handshake that failed or was refused.
    Tls,
    /// A connection that was passed on unread, or one that never became a request: catch-all, limits, silence, unknown first
    /// bytes.
    Connection,
    /// A DNS question.
    Dns,
}

impl Kind {
    /// In the order of their numbers.
    pub const ALL: [Self; 5] = [Self::Request, Self::Tunnel, Self::Tls, Self::Connection, Self::Dns];

    pub const fn word(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Tunnel => "tunnel",
            Self::Tls => "tls",
            Self::Connection => "connection",
            Self::Dns => "dns",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Sent upstream and answered.
    Allowed,
    /// Refused by policy, or malformed. Nothing was sent.
    Denied,
    /// Allowed, but the world or the broker failed.
    Failed,
    /// Held back to spare a struggling API.
    Shed,
}

impl Verdict {
    /// In the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Allowed, Self::Denied, Self::Failed, Self::Shed];

    pub const fn word(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Failed => "failed",
            Self::Shed => "shed",
        }
    }
}

/// One outcome. Text fields hold what the guest sent, uncleaned: the audit encoder escapes it. Paths are without
/// injected secrets by construction: the path is taken before anything is attached.
#[derive(Debug)]
#[must_use]
pub struct Outcome {
    pub kind: Kind,
    pub request_id: RequestId,
    /// None where nobody could be told apart: the explicit door without a valid proxy credential.
    pub run: Option<Arc<RunContext>>,
    /// `transparent`, `proxy`, `catch_all`, `streams`, `dns`, `explicit`.
    pub door: &'static str,
    /// `http/1.1`, `h2`, `websocket`, `tls`, `tcp`, `dns`.
    pub protocol: &'static str,
    pub verdict: Verdict,
    pub reason: Option<Reason>,
    /// Facts for operators. No secrets.
    pub detail: Option<std::borrow::Cow<'static, str>>,
    pub method: Box<str>,
    /// The host that the guest named (an alias stays the alias); an address where it dialled one.
    pub host: Box<str>,
    pub port: u16,
    /// Canonical path and query where there is one; empty otherwise.
    pub path: Box<str>,
    pub policy: Arc<PolicyIdentity>,
    pub grant: Option<Arc<str>>,
    pub rule: Option<RuleId>,
    pub api: Option<Arc<str>>,
    /// Name of the credential that was attached.
    pub credential: Option<Arc<str>>,
    /// Who let the request go on, where its rule wants a person to.
    pub approved_by: Option<Box<str>>,
    /// Status that the guest got; 0 when it got none.
    pub status: u16,
    pub upstream_status: Option<u16>,
    pub upstream_address: Option<std::net::SocketAddr>,
    /// Body bytes from the guest and to the guest.
    pub request_bytes: u64,
    pub response_bytes: u64,
    /// Milliseconds since 1970 UTC at the first byte of the request.
    pub started_unix_ms: u64,
    pub duration_us: u64,
    /// Until the head of the upstream's response; 0 when there was none.
    pub upstream_us: u64,
    /// Passed on unread.
    pub uninspected: bool,
    /// What was taken off or changed: `authorization`, `method_override`, `set_cookie`, …
    pub stripped: smallvec::SmallVec<[&'static str; 4]>,
    /// Room that was reserved before forwarding.
    pub slot: Option<Slot>,
}
