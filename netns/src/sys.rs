//! The only unsafe file of this crate: a short-lived child process for questions that change the one who asks.

#![expect(unsafe_code, reason = "fork has no safe form")]

use std::io;

use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

/// Runs `question` in a child process and returns its answer (0..=255).
///
/// `question` must do nothing but system calls on memory that exists already: no allocation, no lock, no panic. A
/// thread of the parent may have held any lock when the child was made.
pub(crate) fn ask_in_child(question: impl FnOnce() -> u8) -> io::Result<u8> {
    // SAFETY: the child only runs `question`, which by this function's contract is async-signal-safe, and leaves through
    // `_exit` without unwinding into code of the parent.
    match unsafe { fork() }? {
        ForkResult::Child => {
            let answer = question();
            // SAFETY: `_exit` takes any status, runs no handlers and does not return.
            unsafe { nix::libc::_exit(i32::from(answer)) }
        }
        ForkResult::Parent { child } => loop {
            match waitpid(child, None) {
                Ok(WaitStatus::Exited(_, status)) => return Ok(u8::try_from(status).unwrap_or(u8::MAX)),
                Ok(WaitStatus::Signaled(..)) => return Err(io::ErrorKind::Interrupted.into()),
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        },
    }
}
