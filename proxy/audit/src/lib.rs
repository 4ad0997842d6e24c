//! The audit log: event types, JSON lines, hash chain, verifier, and the line that people read.
//!
//! An [`Entry`] and a time come in; one line of printable ASCII comes out, chained to the line before by SHA-256.
//! This crate opens no file and reads no clock: the sink hands it the time and takes the bytes.
//!
//! What the chain proves: no record inside the log was changed, removed or moved without every later line being
//! rewritten. What it does not prove: that the end was not cut off, or that somebody with write access did not
//! rewrite everything. Keep the head (`freeboard audit verify` prints it) elsewhere and compare.

#![forbid(unsafe_code)]

mod chain;
mod escape;
mod event;
mod identity;
mod redact;
mod schema;
mod time;
mod verify;
mod view;

pub use chain::{Chain, Digest, EncodeError, Entry};
pub use escape::{MAX_FIELD_BYTES, printable, printable_line};
pub use event::{
    CloseCause, Decided, Event, Finding, GateClosed, GateOpened, Loaded, Measured, PolicyLoaded, Recovered,
    ReloadRefused, Revoked, RevokedFrom, RunRefused, Severity, Started, Stopped, Suppressed, Verdict,
};
pub use identity::{PolicyIdentity, RunIdentity};
pub use redact::{REDACTED, redact_query};
pub use schema::schema;
pub use time::rfc3339_ms;
pub use verify::{Fault, FaultKind, MAX_LINE_BYTES, Report, Verifier};
pub use view::{RawRecord, readable};
