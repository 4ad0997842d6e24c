//! A policy that passed every check: valid by construction.

use std::sync::Arc;

use crate::compiled::Compiled;
use crate::draft::Draft;
pub use crate::schedule::Window;
use crate::{Diagnostic, RunScope, Severity, SourceFile, canonical, check, credential, read};

/// A checked policy. Immutable; share it in an `Arc`.
#[derive(Debug)]
pub struct Policy {
    pub(crate) digest: Arc<str>,
    pub(crate) compiled: Compiled,
}

/// What the broker needs to know of an API.
#[derive(Debug, Clone)]
pub struct ApiView {
    pub name: Arc<str>,
    /// Upstream origins: host and port. `https` unless `traffic` says otherwise.
    pub origins: Vec<(crate::Host, u16)>,
    /// PEM file with the CAs that alone are trusted for this API; `None` = the system's roots.
    pub ca_file: Option<String>,
    /// SHA-256 of accepted leaf or CA public keys (SPKI), lower-case hex.
    pub pin_sha256: Vec<String>,
    /// Address ranges beside the public ones that the API names; hand them to `address::allowed` before dialling.
    pub addresses: Vec<crate::AddressRange>,
    /// Whether `origins` take requests, or connections that are passed on unread.
    pub traffic: crate::Traffic,
    pub alias: Option<crate::Host>,
    pub hidden: bool,
    pub credential: Option<Arc<str>>,
    /// Requests to it in any minute, of all runs together.
    pub per_minute: Option<u64>,
    /// A request (`GET /path`) that tells whether the API works, for the breaker.
    pub health_check: Option<HealthCheck>,
    pub placeholder: Option<PlaceholderView>,
}

/// A request without a body that an API answers with 2xx while it works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthCheck {
    /// GET or HEAD.
    pub method: Arc<str>,
    /// Path without a query, canonical.
    pub path: Arc<str>,
}

/// What guests get in place of an API's credential.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct PlaceholderView {
    /// Name of the environment variable.
    pub variable: String,
    /// Its value, where each `*` is a random letter or digit.
    pub form: String,
}

/// Where a secret comes from. Policy files hold references, never secrets.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SecretReference {
    File(String),
    Env(String),
    Exec(Vec<String>),
    /// A credential that systemd placed under `$CREDENTIALS_DIRECTORY`.
    Systemd(String),
}

/// What the broker needs to know of a credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CredentialView {
    Bearer {
        token: SecretReference,
    },
    Header {
        name: String,
        value: SecretReference,
    },
    Basic {
        username: String,
        password: SecretReference,
    },
    Query {
        parameter: String,
        value: SecretReference,
    },
    Jwt {
        /// HS256, ES256, EdDSA or RS256.
        algorithm: String,
        key: SecretReference,
        issuer: Option<String>,
        audience: Option<String>,
        key_id: Option<String>,
        scope: Option<String>,
        ttl_seconds: u64,
    },
    OAuth2(Box<credential::OAuth2View>),
    Aws(Box<credential::AwsView>),
    GithubApp(Box<credential::GithubAppView>),
    Gcp(Box<credential::GcpView>),
    Exec(Box<credential::ExecView>),
    Vault(Box<credential::VaultView>),
    Mtls(Box<credential::MtlsView>),
}

impl CredentialView {
    /// The word in policy files.
    pub fn kind(&self) -> &'static str {
        use credential::OAuth2Grant;
        match self {
            Self::Bearer { .. } => "bearer",
            Self::Header { .. } => "header",
            Self::Basic { .. } => "basic",
            Self::Query { .. } => "query",
            Self::Jwt { .. } => "jwt",
            Self::OAuth2(view) => match view.grant {
                OAuth2Grant::ClientCredentials => "oauth2-client",
                OAuth2Grant::Refresh { .. } => "oauth2-refresh",
                OAuth2Grant::Exchange { .. } => "token-exchange",
            },
            Self::Aws(_) => "aws-sigv4",
            Self::GithubApp(_) => "github-app",
            Self::Gcp(_) => "gcp-service-account",
            Self::Exec(_) => "exec",
            Self::Vault(_) => "vault",
            Self::Mtls(_) => "mtls",
        }
    }
}

/// What the broker needs to know of a grant.
#[derive(Debug, Clone)]
pub struct GrantView {
    pub name: Arc<str>,
    pub floor: Option<crate::Tier>,
    pub ttl_seconds: Option<u64>,
    /// Seconds since 1970 UTC from which on the grant does not work any more (the midnight after its last day).
    pub expires_unix: Option<i64>,
    /// Seconds since 1970 UTC before which the grant does not work yet.
    pub not_before_unix: Option<i64>,
    /// Times of the week in which the grant works; empty: always.
    pub schedule: Vec<Window>,
    /// Calls of a session may use the grant, not only runs of their own.
    pub sessions: bool,
    /// Budgets of one run under this grant; `None` = the documented default of the broker.
    pub calls: Option<u64>,
    pub per_minute: Option<u64>,
    /// Requests in any minute of all runs of one caller under this grant.
    pub caller_per_minute: Option<u64>,
    pub concurrent: Option<u64>,
    /// Largest request body in bytes.
    pub request_bytes: Option<u64>,
    /// Largest response body in bytes.
    pub response_bytes: Option<u64>,
}

/// A person must say yes to each request of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approval {
    /// Who may; empty: anybody whom the broker lets in.
    pub by: Vec<Arc<str>>,
    /// How long a request waits. Then it is refused.
    pub timeout_seconds: u64,
}

/// A policy that may be used, and what its authors should look at.
#[derive(Debug)]
pub struct Loaded {
    pub policy: Policy,
    pub warnings: Vec<Diagnostic>,
    /// Warnings that the files allow.
    pub allowed: Vec<Allowed>,
}

/// A warning that somebody looked at.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Allowed {
    pub warning: Diagnostic,
    /// Why it may stay, as the file says.
    pub reason: Arc<str>,
}

/// One origin of a run's grants as a guest sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SurfaceView {
    pub api: Arc<str>,
    /// `https://host[:port]`, the alias where there is one.
    pub base_url: String,
    /// Allow route lines as written.
    pub routes: Vec<Arc<str>>,
}

impl Policy {
    /// A policy that allows nothing.
    pub fn deny_all() -> Self {
        Self::compile(Draft::default())
    }

    /// Reads and checks the files of a policy folder. The order of the files does not matter.
    ///
    /// # Errors
    /// Every problem found, warnings included, in the order of files and lines.
    pub fn load(files: &[SourceFile]) -> Result<Loaded, Vec<Diagnostic>> {
        let mut draft = read::files(files);
        check::definitions(&mut draft);
        let mut diagnostics = std::mem::take(&mut draft.diagnostics);
        let allowances = std::mem::take(&mut draft.allowances);
        let policy = Self::compile(draft);
        check::rules(&policy.compiled, &mut diagnostics);
        let (diagnostics, allowed) = check::part(check::sorted(diagnostics), &allowances);
        let diagnostics = check::sorted(diagnostics);
        if diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error) {
            return Err(diagnostics);
        }
        Ok(Loaded { policy, warnings: diagnostics, allowed })
    }

    fn compile(draft: Draft) -> Self {
        let digest = canonical::digest(&canonical::form(&draft));
        Self { digest, compiled: Compiled::new(draft) }
    }

    /// SHA-256 of the canonical form, lower-case hex.
    pub fn digest(&self) -> &Arc<str> {
        &self.digest
    }

    pub fn api(&self, name: &str) -> Option<&ApiView> {
        let index = self.compiled.api_names.get(name)?;
        self.compiled.apis.get(*index).map(|api| &api.view)
    }

    pub fn credential(&self, name: &str) -> Option<&CredentialView> {
        self.compiled.credentials.get(name)
    }

    pub fn grant(&self, name: &str) -> Option<&GrantView> {
        let index = self.compiled.grant_names.get(name)?;
        self.compiled.grants.get(*index).map(|grant| &grant.view)
    }

    /// Every API, sorted by name.
    pub fn apis(&self) -> impl Iterator<Item = &ApiView> {
        self.compiled.apis.iter().map(|api| &api.view)
    }

    /// Every grant, sorted by name.
    pub fn grants(&self) -> impl Iterator<Item = &GrantView> {
        self.compiled.grants.iter().map(|grant| &grant.view)
    }

    /// Every credential with its name, in no order.
    pub fn credentials(&self) -> impl Iterator<Item = (&Arc<str>, &CredentialView)> {
        self.compiled.credentials.iter()
    }

    /// What the guests of a run may be told of its grants: one entry per origin that they can call.
    pub fn surface(&self, scope: &RunScope) -> Vec<SurfaceView> {
        let mut surface = Vec::new();
        for &api in scope.apis.iter() {
            let Some(found) = self.compiled.apis.get(api) else { continue };
            // It is a surface of requests.
            if found.view.traffic.is_passed_on() {
                continue;
            }
            let grants = scope.grants.iter().filter_map(|grant| self.compiled.grants.get(*grant));
            let rules = grants.filter_map(|grant| grant.rules_of(api));
            let routes: Vec<Arc<str>> = rules
                .flat_map(|rules| &rules.allow.routes)
                .map(|route| Arc::clone(&route.line.written))
                .collect();
            for origin in &found.origins {
                let host = found.view.alias.as_ref().unwrap_or(&origin.host);
                let base_url = crate::origin::url(host, origin.port);
                surface.push(SurfaceView {
                    api: Arc::clone(&found.view.name),
                    base_url,
                    routes: routes.clone(),
                });
            }
        }
        surface
    }
}
