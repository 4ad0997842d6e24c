//! The file as people write it, for the JSON Schema that editors check against and for the reference page.
//!
//! The reader in `read/` works on the text itself, because it needs the place of every mistake; a test holds its fields
//! and those of this module together.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;

use crate::cases::CasesFile;

/// JSON Schema of `*.toml`, pretty-printed.
pub fn policy_file() -> String {
    pretty::<PolicyFile>()
}

/// JSON Schema of `*.test.toml`, pretty-printed.
pub fn cases_file() -> String {
    pretty::<CasesFile>()
}

fn pretty<T: JsonSchema>() -> String {
    // Editors for TOML read draft 7.
    let schema = SchemaSettings::draft07().into_generator().into_root_schema_for::<T>();
    serde_json::to_string_pretty(&schema).unwrap_or_default()
}

/// A file of a policy folder. Definitions of all files make one policy; each name is defined once.
#[derive(Debug, JsonSchema)]
#[schemars(deny_unknown_fields, title = "Freeboard policy file")]
#[expect(dead_code, reason = "only the shape matters: the reader works on the text itself")]
pub(crate) struct PolicyFile {
    /// Version of the language. Left out: 1.
    #[schemars(range(min = 1, max = 1))]
    version: Option<u32>,
    /// What grants that say nothing else have.
    defaults: Option<Defaults>,
    /// Secrets and how they are attached, by name.
    credential: Option<BTreeMap<String, Credential>>,
    /// Where requests may go, by name.
    api: Option<BTreeMap<String, Api>>,
    /// Callers under one name, by name.
    group: Option<BTreeMap<String, Group>>,
    /// Who may call what, by name.
    grant: Option<BTreeMap<String, Grant>>,
}

/// Settings of every grant of the folder that does not have its own. Written once.
#[derive(Debug, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only the shape matters: the reader works on the text itself")]
pub(crate) struct Defaults {
    /// The weakest boundary behind which a grant is used.
    floor: Option<crate::Tier>,
    /// How long one run may use a grant.
    ttl: Option<String>,
    /// Limits of one run under a grant.
    budget: Option<Budget>,
}

/// Callers under one name.
#[derive(Debug, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only the shape matters: the reader works on the text itself")]
pub(crate) struct Group {
    /// Authenticated callers of sandboxd.
    #[schemars(length(min = 1))]
    callers: Vec<String>,
}

/// How a secret is attached to requests. Guests never see it.
#[derive(Debug, JsonSchema)]
#[schemars(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
#[expect(dead_code, reason = "only the shape matters: the reader works on the text itself")]
pub(crate) enum Credential {
    /// `Authorization: Bearer …`
    Bearer {
        /// The token.
        token: Secret,
    },
    /// A header of the API's own.
    Header {
        /// Name of the header, for example `x-api-key`.
        name: String,
        /// Its value.
        value: Secret,
    },
    /// `Authorization: Basic …` (RFC 7617).
    Basic {
        /// User name, without a colon.
        username: String,
        /// The password.
        password: Secret,
    },
    /// A query parameter, added after the decision.
    Query {
        /// Name of the parameter.
        parameter: String,
        /// Its value.
        value: Secret,
    },
    /// A token that the broker signs for each caller (RFC 7519), sent as `Authorization: Bearer …`.
    Jwt {
        /// Signature algorithm.
        algorithm: Algorithm,
        /// The signing key: a PEM private key, or the shared secret for HS256.
        key: Secret,
        /// `iss`
        issuer: Option<String>,
        /// `aud`
        audience: Option<String>,
        /// `kid`
        key_id: Option<String>,
        /// `scope`
        scope: Option<String>,
        /// Life of a token: `"30s"`, `"5m"`, at most `"1h"`. Left out: `"5m"`.
        ttl: Option<String>,
    },
}

/// Signature algorithms of a `jwt` credential.
#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "only the shape matters: the reader works on the text itself")]
pub(crate) enum Algorithm {
    HS256,
    ES256,
    #[schemars(rename = "EdDSA")]
    EdDsa,
    RS256,
}

/// Where a secret comes from. Policy files never hold one.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "lowercase", deny_unknown_fields)]
#[expect(dead_code, reason = "only the shape matters: the reader works on the text itself")]
pub(crate) enum Secret {
    /// Absolute path of a file that only the broker can read; a line break at its end is dropped.
    File(String),
    /// Name of an environment variable of the broker.
    Env(String),
    /// Program (absolute path) and arguments; what it prints is the secret.
    Exec(Vec<String>),
    /// Name of a systemd credential (`LoadCredential=`).
    Systemd(String),
}

/// Upstream origins that share rules and a credential.
#[derive(Debug, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only the shape matters: the reader works on the text itself")]
pub(crate) struct Api {
    /// `https://HOST[:PORT]`, exact, no wildcard.
    #[schemars(length(min = 1), inner(regex(pattern = r"^https://[a-z0-9._-]+(:[1-9][0-9]*)?$")))]
    origins: Vec<String>,
    /// Name of the credential that is attached. Left out: none, and the guest's own passes.
    credential: Option<String>,
    /// Whom to trust there. Left out: the system's certificate authorities.
    trust: Option<Trust>,
    /// Private address ranges in which the origins may be (`10.1.0.0/16`). Metadata addresses never are.
    #[schemars(length(min = 1))]
    addresses: Option<Vec<String>>,
    /// A name that guests may use for the origin.
    alias: Option<String>,
    /// Guests know the alias only.
    hidden: Option<bool>,
    /// Requests to it in any minute, of all runs together.
    #[schemars(range(min = 1))]
    per_minute: Option<u64>,
    /// A request that tells whether the API works: `"GET /health"`.
    health_check: Option<String>,
}

/// Certificates of an API.
#[derive(Debug, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only the shape matters: the reader works on the text itself")]
pub(crate) struct Trust {
    /// Absolute path of a PEM file with the authorities that alone are trusted.
    ca_file: Option<String>,
    /// SHA-256 of accepted public keys (SPKI), 64 hex digits each.
    #[schemars(length(min = 1))]
    pin_sha256: Option<Vec<String>>,
}

/// Permission for the runs of some callers.
#[derive(Debug, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only the shape matters: the reader works on the text itself")]
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
#[expect(dead_code, reason = "only the shape matters: the reader works on the text itself")]
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

/// Routes of one API.
#[derive(Debug, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only the shape matters: the reader works on the text itself")]
pub(crate) struct Rule {
    /// Name of the API.
    api: String,
    /// `METHODS PATH[?QUERY]`, one permission a line.
    #[schemars(length(min = 1), inner(regex(pattern = r"^\s*(\*|[A-Z-]+(\|[A-Z-]+)*)\s+/")))]
    routes: Vec<String>,
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
    /// Requests of one run by each route of the rule.
    #[schemars(range(min = 1))]
    calls: Option<u64>,
    /// A person must say yes to each request: `"human"`, or who may and how long it waits.
    approve: Option<Approve>,
}

/// GraphQL: every operation of every document must be one of these, also in a batch.
#[derive(Debug, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only the shape matters: the reader works on the text itself")]
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
#[expect(dead_code, reason = "only the shape matters: the reader works on the text itself")]
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
#[expect(dead_code, reason = "only the shape matters: the reader works on the text itself")]
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
#[expect(dead_code, reason = "only the shape matters: the reader works on the text itself")]
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
#[expect(dead_code, reason = "only the shape matters: the reader works on the text itself")]
pub(crate) enum Approve {
    /// `"human"`: anybody whom the broker lets in, within 10 minutes.
    Human(String),
    Table(ApprovalTable),
}

/// Who may approve, and how long a request waits for it.
#[derive(Debug, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only the shape matters: the reader works on the text itself")]
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
#[expect(dead_code, reason = "only the shape matters: the reader works on the text itself")]
pub(crate) enum OneOrMore {
    One(String),
    More(Vec<String>),
}

/// What a header must be: one value, one of several, or a table.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "only the shape matters: the reader works on the text itself")]
pub(crate) enum Header {
    Exact(String),
    OneOf(Vec<String>),
    Table(HeaderTable),
}

/// A condition on one header.
#[derive(Debug, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only the shape matters: the reader works on the text itself")]
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
#[expect(dead_code, reason = "only the shape matters: the reader works on the text itself")]
pub(crate) enum Json {
    Exact(Scalar),
    OneOf(Vec<Scalar>),
    Table(JsonTable),
}

/// A value that is compared.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "only the shape matters: the reader works on the text itself")]
pub(crate) enum Scalar {
    Text(String),
    Number(f64),
    Flag(bool),
}

/// A condition on one place of a JSON body. Every part that is there must hold.
#[derive(Debug, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only the shape matters: the reader works on the text itself")]
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

#[cfg(test)]
mod tests {
    use serde_json::Value;

    fn fields(schema: &Value) -> Vec<&str> {
        let mut names: Vec<&str> =
            schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }

    fn sorted<'w>(words: &[&'w str]) -> Vec<&'w str> {
        let mut words = words.to_vec();
        words.sort_unstable();
        words
    }

    #[test]
    fn the_schema_has_the_fields_that_the_reader_knows() {
        let schema: Value = serde_json::from_str(&super::policy_file()).unwrap();
        let definition = |name: &str| &schema["definitions"][name];
        assert_eq!(fields(&schema), sorted(crate::read::FILE_FIELDS));
        assert_eq!(fields(definition("Api")), sorted(crate::read::api::API_FIELDS));
        assert_eq!(fields(definition("Trust")), sorted(crate::read::api::TRUST_FIELDS));
        assert_eq!(fields(definition("Grant")), sorted(crate::read::grant::GRANT_FIELDS));
        assert_eq!(fields(definition("Budget")), sorted(crate::read::grant::BUDGET_FIELDS));
        let rule = [crate::read::grant::RULE_FIELDS, crate::read::condition::CONDITION_FIELDS].concat();
        assert_eq!(fields(definition("Rule")), sorted(&rule));
        assert_eq!(fields(definition("Graphql")), sorted(crate::read::condition::GRAPHQL_FIELDS));
        assert_eq!(fields(definition("Mcp")), sorted(crate::read::condition::MCP_FIELDS));
        assert_eq!(fields(definition("Grpc")), sorted(crate::read::condition::GRPC_FIELDS));
        assert_eq!(fields(definition("Defaults")), sorted(crate::read::grant::DEFAULTS_FIELDS));
        assert_eq!(fields(definition("Group")), sorted(crate::read::grant::GROUP_FIELDS));
        assert_eq!(fields(definition("ApprovalTable")), sorted(crate::read::condition::APPROVAL_FIELDS));
        assert_eq!(fields(definition("Git")), sorted(crate::read::condition::GIT_FIELDS));
        assert_eq!(fields(definition("HeaderTable")), sorted(crate::read::condition::HEADER_FIELDS));
        assert_eq!(fields(definition("JsonTable")), sorted(crate::read::condition::JSON_FIELDS));
        let kinds = definition("Credential")["oneOf"].as_array().unwrap();
        let by_kind: Vec<(&str, Vec<&str>)> = kinds
            .iter()
            .map(|kind| (kind["properties"]["kind"]["const"].as_str().unwrap(), fields(kind)))
            .collect();
        assert_eq!(by_kind.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), crate::read::credential::KINDS);
        for (kind, found) in by_kind {
            let known = match kind {
                "bearer" => crate::read::credential::BEARER_FIELDS,
                "header" => crate::read::credential::HEADER_FIELDS,
                "basic" => crate::read::credential::BASIC_FIELDS,
                "query" => crate::read::credential::QUERY_FIELDS,
                _ => crate::read::credential::JWT_FIELDS,
            };
            assert_eq!(found, sorted(known), "{kind}");
        }
        let sources = definition("Secret")["oneOf"].as_array().unwrap();
        let sources: Vec<&str> = sources.iter().flat_map(|source| fields(source)).collect();
        assert_eq!(sources, crate::read::credential::REFERENCES);
        let algorithms: Vec<&str> =
            definition("Algorithm")["enum"].as_array().unwrap().iter().map(|a| a.as_str().unwrap()).collect();
        assert_eq!(algorithms, crate::read::credential::ALGORITHMS);
    }

    #[test]
    fn the_schemas_are_what_is_stored() {
        insta::assert_snapshot!("policy_file_schema", super::policy_file());
        insta::assert_snapshot!("cases_file_schema", super::cases_file());
    }
}
