//! Pure: from what a gate must offer to the steps that make it, in order. Knows no kernel and no clock.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::error::PlanError;
use crate::limits::MAX_GRANTED_PORTS;

/// DNS, UDP and TCP.
pub const DNS_PORT: u16 = 53;
/// The explicit proxy, for programs that want one.
pub const PROXY_PORT: u16 = 3128;
/// Doors that every gate has besides DNS and proxy: what programs try first, so that the attempt is answered.
pub const STANDING_PORTS: [u16; 2] = [80, 443];
/// The catch-all listens on the highest port that is not granted.
const CATCH_ALL_PORT: u16 = 65535;

/// The link between a guest namespace and its gate. Outside 198.18.0.0/15, where synthetic addresses come from; both
/// ends live in namespaces of their own, so every gate uses the same pair.
pub const JOINED_GATE_V4: Subnet = Subnet { address: IpAddr::V4(Ipv4Addr::new(100, 64, 0, 1)), prefix: 30 };
pub const JOINED_GUEST_V4: Subnet = Subnet { address: IpAddr::V4(Ipv4Addr::new(100, 64, 0, 2)), prefix: 30 };
pub const JOINED_GATE_V6: Subnet =
    Subnet { address: IpAddr::V6(Ipv6Addr::new(0xfd64, 0xf2ee, 0xb0a2, 0, 0, 0, 0, 1)), prefix: 126 };
pub const JOINED_GUEST_V6: Subnet =
    Subnet { address: IpAddr::V6(Ipv6Addr::new(0xfd64, 0xf2ee, 0xb0a2, 0, 0, 0, 0, 2)), prefix: 126 };
/// The guest's end of the pair, named as programs expect it.
pub const GUEST_LINK: &str = "eth0";

/// What a gate must offer.
#[derive(Debug, Clone)]
pub struct GateSpec {
    pub form: Form,
    /// TCP ports of the run's grants, in any order, with or without 80 and 443.
    pub ports: Vec<u16>,
    pub families: Families,
    pub catch_all: CatchAll,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Form {
    /// The gate is the run's own namespace, which holds nothing but `lo`.
    Loopback,
    /// The gate is a namespace joined to the guest's by one veth pair; `run` names both.
    Joined { run: String },
    /// The gate is a namespace with one tap, whose other end a virtual machine holds; `run` names it.
    Tap { run: String },
}

/// Address families of the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Families {
    /// For a kernel without IPv6: a guest cannot even make an IPv6 socket there.
    V4,
    Both,
}

/// Whether connections to other TCP ports are led to a door that records them. Enforcement never depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CatchAll {
    /// Where the kernel has nf_tables; otherwise such a connection is reset and leaves no record.
    WhereOffered,
    Off,
}

/// A gate's steps, in order. Undone in reverse.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub steps: Vec<Planned>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    pub place: Place,
    pub need: Need,
    pub step: Step,
}

/// Which of a gate's namespaces a step works in. The loopback form knows only `Gate`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Gate,
    Guest,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Without it there is no gate.
    Required,
    /// Without it the gate is as tight, but less helpful; the result says that it is missing.
    Optional,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A key below `/proc/sys`.
    Sysctl {
        key: String,
        value: &'static str,
    },
    LinkUp {
        link: String,
    },
    Veth(VethPair),
    /// A link whose other end is a descriptor.
    Tap {
        link: String,
    },
    Address {
        link: String,
        subnet: Subnet,
    },
    Route(Route),
    OpenDoor(Door),
    Redirect(Redirect),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VethPair {
    /// The gate's end, `fb` and the first digits of the run id.
    pub gate_link: String,
    pub guest_link: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subnet {
    pub address: IpAddr,
    pub prefix: u8,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// Every address of a family is this namespace itself, through `lo`, in the main table.
    LocalAny { family: Family },
    /// The default route.
    Default { link: String, gateway: IpAddr },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    V4,
    V6,
}

/// One socket of the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Door {
    pub kind: DoorKind,
    pub families: Families,
}

/// What a socket is for. Mirrors the control protocol's doors without knowing it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DoorKind {
    /// TCP listener; `getsockname` of an accepted connection is the destination that was meant.
    Tcp { port: u16 },
    /// TCP listener of the explicit proxy.
    Proxy { port: u16 },
    /// UDP socket on port 53. It reports the address that a query was sent to (`IPV6_PKTINFO`, or `IP_PKTINFO` in a gate
    /// without IPv6) and may send from it: an answer must leave from there, or the guest's resolver drops it.
    DnsUdp,
    /// TCP listener on port 53.
    DnsTcp,
    /// TCP listener to which every other port is led; the destination that was meant is `SO_ORIGINAL_DST`.
    CatchAll { port: u16 },
}

impl DoorKind {
    pub const fn port(self) -> u16 {
        match self {
            Self::Tcp { port } | Self::Proxy { port } | Self::CatchAll { port } => port,
            Self::DnsUdp | Self::DnsTcp => DNS_PORT,
        }
    }

    pub const fn is_udp(self) -> bool {
        matches!(self, Self::DnsUdp)
    }
}

/// Leads TCP connections to ports without a door to the catch-all. Connections to the ports in `except` are neither led
/// anywhere nor tracked; those to the guest's own loopback services are left alone too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect {
    pub to: u16,
    pub except: Vec<u16>,
    pub traffic: Traffic,
}

/// Where connections enter the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Traffic {
    /// Made inside the namespace itself.
    Local,
    /// Coming in over the link from the guest.
    Incoming,
}

impl Plan {
    /// Works out the steps. The same specification always gives the same plan.
    pub fn new(spec: &GateSpec) -> Result<Self, PlanError> {
        let ports = door_ports(&spec.ports)?;
        let mut plan = Steps { steps: Vec::new(), families: spec.families };
        plan.prepare(Place::Gate);
        plan.gate_network();
        match &spec.form {
            Form::Loopback => {}
            Form::Joined { run } => plan.join(&gate_link_name(run)?),
            Form::Tap { run } => plan.tap(&gate_link_name(run)?),
        }
        plan.doors(&ports, &spec.form, spec.catch_all);
        Ok(Self { steps: plan.steps })
    }

    /// The steps inside a virtual machine at the other end of a tap: its own kernel carries them out.
    pub fn inside_machine(families: Families) -> Self {
        let mut plan = Steps { steps: Vec::new(), families };
        plan.prepare(Place::Gate);
        plan.guest_end(Place::Gate);
        Self { steps: plan.steps }
    }

    /// The doors in the order in which they are opened.
    pub fn doors(&self) -> impl Iterator<Item = DoorKind> + '_ {
        self.steps.iter().filter_map(|planned| match &planned.step {
            Step::OpenDoor(door) => Some(door.kind),
            _ => None,
        })
    }
}

/// Checks the granted ports and adds the standing ones; sorted, without repeats.
fn door_ports(granted: &[u16]) -> Result<Vec<u16>, PlanError> {
    for port in granted {
        match *port {
            0 => return Err(PlanError::PortZero),
            DNS_PORT => return Err(PlanError::Reserved(DNS_PORT, "name resolution")),
            PROXY_PORT => return Err(PlanError::Reserved(PROXY_PORT, "the explicit proxy")),
            _ => {}
        }
    }
    let mut ports: Vec<u16> = granted.iter().copied().chain(STANDING_PORTS).collect();
    ports.sort_unstable();
    ports.dedup();
    let beyond = ports.len() - STANDING_PORTS.len();
    if beyond > MAX_GRANTED_PORTS {
        return Err(PlanError::TooManyPorts(beyond));
    }
    Ok(ports)
}

/// `fb` and nine digits of the run id: interface names have at most 15 bytes (IFNAMSIZ).
fn gate_link_name(run: &str) -> Result<String, PlanError> {
    check_run(run)?;
    Ok(format!("fb{}", run.get(..9).unwrap_or(run)))
}

/// A run id is used in file and interface names, so nothing but lower-case hex digits is taken.
pub(crate) fn check_run(run: &str) -> Result<(), PlanError> {
    let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    if (8..=64).contains(&run.len()) && run.bytes().all(hex) {
        Ok(())
    } else {
        Err(PlanError::RunId(run.to_owned()))
    }
}

struct Steps {
    steps: Vec<Planned>,
    families: Families,
}

impl Steps {
    fn push(&mut self, place: Place, need: Need, step: Step) {
        self.steps.push(Planned { place, need, step });
    }

    fn required(&mut self, place: Place, step: Step) {
        self.push(place, Need::Required, step);
    }

    fn optional_sysctl(&mut self, place: Place, key: &str, value: &'static str) {
        self.push(place, Need::Optional, Step::Sysctl { key: key.to_owned(), value });
    }

    /// A fresh namespace may inherit IPv6 switched off; then `::/0` could not be made local.
    fn prepare(&mut self, place: Place) {
        if self.families == Families::Both {
            let mut keys = vec!["net/ipv6/conf/all/disable_ipv6"];
            if place == Place::Gate {
                keys.push("net/ipv6/conf/lo/disable_ipv6");
            }
            for key in keys {
                self.required(place, Step::Sysctl { key: key.to_owned(), value: "0" });
            }
        }
        self.required(place, Step::LinkUp { link: "lo".to_owned() });
    }

    /// SECURITY: these two routes are what makes every address end here. Guarded by the tests of `tests/loopback.rs`.
    fn gate_network(&mut self) {
        self.required(Place::Gate, Step::Route(Route::LocalAny { family: Family::V4 }));
        if self.families == Families::Both {
            self.required(Place::Gate, Step::Route(Route::LocalAny { family: Family::V6 }));
        }
        // Every address being local, the gate itself would answer each ping: a guest would take the whole world for
        // reachable. Refusals (port unreachable) are not slowed down, so that QUIC clients fall back at once.
        self.optional_sysctl(Place::Gate, "net/ipv4/icmp_echo_ignore_all", "1");
        self.optional_sysctl(Place::Gate, "net/ipv4/icmp_ratelimit", "0");
        if self.families == Families::Both {
            self.optional_sysctl(Place::Gate, "net/ipv6/icmp/echo_ignore_all", "1");
            self.optional_sysctl(Place::Gate, "net/ipv6/icmp/ratelimit", "0");
        }
    }

    fn join(&mut self, gate_link: &str) {
        let gate_link = gate_link.to_owned();
        let guest_link = GUEST_LINK.to_owned();
        self.prepare(Place::Guest);
        let pair = VethPair { gate_link: gate_link.clone(), guest_link: guest_link.clone() };
        self.required(Place::Gate, Step::Veth(pair));
        let ends = self.ends();
        for (gate, guest) in &ends {
            self.required(Place::Gate, Step::Address { link: gate_link.clone(), subnet: *gate });
            self.required(Place::Guest, Step::Address { link: guest_link.clone(), subnet: *guest });
        }
        self.required(Place::Gate, Step::LinkUp { link: gate_link });
        self.required(Place::Guest, Step::LinkUp { link: guest_link.clone() });
        for (gate, _) in &ends {
            let route = Route::Default { link: guest_link.clone(), gateway: gate.address };
            self.required(Place::Guest, Step::Route(route));
        }
    }

    /// The gate's half of a link whose guest sets up its own.
    fn tap(&mut self, gate_link: &str) {
        let link = gate_link.to_owned();
        self.required(Place::Gate, Step::Tap { link: link.clone() });
        for (gate, _) in self.ends() {
            self.required(Place::Gate, Step::Address { link: link.clone(), subnet: gate });
        }
        self.required(Place::Gate, Step::LinkUp { link });
    }

    fn guest_end(&mut self, place: Place) {
        let link = GUEST_LINK.to_owned();
        for (_, guest) in self.ends() {
            self.required(place, Step::Address { link: link.clone(), subnet: guest });
        }
        self.required(place, Step::LinkUp { link: link.clone() });
        for (gate, _) in self.ends() {
            self.required(place, Step::Route(Route::Default { link: link.clone(), gateway: gate.address }));
        }
    }

    /// Both ends of the link, per family.
    fn ends(&self) -> Vec<(Subnet, Subnet)> {
        let mut ends = vec![(JOINED_GATE_V4, JOINED_GUEST_V4)];
        if self.families == Families::Both {
            ends.push((JOINED_GATE_V6, JOINED_GUEST_V6));
        }
        ends
    }

    fn doors(&mut self, ports: &[u16], form: &Form, catch_all: CatchAll) {
        let mut kinds: Vec<DoorKind> = ports.iter().map(|port| DoorKind::Tcp { port: *port }).collect();
        kinds.extend([DoorKind::Proxy { port: PROXY_PORT }, DoorKind::DnsUdp, DoorKind::DnsTcp]);
        let except: Vec<u16> = {
            let mut except: Vec<u16> = kinds.iter().map(|kind| kind.port()).collect();
            except.sort_unstable();
            except.dedup();
            except
        };
        for kind in kinds {
            self.required(Place::Gate, Step::OpenDoor(Door { kind, families: self.families }));
        }
        if catch_all == CatchAll::WhereOffered {
            let to = (1..=CATCH_ALL_PORT).rev().find(|port| !except.contains(port)).unwrap_or(CATCH_ALL_PORT);
            let traffic = if *form == Form::Loopback { Traffic::Local } else { Traffic::Incoming };
            self.push(Place::Gate, Need::Optional, Step::Redirect(Redirect { to, except, traffic }));
            let door = Door { kind: DoorKind::CatchAll { port: to }, families: self.families };
            self.push(Place::Gate, Need::Optional, Step::OpenDoor(door));
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gate => "gate",
            Self::Guest => "guest",
        })
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sysctl { key, value } => write!(f, "set `{key}` to {value}"),
            Self::LinkUp { link } => write!(f, "bring up `{link}`"),
            Self::Veth(pair) => write!(f, "join `{}` and `{}`", pair.gate_link, pair.guest_link),
            Self::Tap { link } => write!(f, "make the tap `{link}`"),
            Self::Address { link, subnet } => {
                write!(f, "give {}/{} to `{link}`", subnet.address, subnet.prefix)
            }
            Self::Route(Route::LocalAny { family: Family::V4 }) => f.write_str("make 0.0.0.0/0 local"),
            Self::Route(Route::LocalAny { family: Family::V6 }) => f.write_str("make ::/0 local"),
            Self::Route(Route::Default { link, gateway }) => {
                write!(f, "route everything to {gateway} through `{link}`")
            }
            Self::OpenDoor(door) => write!(f, "open door {}", door.kind),
            Self::Redirect(redirect) => write!(f, "lead other ports to {}", redirect.to),
        }
    }
}

impl fmt::Display for DoorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { port } => write!(f, "tcp {port}"),
            Self::Proxy { port } => write!(f, "proxy {port}"),
            Self::DnsUdp => f.write_str("dns udp"),
            Self::DnsTcp => f.write_str("dns tcp"),
            Self::CatchAll { port } => write!(f, "catch-all {port}"),
        }
    }
}

#[cfg(test)]
mod tests;
