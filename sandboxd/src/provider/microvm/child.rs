//! The child of a microVM run: builds the gate and QEMU's root, starts QEMU, waits for its end.
//!
//! The guest program inside the machine speaks with the daemon over a channel of its own, and the daemon with QEMU over
//! another; this process speaks only when QEMU fails.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use freeboard_guest::protocol::Doors;
use freeboard_netns::{CatchAll, Families, Form, GateSpec, Plan, apply_here};
use nix::sched::{CloneFlags, unshare};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::Pid;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::super::around::{Started, set_limits, watch};
use super::machine::{CONSOLE, Descriptors, MESSAGES, arguments};
use super::{limits, root};
use crate::causes::chain;
use crate::child::setup::{self, SetupError, at};
use crate::child::sys;
use crate::isolate::kernel::Microvm;
use crate::isolate::{Boundary, GatePorts, landlock, privileges};

/// The whole life of the child, once it has begun. Returns the exit code of the process.
pub(crate) fn live(
    boundary: &Boundary,
    machine: &Microvm,
    mut channel: UnixStream,
    begun: Result<(), SetupError>,
) -> i32 {
    let started = begun.and_then(|()| build(boundary, machine, &channel));
    match started.and_then(|started| watch(&started, &channel)) {
        Ok(()) => 0,
        Err(error) => {
            error.send(&mut channel);
            1
        }
    }
}

/// What QEMU gets of us besides its root.
struct Lines {
    channel: OwnedFd,
    monitor: OwnedFd,
    tap: Option<OwnedFd>,
}

/// The steps in order. Later ones take away what earlier ones needed.
fn build(boundary: &Boundary, machine: &Microvm, channel: &UnixStream) -> Result<Started, SetupError> {
    // Before the user changes: on some hosts only root may open the device of taps.
    let (doors, mut sockets, tap) = gate(boundary)?;
    setup::become_guest_user(boundary)?;
    let (ours, for_guest) = UnixStream::pair().map_err(at("make the guest's channel"))?;
    let (asked, for_monitor) = UnixStream::pair().map_err(at("make the monitor's line"))?;
    sockets.extend([OwnedFd::from(asked), OwnedFd::from(ours)]);
    // SECURITY: handed over and closed here before anything is measured: the gate's sockets are the broker's alone
    // (test: the_sockets_are_the_brokers_alone).
    setup::send_doors(channel, &Doors { doors, guest_channel: true, monitor: true }, sockets)
        .map_err(at("hand the gate's sockets over"))?;
    root::enter(boundary, machine).map_err(|error| SetupError { step: error.what, source: error.source })?;
    setup::silence().map_err(at("open /dev/null"))?;
    set_limits(boundary, limits::OPEN_FILES).map_err(at("set resource limits"))?;
    sys::leave_realtime().map_err(at("take an ordinary scheduling policy"))?;
    // QEMU holds one end of the tap and is in no network itself, not even in the gate.
    let gate = File::open("/proc/thread-self/ns/net").map_err(at("look at the gate"))?;
    unshare(CloneFlags::CLONE_NEWNET).map_err(at("make QEMU's network"))?;
    privileges::drop_bounding_set().map_err(at("forbid new privileges"))?;
    landlock::restrict().map_err(|error| at("landlock")(io::Error::other(error)))?;
    let lines = Lines { channel: for_guest.into(), monitor: for_monitor.into(), tap };
    // Its user is not root and has no way to a capability, so it loses all of ours when it is executed.
    let pid = start(&boundary.run, machine, &lines).map_err(at("start QEMU"))?;
    drop(lines);
    // From here on this process only waits. Its own network is the gate, where the daemon measures it.
    move_into_link_name_space(gate.as_fd(), Some(LinkNameSpaceType::Network))
        .map_err(at("enter the gate"))?;
    privileges::drop_capabilities().map_err(at("drop capabilities"))?;
    Ok(Started { pid, step: "run QEMU", messages: &[MESSAGES, CONSOLE] })
}

type Sockets = (Vec<serde_json::Value>, Vec<OwnedFd>, Option<OwnedFd>);

/// This process's own network becomes the gate, with the machine's tap in it.
fn gate(boundary: &Boundary) -> Result<Sockets, SetupError> {
    let plan = match &boundary.gate {
        None => Plan { steps: vec![setup::start_loopback()] },
        Some(GatePorts { ports }) => {
            let spec = GateSpec {
                form: Form::Tap { run: boundary.run.clone() },
                ports: ports.clone(),
                families: families(),
                catch_all: CatchAll::WhereOffered,
            };
            Plan::new(&spec).map_err(|error| at("plan the gate")(io::Error::other(chain(&error))))?
        }
    };
    let gate = apply_here(&plan).map_err(|error| at("make the gate")(io::Error::other(chain(&error))))?;
    let mut names = Vec::new();
    let mut sockets = Vec::new();
    for (kind, socket) in gate.doors {
        names.push(serde_json::to_value(setup::door(kind)).map_err(at("name a door"))?);
        sockets.push(socket);
    }
    Ok((names, sockets, gate.tap))
}

/// What this host's kernel knows; the machine's end of the link is made for the same.
pub(super) fn families() -> Families {
    if std::path::Path::new("/proc/net/if_inet6").exists() { Families::Both } else { Families::V4 }
}

fn start(run: &str, machine: &Microvm, lines: &Lines) -> io::Result<Pid> {
    for descriptor in [Some(&lines.channel), Some(&lines.monitor), lines.tap.as_ref()].into_iter().flatten() {
        fcntl_setfd(descriptor, FdFlags::empty())?;
    }
    let descriptors = Descriptors {
        channel: lines.channel.as_raw_fd(),
        monitor: lines.monitor.as_raw_fd(),
        tap: lines.tap.as_ref().map(AsRawFd::as_raw_fd),
    };
    File::create(CONSOLE)?;
    let child = Command::new(&machine.qemu.path)
        .args(arguments(run, machine, descriptors))
        .env_clear()
        .env("PATH", "/")
        .env("TMPDIR", "/tmp")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(MESSAGES)?)
        .spawn()?;
    // The handle is dropped without waiting: pid 1 reaps by itself, this child like every orphan.
    Ok(Pid::from_child(&child))
}
