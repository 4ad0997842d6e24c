//! What was measured about one run before its code was released.

use freeboard_policy::Tier;
use serde::{Deserialize, Serialize};

/// Evidence of one run: the facts that were measured and the tier that they support.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    pub provider: String,
    pub tier: Tier,
    pub facts: Vec<Fact>,
}

/// One measurement. `met` says whether it satisfies what the tier requires; a fact that is merely informative is met.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// Stable name, for example `seccomp_mode`.
    pub name: String,
    /// What was read, for example `2`.
    pub value: String,
    pub met: bool,
}
