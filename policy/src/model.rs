//! A policy that passed every check: valid by construction.

use std::sync::Arc;

use crate::{
    Decision, DestinationQuestion, Diagnostic, Reason, Refusal, RequestQuestion, Route, RunScope,
    ScopeQuestion, SourceFile,
};

/// A checked policy. Immutable; share it in an `Arc`.
#[derive(Debug)]
pub struct Policy {
    digest: Arc<str>,
}

/// What the broker needs to know of an API.
#[derive(Debug, Clone)]
pub struct ApiView {
    pub name: Arc<str>,
    /// Upstream origins, `https` only: host and port.
    pub origins: Vec<(crate::Host, u16)>,
    /// PEM file with the CAs that alone are trusted for this API; `None` = the system's roots.
    pub ca_file: Option<String>,
    /// SHA-256 of accepted leaf or CA public keys (SPKI), lower-case hex.
    pub pin_sha256: Vec<String>,
    /// Address ranges beside the public ones that the API names; hand them to `address::allowed` before dialling.
    pub addresses: Vec<crate::AddressRange>,
    pub alias: Option<crate::Host>,
    pub hidden: bool,
    pub credential: Option<Arc<str>>,
}

/// Where a secret comes from. Policy files hold references, never secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretReference {
    File(String),
    Env(String),
    Exec(Vec<String>),
    /// A credential that systemd placed under `$CREDENTIALS_DIRECTORY`.
    Systemd(String),
}

/// What the broker needs to know of a credential.
#[derive(Debug, Clone)]
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
}

/// What the broker needs to know of a grant.
#[derive(Debug, Clone)]
pub struct GrantView {
    pub name: Arc<str>,
    pub floor: Option<crate::Tier>,
    pub ttl_seconds: Option<u64>,
    /// Budgets of one run under this grant; `None` = the documented default of the broker.
    pub calls: Option<u64>,
    pub per_minute: Option<u64>,
    pub concurrent: Option<u64>,
    /// Largest request body in bytes.
    pub request_bytes: Option<u64>,
    /// Largest response body in bytes.
    pub response_bytes: Option<u64>,
}

/// A policy that may be used, and what its authors should look at.
#[derive(Debug)]
pub struct Loaded {
    pub policy: Policy,
    pub warnings: Vec<Diagnostic>,
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
        Self { digest: Arc::from("") }
    }

    /// SHA-256 of the canonical form, lower-case hex.
    pub fn digest(&self) -> &Arc<str> {
        &self.digest
    }

    pub fn scope(&self, _question: &ScopeQuestion<'_>) -> Result<RunScope, Refusal> {
        Err(Reason::GrantNotAvailable.into())
    }

    pub fn destination(&self, _question: &DestinationQuestion<'_>) -> Result<Route, Refusal> {
        Err(Reason::HostNotGranted.into())
    }

    pub fn evaluate(&self, _question: &RequestQuestion<'_>) -> Decision {
        Decision::Refuse(Reason::NoRule.into())
    }

    /// Reads and checks the files of a policy folder. The order of the files does not matter.
    ///
    /// # Errors
    /// Every problem found, warnings included, in the order of files and lines.
    pub fn load(_files: &[SourceFile]) -> Result<Loaded, Vec<Diagnostic>> {
        Err(vec![Diagnostic::error(crate::Code::Empty, "the policy folder is empty")])
    }

    pub fn api(&self, _name: &str) -> Option<&ApiView> {
        None
    }

    pub fn credential(&self, _name: &str) -> Option<&CredentialView> {
        None
    }

    pub fn grant(&self, _name: &str) -> Option<&GrantView> {
        None
    }

    /// What the guests of a run may be told of its grants.
    pub fn surface(&self, _scope: &RunScope) -> Vec<SurfaceView> {
        Vec::new()
    }
}
