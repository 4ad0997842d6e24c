//! From a handed socket to a client of one run.

mod explicit;
pub mod http1;
pub mod worker;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use freeboard_control::Door;

use crate::broker::Broker;
use crate::run::RunContext;

/// Serves one door of a gate until the run ends. Spawned by `accept::worker` (`control_server` calls that).
pub async fn serve_door(door: Door, descriptor: OwnedFd, run: Arc<RunContext>, broker: Arc<Broker>) {
    match door {
        Door::DnsUdp => crate::dns::serve_udp(descriptor, run, broker).await,
        Door::DnsTcp => crate::dns::serve_tcp(descriptor, run, broker).await,
        _ => drop(descriptor),
    }
}
