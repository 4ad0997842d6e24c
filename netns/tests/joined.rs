//! The joined form in real namespaces: a guest with a network stack of its own, whose only neighbour is the gate.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a failing test panics")]

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use freeboard_netns::{
    CatchAll, DoorKind, Form, Gate, GateSpec, Home, JoinedGate, Plan, Swept, inspect, offers, sweep,
};

mod support;
use support::in_fresh_namespace;

const RUN: &str = "0123456789abcdef0123456789abcdef";
const OTHER: &str = "fedcba9876543210fedcba9876543210";
const PLACES: [&str; 5] = ["1.1.1.1", "10.9.8.7", "169.254.169.254", "2606:4700::1111", "fd00:ec2::254"];

fn plan(run: &str) -> Plan {
    Plan::new(&GateSpec {
        form: Form::Joined { run: run.to_owned() },
        ports: vec![8443],
        families: offers().families(),
        catch_all: CatchAll::WhereOffered,
    })
    .unwrap()
}

fn listener(gate: &mut Gate, kind: DoorKind) -> TcpListener {
    let at = gate.doors.iter().position(|(door, _)| *door == kind).unwrap();
    let listener = TcpListener::from(gate.doors.remove(at).1);
    listener.set_nonblocking(false).unwrap();
    listener
}

/// Runs `work` as a program inside `namespace` would.
fn inside<T: Send>(namespace: BorrowedFd<'_>, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        scope
            .spawn(|| {
                nix::sched::setns(namespace, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
                work()
            })
            .join()
            .unwrap()
    })
}

fn connect(address: &str, port: u16) -> io::Result<TcpStream> {
    TcpStream::connect_timeout(&SocketAddr::new(address.parse().unwrap(), port), Duration::from_secs(2))
}

fn meant(accepted: &TcpStream) -> String {
    let address = accepted.local_addr().unwrap();
    SocketAddr::new(address.ip().to_canonical(), address.port()).to_string()
}

#[test]
fn whatever_the_guest_dials_ends_at_the_gate() {
    in_fresh_namespace("whatever_the_guest_dials_ends_at_the_gate", || {
        let joined = JoinedGate::create(RUN, Home::Anonymous).unwrap();
        let mut gate = joined.apply(&plan(RUN)).unwrap();
        assert!(gate.missed.is_empty(), "{:?}", gate.missed);
        let https = listener(&mut gate, DoorKind::Tcp { port: 443 });
        for place in PLACES {
            let _client = inside(joined.guest(), || connect(place, 443)).unwrap();
            let (accepted, from) = https.accept().unwrap();
            assert_eq!(meant(&accepted), SocketAddr::new(place.parse().unwrap(), 443).to_string());
            assert!(
                ["100.64.0.2", "fd64:f2ee:b0a2::2"].contains(&from.ip().to_canonical().to_string().as_str())
            );
        }
        if gate.records_other_ports() {
            let catch_all = listener(&mut gate, DoorKind::CatchAll { port: 65535 });
            let _client = inside(joined.guest(), || connect("1.1.1.1", 22)).unwrap();
            let (accepted, _) = catch_all.accept().unwrap();
            let original =
                nix::sys::socket::getsockopt(&accepted, nix::sys::socket::sockopt::OriginalDst).unwrap();
            assert_eq!(u16::from_be(original.sin_port), 22);
        }
        for place in PLACES {
            let ip: IpAddr = place.parse().unwrap();
            let refused = inside(joined.guest(), || {
                let socket = UdpSocket::bind(if ip.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }).unwrap();
                socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
                socket.connect((ip, 443)).unwrap();
                socket.send(b"quic?").unwrap();
                socket.recv(&mut [0; 8]).unwrap_err().kind()
            });
            assert_eq!(refused, io::ErrorKind::ConnectionRefused, "{place}");
        }
    });
}

#[test]
fn each_side_has_one_link_and_the_gate_no_route_out() {
    in_fresh_namespace("each_side_has_one_link_and_the_gate_no_route_out", || {
        let own_before = inspect::of_process(std::process::id()).unwrap();
        let joined = JoinedGate::create(RUN, Home::Anonymous).unwrap();
        let _gate = joined.apply(&plan(RUN)).unwrap();
        let (gate, guest) =
            (inspect::of_namespace(joined.gate()).unwrap(), inspect::of_namespace(joined.guest()).unwrap());
        assert!(gate.has_only(&["lo", "fb012345678"]), "{gate:?}");
        assert!(guest.has_only(&["lo", "eth0"]), "{guest:?}");
        assert!(!gate.has_default_route(), "{gate:?}");
        assert!(guest.has_default_route(), "the search finds one: {guest:?}");
        assert_eq!(inspect::of_process(std::process::id()).unwrap(), own_before, "the host got no link");
    });
}

#[test]
fn two_guests_do_not_reach_each_other() {
    in_fresh_namespace("two_guests_do_not_reach_each_other", || {
        let (one, two) =
            (JoinedGate::create(RUN, Home::Anonymous), JoinedGate::create(OTHER, Home::Anonymous));
        let (one, two) = (one.unwrap(), two.unwrap());
        let mut gate = one.apply(&plan(RUN)).unwrap();
        let _other = two.apply(&plan(OTHER)).unwrap();
        let service = inside(two.guest(), || TcpListener::bind("100.64.0.2:443").unwrap());
        service.set_nonblocking(true).unwrap();
        let https = listener(&mut gate, DoorKind::Tcp { port: 443 });
        // The other guest has the same address; from here it is one's own.
        assert!(inside(one.guest(), || connect("100.64.0.2", 443)).is_err());
        let _client = inside(one.guest(), || connect("100.64.0.6", 443)).unwrap();
        assert_eq!(meant(&https.accept().unwrap().0), "100.64.0.6:443");
        assert!(service.accept().is_err(), "nothing crossed");
    });
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }
    fn path(&self) -> PathBuf {
        self.0.path().join("netns")
    }
    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(self.path())
            .map(|entries| entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect())
            .unwrap_or_default();
        names.sort();
        names
    }
}

#[test]
fn names_are_there_while_the_gate_is_and_gone_with_it() {
    in_fresh_namespace("names_are_there_while_the_gate_is_and_gone_with_it", || {
        let folder = Folder::new();
        let joined = JoinedGate::create(RUN, Home::Folder(folder.path())).unwrap();
        assert_eq!(folder.names(), [format!("{RUN}-gate"), format!("{RUN}-guest")]);
        assert!(JoinedGate::create(RUN, Home::Folder(folder.path())).is_err(), "a run has one gate");
        let guest = std::fs::File::open(joined.guest_path().unwrap()).unwrap();
        assert_eq!(
            inspect::identity_of_namespace(guest.as_fd()).unwrap(),
            inspect::identity_of_namespace(joined.guest()).unwrap()
        );
        joined.remove().unwrap();
        joined.remove().unwrap(); // done already is done
        drop(joined);
        assert!(folder.names().is_empty());
    });
}

#[test]
fn remains_of_a_crash_are_adopted_or_swept() {
    in_fresh_namespace("remains_of_a_crash_are_adopted_or_swept", || {
        let folder = Folder::new();
        let crash = |run: &str| {
            let joined = JoinedGate::create(run, Home::Folder(folder.path())).unwrap();
            let _gate = joined.apply(&plan(run)).unwrap();
            std::mem::forget(joined);
        };
        crash(RUN);
        crash(OTHER);
        std::fs::write(folder.path().join("README"), "not ours").unwrap();
        std::fs::write(folder.path().join("0123456789abcdef-guess"), "not ours").unwrap();

        let adopted = JoinedGate::adopt(RUN, &folder.path()).unwrap();
        assert!(inspect::of_namespace(adopted.guest()).unwrap().has_only(&["lo", "eth0"]));
        let Swept { removed, failed } = sweep(&folder.path(), &[RUN]).unwrap();
        assert!(failed.is_empty(), "{failed:?}");
        assert_eq!(removed, [OTHER]);
        drop(adopted);
        assert_eq!(folder.names(), ["0123456789abcdef-guess", "README"]);
        assert!(sweep(&folder.path(), &[]).unwrap().removed.is_empty(), "done already is done");
        assert!(JoinedGate::adopt(RUN, &folder.path()).is_err());
        let half: OwnedFd = std::fs::File::create(folder.path().join(format!("{RUN}-gate"))).unwrap().into();
        drop(half);
        assert_eq!(sweep(&folder.path(), &[]).unwrap().removed, [RUN], "a crash between file and mount");
    });
}

#[test]
fn a_missing_folder_has_nothing_to_sweep() {
    assert!(sweep(std::path::Path::new("/nonexistent/netns"), &[]).unwrap().removed.is_empty());
}
