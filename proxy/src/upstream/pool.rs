//! Idle upstream connections of one run, by origin and credential identity. (path)

/// Belongs to one `RunContext`.
#[derive(Debug, Default)]
pub struct Pool {}

impl Pool {
    /// Closes connections that were idle for too long.
    pub fn sweep(&self) {}

    /// Closes all.
    pub fn clear(&self) {}
}
