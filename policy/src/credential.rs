//! What the broker needs to know of credentials that it has to fetch, sign or present: plain data, no secrets.

use serde::{Serialize, Serializer};

use crate::model::{CredentialView, SecretReference};
use crate::{AddressRange, ApiView, Host};

/// The endpoint that hands out tokens, and whom to trust there. Always HTTPS.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct IssuerView {
    pub host: Host,
    pub port: u16,
    /// Path and query of the endpoint.
    pub path: String,
    /// As for an API: these authorities alone.
    pub ca_file: Option<String>,
    pub pin_sha256: Vec<String>,
    /// Private ranges that the issuer may be in. It is dialled with the checks of any upstream.
    #[serde(serialize_with = "as_texts")]
    pub addresses: Vec<AddressRange>,
}

impl IssuerView {
    /// The address of the endpoint, as assertions name it.
    pub fn url(&self) -> String {
        format!("{}{}", crate::origin::url(&self.host, self.port), self.path)
    }

    /// The issuer as an API of its own, for the code that dials upstreams.
    pub fn as_api(&self, name: &str) -> ApiView {
        ApiView {
            name: format!("issuer of {name}").into(),
            origins: vec![(self.host.clone(), self.port)],
            ca_file: self.ca_file.clone(),
            pin_sha256: self.pin_sha256.clone(),
            addresses: self.addresses.clone(),
            traffic: crate::Traffic::Requests,
            alias: None,
            hidden: false,
            credential: None,
            per_minute: None,
            health_check: None,
            placeholder: None,
        }
    }
}

fn as_texts<S: Serializer>(ranges: &[AddressRange], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(ranges.iter().map(ToString::to_string))
}

/// A key that the broker signs with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SigningKeyView {
    /// HS256, ES256, EdDSA or RS256.
    pub algorithm: String,
    pub key: SecretReference,
    pub key_id: Option<String>,
}

/// How the broker says to an OAuth 2.0 token endpoint who it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientAuthentication {
    /// Not at all, or by its name only (a public client).
    None { client_id: Option<String> },
    /// `Authorization: Basic` (RFC 6749 2.3.1).
    ClientSecretBasic { client_id: String, secret: SecretReference },
    /// `client_secret` in the form.
    ClientSecretPost { client_id: String, secret: SecretReference },
    /// A signed assertion (RFC 7523 2.2).
    PrivateKeyJwt { client_id: String, key: SigningKeyView },
}

/// What an OAuth 2.0 token is asked for with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OAuth2Grant {
    /// RFC 6749 4.4.
    ClientCredentials,
    /// RFC 6749 6. Where the issuer replaces the refresh token at each use, the new one is kept in `rotated_file`.
    Refresh { refresh_token: SecretReference, rotated_file: Option<String> },
    /// RFC 8693 2.1.
    Exchange { subject: SubjectToken, subject_token_type: String, requested_token_type: Option<String> },
}

/// For whom a token is exchanged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SubjectToken {
    /// The same for everybody.
    Reference(SecretReference),
    /// Signed by the broker for each caller.
    Jwt { key: SigningKeyView, issuer: Option<String>, audience: Option<String>, ttl_seconds: u64 },
}

/// `oauth2-client`, `oauth2-refresh` and `token-exchange`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OAuth2View {
    pub issuer: IssuerView,
    pub client: ClientAuthentication,
    pub grant: OAuth2Grant,
    pub scope: Option<String>,
    pub audience: Option<String>,
    pub resource: Option<String>,
    /// Path of the revocation endpoint (RFC 7009), on the origin of the token endpoint. With it, each run gets a token of
    /// its own, which is revoked when the run ends.
    pub revocation_path: Option<String>,
}

/// Keys of `aws-sigv4`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AwsKeys {
    /// One reference each.
    Each {
        access_key_id: SecretReference,
        secret_access_key: SecretReference,
        session_token: Option<SecretReference>,
    },
    /// The JSON that AWS tools call the output of a credential process, with its expiry.
    Together(SecretReference),
}

/// `aws-sigv4`: requests are signed anew.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AwsView {
    pub keys: AwsKeys,
    pub region: String,
    pub service: String,
    /// Whose session signs in place of the keys themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<AwsRoleView>,
}

/// A role that the keys may assume: STS hands out a session of it, narrowed to what the grants let through.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AwsRoleView {
    /// STS.
    pub issuer: IssuerView,
    pub arn: String,
    /// How long one session lasts.
    pub ttl_seconds: u64,
    /// The session policy (JSON), made of the routes of the grants. `None`: the session can do what the role can.
    pub session_policy: Option<String>,
}

/// `github-app`: an installation token, narrowed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GithubAppView {
    /// Its path is what the REST API's paths begin with.
    pub issuer: IssuerView,
    pub app_id: String,
    pub private_key: SecretReference,
    /// Looked up by the first repository where it is not said.
    pub installation_id: Option<u64>,
    pub owner: String,
    /// Names without the owner.
    pub repositories: Vec<String>,
    /// Name of a permission and its level, in the order of names.
    pub permissions: Vec<(String, String)>,
    /// How long one token is used.
    pub ttl_seconds: u64,
}

/// `gcp-service-account`: an access token for a signed assertion (RFC 7523).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GcpView {
    pub issuer: IssuerView,
    /// The JSON key file.
    pub key: SecretReference,
    pub scopes: Vec<String>,
    /// A user for whom the account speaks (domain-wide delegation).
    pub subject: Option<String>,
}

/// `exec`: a helper prints a token and when it expires.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExecView {
    pub command: Vec<String>,
    /// `Authorization: Bearer …` where it is not said.
    pub header: Option<String>,
}

/// How the broker logs in at Vault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum VaultLogin {
    Token(SecretReference),
    AppRole { role_id: String, secret_id: SecretReference },
}

/// What kind of secret stands at a Vault path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum VaultEngine {
    /// Key-value, version 2.
    Kv2,
    /// Made for each run, with a lease that is revoked when the run ends.
    Dynamic,
}

/// `vault`: a secret from HashiCorp Vault's HTTP API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VaultView {
    /// Its path is what the API's paths begin with.
    pub issuer: IssuerView,
    pub namespace: Option<String>,
    pub login: VaultLogin,
    pub engine: VaultEngine,
    /// Path of the secret, as in `vault read`.
    pub path: String,
    pub field: String,
    /// `Authorization: Bearer …` where it is not said.
    pub header: Option<String>,
    /// How long a secret without a lease is used before it is read again.
    pub ttl_seconds: u64,
}

/// `mtls`: a certificate that the broker presents to the upstream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MtlsView {
    /// PEM, the broker's certificate first.
    pub certificate: SecretReference,
    pub key: SecretReference,
}

impl CredentialView {
    /// Where its secrets come from, in the order in which they are needed.
    pub fn references(&self) -> Vec<&SecretReference> {
        match self {
            Self::Bearer { token } => vec![token],
            Self::Header { value, .. } | Self::Query { value, .. } => vec![value],
            Self::Basic { password, .. } => vec![password],
            Self::Jwt { key, .. } => vec![key],
            Self::OAuth2(view) => view.references(),
            Self::Aws(view) => match &view.keys {
                AwsKeys::Each { access_key_id, secret_access_key, session_token } => {
                    [access_key_id, secret_access_key].into_iter().chain(session_token).collect()
                }
                AwsKeys::Together(keys) => vec![keys],
            },
            Self::GithubApp(view) => vec![&view.private_key],
            Self::Gcp(view) => vec![&view.key],
            Self::Exec(_) => Vec::new(),
            Self::Vault(view) => match &view.login {
                VaultLogin::Token(token) => vec![token],
                VaultLogin::AppRole { secret_id, .. } => vec![secret_id],
            },
            Self::Mtls(view) => vec![&view.certificate, &view.key],
        }
    }
}

impl OAuth2View {
    fn references(&self) -> Vec<&SecretReference> {
        let grant = match &self.grant {
            OAuth2Grant::ClientCredentials => None,
            OAuth2Grant::Refresh { refresh_token, .. } => Some(refresh_token),
            OAuth2Grant::Exchange { subject: SubjectToken::Reference(token), .. } => Some(token),
            OAuth2Grant::Exchange { subject: SubjectToken::Jwt { key, .. }, .. } => Some(&key.key),
        };
        let client = match &self.client {
            ClientAuthentication::None { .. } => None,
            ClientAuthentication::ClientSecretBasic { secret, .. }
            | ClientAuthentication::ClientSecretPost { secret, .. } => Some(secret),
            ClientAuthentication::PrivateKeyJwt { key, .. } => Some(&key.key),
        };
        grant.into_iter().chain(client).collect()
    }
}
