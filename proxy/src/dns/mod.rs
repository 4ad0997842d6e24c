//! DNS inside a gate: granted names get synthetic addresses of this run, everything else is refused and recorded.

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use freeboard_policy::Host;

use crate::broker::Broker;
use crate::run::RunContext;

/// Synthetic addresses of one run: one per name and family.
#[derive(Debug, Default)]
pub struct NameTable {}

impl NameTable {
    /// The name that this address was issued for. Called by `accept` with the address that a guest dialled.
    pub fn lookup(&self, _address: IpAddr) -> Option<Host> {
        None
    }
}

/// Serves a gate's UDP port 53 until the run ends. Called by `accept::serve_door`.
#[expect(clippy::unused_async, reason = "written by the DNS part")]
pub async fn serve_udp(_socket: OwnedFd, _run: Arc<RunContext>, _broker: Arc<Broker>) {}

/// Serves a gate's TCP port 53 until the run ends. Called by `accept::serve_door`.
#[expect(clippy::unused_async, reason = "written by the DNS part")]
pub async fn serve_tcp(_listener: OwnedFd, _run: Arc<RunContext>, _broker: Arc<Broker>) {}
