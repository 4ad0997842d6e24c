//! Carries a plan out in order; undoes it in reverse when a required step fails, or when asked to.

use std::io;
use std::os::fd::OwnedFd;

use crate::error::ApplyError;
use crate::kernel::Kernel;
use crate::linux::LinuxKernel;
use crate::plan::{DoorKind, Need, Place, Plan, Planned, Route, Step, Subnet};

/// A gate that stands.
#[derive(Debug)]
pub struct Gate<S = OwnedFd> {
    /// The broker's sockets, in the plan's order.
    pub doors: Vec<(DoorKind, S)>,
    /// The machine's end of the link, in the form with a tap.
    pub tap: Option<S>,
    /// Optional steps that this kernel did not take, for the evidence and the doctor.
    pub missed: Vec<Missed>,
    undo: Vec<(Place, Undo)>,
}

/// An optional step that failed.
#[derive(Debug)]
pub struct Missed {
    pub step: Step,
    pub error: io::Error,
}

/// What takes one step back.
#[derive(Debug)]
enum Undo {
    Sysctl { key: String, value: String },
    LinkDown { link: String },
    RemoveLink { link: String },
    RemoveAddress { link: String, subnet: Subnet },
    RemoveRoute(Route),
    RemoveRedirect,
}

/// Carries out `plan` in the calling thread's own network namespace, which must be a fresh one. For the loopback form;
/// a plan of the joined form goes through `JoinedGate`.
pub fn apply_here(plan: &Plan) -> Result<Gate, ApplyError> {
    apply(plan, &mut LinuxKernel::here())
}

/// Carries out `plan` on `kernel`.
///
/// # Errors
/// The first required step that fails. What was done before it has been undone as far as the kernel let us.
pub fn apply<K: Kernel>(plan: &Plan, kernel: &mut K) -> Result<Gate<K::Socket>, ApplyError> {
    let mut gate = Gate { doors: Vec::new(), tap: None, missed: Vec::new(), undo: Vec::new() };
    let mut entered = None;
    for planned in &plan.steps {
        if is_moot(planned, &gate) {
            continue;
        }
        let inside = if entered == Some(planned.place) { Ok(()) } else { kernel.enter(planned.place) };
        entered = inside.is_ok().then_some(planned.place);
        let Err(source) = inside.and_then(|()| take(planned, kernel, &mut gate)) else { continue };
        if planned.need == Need::Optional {
            gate.missed.push(Missed { step: planned.step.clone(), error: source });
            continue;
        }
        gate.undo(kernel);
        return Err(ApplyError { place: planned.place, step: planned.step.clone(), source });
    }
    Ok(gate)
}

/// A catch-all that nothing is led to would only be one more open port.
fn is_moot<S>(planned: &Planned, gate: &Gate<S>) -> bool {
    let catch_all =
        matches!(&planned.step, Step::OpenDoor(door) if matches!(door.kind, DoorKind::CatchAll { .. }));
    catch_all && gate.missed.iter().any(|missed| matches!(missed.step, Step::Redirect(_)))
}

fn take<K: Kernel>(planned: &Planned, kernel: &mut K, gate: &mut Gate<K::Socket>) -> io::Result<()> {
    let undo = match &planned.step {
        Step::Sysctl { key, value } => {
            let before = kernel.set_sysctl(key, value)?;
            Undo::Sysctl { key: key.clone(), value: before }
        }
        Step::LinkUp { link } => {
            kernel.set_link_up(link, true)?;
            Undo::LinkDown { link: link.clone() }
        }
        Step::Veth(pair) => {
            kernel.add_veth(pair)?;
            Undo::RemoveLink { link: pair.gate_link.clone() }
        }
        Step::Tap { link } => {
            // The link goes when its descriptor is closed, so there is nothing to take back.
            gate.tap = Some(kernel.add_tap(link)?);
            return Ok(());
        }
        Step::Address { link, subnet } => {
            kernel.add_address(link, *subnet)?;
            Undo::RemoveAddress { link: link.clone(), subnet: *subnet }
        }
        Step::Route(route) => {
            kernel.add_route(route)?;
            Undo::RemoveRoute(route.clone())
        }
        Step::Redirect(redirect) => {
            kernel.add_redirect(redirect)?;
            Undo::RemoveRedirect
        }
        Step::OpenDoor(door) => {
            let socket = kernel.open_door(*door)?;
            gate.doors.push((door.kind, socket));
            return Ok(());
        }
    };
    gate.undo.push((planned.place, undo));
    Ok(())
}

impl<S> Gate<S> {
    /// Closes the doors and takes every step back, last one first. A step that cannot be taken back is passed over:
    /// the namespace dies with its last process or name anyway.
    pub fn undo<K: Kernel>(self, kernel: &mut K) {
        drop(self.doors);
        drop(self.tap);
        for (place, undo) in self.undo.into_iter().rev() {
            let _ = kernel.enter(place).and_then(|()| undo.carry_out(kernel));
        }
    }

    /// Whether connections to other ports are recorded.
    pub fn records_other_ports(&self) -> bool {
        self.doors.iter().any(|(kind, _)| matches!(kind, DoorKind::CatchAll { .. }))
    }
}

impl Undo {
    fn carry_out<K: Kernel>(self, kernel: &mut K) -> io::Result<()> {
        match self {
            Self::Sysctl { key, value } => kernel.set_sysctl(&key, &value).map(drop),
            Self::LinkDown { link } => kernel.set_link_up(&link, false),
            Self::RemoveLink { link } => kernel.remove_link(&link),
            Self::RemoveAddress { link, subnet } => kernel.remove_address(&link, subnet),
            Self::RemoveRoute(route) => kernel.remove_route(&route),
            Self::RemoveRedirect => kernel.remove_redirect(),
        }
    }
}
