//! Questions: all facts that a decision needs, handed in by the caller.

use std::sync::Arc;

use crate::{HeaderFields, Host, Target, Tier, Traffic};

/// Asked once, when a run is prepared: may this caller use these grants behind this tier?
#[derive(Debug, Clone, Copy)]
pub struct ScopeQuestion<'a> {
    /// Authenticated caller; `None` is anonymous, whom no grant names.
    pub caller: Option<&'a str>,
    /// Grant names as asked for.
    pub grants: &'a [String],
    /// Measured tier; `None` while preparing (floors are then reported, not compared).
    pub tier: Option<Tier>,
    /// Asked for a call of a session, for which a grant has to say `sessions = true`.
    pub session: bool,
    /// Now, in seconds since 1970-01-01 UTC.
    pub now_unix: i64,
}

/// The grants of one run, resolved against one policy: what every later question of the run refers to.
/// Resolve again after a reload: a scope is only good for the policy that made it (`policy_digest`).
#[derive(Debug, Clone)]
pub struct RunScope {
    pub policy_digest: Arc<str>,
    pub caller: Option<Arc<str>>,
    /// Indices of the grants in the policy's order.
    pub(crate) grants: Arc<[usize]>,
    /// Indices of the APIs that the grants allow something of, sorted.
    pub(crate) apis: Arc<[usize]>,
    /// Strongest floor of the grants.
    pub floor: Option<Tier>,
    /// Seconds that one run may use the grants (the shortest ttl), counted from the opening of its gate.
    pub ttl_seconds: Option<u64>,
    /// Host names that a guest may resolve: origins and aliases of the grants' APIs (hidden origins left out).
    pub names: Arc<[Host]>,
    /// Ports of the grants' origins, sorted, without repeats.
    pub ports: Arc<[u16]>,
}

/// Asked when the destination is known (from CONNECT, an absolute URL, SNI or a synthetic address).
#[derive(Debug, Clone, Copy)]
pub struct DestinationQuestion<'a> {
    pub scope: &'a RunScope,
    pub host: &'a Host,
    pub port: u16,
}

/// The destination is granted: which API and origin serve it. Says nothing yet about any request. Only good for the
/// policy that made it: ask again after a reload. Where several APIs of the run share the origin, the permit names the
/// one that a request belongs to; they have the same trust and addresses (checked at load).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Name of the API.
    pub api: Arc<str>,
    /// Upstream host, which differs from the asked one where the guest used an alias.
    pub host: Host,
    pub port: u16,
    /// Whether requests are decided on there, or connections that are passed on unread.
    pub traffic: Traffic,
    pub(crate) site: usize,
    pub(crate) policy_digest: Arc<str>,
}

/// Asked for each request on a granted destination.
#[derive(Debug, Clone, Copy)]
pub struct RequestQuestion<'a> {
    pub scope: &'a RunScope,
    pub route: &'a Route,
    /// Method as received (case-sensitive token, RFC 9110 9.1).
    pub method: &'a str,
    pub target: &'a Target,
    /// The header fields that would go upstream, for rules that look at them.
    pub fields: &'a dyn HeaderFields,
    /// The request asks to switch to the websocket protocol.
    pub websocket: bool,
    pub now_unix: i64,
}

/// Asked for each connection to a destination whose connections are passed on unread.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionQuestion<'a> {
    pub scope: &'a RunScope,
    pub route: &'a Route,
    pub now_unix: i64,
}
