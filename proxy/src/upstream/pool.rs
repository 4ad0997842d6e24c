//! Idle upstream connections of one run, by origin and credential identity. (path)

/// Belongs to one `RunContext`.
#[derive(Debug, Default)]
pub struct Pool {}
