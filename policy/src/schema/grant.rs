//! `[grant.NAME]`: who may call what, within which limits.

#![expect(dead_code, reason = "only the shape matters: the reader works on the text itself")]

use std::collections::BTreeMap;

use schemars::JsonSchema;

use super::condition::{Approve, Git, Graphql, Grpc, Header, Json, Mcp, OneOrMore};

/// Permission for the runs of some callers.
#[derive(Debug, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Grant {
    /// Authenticated callers of sandboxd; `*` for all of them. May be left out where `groups` is there.
    #[schemars(length(min = 1))]
    callers: Option<Vec<String>>,
    /// Groups whose callers may use the grant too.
    #[schemars(length(min = 1))]
    groups: Option<Vec<String>>,
    /// The grant whose rules, and settings that this one does not have, are this one's too. One level.
    extends: Option<String>,
    /// The weakest boundary behind which the grant is used. Left out: any.
    floor: Option<crate::Tier>,
    /// How long one run may use it: `"90s"`, `"15m"`, `"2h"`, `"1d"`. Left out: as long as the run lasts.
    ttl: Option<String>,
    /// First day on which the grant works, a date without quotes; it begins at midnight UTC.
    not_before: Option<String>,
    /// Times of the week in which the grant works, in UTC: `"Mon-Fri 08:00-18:00"`. Left out: always.
    #[schemars(length(min = 1))]
    schedule: Option<Vec<String>>,
    /// Calls of a session may use the grant too. What earlier calls left running in the sandbox is killed before each, but what they
    /// wrote stays and can use it with them. Not taken over by a grant that extends this one. Left out: only runs of their own.
    sessions: Option<bool>,
    /// Last day on which the grant works, a date without quotes; it ends at midnight UTC.
    expires: Option<String>,
    /// Limits of one run under this grant.
    budget: Option<Budget>,
    /// What is allowed. What no rule allows is refused.
    #[schemars(length(min = 1))]
    allow: Option<Vec<Rule>>,
    /// What is refused whatever is allowed.
    #[schemars(length(min = 1))]
    deny: Option<Vec<Rule>>,
}

/// Limits of one run; what is left out has the broker's default.
#[derive(Debug, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Budget {
    /// Requests altogether.
    #[schemars(range(min = 1))]
    calls: Option<u64>,
    /// Requests in any minute.
    #[schemars(range(min = 1))]
    per_minute: Option<u64>,
    /// Requests in any minute of all runs of one caller.
    #[schemars(range(min = 1))]
    caller_per_minute: Option<u64>,
    /// Requests at the same time.
    #[schemars(range(min = 1))]
    concurrent: Option<u64>,
    /// Largest request body: `"64KiB"`, `"1MiB"`.
    request_bytes: Option<String>,
    /// Largest response body: `"16MiB"`.
    response_bytes: Option<String>,
}

/// Routes of one API, or every connection to one whose connections are passed on unread.
#[derive(Debug, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Rule {
    /// Name of the API.
    api: String,
    /// `METHODS PATH[?QUERY]`, one permission a line. Left out where the API has `tcp` or `tls = "passthrough"`, and only there.
    #[schemars(length(min = 1), inner(regex(pattern = r"^\s*(\*|[A-Z-]+(\|[A-Z-]+)*)\s+/")))]
    routes: Option<Vec<String>>,
    /// The rule is for websocket handshakes (and for nothing else).
    websocket: Option<bool>,
    /// Header fields that the request must have, by name.
    headers: Option<BTreeMap<String, Header>>,
    /// Media types that the request's body may have: `application/json`, `text/*`, `application/*+json`.
    content_type: Option<OneOrMore>,
    /// Media types that the answer's body may have; another answer is not passed on.
    response_content_type: Option<OneOrMore>,
    /// What the JSON body must say, by pointer (RFC 6901; `*` is every element of a list). The body is held for it.
    json: Option<BTreeMap<String, Json>>,
    /// Which GraphQL operations and root fields the request may have.
    graphql: Option<Graphql>,
    /// Which messages of the Model Context Protocol the request may carry.
    mcp: Option<Mcp>,
    /// Which gRPC methods the request may call.
    grpc: Option<Grpc>,
    /// Which fetches or pushes of git over HTTP the request may be.
    git: Option<Git>,
    /// The largest body that is held: `"256KiB"`. Left out: `"1MiB"`; at most `"16MiB"`.
    inspect_bytes: Option<String>,
    /// Requests of one run by each route of the rule, or its connections.
    #[schemars(range(min = 1))]
    calls: Option<u64>,
    /// A person must say yes to each request: `"human"`, or who may and how long it waits.
    approve: Option<Approve>,
}
