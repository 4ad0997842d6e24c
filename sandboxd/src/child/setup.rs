//! The child's first life: builds the boundary around itself, says what stands, becomes the guest program.
//!
//! Runs as pid 1 of a fresh set of namespaces. Any failure is reported on the channel and ends the process; no user
//! code is near before the last line.

use std::fs::File;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use freeboard_control::Door;
use freeboard_guest::protocol::{Doors, Kind, Ready, SetupFailure, header, write_frame};
use freeboard_guest::{Surroundings, run};
use freeboard_netns::{CatchAll, DoorKind, Families, Form, GateSpec, Need, Place, Plan, Planned, Step};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Signal, set_parent_process_death_signal, setsid};
use rustix::thread::{CapabilitiesSecureBits, set_capabilities_secure_bits};

use super::message::{Birth, receive};
use super::sys;
use crate::causes::chain;
use crate::isolate::kernel::Kernel;
use crate::isolate::seccomp::Filter;
use crate::isolate::{Boundary, GatePorts, cgroup, landlock, mounts, privileges};

/// Descriptors that a gate may have, with room: the kernel's own limit is 253.
const MAX_DOORS: usize = 64;

/// A step of the setup that failed.
#[derive(Debug)]
pub(crate) struct SetupError {
    pub step: String,
    pub source: io::Error,
}

impl SetupError {
    /// Tells the daemon. It may be gone already.
    pub(crate) fn send(&self, channel: &mut UnixStream) {
        let failure = SetupFailure {
            step: self.step.clone(),
            errno: self.source.raw_os_error(),
            message: self.source.to_string(),
        };
        let body = serde_json::to_vec(&failure).unwrap_or_default();
        let _ = write_frame(channel, Kind::Failed, &body);
    }
}

pub(crate) fn at<E: Into<io::Error>>(step: &str) -> impl FnOnce(E) -> SetupError + '_ {
    move |source| SetupError { step: step.to_owned(), source: source.into() }
}

/// What the child was given.
#[derive(Debug)]
pub struct Inheritance {
    /// From the launcher: the boundary and the channel to the daemon come when the id maps are written; the end comes when
    /// there is nothing to do.
    pub line: OwnedFd,
    /// The run has a control group.
    pub by_group: bool,
    /// Where to enter it, when the child was not born in it.
    pub entrances: Vec<File>,
}

/// The whole life of the child. Returns the exit code of the process.
pub fn live(inheritance: Inheritance) -> i32 {
    let Inheritance { line, by_group, entrances } = inheritance;
    // Nobody can be told of a failure yet.
    let begun = begin(&line, entrances);
    // While the launcher writes the id maps.
    let filter = Filter::of_runs();
    let Ok(Some((Birth { boundary }, descriptors))) = receive(&line, RecvFlags::empty()) else { return 1 };
    let Some(channel) = descriptors.into_iter().next() else { return 1 };
    drop(line);
    let mut channel = UnixStream::from(channel);
    match &boundary.kernel {
        Some(Kernel::Gvisor(gvisor)) => {
            return crate::provider::gvisor::child::live(&boundary, gvisor, channel, begun);
        }
        Some(Kernel::Microvm(machine)) => {
            return crate::provider::microvm::child::live(&boundary, machine, channel, begun);
        }
        // Nobody asks the launcher for such a run: an engine starts it.
        Some(Kernel::Engine) => return 1,
        None => {}
    }
    let built = begun.and_then(|()| build(&boundary, &mut channel, by_group, &filter));
    let surroundings = match built {
        Ok(surroundings) => surroundings,
        Err(error) => {
            error.send(&mut channel);
            return 1;
        }
    };
    i32::from(run(channel.into(), &surroundings).is_err())
}

/// What can be done before the boundary is known.
fn begin(line: &OwnedFd, entrances: Vec<File>) -> Result<(), SetupError> {
    own_control_groups(entrances)?;
    sys::close_all_from(3, &[line.as_raw_fd()]).map_err(at("close descriptors"))?;
    setsid().map_err(at("start a session"))?;
    rustix::system::sethostname(b"sandbox").map_err(at("set the host name"))
}

/// The steps in order. Later ones take away what earlier ones needed.
fn build(
    boundary: &Boundary,
    channel: &mut UnixStream,
    by_group: bool,
    filter: &Filter,
) -> Result<Surroundings, SetupError> {
    become_guest_user(boundary)?;
    let (doors, sockets) = open_gate_while(boundary.gate.as_ref(), || {
        mounts::build(boundary).map_err(|error| SetupError { step: error.what, source: error.source })
    })?;
    // SECURITY: handed over and closed here before anything is measured: the gate's sockets are the broker's alone
    // (test: the_sockets_are_the_brokers_alone).
    send_doors(channel, &Doors { doors, ..Doors::default() }, sockets)
        .map_err(at("hand the gate's sockets over"))?;
    mounts::enter().map_err(|error| SetupError { step: error.what, source: error.source })?;
    silence().map_err(at("open /dev/null"))?;
    privileges::set_rlimits(&boundary.limits, by_group).map_err(at("set resource limits"))?;
    // SECURITY: a policy that was inherited is no right of the user's code: one loop of it would stop the host.
    sys::leave_realtime().map_err(at("take an ordinary scheduling policy"))?;
    privileges::drop_capabilities().map_err(at("drop capabilities"))?;
    let enforced = landlock::restrict().map_err(|error| at("landlock")(io::Error::other(error)))?;
    let work = open_work().map_err(at("open /work"))?;
    filter.install().map_err(at("install the system call filter"))?;
    send_ready(channel, enforced).map_err(at("say that the boundary stands"))?;
    Ok(Surroundings { work, step_user: None, group: None })
}

/// Enters the run's own group, then takes a control group namespace: its root is where one is at that moment, and
/// paths above it are not shown.
fn own_control_groups(entrances: Vec<File>) -> Result<(), SetupError> {
    cgroup::enter(&entrances).map_err(at("enter the control group"))?;
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWCGROUP).map_err(at("take a control group namespace"))
}

/// Takes the run's user id, still with the capabilities of the new user namespace, and asks to die with the launcher.
pub(crate) fn become_guest_user(boundary: &Boundary) -> Result<(), SetupError> {
    let bits = CapabilitiesSecureBits::NO_SETUID_FIXUP;
    set_capabilities_secure_bits(bits).map_err(at("keep capabilities"))?;
    let gid = rustix::process::Gid::from_raw(boundary.identity.guest_gid);
    let uid = rustix::process::Uid::from_raw(boundary.identity.guest_uid);
    rustix::thread::set_thread_res_gid(gid, gid, gid).map_err(at("take the guest's group id"))?;
    rustix::thread::set_thread_res_uid(uid, uid, uid).map_err(at("take the guest's user id"))?;
    // A change of user clears it, so it comes after; the launcher's death before this line closes our channel.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(at("follow the launcher in death"))?;
    // A change of user also closes /proc/self to ourselves, where the daemon must measure us.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::Dumpable)
        .map_err(at("open for measuring"))
}

/// Standard input, output and error lead nowhere.
pub(crate) fn silence() -> io::Result<()> {
    use rustix::fs::{Mode, OFlags, open};
    let null = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}

/// Makes the gate of this network namespace, and does `work`.
///
/// The kernel takes about as long for the one as for the other, so both are done at once. The gate is made on a thread
/// that has ended before anything is taken away from this one, since capabilities and filters are each thread's own.
/// Without a gate there is nothing to share out.
fn open_gate_while(
    gate: Option<&GatePorts>,
    work: impl FnOnce() -> Result<(), SetupError>,
) -> Result<(Vec<serde_json::Value>, Vec<OwnedFd>), SetupError> {
    if gate.is_none() {
        work()?;
        return open_gate(None);
    }
    std::thread::scope(|scope| {
        let opening = std::thread::Builder::new()
            .name("gate".into())
            .spawn_scoped(scope, || open_gate(gate))
            .map_err(at("make the gate"))?;
        let worked = work();
        let opened = opening.join();
        worked?;
        opened.map_err(|_| at("make the gate")(io::Error::other("its thread panicked")))?
    })
}

/// Makes the gate of this network namespace. Without one there is only `lo`, so that programs can speak with themselves.
fn open_gate(gate: Option<&GatePorts>) -> Result<(Vec<serde_json::Value>, Vec<OwnedFd>), SetupError> {
    let plan = match gate {
        Some(GatePorts { ports }) => {
            let ipv6 = std::path::Path::new("/proc/net/if_inet6").exists();
            let families = if ipv6 { Families::Both } else { Families::V4 };
            let spec = GateSpec {
                form: Form::Loopback,
                ports: ports.clone(),
                families,
                catch_all: CatchAll::WhereOffered,
            };
            Plan::new(&spec).map_err(|error| at("plan the gate")(io::Error::other(error)))?
        }
        None => Plan { steps: vec![start_loopback()] },
    };
    let gate = freeboard_netns::apply_here(&plan)
        .map_err(|error| at("make the gate")(io::Error::other(chain(&error))))?;
    let mut doors = Vec::new();
    let mut sockets = Vec::new();
    for (kind, socket) in gate.doors {
        doors.push(serde_json::to_value(door(kind)).map_err(at("name a door"))?);
        sockets.push(socket);
    }
    Ok((doors, sockets))
}

pub(crate) fn start_loopback() -> Planned {
    Planned { place: Place::Gate, need: Need::Required, step: Step::LinkUp { link: "lo".into() } }
}

/// The word of the control protocol for a door of the gate.
pub(crate) fn door(kind: DoorKind) -> Door {
    match kind {
        DoorKind::Tcp { port } => Door::Tcp { port },
        DoorKind::Proxy { port } => Door::Proxy { port },
        DoorKind::DnsUdp => Door::DnsUdp,
        DoorKind::DnsTcp => Door::DnsTcp,
        DoorKind::CatchAll { .. } => Door::CatchAll,
    }
}

fn open_work() -> io::Result<OwnedFd> {
    use rustix::fs::{Mode, OFlags, open};
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(open("/work", flags, Mode::empty())?)
}

/// Sends the gate's sockets and lets go of ours: from then on they are the broker's.
pub(crate) fn send_doors(channel: &UnixStream, doors: &Doors, sockets: Vec<OwnedFd>) -> io::Result<()> {
    let body = serde_json::to_vec(doors)?;
    let header = header(Kind::Doors, body.len())?;
    let borrowed: Vec<_> = sockets.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DOORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !borrowed.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&borrowed)) {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    let parts = [IoSlice::new(&header), IoSlice::new(&body)];
    let sent = sendmsg(channel, &parts, &mut ancillary, SendFlags::NOSIGNAL)?;
    // A few hundred bytes into an empty socket go in one piece.
    if sent == header.len() + body.len() { Ok(()) } else { Err(io::Error::from(io::ErrorKind::WriteZero)) }
}

fn send_ready(channel: &mut UnixStream, landlock: landlock::Enforced) -> io::Result<()> {
    let landlock = match landlock {
        landlock::Enforced::Fully => "enforced",
        landlock::Enforced::Partly => "partly enforced by this kernel",
        landlock::Enforced::Not => "not offered by this kernel",
    };
    let ready = Ready { facts: vec![("landlock".into(), landlock.into(), true)] };
    write_frame(channel, Kind::Ready, &serde_json::to_vec(&ready)?)
}
