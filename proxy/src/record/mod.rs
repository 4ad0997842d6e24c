//! Stage 7, what happened: once per request, connection or query, and once per event of the broker itself.
//!
//! In: [`Outcome`]s and events. Out: lines of the audit log, written by one thread. Nothing is forwarded without room
//! for its record: [`Recorder::reserve`] comes before the upstream, and fails when the log cannot be written.

mod draft;
mod event;
mod files;
mod flood;
mod log;
mod outcome;
mod writer;

#[cfg(test)]
mod tests;

pub use draft::Draft;
pub use event::{gate_closed, gate_opened, run_refused};
pub use files::{FilesError, log_files};
pub use log::{LogError, LogSettings};
pub use outcome::{Kind, Outcome, RequestId, Verdict};
pub use writer::Writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};

use freeboard_audit::{Entry, Event, PolicyIdentity, RunIdentity};
use freeboard_policy::Reason;

use crate::broker::Clock;
use crate::limits;

/// The audit log as the path sees it: a bounded queue to one writer thread. The default one has no log: it refuses.
#[derive(Debug, Default, Clone)]
pub struct Recorder {
    queue: Option<Queue>,
}

#[derive(Debug, Clone)]
struct Queue {
    shared: Arc<Shared>,
    sender: SyncSender<Message>,
}

/// Room for one record, taken before anything is forwarded. Dropping it without a record gives the room back.
#[derive(Debug)]
#[must_use]
pub struct Slot {
    shared: Arc<Shared>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.shared.free.fetch_add(1, Ordering::Release);
    }
}

/// What recorder, slots and writer share.
#[derive(Debug)]
struct Shared {
    /// INVARIANT: at most this many more messages enter the queue, which has room for `limits::AUDIT_QUEUE`.
    free: AtomicUsize,
    /// The last write failed.
    failed: AtomicBool,
    /// Refusals that found no room.
    lost: AtomicU64,
    /// The writer is to end, also while the log cannot be written.
    stop: AtomicBool,
    /// All refusals that found no room.
    lost_ever: AtomicU64,
    /// Times that the log became unwritable.
    failures: AtomicU64,
    /// Number of the last record in the file.
    sequence: AtomicU64,
    /// When everything was in the file for the last time, milliseconds since 1970 UTC.
    settled_unix_ms: AtomicU64,
}

/// How the log stands, for those who watch it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogState {
    pub writable: bool,
    /// Records that are not in the file yet.
    pub unwritten: usize,
    /// For how long; 0 when all are.
    pub lag_ms: u64,
    /// Number of the last record in the file.
    pub sequence: u64,
    /// Times that the log became unwritable.
    pub failures: u64,
    /// Refusals that found no room.
    pub lost: u64,
}

#[derive(Debug)]
enum Message {
    Decided {
        outcome: Box<Outcome>,
        slot: Slot,
    },
    Happened {
        time_unix_ms: u64,
        entry: Box<Entry>,
        slot: Slot,
    },
    /// Answered when everything before it is in the file.
    Flush(SyncSender<()>),
    Stop,
}

impl Recorder {
    /// Opens the log, checks its tail and starts the writer.
    ///
    /// # Errors
    /// The log cannot be opened or written, is in use by another broker, or its tail does not verify.
    pub fn start(settings: LogSettings, clock: Clock) -> Result<(Self, Writer), LogError> {
        let (sender, receiver) = sync_channel(limits::AUDIT_QUEUE + limits::AUDIT_CONTROL_MESSAGES);
        let shared = Arc::new(Shared {
            free: AtomicUsize::new(limits::AUDIT_QUEUE),
            failed: AtomicBool::new(false),
            lost: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            lost_ever: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            sequence: AtomicU64::new(0),
            settled_unix_ms: AtomicU64::new(clock.now().unix_ms),
        });
        let writer = Writer::start(settings, clock, receiver, sender.clone(), Arc::clone(&shared))?;
        Ok((Self { queue: Some(Queue { shared, sender }) }, writer))
    }

    /// Takes room for one record. Called by `pipeline` before a request is sent upstream.
    ///
    /// # Errors
    /// `audit_unavailable` when the queue is full or the log cannot be written: nothing is forwarded then.
    pub fn reserve(&self) -> Result<Slot, Reason> {
        let queue = self.queue.as_ref().ok_or(Reason::AuditUnavailable)?;
        // SECURITY: without this line requests go on while the disk is full, and their records only live in memory.
        // Guarded by `e19_a_full_disk_refuses_requests_and_recovers`.
        if queue.shared.failed.load(Ordering::Acquire) {
            return Err(Reason::AuditUnavailable);
        }
        queue.shared.take(0).ok_or(Reason::AuditUnavailable)
    }

    /// How the log stands. For metrics and readiness.
    pub fn state(&self) -> LogState {
        let Some(Queue { shared, .. }) = &self.queue else { return LogState::default() };
        let unwritten = shared.unwritten();
        let since = Clock.now().unix_ms.saturating_sub(shared.settled_unix_ms.load(Ordering::Relaxed));
        LogState {
            writable: !shared.failed.load(Ordering::Acquire),
            unwritten,
            lag_ms: if unwritten == 0 { 0 } else { since },
            sequence: shared.sequence.load(Ordering::Relaxed),
            failures: shared.failures.load(Ordering::Relaxed),
            lost: shared.lost_ever.load(Ordering::Relaxed),
        }
    }

    /// Hands one outcome to the writer. Never waits for it, but lets it run when it is far behind; a refusal that finds no
    /// room is counted and the count is written with the next record. Called through `Broker::record` only.
    pub fn record(&self, mut outcome: Box<Outcome>) {
        let Some(queue) = &self.queue else { return };
        match outcome.slot.take().or_else(|| queue.shared.take(limits::AUDIT_QUEUE_FOR_REQUESTS)) {
            Some(slot) => {
                queue.send(Message::Decided { outcome, slot });
                if queue.shared.unwritten() > limits::AUDIT_FAR_AHEAD {
                    std::thread::yield_now();
                }
            }
            None => {
                queue.shared.lose_one();
            }
        }
    }

    /// Hands an event of the broker itself to the writer.
    ///
    /// # Errors
    /// `audit_unavailable`: what the event tells of must not happen then.
    pub fn event(
        &self,
        run: Option<Arc<RunIdentity>>,
        policy: Option<Arc<PolicyIdentity>>,
        event: Event,
    ) -> Result<(), Reason> {
        let slot = self.reserve()?;
        if let Some(queue) = &self.queue {
            let entry = Box::new(Entry { policy, run, event });
            queue.send(Message::Happened { time_unix_ms: Clock.now().unix_ms, entry, slot });
        }
        Ok(())
    }

    /// Waits until everything handed in so far is in the file, at most `limit`. False when it is not. Blocks the thread:
    /// for the end of the process and for tests.
    pub fn flush(&self, limit: std::time::Duration) -> bool {
        let Some(queue) = &self.queue else { return false };
        let (done, wait) = sync_channel(1);
        queue.send(Message::Flush(done));
        wait.recv_timeout(limit).is_ok()
    }
}

impl Queue {
    fn send(&self, message: Message) {
        // There is room: a slot was taken for each message, and control messages have room of their own. An error
        // means that the writer has ended, at the end of the process.
        let _ = self.sender.try_send(message);
    }
}

impl Shared {
    fn lose_one(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
        self.lost_ever.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that have a slot and are not in the file.
    fn unwritten(&self) -> usize {
        limits::AUDIT_QUEUE.saturating_sub(self.free.load(Ordering::Relaxed))
    }

    /// Takes room where more than `leave` is free.
    fn take(self: &Arc<Self>, leave: usize) -> Option<Slot> {
        let one = |free: usize| if free > leave { free.checked_sub(1) } else { None };
        let taken = self.free.fetch_update(Ordering::AcqRel, Ordering::Acquire, one).is_ok();
        taken.then(|| Slot { shared: Arc::clone(self) })
    }
}
