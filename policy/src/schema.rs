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
    /// Warnings of this file that somebody looked at, and why they may stay.
    allow_warning: Option<Vec<AllowWarning>>,
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

/// A warning that may stay. Errors cannot be allowed; an allowance that allows nothing is a warning itself.
#[derive(Debug, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only the shape matters: the reader works on the text itself")]
pub(crate) struct AllowWarning {
    /// Number or words of the warning: `E0507` or `wide-rule`.
    code: String,
    /// The definition of this file that it is about: `grant.NAME`, `api.NAME`. Left out: every one of the file.
    at: Option<String>,
    /// Why it may stay, for whoever reads the file next.
    reason: String,
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
    /// A token that an OAuth 2.0 issuer gives to the broker as a client (RFC 6749 4.4), sent as `Authorization: Bearer …`.
    #[schemars(rename = "oauth2-client")]
    OAuth2Client {
        /// The token endpoint, `https://HOST[:PORT]/PATH`.
        token_url: String,
        /// Name of the client.
        client_id: String,
        /// How the client proves itself. Left out: `client_secret_basic`, or `private_key_jwt` where there is a `client_key`.
        authentication: Option<Authentication>,
        /// The client's secret.
        client_secret: Option<Secret>,
        /// The key of `private_key_jwt`, PEM.
        client_key: Option<Secret>,
        /// Its algorithm.
        algorithm: Option<Algorithm>,
        /// `kid` of its assertions.
        key_id: Option<String>,
        /// What to ask for, scopes with a space between them. A token with more than that is not used.
        scope: Option<String>,
        /// `audience` of the request, for issuers that want it.
        audience: Option<String>,
        /// `resource` of the request (RFC 8707).
        resource: Option<String>,
        /// The revocation endpoint (RFC 7009), on the origin of the token endpoint. With it, each run has a token of its own,
        /// revoked when the run ends. Left out: one token for all, until it expires.
        revocation_url: Option<String>,
        /// Whom to trust at the issuer. Left out: the system's certificate authorities.
        trust: Option<Trust>,
        /// Private address ranges in which the issuer may be.
        #[schemars(length(min = 1))]
        addresses: Option<Vec<String>>,
    },
    /// A token that an OAuth 2.0 issuer gives for a refresh token (RFC 6749 6), sent as `Authorization: Bearer …`.
    #[schemars(rename = "oauth2-refresh")]
    OAuth2Refresh {
        /// The token endpoint, `https://HOST[:PORT]/PATH`.
        token_url: String,
        /// The refresh token to begin with.
        refresh_token: Secret,
        /// Absolute path of a file in which the broker keeps the refresh token that the issuer gave last, for issuers that
        /// replace it at each use. Left out: in memory only, and a restarted broker begins with `refresh_token` again.
        rotated_file: Option<String>,
        /// Name of the client.
        client_id: Option<String>,
        /// How the client proves itself. Left out: by `client_secret` or `client_key` where there is one, otherwise `none`.
        authentication: Option<Authentication>,
        /// The client's secret.
        client_secret: Option<Secret>,
        /// The key of `private_key_jwt`, PEM.
        client_key: Option<Secret>,
        /// Its algorithm.
        algorithm: Option<Algorithm>,
        /// `kid` of its assertions.
        key_id: Option<String>,
        /// What to ask for. A token with more than that is not used.
        scope: Option<String>,
        /// `audience` of the request.
        audience: Option<String>,
        /// `resource` of the request (RFC 8707).
        resource: Option<String>,
        /// Whom to trust at the issuer. Left out: the system's certificate authorities.
        trust: Option<Trust>,
        /// Private address ranges in which the issuer may be.
        #[schemars(length(min = 1))]
        addresses: Option<Vec<String>>,
    },
    /// A token that an issuer gives in exchange for another one (RFC 8693), sent as `Authorization: Bearer …`.
    #[schemars(rename = "token-exchange")]
    TokenExchange {
        /// The token endpoint, `https://HOST[:PORT]/PATH`.
        token_url: String,
        /// The token to exchange, the same for all callers.
        subject_token: Option<Secret>,
        /// In place of it: a token that the broker signs for each caller, who gets a token of its own.
        subject: Option<Subject>,
        /// Left out: that of an access token, or of a JWT for `subject`.
        subject_token_type: Option<String>,
        /// The type of token to ask for. Left out: the issuer decides.
        requested_token_type: Option<String>,
        /// Name of the client.
        client_id: Option<String>,
        /// How the client proves itself. Left out: by `client_secret` or `client_key` where there is one, otherwise `none`.
        authentication: Option<Authentication>,
        /// The client's secret.
        client_secret: Option<Secret>,
        /// The key of `private_key_jwt`, PEM.
        client_key: Option<Secret>,
        /// Its algorithm.
        algorithm: Option<Algorithm>,
        /// `kid` of its assertions.
        key_id: Option<String>,
        /// What to ask for. A token with more than that is not used.
        scope: Option<String>,
        /// `audience` of the request.
        audience: Option<String>,
        /// `resource` of the request (RFC 8707).
        resource: Option<String>,
        /// The revocation endpoint (RFC 7009), on the origin of the token endpoint. With it, each run has a token of its own,
        /// revoked when the run ends.
        revocation_url: Option<String>,
        /// Whom to trust at the issuer. Left out: the system's certificate authorities.
        trust: Option<Trust>,
        /// Private address ranges in which the issuer may be.
        #[schemars(length(min = 1))]
        addresses: Option<Vec<String>>,
    },
    /// Requests are signed anew with AWS Signature Version 4; what the guest signed itself is thrown away.
    #[schemars(rename = "aws-sigv4")]
    AwsSigV4 {
        /// The access key's id.
        access_key_id: Option<Secret>,
        /// The access key.
        secret_access_key: Option<Secret>,
        /// The token of temporary keys.
        session_token: Option<Secret>,
        /// In place of the three: a file or helper with the JSON that AWS tools call the output of a credential process,
        /// `{"Version": 1, "AccessKeyId": …, "SecretAccessKey": …, "SessionToken": …, "Expiration": …}`.
        credentials: Option<Secret>,
        /// Region to sign for, for example `eu-central-1`.
        region: String,
        /// Service to sign for, for example `s3`, `dynamodb` or `execute-api`.
        service: String,
        /// A role that the keys may assume. Requests are signed with a session of it, one for each caller, which STS narrows to
        /// what the routes of the grants need (for `s3`). Left out: the keys themselves sign.
        role_arn: Option<String>,
        /// How long one session lasts, from `"15m"` to `"1h"`. Left out: an hour.
        ttl: Option<String>,
        /// STS. Left out: `https://sts.REGION.amazonaws.com/`.
        sts_url: Option<String>,
        /// Whom to trust there. Left out: the system's certificate authorities.
        trust: Option<Trust>,
        /// Private address ranges in which it may be.
        #[schemars(length(min = 1))]
        addresses: Option<Vec<String>>,
    },
    /// A token of a GitHub App's installation, narrowed to repositories and permissions, one for each run, revoked when the
    /// run ends. Sent as `Authorization: Bearer …`.
    #[schemars(rename = "github-app")]
    GithubApp {
        /// The app's id, or its client id.
        app_id: AppId,
        /// The app's private key, PEM.
        private_key: Secret,
        /// The installation. Left out: looked up by the first repository.
        #[schemars(range(min = 1))]
        installation_id: Option<u64>,
        /// `OWNER/NAME`, all of one owner.
        #[schemars(length(min = 1))]
        repositories: Vec<String>,
        /// Name of a permission and its level, for example `{ issues = "write" }`. A token with more than that is not used.
        permissions: BTreeMap<String, Level>,
        /// How long one token is used, from `"1m"` to `"1h"`. Left out: an hour, which is how long it lives.
        ttl: Option<String>,
        /// Of a GitHub Enterprise server: `https://HOST/api/v3`. Left out: `https://api.github.com`.
        api_url: Option<String>,
        /// Whom to trust there. Left out: the system's certificate authorities.
        trust: Option<Trust>,
        /// Private address ranges in which it may be.
        #[schemars(length(min = 1))]
        addresses: Option<Vec<String>>,
    },
    /// An access token of a Google service account (RFC 7523), sent as `Authorization: Bearer …`.
    #[schemars(rename = "gcp-service-account")]
    GcpServiceAccount {
        /// The account's JSON key. Only the name of the account and the key are used of it, not its addresses.
        key: Secret,
        /// Scopes to ask for.
        #[schemars(length(min = 1))]
        scopes: Vec<String>,
        /// A user for whom the account speaks (domain-wide delegation).
        subject: Option<String>,
        /// The token endpoint. Left out: `https://oauth2.googleapis.com/token`.
        token_url: Option<String>,
        /// Whom to trust there. Left out: the system's certificate authorities.
        trust: Option<Trust>,
        /// Private address ranges in which it may be.
        #[schemars(length(min = 1))]
        addresses: Option<Vec<String>>,
    },
    /// A token that a helper prints as JSON: `{"token": …, "expires_in": SECONDS}`, or `"expires_at"` with a time as in RFC 3339.
    #[schemars(rename = "exec")]
    Exec {
        /// Program (absolute path) and arguments. No shell reads it, and its environment is PATH and HOME.
        #[schemars(length(min = 1))]
        command: Vec<String>,
        /// Header that gets the token as it is. Left out: `Authorization: Bearer …`.
        header: Option<String>,
    },
    /// A secret of HashiCorp Vault.
    #[schemars(rename = "vault")]
    Vault {
        /// `https://HOST[:PORT]`
        address: String,
        /// Vault namespace.
        namespace: Option<String>,
        /// A Vault token.
        token: Option<Secret>,
        /// In place of it, the role of an AppRole login.
        role_id: Option<String>,
        /// The secret of that login.
        secret_id: Option<Secret>,
        /// What stands at the path. Left out: `kv2`.
        engine: Option<Engine>,
        /// Path as in `vault read`, for example `secret/data/app`.
        path: String,
        /// Field of the secret.
        field: String,
        /// Header that gets the field as it is. Left out: `Authorization: Bearer …`.
        header: Option<String>,
        /// How long a secret without a lease is used before it is read again, at most a day. Left out: `"5m"`.
        ttl: Option<String>,
        /// Whom to trust there. Left out: the system's certificate authorities.
        trust: Option<Trust>,
        /// Private address ranges in which it may be.
        #[schemars(length(min = 1))]
        addresses: Option<Vec<String>>,
    },
    /// A certificate that the broker shows to the upstream (mutual TLS).
    #[schemars(rename = "mtls")]
    Mtls {
        /// The certificate and what leads to its root, PEM.
        certificate: Secret,
        /// Its private key, PEM.
        key: Secret,
    },
}

/// A GitHub App by its id or its client id.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "only the shape matters: the reader works on the text itself")]
pub(crate) enum AppId {
    Number(u64),
    Text(String),
}

/// How far a permission goes.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "lowercase")]
#[expect(dead_code, reason = "only the shape matters: the reader works on the text itself")]
pub(crate) enum Level {
    Read,
    Write,
    Admin,
}

/// Kinds of secrets in Vault.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "lowercase")]
#[expect(dead_code, reason = "only the shape matters: the reader works on the text itself")]
pub(crate) enum Engine {
    /// The key-value store, version 2.
    Kv2,
    /// Made for each run, with a lease that is revoked when the run ends.
    Dynamic,
}

/// Client authentication at a token endpoint.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "snake_case")]
#[expect(dead_code, reason = "only the shape matters: the reader works on the text itself")]
pub(crate) enum Authentication {
    /// The client only says its name.
    None,
    /// Name and secret in the `Authorization` header.
    ClientSecretBasic,
    /// Name and secret in the form.
    ClientSecretPost,
    /// An assertion signed with `client_key` (RFC 7523).
    PrivateKeyJwt,
}

/// A token that the broker signs for a caller, to exchange it for another one. `sub` is the caller.
#[derive(Debug, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only the shape matters: the reader works on the text itself")]
pub(crate) struct Subject {
    /// Signature algorithm.
    algorithm: Algorithm,
    /// The signing key: a PEM private key, or the shared secret for HS256.
    key: Secret,
    /// `kid`
    key_id: Option<String>,
    /// `iss`
    issuer: Option<String>,
    /// `aud`. Left out: the token endpoint.
    audience: Option<String>,
    /// Life of the token: at most `"1h"`. Left out: `"5m"`.
    ttl: Option<String>,
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
    origins: Option<Vec<String>>,
    /// In place of `origins`: `HOST:PORT` of TCP connections that are passed on unread, without a credential.
    #[schemars(length(min = 1), inner(regex(pattern = r"^[a-z0-9._-]+:[1-9][0-9]*$")))]
    tcp: Option<Vec<String>>,
    /// `"passthrough"`: TLS is not ended here, for programs that trust one certificate only. Only the server name is looked at.
    tls: Option<Tls>,
    /// Name of the credential that is attached. Left out: none, and the guest's own passes.
    credential: Option<String>,
    /// What guests get in place of the credential, for programs that insist on having a key.
    placeholder: Option<Placeholder>,
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
    /// A request that tells whether the API works: `"GET /health"`, answered with 2xx then. After a 503 the broker sends it, without the
    /// credential, and holds back every run's requests until the answer is good.
    health_check: Option<String>,
}

/// What becomes of TLS.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "lowercase")]
#[expect(dead_code, reason = "only the shape matters: the reader works on the text itself")]
pub(crate) enum Tls {
    /// It is passed on as it is.
    Passthrough,
}

/// A value that stands for the credential inside a sandbox. It is worth nothing: at its API the real credential takes its
/// place, and a request that carries it to another place is refused as `placeholder_astray`.
#[derive(Debug, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only the shape matters: the reader works on the text itself")]
pub(crate) struct Placeholder {
    /// Name of the environment variable, in capitals.
    variable: String,
    /// Its value; each `*` becomes a random letter or digit, at least twelve of them: `"xoxb-****************"`.
    value: String,
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

/// Routes of one API, or every connection to one whose connections are passed on unread.
#[derive(Debug, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only the shape matters: the reader works on the text itself")]
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
        assert_eq!(fields(definition("AllowWarning")), sorted(crate::read::allowance::ALLOWANCE_FIELDS));
        assert_eq!(fields(definition("Api")), sorted(crate::read::api::API_FIELDS));
        assert_eq!(fields(definition("Placeholder")), sorted(crate::read::placeholder::PLACEHOLDER_FIELDS));
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
        let known: Vec<(&str, Vec<&str>)> =
            crate::read::credential::KINDS.iter().map(|(kind, fields)| (*kind, sorted(fields))).collect();
        assert_eq!(by_kind, known);
        assert_eq!(fields(definition("Subject")), sorted(crate::read::credential::SUBJECT_FIELDS));
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
