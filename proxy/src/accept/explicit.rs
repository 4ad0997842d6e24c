//! The explicit proxy on a shared address: each connection names its run by a proxy credential.

use std::net::TcpListener;
use std::sync::Arc;

use crate::broker::Broker;

/// Serves until the broker drains.
#[expect(clippy::unused_async, reason = "written next")]
pub async fn serve(_listener: TcpListener, _broker: Arc<Broker>) {}
