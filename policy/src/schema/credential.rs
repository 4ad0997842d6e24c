//! `[credential.NAME]`: how secrets are attached, and where they come from.

#![expect(dead_code, reason = "only the shape matters: the reader works on the text itself")]

use std::collections::BTreeMap;

use schemars::JsonSchema;

use super::api::Trust;

/// How a secret is attached to requests. Guests never see it.
#[derive(Debug, JsonSchema)]
#[schemars(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
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
pub(crate) enum AppId {
    Number(u64),
    Text(String),
}

/// How far a permission goes.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "lowercase")]
pub(crate) enum Level {
    Read,
    Write,
    Admin,
}

/// Kinds of secrets in Vault.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "lowercase")]
pub(crate) enum Engine {
    /// The key-value store, version 2.
    Kv2,
    /// Made for each run, with a lease that is revoked when the run ends.
    Dynamic,
}

/// Client authentication at a token endpoint.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "snake_case")]
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
