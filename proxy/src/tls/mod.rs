//! TLS towards the guest: the interception authority and the leaves that it mints.

use std::sync::Arc;

use freeboard_policy::{Host, Reason};

pub mod terminate;

/// The interception CA with its bounded cache of leaves and server configurations.
#[derive(Debug, Default)]
pub struct Authority {}

impl Authority {
    /// The server configuration with the leaf for `host` (ALPN `h2`, `http/1.1`), minted or from the cache.
    /// Called by `accept` once the destination is granted, or within the run's budget for refusals.
    pub fn server_config(&self, _host: &Host) -> Result<Arc<rustls::ServerConfig>, Reason> {
        Err(Reason::Internal)
    }

    /// True when `server_config` would not mint. Called by `accept` before it spends a refusal leaf of the run.
    pub fn is_cached(&self, _host: &Host) -> bool {
        false
    }
}
