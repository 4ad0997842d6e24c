//! The real kernel: netlink for links and routes, `/proc/sys` for keys, sockets for doors.

use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};

use nix::sys::socket::sockopt::{Ipv4PacketInfo, Ipv6RecvPacketInfo};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use socket2::{Domain, Protocol, Socket, Type};

use crate::kernel::Kernel;
use crate::limits::ACCEPT_QUEUE;
use crate::message::{ACKNOWLEDGE, CREATE, EXCLUSIVE, Messages};
use crate::netlink::Netlink;
use crate::plan::{Door, DoorKind, Families, Family, Place, Redirect, Route, Subnet, VethPair};
use crate::redirect;

const NEW_LINK: u16 = 16;
const DELETE_LINK: u16 = 17;
const NEW_ADDRESS: u16 = 20;
const DELETE_ADDRESS: u16 = 21;
const NEW_ROUTE: u16 = 24;
const DELETE_ROUTE: u16 = 25;

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// Carries out steps for real. Netlink sockets are opened on first use and dropped when another namespace is entered.
#[derive(Debug)]
pub struct LinuxKernel<'a> {
    namespaces: Option<Namespaces<'a>>,
    routes: Option<Netlink>,
}

#[derive(Debug, Clone, Copy)]
struct Namespaces<'a> {
    gate: BorrowedFd<'a>,
    guest: BorrowedFd<'a>,
}

impl<'a> LinuxKernel<'a> {
    /// Works in the calling thread's own network namespace.
    pub fn here() -> Self {
        Self { namespaces: None, routes: None }
    }

    /// Moves the *calling thread* between two network namespaces; give it a thread of its own.
    pub(crate) fn between(gate: BorrowedFd<'a>, guest: BorrowedFd<'a>) -> Self {
        Self { namespaces: Some(Namespaces { gate, guest }), routes: None }
    }

    fn ask(&mut self, messages: &Messages) -> io::Result<()> {
        if self.routes.is_none() {
            self.routes = Some(Netlink::open_routes()?);
        }
        self.routes
            .as_ref()
            .map_or(Err(io::ErrorKind::NotConnected.into()), |routes| routes.request(messages))
    }

    fn address(&mut self, kind: u16, flags: u16, link: &str, subnet: Subnet) -> io::Result<()> {
        let mut messages = Messages::default();
        let (family, octets) = address_bytes(subnet.address);
        // Duplicate address detection would keep the address out of use for a second (IFA_F_NODAD, IPv6 only).
        let no_detection = if family == AF_INET6 { 0x02 } else { 0 };
        let mut header = vec![family, subnet.prefix, no_detection, 0];
        header.extend_from_slice(&link_index(link)?.to_ne_bytes());
        messages.push(kind, flags | ACKNOWLEDGE, &header, |attributes| {
            attributes.put(2, &octets).put(1, &octets);
        });
        self.ask(&messages)
    }

    fn route(&mut self, kind: u16, flags: u16, route: &Route) -> io::Result<()> {
        const TABLE_MAIN: u8 = 254;
        const PROTOCOL_STATIC: u8 = 4;
        const SCOPE_HOST: u8 = 254;
        const SCOPE_UNIVERSE: u8 = 0;
        const TYPE_UNICAST: u8 = 1;
        const TYPE_LOCAL: u8 = 2;
        const OUTGOING_LINK: u16 = 4;
        const GATEWAY: u16 = 5;
        let (family, scope, route_type, link, gateway) = match route {
            Route::LocalAny { family: Family::V4 } => (AF_INET, SCOPE_HOST, TYPE_LOCAL, "lo", None),
            Route::LocalAny { family: Family::V6 } => (AF_INET6, SCOPE_UNIVERSE, TYPE_LOCAL, "lo", None),
            Route::Default { link, gateway } => {
                let (family, octets) = address_bytes(*gateway);
                (family, SCOPE_UNIVERSE, TYPE_UNICAST, link.as_str(), Some(octets))
            }
        };
        // struct rtmsg: family, destination length 0 (everything), source length, tos, table, protocol, scope, type, flags.
        let header = [family, 0, 0, 0, TABLE_MAIN, PROTOCOL_STATIC, scope, route_type, 0, 0, 0, 0];
        let index = link_index(link)?;
        let mut messages = Messages::default();
        messages.push(kind, flags | ACKNOWLEDGE, &header, |attributes| {
            attributes.put(OUTGOING_LINK, &index.to_ne_bytes());
            if let Some(gateway) = &gateway {
                attributes.put(GATEWAY, gateway);
            }
        });
        self.ask(&messages)
    }
}

impl Kernel for LinuxKernel<'_> {
    type Socket = OwnedFd;

    fn enter(&mut self, place: Place) -> io::Result<()> {
        self.routes = None;
        match (&self.namespaces, place) {
            (None, Place::Gate) => Ok(()),
            (None, Place::Guest) => Err(io::ErrorKind::NotFound.into()),
            (Some(both), Place::Gate) => enter_network(both.gate),
            (Some(both), Place::Guest) => enter_network(both.guest),
        }
    }

    fn set_sysctl(&mut self, key: &str, value: &str) -> io::Result<String> {
        let mut file = std::fs::File::options().read(true).write(true).open(format!("/proc/sys/{key}"))?;
        let mut before = String::new();
        (&file).take(64).read_to_string(&mut before)?;
        let before = before.trim_end().to_owned();
        if before != value {
            file.seek(SeekFrom::Start(0))?;
            file.write_all(value.as_bytes())?;
        }
        Ok(before)
    }

    fn set_link_up(&mut self, link: &str, up: bool) -> io::Result<()> {
        const UP: u32 = 1;
        let mut messages = Messages::default();
        let header = link_header(link_index(link)?, if up { UP } else { 0 }, UP);
        messages.push(NEW_LINK, ACKNOWLEDGE, &header, |_| {});
        self.ask(&messages)
    }

    fn add_veth(&mut self, pair: &VethPair) -> io::Result<()> {
        const NAME: u16 = 3;
        const NAMESPACE_DESCRIPTOR: u16 = 28;
        let Some(both) = self.namespaces else { return Err(io::ErrorKind::NotFound.into()) };
        let guest = both.guest.as_raw_fd();
        let mut messages = Messages::default();
        let header = link_header(0, 0, 0);
        // Both ends are made where they belong, so that neither is ever seen by the host.
        messages.push(NEW_LINK, CREATE | EXCLUSIVE | ACKNOWLEDGE, &header, |link| {
            link.put_name(NAME, &pair.gate_link);
            link.nest(18, |information| {
                information.put_name(1, "veth").nest(2, |data| {
                    data.nest(1, |peer| {
                        peer.embed(&header).put_name(NAME, &pair.guest_link);
                        peer.put(NAMESPACE_DESCRIPTOR, &guest.to_ne_bytes());
                    });
                });
            });
        });
        self.ask(&messages)
    }

    fn add_tap(&mut self, link: &str) -> io::Result<OwnedFd> {
        let device = std::fs::File::options().read(true).write(true).open("/dev/net/tun")?;
        crate::sys::name_tap(&device, link)?;
        Ok(device.into())
    }

    fn remove_link(&mut self, link: &str) -> io::Result<()> {
        let mut messages = Messages::default();
        messages.push(DELETE_LINK, ACKNOWLEDGE, &link_header(link_index(link)?, 0, 0), |_| {});
        self.ask(&messages)
    }

    fn add_address(&mut self, link: &str, subnet: Subnet) -> io::Result<()> {
        self.address(NEW_ADDRESS, CREATE | EXCLUSIVE, link, subnet)
    }

    fn remove_address(&mut self, link: &str, subnet: Subnet) -> io::Result<()> {
        self.address(DELETE_ADDRESS, 0, link, subnet)
    }

    fn add_route(&mut self, route: &Route) -> io::Result<()> {
        self.route(NEW_ROUTE, CREATE | EXCLUSIVE, route)
    }

    fn remove_route(&mut self, route: &Route) -> io::Result<()> {
        self.route(DELETE_ROUTE, 0, route)
    }

    fn open_door(&mut self, door: Door) -> io::Result<OwnedFd> {
        let (domain, any) = match door.families {
            Families::V4 => (Domain::IPV4, IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
            Families::Both => (Domain::IPV6, IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
        };
        let (kind, protocol) =
            if door.kind.is_udp() { (Type::DGRAM, Protocol::UDP) } else { (Type::STREAM, Protocol::TCP) };
        let socket = Socket::new(domain, kind.nonblocking().cloexec(), Some(protocol))?;
        if door.families == Families::Both {
            socket.set_only_v6(false)?;
        }
        if door.kind == DoorKind::DnsUdp {
            report_destination(&socket, door.families)?;
        }
        socket.bind(&SocketAddr::new(any, door.kind.port()).into())?;
        if !door.kind.is_udp() {
            // Accepted connections inherit it: without it every small answer waits for a delayed acknowledgement.
            socket.set_tcp_nodelay(true)?;
            socket.listen(ACCEPT_QUEUE)?;
        }
        Ok(socket.into())
    }

    fn add_redirect(&mut self, redirect: &Redirect) -> io::Result<()> {
        Netlink::open_netfilter()?.request(&redirect::create(redirect))
    }

    fn remove_redirect(&mut self) -> io::Result<()> {
        Netlink::open_netfilter()?.request(&redirect::remove())
    }
}

/// A query's destination comes with it, and an answer may leave from it although no interface has that address.
fn report_destination(socket: &Socket, families: Families) -> io::Result<()> {
    match families {
        Families::V4 => {
            nix::sys::socket::setsockopt(socket, Ipv4PacketInfo, &true)?;
            socket.set_freebind_v4(true)
        }
        Families::Both => {
            nix::sys::socket::setsockopt(socket, Ipv6RecvPacketInfo, &true)?;
            socket.set_freebind_v6(true)
        }
    }
}

pub(crate) fn enter_network(namespace: BorrowedFd<'_>) -> io::Result<()> {
    move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network)).map_err(Into::into)
}

fn link_index(link: &str) -> io::Result<u32> {
    Ok(nix::net::if_::if_nametoindex(link)?)
}

/// `struct ifinfomsg`: family, padding, type, index, flags, mask of flags to change.
fn link_header(index: u32, flags: u32, change: u32) -> Vec<u8> {
    let mut header = vec![0; 4];
    for value in [index, flags, change] {
        header.extend_from_slice(&value.to_ne_bytes());
    }
    header
}

fn address_bytes(address: IpAddr) -> (u8, Vec<u8>) {
    match address {
        IpAddr::V4(v4) => (AF_INET, v4.octets().to_vec()),
        IpAddr::V6(v6) => (AF_INET6, v6.octets().to_vec()),
    }
}
