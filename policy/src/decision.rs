//! Answers: a permit, or a refusal with a stable reason. Only `Policy::evaluate` makes a permit.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::condition::Terms;
use crate::condition::grpc::{BodyMeter, GrpcMessages};
use crate::condition::pending::PendingBody;
use crate::model::Approval;

/// A rule by its place: `GRANT.allow[0].routes[2]`. Stable for one policy digest.
#[derive(
    Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(transparent)]
pub struct RuleId(pub std::sync::Arc<str>);

impl std::fmt::Display for RuleId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Proof that policy allows one request. Not `Clone`: the upstream sender consumes it.
#[derive(Debug)]
pub struct Permit {
    pub(crate) grant: std::sync::Arc<str>,
    pub(crate) rule: RuleId,
    pub(crate) api: std::sync::Arc<str>,
    pub(crate) credential: Option<std::sync::Arc<str>>,
    pub(crate) websocket: bool,
    /// What the rule says beside its route; `None` for nothing.
    pub(crate) terms: Option<std::sync::Arc<Terms>>,
    pub(crate) _made_by_evaluate: (),
}

impl Permit {
    /// Name of the grant whose rule matched.
    pub fn grant(&self) -> &std::sync::Arc<str> {
        &self.grant
    }
    pub fn rule(&self) -> &RuleId {
        &self.rule
    }
    /// Name of the API that the request goes to.
    pub fn api(&self) -> &std::sync::Arc<str> {
        &self.api
    }
    /// Name of the credential that must be attached; `None` for an API without one.
    pub fn credential(&self) -> Option<&std::sync::Arc<str>> {
        self.credential.as_ref()
    }
    /// Whether the permit is for a websocket handshake.
    pub fn is_websocket(&self) -> bool {
        self.websocket
    }
    /// Requests of one run by this route, where the rule bounds them.
    pub fn calls(&self) -> Option<u64> {
        self.terms.as_ref().and_then(|terms| terms.calls)
    }
    /// Follows the body as it passes, where the rule bounds its messages or its pack.
    pub fn body_meter(&self) -> Option<BodyMeter> {
        let terms = self.terms.as_ref()?;
        let message = terms.grpc.as_ref().and_then(|grpc| grpc.max_message_bytes);
        let max_bytes = terms.body.git.as_ref().and_then(|git| git.max_pack_bytes);
        let bounds = message.is_some() || max_bytes.is_some();
        bounds.then(|| BodyMeter { messages: message.map(GrpcMessages::new), max_bytes, passed: 0 })
    }
    /// A person must approve the request before it goes on.
    pub fn approval(&self) -> Option<&Approval> {
        self.terms.as_ref().and_then(|terms| terms.approve.as_ref())
    }
    /// What an answer must be to pass, where the rule says so.
    pub fn answer_terms(&self) -> Option<AnswerTerms> {
        let terms = self.terms.as_ref().filter(|terms| !terms.response_content_type.is_empty())?;
        Some(AnswerTerms(std::sync::Arc::clone(terms)))
    }
}

/// Proof that policy allows one connection that is passed on unread. It cannot send a request: that takes a [`Permit`], which
/// this one does not give away. Whoever dials consumes it.
#[derive(Debug)]
pub struct ConnectionPermit(pub(crate) Permit);

impl ConnectionPermit {
    /// Name of the grant whose rule matched.
    pub fn grant(&self) -> &std::sync::Arc<str> {
        self.0.grant()
    }
    pub fn rule(&self) -> &RuleId {
        self.0.rule()
    }
    /// Name of the API that the connection goes to.
    pub fn api(&self) -> &std::sync::Arc<str> {
        self.0.api()
    }
    /// Connections of one run by this rule, where the rule bounds them.
    pub fn calls(&self) -> Option<u64> {
        self.0.calls()
    }
    /// A person must approve the connection before it is made.
    pub fn approval(&self) -> Option<&Approval> {
        self.0.approval()
    }
}

/// What a rule demands of an answer's head.
#[derive(Debug, Clone)]
pub struct AnswerTerms(std::sync::Arc<Terms>);

impl AnswerTerms {
    /// Whether an answer with these `Content-Type` fields may pass: exactly one, of a listed type. Ask only where the
    /// answer has a body.
    pub fn takes<'v>(&self, mut content_types: impl Iterator<Item = &'v [u8]>) -> bool {
        match (content_types.next(), content_types.next()) {
            (Some(value), None) => self.0.response_content_type.iter().any(|range| range.takes(value)),
            _ => false,
        }
    }
}

/// What `evaluate` answers.
#[derive(Debug)]
#[must_use]
pub enum Decision {
    Allow(Permit),
    /// The head passes; the body decides.
    NeedsBody(PendingBody),
    Refuse(Refusal),
}

/// A refusal: ours, with the rule that denied where one did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub reason: Reason,
    /// The deny rule that matched, if one did. Never shown to the guest.
    pub rule: Option<RuleId>,
    /// Which condition did not hold, for the record. Never shown to the guest.
    pub detail: Option<Cow<'static, str>>,
}

impl Refusal {
    pub(crate) fn by(reason: Reason, rule: RuleId) -> Self {
        Self { reason, rule: Some(rule), detail: None }
    }
}

impl From<Reason> for Refusal {
    fn from(reason: Reason) -> Self {
        Self { reason, rule: None, detail: None }
    }
}

/// Whose fault an answer is (STYLE 24).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fault {
    Client,
    Policy,
    Upstream,
    Ours,
}

macro_rules! reasons {
    ($($(#[doc = $doc:literal])* $variant:ident => $code:literal, $fault:ident, $status:literal;)*) => {
        /// Every reason why a request, connection, query or run is refused or fails. The code is stable: it is what
        /// the guest reads in the refusal body, what the audit record holds and what docs/reference lists.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
        pub enum Reason { $($(#[doc = $doc])* #[serde(rename = $code)] $variant,)* }

        impl Reason {
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];
            /// What it means, for people: the text of the reference page.
            pub const fn meaning(self) -> &'static str { match self { $(Self::$variant => concat!($($doc,)*),)* } }
            /// The stable code, for example `no_rule`.
            pub const fn code(self) -> &'static str { match self { $(Self::$variant => $code,)* } }
            pub const fn fault(self) -> Fault { match self { $(Self::$variant => Fault::$fault,)* } }
            /// HTTP status of the answer to a guest where one can be given.
            pub const fn status(self) -> u16 { match self { $(Self::$variant => $status,)* } }
        }
    };
}

reasons! {
    /// No grant of this run reaches this host and port.
    HostNotGranted => "host_not_granted", Policy, 403;
    /// The host is granted, but no allow rule matches method, path and query.
    NoRule => "no_rule", Policy, 403;
    /// A deny rule matches.
    DeniedByRule => "denied_by_rule", Policy, 403;
    /// The path is granted, the method is not.
    MethodNotGranted => "method_not_granted", Policy, 403;
    /// The method and path are granted, the query is not.
    QueryNotGranted => "query_not_granted", Policy, 403;
    /// The route is granted, but not with these header fields.
    HeaderNotGranted => "header_not_granted", Policy, 403;
    /// The route is granted, but not with this content type.
    ContentTypeNotGranted => "content_type_not_granted", Policy, 403;
    /// The route is granted, but not with what the body says.
    BodyNotGranted => "body_not_granted", Policy, 403;
    /// A message of a gRPC call is larger than the rule takes.
    MessageTooLarge => "message_too_large", Client, 413;
    /// A rule looks at the body, and the body is larger than what is held for that.
    InspectionTooLarge => "inspection_too_large", Client, 413;
    /// A rule looks at the body, and the body ends too early.
    InspectionTruncated => "inspection_truncated", Client, 400;
    /// A rule looks at the body, and the body is encoded in a way that cannot be undone here.
    InspectionEncoding => "inspection_encoding", Client, 415;
    /// A rule looks at the body, and the body is encoded more than once.
    InspectionNestedEncoding => "inspection_nested_encoding", Client, 415;
    /// A rule looks at the body, and the body says one thing twice.
    InspectionDuplicateKey => "inspection_duplicate_key", Client, 400;
    /// A rule looks at the body, and the body is not what its kind is (not JSON, for example).
    InspectionMalformed => "inspection_malformed", Client, 400;
    /// A rule looks at the body, and the body is nested too deeply or has too many values.
    InspectionTooComplex => "inspection_too_complex", Client, 400;
    /// The destination is an IP address that was not issued for a granted name.
    RawAddress => "raw_address", Policy, 403;
    /// The port is not one of the grant.
    PortNotGranted => "port_not_granted", Policy, 403;
    /// The upstream name resolves to an address that the API does not name (private, loopback, link-local, metadata…).
    AddressRefused => "address_refused", Policy, 403;
    /// A connection that is passed on unread has carried as many bytes as the grant allows.
    ConnectionTooLarge => "connection_too_large", Policy, 403;
    /// The ClientHello hides its server name, and the connection would be passed on unread.
    EncryptedHello => "encrypted_hello", Policy, 403;
    /// The destination is granted for connections that are passed on unread, not for HTTP requests.
    ConnectionOnly => "connection_only", Policy, 403;
    /// Clear-text HTTP to an upstream; only TLS is sent.
    PlainHttp => "plain_http", Policy, 403;
    /// The grant has expired, or its time for this run is over.
    GrantExpired => "grant_expired", Policy, 403;
    /// Somebody has taken the grant away from this run, this caller or everybody.
    GrantRevoked => "grant_revoked", Policy, 403;
    /// The grant's first day is still to come.
    GrantNotYetValid => "grant_not_yet_valid", Policy, 403;
    /// The grant does not work at this time of the week.
    GrantOutsideSchedule => "grant_outside_schedule", Policy, 403;
    /// A person said no.
    ApprovalDenied => "approval_denied", Policy, 403;
    /// The rule wants a person to approve, and nobody did in time.
    ApprovalTimeout => "approval_timeout", Policy, 403;
    /// The policy changed while the request waited for a person.
    ApprovalWithdrawn => "approval_withdrawn", Policy, 403;
    /// The grant's floor is above the tier that this run was measured at.
    FloorNotMet => "floor_not_met", Policy, 403;
    /// The grant does not exist or is not this caller's (same words for both).
    GrantNotAvailable => "grant_not_available", Policy, 403;
    /// TRACE, TRACK and CONNECT inside a tunnel are refused whatever the grant says.
    MethodForbidden => "method_forbidden", Policy, 403;
    /// An upgrade that no rule allows.
    UpgradeRefused => "upgrade_refused", Policy, 403;
    /// CONNECT, SNI, Host or :authority name different hosts.
    NameMismatch => "name_mismatch", Client, 421;
    /// The request carries the placeholder of another API's credential: something collects keys.
    PlaceholderAstray => "placeholder_astray", Policy, 403;
    /// The request has two readings or breaks the protocol.
    Malformed => "malformed", Client, 400;
    /// The target has no canonical form.
    TargetNotCanonical => "target_not_canonical", Client, 400;
    /// An expectation other than 100-continue (RFC 9110 10.1.1).
    ExpectationFailed => "expectation_failed", Client, 417;
    /// The head is larger than the limit.
    HeadTooLarge => "head_too_large", Client, 431;
    /// The request body is larger than the grant allows.
    BodyTooLarge => "body_too_large", Client, 413;
    /// The client was too slow.
    ClientTimeout => "client_timeout", Client, 408;
    /// The client closed the connection before the answer was complete.
    ClientClosed => "client_closed", Client, 499;
    /// TLS from the client failed or is older than 1.2.
    TlsRefused => "tls_refused", Client, 400;
    /// The client does not accept the certificate of the broker: it pins another one, or does not know the CA.
    LeafRejected => "leaf_rejected", Client, 400;
    /// A TLS client without SNI.
    NoServerName => "no_server_name", Client, 400;
    /// The proxy door needs a credential of a run (explicit door on a shared port).
    ProxyAuthRequired => "proxy_auth_required", Client, 407;
    /// Calls, bytes, rate or concurrency of the grant are used up.
    BudgetExhausted => "budget_exhausted", Policy, 429;
    /// Connections, handshakes or certificates of the run are used up.
    RunLimit => "run_limit", Policy, 429;
    /// The breaker of the API is open after its own 429 or 503: shed, not denied.
    Shed => "shed", Upstream, 503;
    /// The credential could not be read, minted or is known to be expired.
    CredentialUnavailable => "credential_unavailable", Ours, 503;
    /// The issuer of the credential's tokens cannot be reached or fails, and there is no token that is still good.
    IssuerUnavailable => "issuer_unavailable", Upstream, 503;
    /// The audit log cannot be written; nothing is forwarded without a record.
    AuditUnavailable => "audit_unavailable", Ours, 503;
    /// No policy is loaded.
    PolicyUnavailable => "policy_unavailable", Ours, 503;
    /// The run has ended or its gate was closed.
    RunEnded => "run_ended", Ours, 503;
    /// The broker is shutting down.
    ShuttingDown => "shutting_down", Ours, 503;
    /// A fault of the broker itself.
    Internal => "internal", Ours, 500;
    /// The upstream name does not resolve.
    UpstreamUnresolved => "upstream_unresolved", Upstream, 502;
    /// The upstream refused the connection or broke it.
    UpstreamUnreachable => "upstream_unreachable", Upstream, 502;
    /// The proxy that the broker reaches upstreams through cannot be reached, or broke off.
    UpstreamProxyUnreachable => "upstream_proxy_unreachable", Upstream, 502;
    /// The proxy that the broker reaches upstreams through wants other credentials than it was given.
    UpstreamProxyAuth => "upstream_proxy_auth", Ours, 502;
    /// The proxy that the broker reaches upstreams through does not make the connection.
    UpstreamProxyRefused => "upstream_proxy_refused", Upstream, 502;
    /// The upstream certificate does not verify; nothing was sent.
    UpstreamUntrusted => "upstream_untrusted", Upstream, 502;
    /// The upstream broke HTTP.
    UpstreamMalformed => "upstream_malformed", Upstream, 502;
    /// The upstream took too long.
    UpstreamTimeout => "upstream_timeout", Upstream, 504;
    /// The answer cannot be inspected for the secret (an encoding that was not asked for).
    ResponseUninspectable => "response_uninspectable", Upstream, 502;
    /// The response body is larger than the grant allows.
    ResponseTooLarge => "response_too_large", Upstream, 502;
    /// The answer's content type is none that the rule takes.
    ResponseTypeNotGranted => "response_type_not_granted", Upstream, 502;
    /// A DNS question for a name that no grant of the run reaches, or of a type that is not served.
    DnsRefused => "dns_refused", Policy, 403;
    /// UDP other than DNS.
    UdpRefused => "udp_refused", Policy, 403;
    /// The tier asked for cannot be met: nothing ran.
    InsufficientIsolation => "insufficient_isolation", Policy, 403;
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.code())
    }
}
