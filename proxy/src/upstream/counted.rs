//! Body bytes that went each way, counted by whoever moves them and read by whoever records them.

use std::sync::atomic::{AtomicU64, Ordering};

/// Shared between the two: what moves bytes may be dropped midway.
#[derive(Debug, Default)]
pub struct Counted {
    pub to_upstream: AtomicU64,
    pub to_guest: AtomicU64,
}

impl Counted {
    pub fn total(&self) -> u64 {
        self.to_upstream.load(Ordering::Relaxed) + self.to_guest.load(Ordering::Relaxed)
    }
}
