//! What runs inside a sandbox before user code: takes the job, places its files, runs its steps, captures what was
//! asked for, reports.
//!
//! For a session it goes on: call after call, with interpreters that keep their state for the next cell and are stopped
//! in between, and nothing else alive.
//!
//! The program is pid 1 of its sandbox. It speaks with the daemon over one stream socket ([`protocol`]) that no step
//! inherits. It holds no secret; what it protects is the truth of its report, so its memory and descriptors are closed
//! to the steps, which run under the same user (`PR_SET_DUMPABLE` 0, and no signal reaches pid 1).
//!
//! It never follows a link when it writes a file or captures an artifact: both are opened relative to the work
//! directory with `RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS`.

#![forbid(unsafe_code)]

mod artifacts;
mod begin;
mod cells;
mod channel;
mod files;
mod input;
pub mod limits;
pub mod machine;
mod processes;
pub mod protocol;
mod run;
mod session;
mod step;
mod user;
mod witness;

pub use begin::{begin, begin_in_machine};
pub use channel::Channel;
pub use run::{GuestError, Surroundings, run};
pub use user::StepUser;
