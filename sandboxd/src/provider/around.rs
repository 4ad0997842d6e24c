//! The process around a kernel of the run's own: it starts what runs that kernel, then only waits. It is pid 1 of the
//! process namespace of all of that, so nothing outlives it.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, WaitOptions, pidfd_open, setrlimit, wait};

use crate::child::setup::{SetupError, at};
use crate::isolate::{Boundary, privileges};

/// Bytes of messages that are told to the daemon when what was started fails.
const MESSAGE_BYTES: u64 = 2048;

/// What was started.
pub(super) struct Started {
    pub(super) pid: Pid,
    /// The step that its failure is reported as.
    pub(super) step: &'static str,
    /// Files of the root with what it said last.
    pub(super) messages: &'static [&'static str],
}

/// The group holds the run as a whole. These stand beside it.
pub(super) fn set_limits(boundary: &Boundary, open_files: u64) -> io::Result<()> {
    for (resource, limit) in [
        (Resource::Core, 0),
        (Resource::Nproc, privileges::processes(&boundary.limits, true)),
        (Resource::Nofile, open_files),
        (Resource::Rtprio, 0),
    ] {
        let most = rustix::process::getrlimit(resource).maximum.map_or(limit, |most| most.min(limit));
        setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?;
    }
    Ok(())
}

/// Waits until it ends or the daemon hangs up. The end of this process ends everything in its namespace.
pub(super) fn watch(started: &Started, channel: &UnixStream) -> Result<(), SetupError> {
    let pidfd = pidfd_open(started.pid, PidfdFlags::empty()).map_err(at(started.step))?;
    loop {
        let mut polled = [PollFd::new(&pidfd, PollFlags::IN), PollFd::new(channel, PollFlags::RDHUP)];
        match poll(&mut polled, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(at(started.step)(error)),
        }
        let [ended, hung_up] = polled.each_ref().map(|entry| !entry.revents().is_empty());
        if hung_up {
            return Ok(());
        }
        if ended && let Some(failed) = reap(started.pid) {
            return if failed { Err(started.failure()) } else { Ok(()) };
        }
    }
}

/// Reaps what ended. Whether what was started is among it, and whether it failed.
fn reap(started: Pid) -> Option<bool> {
    let mut failed = None;
    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
        if pid == started {
            failed = Some(status.exit_status() != Some(0));
        }
    }
    failed
}

impl Started {
    /// What it said last.
    pub(super) fn failure(&self) -> SetupError {
        let said: Vec<String> =
            self.messages.iter().map(|path| end_of(path)).filter(|text| !text.is_empty()).collect();
        let text = if said.is_empty() { "it ended without a message".to_owned() } else { said.join("; ") };
        SetupError { step: self.step.into(), source: io::Error::other(text) }
    }
}

/// The last lines of a file, in one. What cannot be read is not told; the step is.
fn end_of(path: &str) -> String {
    let mut text = Vec::new();
    if let Ok(mut file) = File::open(path) {
        let size = file.metadata().map_or(0, |metadata| metadata.len());
        let _ = io::Seek::seek(&mut file, io::SeekFrom::Start(size.saturating_sub(MESSAGE_BYTES)));
        let _ = file.take(MESSAGE_BYTES).read_to_end(&mut text);
    }
    String::from_utf8_lossy(&text).trim().replace('\r', "").replace('\n', "; ")
}
