//! Conditions of rules.

#![expect(dead_code, reason = "only the shape matters: the reader works on the text itself")]

use std::collections::BTreeMap;

use schemars::JsonSchema;

/// GraphQL: every operation of every document must be one of these, also in a batch.
#[derive(Debug, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Graphql {
    /// `query`, `mutation`, `subscription`.
    #[schemars(length(min = 1))]
    operations: Vec<String>,
    /// Fields of the root by their real names. Left out: any.
    #[schemars(length(min = 1))]
    fields: Option<Vec<String>>,
    /// Names of operations. Left out: any, and none.
    #[schemars(length(min = 1))]
    names: Option<Vec<String>>,
}

/// Model Context Protocol over HTTP: every JSON-RPC message must be one of these, also in a batch.
#[derive(Debug, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Mcp {
    /// JSON-RPC methods; `notifications/*` is every one below.
    #[schemars(length(min = 1))]
    methods: Vec<String>,
    /// Tools that `tools/call` may call. Left out: any.
    #[schemars(length(min = 1))]
    tools: Option<Vec<String>>,
    /// What the arguments of `tools/call` must be, by pointer.
    arguments: Option<BTreeMap<String, Json>>,
    /// Answers to requests of the server may be sent too.
    responses: Option<bool>,
}

/// gRPC by service and method, as the path on the wire has them.
#[derive(Debug, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Grpc {
    /// `package.Service/Method`, or `package.Service/*`.
    #[schemars(length(min = 1))]
    methods: Vec<String>,
    /// The largest message that may be sent: `"64KiB"`.
    max_message: Option<String>,
}

/// git over smart HTTP. The lines of a push are read before anything goes on.
#[derive(Debug, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Git {
    /// `fetch` or `push`.
    operation: String,
    /// Refs that a push may name: `refs/heads/bot/**`.
    #[schemars(length(min = 1))]
    refs: Option<Vec<String>>,
    /// What a push may do to them: `create`, `update` (also by force), `delete`. Left out: `create`.
    #[schemars(length(min = 1))]
    changes: Option<Vec<String>>,
    /// The largest push: `"32MiB"`.
    max_pack: Option<String>,
    /// `false` only where no ref may be updated: the lines of a push do not show whether an update is by force.
    force: Option<bool>,
}

/// Held until a person says yes.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(crate) enum Approve {
    /// `"human"`: anybody whom the broker lets in, within 10 minutes.
    Human(String),
    Table(ApprovalTable),
}

/// Who may approve, and how long a request waits for it.
#[derive(Debug, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct ApprovalTable {
    /// Names that `freeboard approvals approve --by` takes. Left out: any.
    #[schemars(length(min = 1))]
    by: Option<Vec<String>>,
    /// `"10m"`, at most `"1d"`. Left out: `"10m"`.
    timeout: Option<String>,
}

/// One text or several.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(crate) enum OneOrMore {
    One(String),
    More(Vec<String>),
}

/// What a header must be: one value, one of several, or a table.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(crate) enum Header {
    Exact(String),
    OneOf(Vec<String>),
    Table(HeaderTable),
}

/// A condition on one header.
#[derive(Debug, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct HeaderTable {
    /// The values that it may have.
    #[schemars(length(min = 1))]
    r#enum: Option<Vec<String>>,
    /// A bounded regular expression that the whole value matches.
    pattern: Option<String>,
    /// The header may not be there.
    absent: Option<bool>,
    /// The header may be left out.
    optional: Option<bool>,
}

/// What stands at a place of the body: a value, one of several, or a table.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(crate) enum Json {
    Exact(Scalar),
    OneOf(Vec<Scalar>),
    Table(JsonTable),
}

/// A value that is compared.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(crate) enum Scalar {
    Text(String),
    Number(f64),
    Flag(bool),
}

/// A condition on one place of a JSON body. Every part that is there must hold.
#[derive(Debug, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct JsonTable {
    /// `null`, `boolean`, `integer`, `number`, `string`, `array` or `object`.
    r#type: Option<String>,
    /// The values that may stand there.
    #[schemars(length(min = 1))]
    r#enum: Option<Vec<Scalar>>,
    /// A bounded regular expression that the whole text matches.
    pattern: Option<String>,
    /// The least number.
    min: Option<f64>,
    /// The greatest number.
    max: Option<f64>,
    /// Characters of a text.
    #[schemars(range(min = 1))]
    max_length: Option<u64>,
    /// Elements of a list, or members of an object.
    #[schemars(range(min = 1))]
    max_items: Option<u64>,
    /// The only members that an object may have.
    #[schemars(length(min = 1))]
    members: Option<Vec<String>>,
    /// Nothing may stand there.
    absent: Option<bool>,
    /// Nothing need stand there.
    optional: Option<bool>,
}
