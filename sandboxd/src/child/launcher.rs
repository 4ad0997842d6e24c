//! The launcher: takes `Create`, makes the child of a run, cleans up after it, ends every run when the daemon is gone.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, Signal, WaitOptions, pidfd_send_signal, setsid, waitpid};

use super::message::{FromLauncher, ToLauncher, receive, send};
use super::sys::{self, Side};
use super::unborn::{Failure, Unborn};
use crate::isolate::cgroup::{Group, Groups, Usage};
use crate::isolate::{Boundary, Limits};

/// The daemon's end of a launcher. Dropping it ends every run.
#[derive(Debug)]
pub struct Launcher {
    socket: Option<OwnedFd>,
    pid: Pid,
    service: Service,
    /// It has said its last word: nothing of any run is left, and it only has to end.
    is_done: AtomicBool,
}

/// Whether the process that forks has one thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Threads {
    One,
    NotAsked,
}

/// What a launcher is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Service {
    /// Runs as they come.
    ManyRuns,
    /// One run that comes at once, with these limits: its control group and namespaces are made while the daemon still
    /// finds out what to run, and the launcher ends with it.
    OneRun(Limits),
}

impl Launcher {
    /// Forks the launcher. To be called first thing in `main`: before a runtime or any thread exists, and before
    /// anything secret is in memory.
    ///
    /// # Errors
    /// `EBUSY` when the process has more than one thread.
    pub fn start() -> io::Result<Self> {
        Self::fork(Threads::One, Service::ManyRuns)
    }

    /// The same for one run with these limits.
    pub fn start_for_one_run(limits: Limits) -> io::Result<Self> {
        Self::fork(Threads::One, Service::OneRun(limits))
    }

    /// The same for test programs, whose harness has a waiting main thread.
    #[doc(hidden)]
    pub fn start_in_test() -> io::Result<Self> {
        Self::fork(Threads::NotAsked, Service::ManyRuns)
    }

    /// A launcher for one run, for test programs.
    #[doc(hidden)]
    pub fn start_for_one_run_in_test(limits: Limits) -> io::Result<Self> {
        Self::fork(Threads::NotAsked, Service::OneRun(limits))
    }

    fn fork(threads: Threads, service: Service) -> io::Result<Self> {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let side = match threads {
            Threads::One => sys::fork_single_threaded()?,
            Threads::NotAsked => sys::fork_whatever_the_threads()?,
        };
        match side {
            Side::Parent(pid) => {
                Ok(Self { socket: Some(ours), pid, service, is_done: AtomicBool::new(false) })
            }
            Side::Child => {
                drop(ours);
                let code = serve(theirs, service);
                sys::exit_now(code)
            }
        }
    }

    /// The socket, for the one task that speaks with the launcher.
    pub fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(AsFd::as_fd)
    }

    /// Takes note that a run is gone. That of a launcher for one run is the last, and everything that it made was removed
    /// before it said so.
    pub(crate) fn heard_gone(&self) {
        if self.service != Service::ManyRuns {
            self.is_done.store(true, Ordering::Relaxed);
        }
    }
}

impl Drop for Launcher {
    /// Closes the socket and waits until the launcher has ended every run and removed what it made. One that has done so
    /// is not waited for: this process ends as well, and taking down the launcher's memory takes the kernel a while.
    fn drop(&mut self) {
        drop(self.socket.take());
        let is_done = *self.is_done.get_mut();
        let options = if is_done { WaitOptions::NOHANG } else { WaitOptions::empty() };
        let _ = waitpid(Some(self.pid), options);
    }
}

/// One child.
#[derive(Debug)]
struct Run {
    id: u64,
    pid: Pid,
    pidfd: OwnedFd,
    group: Option<Group>,
}

/// The launcher's whole life; ends with the daemon, or with its one run.
fn serve(socket: OwnedFd, service: Service) -> i32 {
    // A terminal's Ctrl-C is the daemon's to handle: it ends its runs in order.
    let _ = setsid();
    // Above all the daemon's end of another launcher's socket: that one would never see the daemon leave.
    if sys::close_all_from(3, &[socket.as_raw_fd()]).is_err() {
        return 1;
    }
    sys::scrub_environment();
    let _ = rustix::thread::set_name(c"freeboard-start");
    let mut state = State { groups: None, runs: Vec::new(), ahead: None, service };
    if let Service::OneRun(limits) = service {
        // What fails here fails again when the run comes, and is reported then.
        state.ahead = state.conceive(FIRST, limits).ok();
    }
    while state.turn(&socket).is_ok() {}
    state.end_all();
    0
}

/// What the group of a run is called that was made ahead.
const FIRST: &str = "first";

struct State {
    /// Found when the first run comes: a daemon without `native` runs leaves control groups alone.
    groups: Option<Groups>,
    runs: Vec<Run>,
    /// Made before its run came.
    ahead: Option<Unborn>,
    service: Service,
}

impl State {
    /// Waits for a message or the end of a child and deals with it. An error ends the launcher.
    fn turn(&mut self, socket: &OwnedFd) -> io::Result<()> {
        let mut polled = vec![PollFd::new(socket, PollFlags::IN)];
        polled.extend(self.runs.iter().map(|run| PollFd::new(&run.pidfd, PollFlags::IN)));
        match poll(&mut polled, None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let mut ready = polled.iter().map(|entry| !entry.revents().is_empty());
        let message = ready.next().unwrap_or(false);
        let ended: Vec<bool> = ready.collect();
        let mut ended = ended.into_iter();
        let (gone, alive) =
            std::mem::take(&mut self.runs).into_iter().partition(|_| ended.next().unwrap_or(false));
        self.runs = alive;
        let gone: Vec<Run> = gone;
        for run in gone {
            let gone = FromLauncher::Gone { id: run.id, usage: bury(&run) };
            if self.service != Service::ManyRuns {
                // Nobody waits for our end in vain: what is left to do is done before the daemon hears of the run's.
                self.end_all();
                send(socket, &gone, &[])?;
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            send(socket, &gone, &[])?;
        }
        if message { self.take_message(socket) } else { Ok(()) }
    }

    fn take_message(&mut self, socket: &OwnedFd) -> io::Result<()> {
        let received = receive::<ToLauncher>(socket, RecvFlags::empty())?;
        let Some((ToLauncher::Create { id, boundary }, descriptors)) = received else {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        };
        let Some(channel) = descriptors.into_iter().next() else {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        };
        match self.create(id, *boundary, channel) {
            Ok(run) => {
                let created = FromLauncher::Created {
                    id,
                    pid: run.pid.as_raw_nonzero().get(),
                    group: run.group.clone(),
                };
                send(socket, &created, &[run.pidfd.as_fd()])?;
                self.runs.push(run);
                Ok(())
            }
            Err(Failure { step, error }) => {
                let errno = error.raw_os_error();
                let failed =
                    FromLauncher::Failed { id, step: step.into(), errno, message: error.to_string() };
                send(socket, &failed, &[])
            }
        }
    }

    fn create(&mut self, id: u64, boundary: Boundary, channel: OwnedFd) -> Result<Run, Failure> {
        let ahead = self.ahead.take().filter(|ahead| ahead.limits == boundary.limits);
        let unborn = match ahead {
            Some(ahead) => ahead,
            None => self.conceive(&boundary.run, boundary.limits)?,
        };
        unborn.bear(boundary, channel.as_fd()).map(|(pid, pidfd, group)| Run { id, pid, pidfd, group })
    }

    /// Makes the group, the namespaces and the first process of a run.
    fn conceive(&mut self, name: &str, limits: Limits) -> Result<Unborn, Failure> {
        let groups = self.groups.get_or_insert_with(|| {
            let groups = Groups::detect();
            groups.sweep();
            groups
        });
        Unborn::conceive(groups, name, limits)
    }

    /// The daemon is gone: nothing may outlive it.
    fn end_all(&mut self) {
        // Dropping it kills it and removes its group.
        drop(self.ahead.take());
        for run in &self.runs {
            let _ = pidfd_send_signal(&run.pidfd, Signal::KILL);
        }
        for run in self.runs.drain(..) {
            bury(&run);
        }
        if let Some(groups) = &self.groups {
            groups.leave();
        }
    }
}

/// Waits for a child that ended or was killed, reads what its run used, removes its group.
fn bury(run: &Run) -> Usage {
    // When pid 1 of a process namespace can be waited for, the kernel has killed and reaped everything else in it.
    let _ = waitpid(Some(run.pid), WaitOptions::empty());
    let Some(group) = &run.group else { return Usage::default() };
    let usage = group.usage();
    group.remove();
    usage
}
