//! The clock that interrupts running code: a thread that advances the engine's epoch while a run is on.
//!
//! Running code compares the epoch at every loop and call. Without this thread a deadline would be configured and never
//! come (F28). It sleeps without a timer when nothing runs.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::Thread;

use super::super::limits::{EPOCH_TICK, IDLE_TICKS};
use super::engine::Loaded;

#[derive(Debug)]
pub(super) struct Ticker {
    shared: Arc<Shared>,
    thread: Thread,
}

#[derive(Debug, Default)]
struct Shared {
    running: AtomicBool,
    asleep: AtomicBool,
}

impl Ticker {
    /// Starts the thread, and gives what is to be waited at until it has begun. It never ends before the process.
    pub(super) fn start(loaded: &Loaded) -> io::Result<(Self, Arc<Barrier>)> {
        let shared = Arc::new(Shared::default());
        let engine = loaded.engine().clone();
        let seen = Arc::clone(&shared);
        let started = Arc::new(Barrier::new(2));
        let begun = Arc::clone(&started);
        let handle =
            std::thread::Builder::new().name("epoch".into()).stack_size(64 << 10).spawn(move || {
                begun.wait();
                let mut idle = 0;
                loop {
                    if seen.running.load(Ordering::SeqCst) {
                        idle = 0;
                    } else {
                        idle += 1;
                        if idle > IDLE_TICKS {
                            sleep_until_needed(&seen);
                            idle = 0;
                        }
                    }
                    std::thread::sleep(EPOCH_TICK);
                    engine.increment_epoch();
                }
            })?;
        Ok((Self { shared, thread: handle.thread().clone() }, started))
    }

    /// A run begins. Costs a wake-up only after a pause.
    pub(super) fn begin(&self) {
        self.shared.running.store(true, Ordering::SeqCst);
        if self.shared.asleep.load(Ordering::SeqCst) {
            self.thread.unpark();
        }
    }

    pub(super) fn end(&self) {
        self.shared.running.store(false, Ordering::SeqCst);
    }
}

// INVARIANT: `asleep` is set before `running` is read here, and `running` before `asleep` is read in `begin`: one of the
// two sees the other, so no run goes without ticks.
fn sleep_until_needed(shared: &Shared) {
    shared.asleep.store(true, Ordering::SeqCst);
    while !shared.running.load(Ordering::SeqCst) {
        std::thread::park();
    }
    shared.asleep.store(false, Ordering::SeqCst);
}
