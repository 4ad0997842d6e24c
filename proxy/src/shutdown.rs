//! Signals, and the end in order: stop accepting, let requests finish, cut the rest, record.

use std::sync::Arc;
use std::time::Duration;

use freeboard_control::Lifeline;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

use crate::broker::Broker;
use crate::limits::DRAIN_STEP;

/// What ends the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// SIGTERM or SIGINT.
    Signal,
    /// The end of standard input, besides.
    StdinEnds,
}

/// The signals that the broker acts on, and what counts as one.
#[derive(Debug)]
pub struct Signals {
    lifeline: Option<Lifeline>,
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    Reload,
    /// With the signal's name, or what took its place.
    Stop(&'static str),
}

impl Signals {
    /// Inside a runtime.
    pub fn listen(lifeline: Option<Lifeline>) -> std::io::Result<Self> {
        Ok(Self {
            lifeline,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// The next one. Cancel-safe.
    pub async fn next(&mut self) -> Asked {
        let lifeline = async {
            match &self.lifeline {
                Some(lifeline) => lifeline.ended().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = lifeline => {
                // Said once: draining goes on in peace.
                self.lifeline = None;
                Asked::Stop("standard input ended")
            }
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
