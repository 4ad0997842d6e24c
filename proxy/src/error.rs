//! Why a request does not go on: one type for all stages, with the reason that the client may read and the detail
//! that only the audit record holds.

use std::borrow::Cow;

use freeboard_policy::{Reason, Refusal, RuleId};

/// A refusal (ours) or failure (the world's). `respond` alone turns it into an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stop {
    pub reason: Reason,
    /// The deny rule that matched. Never shown to the guest.
    pub rule: Option<RuleId>,
    /// Facts for the audit record: addresses, limits, protocol details. Never a secret, never shown to the guest.
    pub detail: Option<Cow<'static, str>>,
    /// Seconds after which the guest may try again, where that is known.
    pub retry_after: Option<u64>,
}

impl Stop {
    /// A stop with a fixed detail.
    pub const fn new(reason: Reason, detail: &'static str) -> Self {
        Self { reason, rule: None, detail: Some(Cow::Borrowed(detail)), retry_after: None }
    }

    /// A stop with a detail that was put together.
    pub fn with(reason: Reason, detail: String) -> Self {
        Self { reason, rule: None, detail: Some(Cow::Owned(detail)), retry_after: None }
    }

    /// Malformed input, with what was wrong.
    pub const fn malformed(detail: &'static str) -> Self {
        Self::new(Reason::Malformed, detail)
    }
}

impl From<Reason> for Stop {
    fn from(reason: Reason) -> Self {
        Self { reason, rule: None, detail: None, retry_after: None }
    }
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self { reason: refusal.reason, rule: refusal.rule, detail: refusal.detail, retry_after: None }
    }
}

impl std::fmt::Display for Stop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.reason.code())?;
        if let Some(detail) = &self.detail {
            write!(f, ": {detail}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Stop {}
