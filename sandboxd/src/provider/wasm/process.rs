//! The process of a worker: started as the program or forked from this one, killed when dropped, reaped some time after.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, waitpid};
use rustix::time::Timespec;

use super::super::CreateError;
use super::limits::HEAD_START;
use super::worker::{self, SUBCOMMAND};
use super::workers::step;
use crate::child::sys::{self, Side};

/// A worker's process and our end of its socket. Dropping it kills the process.
#[derive(Debug)]
pub(super) struct Process {
    /// Always there, until the drop takes it.
    handle: Option<Handle>,
    pub(super) control: UnixStream,
}

/// A child of ours that nobody else waits for, so its number means this process until we have reaped it.
#[derive(Debug)]
enum Handle {
    Started(Child),
    Forked(Pid),
}

impl Process {
    /// Starts the program as a worker: it has nothing of this process but the socket.
    pub(super) fn start(program: &Path, memory_mib: u32) -> Result<Self, CreateError> {
        let (control, theirs) = pair()?;
        let child = Command::new(program)
            .arg(SUBCOMMAND)
            .arg(memory_mib.to_string())
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| step("starting a worker process", error))?;
        bury(None);
        Ok(Self { handle: Some(Handle::Started(child)), control })
    }

    /// Forks a worker from this process, which must have one thread. It saves what the start of a program costs, and
    /// begins with a copy of our memory: not for a process that serves several callers.
    pub(super) fn fork(memory_mib: u32) -> Result<Self, CreateError> {
        let (control, theirs) = pair()?;
        let (begun, their_begun) =
            pipe_with(PipeFlags::CLOEXEC).map_err(|errno| step("making a worker's pipe", errno.into()))?;
        let side = sys::fork_single_threaded();
        match side.map_err(|error| step("forking a worker (the process must have one thread)", error))? {
            Side::Parent(pid) => {
                drop(their_begun);
                let_begin(&begun);
                Ok(Self { handle: Some(Handle::Forked(pid)), control })
            }
            Side::Child => {
                drop((control, begun));
                let ended = worker::live(theirs.into(), their_begun, memory_mib);
                sys::exit_now(i32::from(ended.is_err()))
            }
        }
    }

    pub(super) fn id(&self) -> u32 {
        self.handle.as_ref().map(Handle::id).unwrap_or_default()
    }

    /// Kills the process and waits for its end. Says how it ended.
    pub(super) fn kill(&mut self) -> String {
        let Some(handle) = &mut self.handle else { return "no status".to_owned() };
        handle.kill();
        handle.wait()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let Some(mut handle) = self.handle.take() else { return };
        // Waiting for the end would hold up whoever drops this.
        handle.kill();
        bury(Some(handle));
    }
}

impl Handle {
    fn id(&self) -> u32 {
        match self {
            Self::Started(child) => child.id(),
            Self::Forked(pid) => pid.as_raw_nonzero().get().unsigned_abs(),
        }
    }

    /// An error of the kernel means that it has ended already.
    fn kill(&mut self) {
        match self {
            Self::Started(child) => drop(child.kill()),
            Self::Forked(pid) => drop(kill_process(*pid, Signal::KILL)),
        }
    }

    /// Waits for the end. Not called twice.
    fn wait(&mut self) -> String {
        match self {
            Self::Started(child) => {
                child.wait().map_or_else(|error| error.to_string(), |status| status.to_string())
            }
            Self::Forked(pid) => match waitpid(Some(*pid), WaitOptions::empty()) {
                Ok(status) => status.map_or_else(String::new, |(_, status)| words(status)),
                Err(error) => error.to_string(),
            },
        }
    }

    /// Whether it has ended, and reaps it then.
    fn has_ended(&mut self) -> bool {
        match self {
            Self::Started(child) => !matches!(child.try_wait(), Ok(None)),
            Self::Forked(pid) => !matches!(waitpid(Some(*pid), WaitOptions::NOHANG), Ok(None)),
        }
    }
}

/// As the standard library says it.
fn words(status: WaitStatus) -> String {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => format!("exit status: {code}"),
        (None, Some(signal)) => format!("signal: {signal}"),
        (None, None) => "no status".to_owned(),
    }
}

/// Killed, and not yet seen to have ended: looked at again whenever another process starts or ends.
static GRAVEYARD: Mutex<Vec<Handle>> = Mutex::new(Vec::new());

/// Reaps what has ended.
fn bury(dead: Option<Handle>) {
    let mut graves = GRAVEYARD.lock().unwrap_or_else(PoisonError::into_inner);
    graves.extend(dead);
    graves.retain_mut(|handle| !handle.has_ended());
}

/// Leaves the processors to the two threads of a new worker until one is enough for it, and no longer than [`HEAD_START`]: the run
/// waits for what they do, and not for what we do meanwhile.
fn let_begin(begun: &OwnedFd) {
    let mut end = [PollFd::new(begun, PollFlags::IN)];
    // Whatever comes of it, we go on.
    let _ = poll(&mut end, Timespec::try_from(HEAD_START).ok().as_ref());
}

fn pair() -> Result<(UnixStream, UnixStream), CreateError> {
    UnixStream::pair().map_err(|error: io::Error| step("making a worker's socket", error))
}
