//! The system call filter of a run: turns the lists of `table.rs` into a program and installs it.

pub(crate) mod filter;
mod table;

use std::collections::BTreeMap;
use std::io;

use filter::{Answer, number};
use nix::libc;
use seccompiler::BpfProgram;
use table::{ALLOWED, CONDITIONAL, IGNORED, REFUSED};

/// A filter that is written and not yet installed.
pub(crate) struct Filter(BpfProgram);

impl Filter {
    /// Writes it. It is the same for every run, so this needs nothing of one.
    pub(crate) fn of_runs() -> Self {
        Self(compile())
    }

    /// Installs it for this thread and all that it starts. Needs no_new_privs.
    pub(crate) fn install(&self) -> io::Result<()> {
        seccompiler::apply_filter(&self.0).map_err(io::Error::other)
    }
}

/// The whole program.
fn compile() -> BpfProgram {
    let mut calls = BTreeMap::new();
    calls.extend(ALLOWED.iter().map(|entry| (number(entry.1), Answer::Allow)));
    calls.extend(IGNORED.iter().map(|entry| (number(entry.1), Answer::Errno(0))));
    calls.extend(CONDITIONAL.iter().map(|entry| (number(entry.number), Answer::Check(entry.checks))));
    calls.extend(REFUSED.iter().map(|entry| (number(entry.1), Answer::Errno(entry.2))));
    // Numbers on no list do not exist.
    filter::program(calls, Answer::Errno(libc::ENOSYS))
}

#[cfg(test)]
mod tests;
