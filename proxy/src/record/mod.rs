//! What happened, once per request, connection or query: the outcome and the recorder that writes it.

mod draft;
mod outcome;

pub use draft::Draft;
pub use outcome::{Kind, Outcome, RequestId, Verdict};

use freeboard_policy::Reason;

/// The audit log as the path sees it: a bounded queue to one writer thread.
#[derive(Debug, Default)]
pub struct Recorder {}

/// Room for one record, taken before anything is forwarded. Dropping it without a record gives the room back.
#[derive(Debug)]
#[must_use]
pub struct Slot {}

impl Recorder {
    /// Takes room for one record. Called by `pipeline` before a request is sent upstream.
    ///
    /// # Errors
    /// `audit_unavailable` when the queue is full or the log cannot be written: nothing is forwarded then.
    pub fn reserve(&self) -> Result<Slot, Reason> {
        Err(Reason::AuditUnavailable)
    }

    /// Hands one outcome to the writer. Never waits; a refusal that finds no room is counted and the count is
    /// written with the next record. Called through `Broker::record` only.
    pub fn record(&self, _outcome: Outcome) {}
}
