//! Signals, and the end in order: stop accepting, let requests finish, cut the rest, record.

use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

use crate::broker::Broker;
use crate::limits::DRAIN_STEP;

/// The signals that the broker acts on.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    Reload,
    /// With the signal's name.
    Stop(&'static str),
}

impl Signals {
    /// Inside a runtime.
    pub fn listen() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// The next one. Cancel-safe.
    pub async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.terminate.recv() => Asked::Stop("SIGTERM"),
            _ = self.interrupt.recv() => Asked::Stop("SIGINT"),
            _ = self.hang_up.recv() => Asked::Reload,
        }
    }
}

/// Takes no new requests and waits until the connections are gone, at most `grace`. Returns how many were left.
/// A second SIGTERM or SIGINT ends the wait.
pub async fn drain(broker: &Arc<Broker>, grace: Duration, signals: &mut Signals) -> u64 {
    broker.draining.cancel();
    let deadline = Instant::now() + grace;
    loop {
        let left = broker.runs.connections();
        if left == 0 || Instant::now() >= deadline {
            return u64::try_from(left).unwrap_or(u64::MAX);
        }
        tokio::select! {
            () = tokio::time::sleep(DRAIN_STEP) => {}
            asked = signals.next() => if let Asked::Stop(_) = asked {
                return u64::try_from(left).unwrap_or(u64::MAX);
            }
        }
    }
}
