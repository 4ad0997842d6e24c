//! The other processes of the sandbox: which may outlive a call, and how everything else is killed and reaped.
//!
//! What a call leaves behind is stopped first, all of it in one step of the kernel, so that nothing forks while it is
//! looked for. The interpreters of a session stay stopped until their next cell: between two calls nothing runs.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, wait};

use crate::limits::{KILL_WAIT, SWEEP_INTERVAL};

/// Interpreters that are alive.
#[derive(Debug, Default)]
pub(crate) struct Kept(Vec<Pid>);

impl Kept {
    pub(crate) fn add(&mut self, pid: Pid) {
        self.0.push(pid);
    }

    pub(crate) fn remove(&mut self, pid: Pid) {
        self.0.retain(|kept| *kept != pid);
    }

    pub(crate) fn holds(&self, pid: Pid) -> bool {
        self.0.contains(&pid)
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// Kills everything but pid 1, which calls this, and stops what is kept.
pub(crate) fn strike(kept: &Kept) {
    // In the namespace of a sandbox -1 means all but pid 1. Anywhere else (a test of this crate) it must not be sent.
    if !rustix::process::getpid().is_init() {
        return;
    }
    if kept.0.is_empty() {
        signal_all(Signal::SIGKILL);
        return;
    }
    // SECURITY: stopped before they are listed, or a process that forks would stay ahead of the list. No process can
    // ignore it (test: a_call_leaves_no_process_behind).
    signal_all(Signal::SIGSTOP);
    for pid in others(kept) {
        signal(pid, Signal::SIGKILL);
    }
}

/// Kills what a call left and waits until it is gone. Whether it is, as far as can be seen from inside: a process that hides
/// itself the daemon sees.
pub(crate) fn sweep(kept: &mut Kept) -> bool {
    let end = Instant::now() + KILL_WAIT;
    loop {
        strike(kept);
        let childless = reap_all(kept);
        if if kept.0.is_empty() { childless } else { others(kept).is_empty() } {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(SWEEP_INTERVAL);
    }
}

/// Lets an interpreter go on.
pub(crate) fn wake(pid: Pid) {
    signal(pid, Signal::SIGCONT);
}

/// Kills one process and waits for its status.
pub(crate) fn kill(pid: Pid, kept: &mut Kept) -> Option<i32> {
    signal(pid, Signal::SIGKILL);
    let end = Instant::now() + KILL_WAIT;
    while Instant::now() < end {
        if let Some(code) = reap(pid, kept) {
            return Some(code);
        }
        std::thread::sleep(SWEEP_INTERVAL);
    }
    None
}

/// Reaps every child that ended. The exit code of `main` when it is among them: its own status, or 128 + signal.
pub(crate) fn reap(main: Pid, kept: &mut Kept) -> Option<i32> {
    let mut code = None;
    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
        // INVARIANT: a number of a process that is gone is never kept: the kernel gives it to another one.
        kept.remove(pid);
        if pid == main {
            code = status.exit_status().or_else(|| status.terminating_signal().map(|signal| 128 + signal));
        }
    }
    code
}

/// Reaps what ended. Whether no child is left at all, which for pid 1 means: no other process.
pub(crate) fn reap_all(kept: &mut Kept) -> bool {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, _))) => kept.remove(pid),
            Err(Errno::CHILD) => return true,
            Ok(None) | Err(_) => return false,
        }
    }
}

/// What is alive besides pid 1 and the kept ones.
fn others(kept: &Kept) -> Vec<Pid> {
    // Without /proc nothing is found, and the call does not count as clean unless it kept nothing.
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(Pid::from_raw)
        .filter(|pid| !pid.is_init() && !kept.holds(*pid) && is_alive(*pid))
        .collect()
}

/// A thread of a kernel that is the run's own (`PF_KTHREAD` of linux/sched.h).
const KERNEL_THREAD: u32 = 0x0020_0000;

/// A zombie is none: what its stopped parent does not wait for is gone all the same. Nor is a thread of the kernel.
fn is_alive(pid: Pid) -> bool {
    let line = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    // The name before the other fields is in brackets and may hold anything.
    let fields: Vec<&str> =
        line.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect()).unwrap_or_default();
    let flags: u32 = fields.get(6).and_then(|flags| flags.parse().ok()).unwrap_or(0);
    !matches!(fields.first(), None | Some(&("Z" | "X"))) && flags & KERNEL_THREAD == 0
}

fn signal_all(signal: Signal) {
    // No process left is the usual answer.
    let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(-1), signal);
}

fn signal(pid: Pid, signal: Signal) {
    // It may be gone already.
    let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid.as_raw_nonzero().get()), signal);
}

/// Waits until no child is left, within reason: pid 1 ends afterwards anyway.
pub(crate) fn wait_for_all() {
    let end = Instant::now() + KILL_WAIT;
    while Instant::now() < end && !reap_all(&mut Kept::default()) {
        std::thread::sleep(Duration::from_micros(200));
    }
}
