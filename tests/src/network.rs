//! Network namespaces for tests: a world in which port 443 is free, and gates.

use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use freeboard_netns::{Kernel as _, LinuxKernel, Subnet};
use nix::sched::{CloneFlags, setns, unshare};

/// A network namespace that lives as long as this.
#[derive(Debug)]
pub struct Network {
    descriptor: OwnedFd,
}

impl Network {
    /// A fresh namespace with nothing in it. `None`, and a loud word, without the right to make one.
    pub fn fresh() -> Option<Self> {
        let made = std::thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET)?;
            File::open("/proc/thread-self/ns/net").map(OwnedFd::from)
        });
        match made.join().unwrap() {
            Ok(descriptor) => Some(Self { descriptor }),
            Err(error) => {
                eprintln!(
                    "SKIPPED: no network namespace can be made here ({error}); run as root or in `unshare -Urnm`"
                );
                None
            }
        }
    }

    /// A fresh namespace in which `addresses` are local.
    pub fn with_addresses(addresses: &[IpAddr]) -> Option<Self> {
        let network = Self::fresh()?;
        network.enter(|| {
            let mut kernel = LinuxKernel::here();
            kernel.set_link_up("lo", true).unwrap();
            for address in addresses {
                let prefix = if address.is_ipv4() { 32 } else { 128 };
                kernel.add_address("lo", Subnet { address: *address, prefix }).unwrap();
            }
        });
        Some(network)
    }

    /// Runs `work` inside, on a thread of its own. Sockets and processes made there stay there.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let inside = scope.spawn(|| {
                setns(self.descriptor.as_fd(), CloneFlags::CLONE_NEWNET).unwrap();
                work()
            });
            inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    pub fn connect(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let stream = self.enter(|| TcpStream::connect_timeout(&address, Duration::from_secs(10)))?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// A UDP socket of this network, connected to `address`.
    pub fn udp(&self, address: SocketAddr) -> io::Result<UdpSocket> {
        self.enter(|| {
            let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            let socket = UdpSocket::bind(any)?;
            socket.set_read_timeout(Some(Duration::from_secs(5)))?;
            socket.connect(address)?;
            Ok(socket)
        })
    }
}
