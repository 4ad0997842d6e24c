//! Calls, rate and concurrency of one run under one grant.

/// What was used so far.
#[derive(Debug, Default)]
pub struct GrantBudget {}
