//! `[api.NAME]`: where requests may go.

#![expect(dead_code, reason = "only the shape matters: the reader works on the text itself")]

use schemars::JsonSchema;

/// Upstream origins that share rules and a credential.
#[derive(Debug, JsonSchema)]
#[schemars(deny_unknown_fields)]
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
pub(crate) enum Tls {
    /// It is passed on as it is.
    Passthrough,
}

/// A value that stands for the credential inside a sandbox. It is worth nothing: at its API the real credential takes its
/// place, and a request that carries it to another place is refused as `placeholder_astray`.
#[derive(Debug, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Placeholder {
    /// Name of the environment variable, in capitals.
    variable: String,
    /// Its value; each `*` becomes a random letter or digit, at least twelve of them: `"xoxb-****************"`.
    value: String,
}

/// Certificates of an API.
#[derive(Debug, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Trust {
    /// Absolute path of a PEM file with the authorities that alone are trusted.
    ca_file: Option<String>,
    /// SHA-256 of accepted public keys (SPKI), 64 hex digits each.
    #[schemars(length(min = 1))]
    pin_sha256: Option<Vec<String>>,
}
