//! The first process of a run before its boundary is known: in its control group and its namespaces, waiting to be told.
//!
//! In: the groups of this host, and the limits of the run. Out: a process that builds the boundary around itself as soon as it
//! hears which ([`Unborn::bear`]). Making the namespaces takes the kernel as long as everything before it takes the
//! daemon, so for a single run both are done at once. Dropped, it is killed, and nothing of it is left.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, Signal, WaitOptions, pidfd_send_signal, waitpid};

use super::message::{Birth, send};
use super::setup::{self, Inheritance};
use super::sys::{self, Cloned, Side};
use crate::isolate::cgroup::{Group, Groups, group_name};
use crate::isolate::{Boundary, Limits, namespaces};

/// Which step failed, and why.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) step: &'static str,
    pub(super) error: io::Error,
}

fn at<E: Into<io::Error>>(step: &'static str) -> impl FnOnce(E) -> Failure {
    move |error| Failure { step, error: error.into() }
}

/// A process without a boundary yet.
#[derive(Debug)]
pub(super) struct Unborn {
    pub(super) limits: Limits,
    /// Taken when it is born.
    process: Option<Cloned>,
    group: Unused,
    /// To the process: the boundary and its channel to the daemon.
    line: OwnedFd,
}

impl Unborn {
    /// Makes it. `name` is that of its control group.
    pub(super) fn conceive(groups: &Groups, name: &str, limits: Limits) -> Result<Self, Failure> {
        let name = group_name(rustix::process::getpid().as_raw_nonzero().get(), name);
        let group = Unused(groups.create(&name, &limits).map_err(at("make the control group"))?);
        let (into, entrances) = match &group.0 {
            Some(group) => {
                if group.cpu.is_some() {
                    // The kernel lets no real-time process into a group with a processor quota (sched_rt_group(7)); the
                    // daemon may be one.
                    sys::leave_realtime().map_err(at("take an ordinary scheduling policy"))?;
                }
                let into = group.for_clone().map_err(at("open the control group"))?;
                (into, group.entrances().map_err(at("open the control group"))?)
            }
            None => (None, Vec::new()),
        };
        let (line, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(at("make a socket"))?;
        let side = sys::clone3(namespaces::clone_flags(), into.as_ref().map(AsFd::as_fd))
            .map_err(at("clone into new namespaces"))?;
        match side {
            Side::Parent(process) => Ok(Self { limits, process: Some(process), group, line }),
            Side::Child => {
                let by_group = group.0.is_some();
                sys::exit_now(setup::live(Inheritance { line: theirs, by_group, entrances }))
            }
        }
    }

    /// Gives it its user, its boundary and its channel, and lets it go on.
    pub(super) fn bear(
        mut self,
        boundary: Boundary,
        channel: BorrowedFd<'_>,
    ) -> Result<(Pid, OwnedFd, Option<Group>), Failure> {
        let gone = || at("find the first process")(io::Error::from_raw_os_error(nix::libc::ESRCH));
        let pid = self.process.as_ref().ok_or_else(gone)?.pid;
        boundary.maps().write(pid.as_raw_nonzero().get()).map_err(at("write the id maps"))?;
        send(&self.line, &Birth { boundary }, &[channel]).map_err(at("let the child go on"))?;
        let Cloned { pid, pidfd } = self.process.take().ok_or_else(gone)?;
        Ok((pid, pidfd, self.group.0.take()))
    }
}

impl Drop for Unborn {
    fn drop(&mut self) {
        if let Some(process) = &self.process {
            let _ = pidfd_send_signal(&process.pidfd, Signal::KILL);
            let _ = waitpid(Some(process.pid), WaitOptions::empty());
        }
    }
}

/// A group that no run has yet; removed when none comes.
#[derive(Debug)]
struct Unused(Option<Group>);

impl Drop for Unused {
    fn drop(&mut self) {
        if let Some(group) = &self.0 {
            group.remove();
        }
    }
}
