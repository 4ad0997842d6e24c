//! The messages. Both sides deny unknown fields: the two daemons are installed together.

use freeboard_policy::{Reason, Tier};
use serde::{Deserialize, Serialize};

use crate::Evidence;

/// From sandboxd to the broker.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Repeated in the answer; unique on its connection.
    pub id: u64,
    pub body: RequestBody,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RequestBody {
    /// What must be known before a boundary is built. Opens nothing.
    Prepare(PrepareRun),
    /// Opens the gate of a measured run; the doors' sockets come as descriptors, in the order of `doors`.
    Open(OpenGate),
    /// Ends the run's authority: in-flight requests are cut, the trace comes back.
    Close(CloseGate),
    /// Gives an open run a credential for the doors that are not its gate's: the guard, the explicit proxy. A second one takes
    /// the place of the first.
    Issue(IssueCredential),
    /// A run that was refused before any gate existed, for the audit log.
    Note(RunNote),
    /// What waits for a person. Asked by `freeboard approvals`.
    Approvals,
    /// A person's word on one request.
    Decide(ApprovalWord),
    /// Somebody takes grants away. Asked by `freeboard grants revoke`.
    Revoke(Revocation),
}

/// Grants that are not to be used any more, from now on and until the broker starts anew.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Revocation {
    pub of: Revoked,
    pub name: String,
    /// Who says so.
    pub by: String,
}

/// From whom grants are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Revoked {
    /// Every grant of one open run.
    Run,
    /// Every grant of a session, by its fingerprint: of the call that runs, and of later ones.
    Session,
    /// Every grant of every run of a caller.
    Caller,
    /// One grant of every run.
    Grant,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalWord {
    /// Number of the request in the list.
    pub id: u64,
    pub approve: bool,
    /// Who says so.
    pub by: String,
}

/// A request that waits for a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PendingApproval {
    /// Counts up while the broker runs.
    pub id: u64,
    /// The id that its audit record will have.
    pub request_id: String,
    pub run: String,
    pub caller: Option<String>,
    pub grant: String,
    pub rule: String,
    pub method: String,
    pub host: String,
    /// Path and query, as they will be sent.
    pub path: String,
    /// Bytes of a body that is held; 0 also where the body is still to come.
    pub body_bytes: u64,
    /// Who may approve; empty: anybody who may connect.
    pub by: Vec<String>,
    pub asked_unix_ms: u64,
    /// It is refused then.
    pub until_unix_ms: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrepareRun {
    pub caller: Option<String>,
    pub grants: Vec<String>,
    /// For a session, or for a call in one: grants that are not for sessions are refused, and without any the ports are those that
    /// some later call could need.
    pub session: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenGate {
    /// 32 lower-case hex digits.
    pub run: String,
    pub caller: Option<String>,
    pub grants: Vec<String>,
    /// Measured on the live boundary; its tier is the run's tier.
    pub evidence: Evidence,
    /// When the run ends at the latest, milliseconds since 1970 UTC. The broker closes the gate then by itself.
    pub expires_unix_ms: u64,
    pub trace_id: Option<String>,
    /// The run is a call of this session.
    pub session: Option<SessionOfCall>,
    /// One per descriptor, same order.
    pub doors: Vec<Door>,
}

/// Calls of a session have what they may use up, and how long, in common.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionOfCall {
    /// SHA-256 of the session's id, 64 lower-case hex digits.
    pub fingerprint: String,
    /// When the session ends at the latest, milliseconds since 1970 UTC.
    pub expires_unix_ms: u64,
}

/// What a handed socket is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Door {
    /// TCP listener on this port; connections mean the destination that `getsockname` gives.
    Tcp { port: u16 },
    /// TCP listener of the explicit proxy inside the gate (CONNECT and absolute-form).
    Proxy { port: u16 },
    /// UDP socket on port 53.
    DnsUdp,
    /// TCP listener on port 53.
    DnsTcp,
    /// TCP listener that nftables redirects every other port to: recorded and closed. The port that was meant is
    /// SO_ORIGINAL_DST.
    CatchAll,
    /// A SOCK_SEQPACKET end: each message carries one stream socket as SCM_RIGHTS, on which the run's worker speaks
    /// HTTP/1.1 with absolute-form `https` targets (the `wasm` provider; there is no guest network).
    Streams,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CloseGate {
    pub run: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IssueCredential {
    /// Opened on the same connection.
    pub run: String,
}

/// What a run that speaks from elsewhere proves itself with: `RUN:TOKEN` as basic, `RUN.TOKEN` as bearer credential of a proxy.
/// The broker keeps its hash only, and it ends with the run.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ProxyToken(pub String);

impl std::fmt::Debug for ProxyToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[secret]")
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunNote {
    pub run: String,
    pub caller: Option<String>,
    pub grants: Vec<String>,
    /// The floor that could not be met, where that is why.
    pub floor: Option<Tier>,
    pub tier: Option<Tier>,
    pub reason: Reason,
    pub detail: String,
    /// Fingerprint of the session whose call it was to be.
    pub session: Option<String>,
}

/// From the broker to sandboxd.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    pub id: u64,
    pub body: AnswerBody,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum AnswerBody {
    Prepared(Prepared),
    Opened,
    Issued(ProxyToken),
    Closed(Trace),
    Noted,
    Approvals(Vec<PendingApproval>),
    Decided,
    /// Runs that had it.
    Revoked(u64),
    /// Nothing was opened. `message` is for operators.
    Refused {
        reason: Reason,
        message: String,
    },
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prepared {
    pub policy_digest: String,
    /// Strongest floor of the grants.
    pub floor: Option<Tier>,
    pub ttl_seconds: Option<u64>,
    /// TCP ports that the gate must have besides 80, 443, 53 and 3128.
    pub ports: Vec<u16>,
    /// The interception CA that guests must trust, PEM (public). None when there are no grants.
    pub ca_pem: String,
    /// For the client surface of `host.*`: per grant, the base URLs that a guest uses and the routes as written.
    pub surface: Vec<SurfaceApi>,
    /// Environment variables of the guest: placeholders of credentials, which are worth nothing elsewhere.
    pub variables: Vec<(String, String)>,
}

/// One API of the run's grants as a guest sees it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SurfaceApi {
    pub api: String,
    /// `https://host[:port]`, the alias where there is one.
    pub base_url: String,
    /// Allow route lines as written.
    pub routes: Vec<String>,
}

/// What a run did, for its result and for people.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trace {
    /// The first calls, at most 256.
    pub calls: Vec<Call>,
    pub allowed: u64,
    pub denied: u64,
    pub failed: u64,
    pub shed: u64,
    /// Calls that are counted above but not listed.
    pub dropped: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    pub request_id: String,
    pub method: String,
    pub host: String,
    pub path: String,
    /// `allowed`, `denied`, `failed` or `shed`.
    pub verdict: String,
    pub reason: Option<Reason>,
    /// Upstream status where there was one.
    pub status: Option<u16>,
    pub latency_ms: u64,
}
