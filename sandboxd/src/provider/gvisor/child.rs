//! The child of a gVisor run: builds the gate and the runtime's root, starts the runtime, waits for its end.
//!
//! It is pid 1 of the process namespace that all of the runtime's processes are in, so nothing outlives it. The guest
//! program inside gVisor speaks with the daemon over a channel of its own; this process speaks only when the runtime fails.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use freeboard_guest::protocol::Doors;
use freeboard_netns::{CatchAll, Families, Form, Gate, GateSpec, Home, JoinedGate, Plan, apply_here};
use rustix::process::Pid;
use rustix::thread::{
    CapabilitiesSecureBits, LinkNameSpaceType, move_into_link_name_space, set_capabilities_secure_bits,
    set_no_new_privs,
};

use super::super::around::{Started, set_limits, watch};
use super::root::{self, Check};
use super::{bundle, limits};
use crate::causes::chain;
use crate::child::setup::{self, SetupError, at};
use crate::child::sys;
use crate::isolate::kernel::Gvisor;
use crate::isolate::{Boundary, GatePorts, privileges};

/// Where the runtime's messages go.
const MESSAGES: &str = "/state/messages";

/// The whole life of the child, once it has begun. Returns the exit code of the process.
pub(crate) fn live(
    boundary: &Boundary,
    gvisor: &Gvisor,
    mut channel: UnixStream,
    begun: Result<(), SetupError>,
) -> i32 {
    let runtime = begun.and_then(|()| build(boundary, gvisor, &channel));
    match runtime.and_then(|runtime| watch(&runtime, &channel)) {
        Ok(()) => 0,
        Err(error) => {
            error.send(&mut channel);
            1
        }
    }
}

/// The steps in order. Later ones take away what earlier ones needed.
fn build(boundary: &Boundary, gvisor: &Gvisor, channel: &UnixStream) -> Result<Started, SetupError> {
    setup::become_guest_user(boundary)?;
    // The runtime gives up rights by changing users, which must work as usual.
    set_capabilities_secure_bits(CapabilitiesSecureBits::empty()).map_err(at("reset the secure bits"))?;
    let network = Network::make(boundary)?;
    let (doors, mut sockets) = network.doors.into_iter().unzip::<_, _, Vec<_>, Vec<_>>();
    let (for_daemon, for_guest) = UnixStream::pair().map_err(at("make the guest's channel"))?;
    sockets.push(for_daemon.into());
    // SECURITY: handed over and closed here before anything is measured: the gate's sockets are the broker's alone
    // (test: the_sockets_are_the_brokers_alone).
    setup::send_doors(channel, &Doors { doors, guest_channel: true, monitor: false }, sockets)
        .map_err(at("hand the gate's sockets over"))?;
    let check = if network.joined.is_some() && root::shows_sign_everywhere() {
        Check::Misfires
    } else {
        Check::Works
    };
    root::enter(boundary, gvisor, check)
        .map_err(|error| SetupError { step: error.what, source: error.source })?;
    setup::silence().map_err(at("open /dev/null"))?;
    set_limits(boundary, limits::KERNEL_OPEN_FILES).map_err(at("set resource limits"))?;
    sys::leave_realtime().map_err(at("take an ordinary scheduling policy"))?;
    set_no_new_privs(true).map_err(at("forbid new privileges"))?;
    let runtime = start(boundary, gvisor, for_guest).map_err(at("start runsc"))?;
    // From here on this process only waits. Its own network is the gate, where the daemon measures it.
    if let Some(joined) = &network.joined {
        move_into_link_name_space(joined.gate(), Some(LinkNameSpaceType::Network))
            .map_err(at("enter the gate"))?;
    }
    privileges::drop_capabilities().map_err(at("drop capabilities"))?;
    Ok(Started { pid: runtime, step: "run gVisor", messages: &[MESSAGES] })
}

/// The network of the run: the thread that made it is in the guest's namespace.
struct Network {
    joined: Option<JoinedGate>,
    doors: Vec<(serde_json::Value, OwnedFd)>,
}

impl Network {
    fn make(boundary: &Boundary) -> Result<Self, SetupError> {
        let failed = |step: &'static str| {
            move |error: &dyn std::error::Error| at(step)(io::Error::other(chain(error)))
        };
        let Some(GatePorts { ports }) = &boundary.gate else {
            let plan = Plan { steps: vec![setup::start_loopback()] };
            apply_here(&plan).map_err(|error| failed("start the loopback link")(&error))?;
            return Ok(Self { joined: None, doors: Vec::new() });
        };
        let spec = GateSpec {
            form: Form::Joined { run: boundary.run.clone() },
            ports: ports.clone(),
            // gVisor's stack does not find its neighbour by IPv6 on such a link; without an IPv6 route programs get an
            // error at once and take IPv4, instead of waiting.
            families: Families::V4,
            catch_all: CatchAll::WhereOffered,
        };
        let plan = Plan::new(&spec).map_err(|error| failed("plan the gate")(&error))?;
        let joined = JoinedGate::create(&boundary.run, Home::Anonymous)
            .map_err(|error| failed("make the gate's namespaces")(&error))?;
        let Gate { doors, .. } = joined.apply(&plan).map_err(|error| failed("make the gate")(&error))?;
        let doors = doors
            .into_iter()
            .map(|(kind, socket)| Ok((serde_json::to_value(setup::door(kind))?, socket)))
            .collect::<serde_json::Result<_>>()
            .map_err(at("name a door"))?;
        move_into_link_name_space(joined.guest(), Some(LinkNameSpaceType::Network))
            .map_err(at("enter the guest's network"))?;
        Ok(Self { joined: Some(joined), doors })
    }
}

/// Starts the runtime in the thread's network, with the guest's channel as the run's standard input.
fn start(boundary: &Boundary, gvisor: &Gvisor, channel: UnixStream) -> io::Result<Pid> {
    let child = Command::new(format!("/{}", bundle::RUNSC))
        .args(bundle::arguments(boundary, gvisor))
        .env_clear()
        .env("PATH", "/")
        .stdin(Stdio::from(OwnedFd::from(channel)))
        .stdout(Stdio::null())
        .stderr(File::create(MESSAGES)?)
        .spawn()?;
    // The handle is dropped without waiting: pid 1 reaps by itself, this child like every orphan.
    Ok(Pid::from_child(&child))
}
