//! Reads back, from outside, what a network namespace holds. Evidence for "only `lo` is there", and counters for "no
//! packet left".
//!
//! The kernel's tables under `/proc/PID/net` are read rather than asked for through netlink: that needs no right to
//! enter the namespace, so an ordinary user can measure too.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::limits::{MAX_TABLE_BYTES, USUAL_TABLE_BYTES};
use crate::linux::enter_network;

/// What one namespace holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    pub links: Vec<Link>,
    /// Routes of the main table that lead to a link other than `lo`.
    pub routes_beyond_loopback: Vec<RouteSeen>,
}

/// One line of a routing table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteSeen {
    pub link: String,
    /// Length of the destination; 0 leads everywhere.
    pub prefix: u32,
    /// The line as the kernel prints it, blanks squeezed.
    pub text: String,
}

/// An interface with its counters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    pub name: String,
    pub received_packets: u64,
    pub sent_packets: u64,
}

impl Network {
    /// Nothing but `lo`, and no route that leads elsewhere.
    pub fn is_loopback_only(&self) -> bool {
        self.has_only(&["lo"]) && self.routes_beyond_loopback.is_empty()
    }

    /// A route that leads everywhere through a link other than `lo`.
    pub fn has_default_route(&self) -> bool {
        self.routes_beyond_loopback.iter().any(|route| route.prefix == 0)
    }

    /// Exactly the named links.
    pub fn has_only(&self, names: &[&str]) -> bool {
        self.links.len() == names.len() && self.links.iter().all(|link| names.contains(&link.name.as_str()))
    }

    pub fn link(&self, name: &str) -> Option<&Link> {
        self.links.iter().find(|link| link.name == name)
    }

    /// Names of the links, for an evidence line.
    pub fn link_names(&self) -> String {
        self.links.iter().map(|link| link.name.as_str()).collect::<Vec<_>>().join(" ")
    }
}

/// The network of a process. Needs no right beyond seeing the process.
pub fn of_process(pid: u32) -> io::Result<Network> {
    read(&PathBuf::from(format!("/proc/{pid}/net")))
}

/// The network of a namespace that only a descriptor names (`/proc/PID/ns/net`, or one kept by a guard). Needs the right
/// to enter it; a thread of its own does, and ends.
pub fn of_namespace(namespace: BorrowedFd<'_>) -> io::Result<Network> {
    in_namespace(namespace, || read(Path::new("/proc/thread-self/net")))
}

/// Device and inode of a process's network namespace: differs from the host's own in every run.
pub fn identity_of_process(pid: u32) -> io::Result<(u64, u64)> {
    std::fs::metadata(format!("/proc/{pid}/ns/net")).map(|found| (found.dev(), found.ino()))
}

/// Device and inode of the namespace behind a descriptor.
pub fn identity_of_namespace(namespace: BorrowedFd<'_>) -> io::Result<(u64, u64)> {
    let found = rustix::fs::fstat(namespace)?;
    Ok((found.st_dev, found.st_ino))
}

/// Runs `work` on a thread that has entered `namespace`.
pub(crate) fn in_namespace<T: Send>(
    namespace: BorrowedFd<'_>,
    work: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread =
            std::thread::Builder::new().name("netns-visit".to_owned()).spawn_scoped(scope, || {
                enter_network(namespace.as_fd())?;
                work()
            })?;
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the visiting thread panicked")))
    })
}

fn read(folder: &Path) -> io::Result<Network> {
    let links = links(&table(&folder.join("dev"))?);
    let mut routes = routes_v4(&table(&folder.join("route"))?);
    match table(&folder.join("ipv6_route")) {
        Ok(text) => routes.extend(routes_v6(&text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {} // no IPv6 in this kernel
        Err(error) => return Err(error),
    }
    Ok(Network { links, routes_beyond_loopback: routes })
}

fn table(path: &Path) -> io::Result<String> {
    let mut text = String::with_capacity(USUAL_TABLE_BYTES);
    File::open(path)?.take(MAX_TABLE_BYTES).read_to_string(&mut text)?;
    if u64::try_from(text.len()).unwrap_or(u64::MAX) == MAX_TABLE_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(text)
}

/// `/proc/net/dev`: two lines of headings, then `NAME: 8 columns received, 8 columns sent`.
fn links(text: &str) -> Vec<Link> {
    let link = |line: &str| {
        let (name, counters) = line.rsplit_once(':')?;
        let number = |column: usize| counters.split_ascii_whitespace().nth(column)?.parse().ok();
        Some(Link { name: name.trim().to_owned(), received_packets: number(1)?, sent_packets: number(9)? })
    };
    text.lines().skip(2).filter_map(link).collect()
}

/// `/proc/net/route`: one line of headings, then `LINK DESTINATION GATEWAY FLAGS REFCOUNT USE METRIC MASK …` in hex.
fn routes_v4(text: &str) -> Vec<RouteSeen> {
    let route = |line: &str| {
        let mut columns = line.split_ascii_whitespace();
        let link = columns.next()?.to_owned();
        // SECURITY: a mask that cannot be read counts as a route to everywhere.
        let mask = columns.nth(6).and_then(|mask| u32::from_str_radix(mask, 16).ok()).unwrap_or(0);
        Some(RouteSeen { link, prefix: mask.count_ones(), text: squeeze(line) })
    };
    beyond_loopback(text.lines().skip(1).filter_map(route))
}

/// `/proc/net/ipv6_route`: ten columns; the second is the prefix in hex, the last the link.
fn routes_v6(text: &str) -> Vec<RouteSeen> {
    let route = |line: &str| {
        let link = line.split_ascii_whitespace().last()?.to_owned();
        let prefix =
            line.split_ascii_whitespace().nth(1).and_then(|prefix| u32::from_str_radix(prefix, 16).ok());
        Some(RouteSeen { link, prefix: prefix.unwrap_or(0), text: squeeze(line) })
    };
    beyond_loopback(text.lines().filter_map(route))
}

fn beyond_loopback(routes: impl Iterator<Item = RouteSeen>) -> Vec<RouteSeen> {
    routes.filter(|route| route.link != "lo" && route.link != "*").collect()
}

fn squeeze(line: &str) -> String {
    line.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEV: &str = "Inter-|   Receive                                                |  Transmit\n \
        face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n    \
        lo:     120       3    0    0    0     0          0         0      120       3    0    0    0     0       0          0\n\
        eth0.7: 10 2 0 0 0 0 0 0 11 5 0 0 0 0 0 0\n";

    #[test]
    fn reads_names_and_counters() {
        let found = links(DEV);
        assert_eq!(found[0], Link { name: "lo".to_owned(), received_packets: 3, sent_packets: 3 });
        assert_eq!(found[1], Link { name: "eth0.7".to_owned(), received_packets: 2, sent_packets: 5 });
    }

    #[test]
    fn a_second_link_or_a_route_elsewhere_is_not_loopback_only() {
        let lo = Link { name: "lo".to_owned(), received_packets: 0, sent_packets: 0 };
        let eth = Link { name: "eth0".to_owned(), ..lo.clone() };
        let route = RouteSeen { link: "eth0".to_owned(), prefix: 0, text: String::new() };
        let network = |links: &[&Link], routes: &[&RouteSeen]| Network {
            links: links.iter().map(|link| (*link).clone()).collect(),
            routes_beyond_loopback: routes.iter().map(|route| (*route).clone()).collect(),
        };
        assert!(network(&[&lo], &[]).is_loopback_only());
        assert!(!network(&[&lo, &eth], &[]).is_loopback_only());
        assert!(!network(&[&eth], &[]).is_loopback_only());
        assert!(!network(&[], &[]).is_loopback_only());
        assert!(!network(&[&lo], &[&route]).is_loopback_only());
    }

    #[test]
    fn only_routes_beyond_lo_are_listed() {
        let v4 = "Iface\tDestination\tGateway\tFlags\nlo\t00000000\t0\t1\t0\t0\t0\t00000000\n\
            eth0\t00000000\t0101A8C0\t3\t0\t0\t0\t00000000\neth0\t0001A8C0\t0\t1\t0\t0\t0\t00FFFFFF\n";
        let seen: Vec<_> = routes_v4(v4).into_iter().map(|route| (route.link, route.prefix)).collect();
        assert_eq!(seen, [("eth0".to_owned(), 0), ("eth0".to_owned(), 24)]);
        let v6 = "00 00 00 00 00 ffffffff 1 0 00200200       lo\nfe80 40 00 00 00 100 1 0 1     eth0\n";
        let seen: Vec<_> = routes_v6(v6).into_iter().map(|route| (route.link, route.prefix)).collect();
        assert_eq!(seen, [("eth0".to_owned(), 64)]);
    }

    #[test]
    fn reads_its_own_network() {
        let own = of_process(std::process::id()).unwrap();
        assert!(own.link("lo").is_some());
    }
}
