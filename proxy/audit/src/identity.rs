//! Who acted and under which policy: shared by many entries, so each is one reference.

use std::sync::Arc;

use freeboard_policy::Tier;
use schemars::JsonSchema;
use serde::Serialize;

/// The policy that a decision was made under.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PolicyIdentity {
    /// SHA-256 of the canonical policy, lower-case hex.
    #[serde(rename = "policy")]
    pub digest: Arc<str>,
    /// Commit of the policy folder where it is a git work tree; ends in `+dirty` when files differ from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<Arc<str>>,
}

/// The run that acted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RunIdentity {
    /// 32 lower-case hex digits, or the configured name of an explicit run.
    pub run: Arc<str>,
    /// Authenticated caller; absent = anonymous.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caller: Option<Arc<str>>,
    /// Measured tier; absent = no boundary was built.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<Tier>,
    /// Provider that built the boundary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<Arc<str>>,
    /// The session whose call it was: SHA-256 of its id in hex, as the records of its runs have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<Arc<str>>,
    /// The caller's trace id, to find this run in the caller's own logs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<Arc<str>>,
}
