//! The guest program where a sandbox has a kernel of its own (gVisor, a microVM): the first process in it.
//!
//! Standard input is the channel to the daemon. Says what only the inside can see, waits for the job, runs it, ends.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    // Nobody inside reads a message; the daemon sees the channel close, and the exit code with it.
    match freeboard_guest::begin() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
