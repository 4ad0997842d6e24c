//! The guest program where a sandbox has a kernel of its own (gVisor, a microVM): the first process in it.
//!
//! Standard input is the channel to the daemon. Says what only the inside can see, waits for the job, runs it, ends. As
//! `/init` it is the first process of a microVM and builds the room first.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use freeboard_guest::machine;

fn main() -> ExitCode {
    // Nobody inside reads a message; the daemon sees the channel close, and the exit code with it.
    let in_machine = std::env::args_os().next().is_some_and(|name| name == machine::INIT);
    let ended = if in_machine { freeboard_guest::begin_in_machine() } else { freeboard_guest::begin() };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
