//! Datagrams with the address that they were sent to. A guest may ask any server address: the answer must come from
//! that address, or the guest's resolver throws it away.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd as _, OwnedFd};

use nix::libc;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt, sockopt,
};
use tokio::io::Interest;
use tokio::net::UdpSocket;

use crate::limits::DNS_UDP_PAYLOAD;

/// A UDP socket of a gate.
#[derive(Debug)]
pub(super) struct Datagrams {
    socket: UdpSocket,
}

/// Where a datagram came from and which of our addresses it was sent to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Path {
    peer: SockaddrStorage,
    ours: Option<IpAddr>,
}

impl Datagrams {
    /// Takes a bound socket of either family, dual-stack or not.
    pub(super) fn new(socket: OwnedFd) -> io::Result<Self> {
        let socket = std::net::UdpSocket::from(socket);
        socket.set_nonblocking(true)?;
        if socket.local_addr()?.is_ipv6() {
            setsockopt(&socket, sockopt::Ipv6RecvPacketInfo, &true)?;
        } else {
            setsockopt(&socket, sockopt::Ipv4PacketInfo, &true)?;
        }
        Ok(Self { socket: UdpSocket::from_std(socket)? })
    }

    /// The next datagram. `None` for one that is larger than the limit: it was dropped.
    pub(super) async fn receive(&self, buffer: &mut Vec<u8>) -> io::Result<Option<Path>> {
        self.socket.async_io(Interest::READABLE, || self.try_receive(buffer)).await
    }

    fn try_receive(&self, buffer: &mut Vec<u8>) -> io::Result<Option<Path>> {
        buffer.resize(usize::from(DNS_UDP_PAYLOAD), 0);
        let mut space = nix::cmsg_space!(libc::in6_pktinfo);
        let mut slices = [IoSliceMut::new(buffer)];
        let flags = MsgFlags::MSG_DONTWAIT;
        let received =
            recvmsg::<SockaddrStorage>(self.socket.as_raw_fd(), &mut slices, Some(&mut space), flags)?;
        let mut ours = None;
        for message in received.cmsgs()? {
            ours = match message {
                ControlMessageOwned::Ipv4PacketInfo(info) => {
                    Some(IpAddr::V4(Ipv4Addr::from(u32::from_be(info.ipi_addr.s_addr))))
                }
                ControlMessageOwned::Ipv6PacketInfo(info) => {
                    Some(IpAddr::V6(Ipv6Addr::from(info.ipi6_addr.s6_addr)))
                }
                _ => ours,
            };
        }
        let whole = !received.flags.contains(MsgFlags::MSG_TRUNC);
        let path = received.address.filter(|_| whole).map(|peer| Path { peer, ours });
        let length = received.bytes;
        buffer.truncate(length);
        Ok(path)
    }

    /// Sends a reply back the way that the question came. A reply that the socket has no room for is dropped, as the
    /// network would: the guest asks again.
    pub(super) fn reply(&self, bytes: &[u8], path: &Path) -> io::Result<()> {
        let slices = [IoSlice::new(bytes)];
        let send = |control: &[ControlMessage<'_>]| {
            sendmsg(self.socket.as_raw_fd(), &slices, control, MsgFlags::MSG_DONTWAIT, Some(&path.peer))
        };
        match path.ours {
            Some(IpAddr::V4(address)) => {
                let address = libc::in_addr { s_addr: u32::from(address).to_be() };
                let info = libc::in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: address, ipi_addr: address };
                send(&[ControlMessage::Ipv4PacketInfo(&info)])?;
            }
            Some(IpAddr::V6(address)) => {
                let address = libc::in6_addr { s6_addr: address.octets() };
                let info = libc::in6_pktinfo { ipi6_addr: address, ipi6_ifindex: 0 };
                send(&[ControlMessage::Ipv6PacketInfo(&info)])?;
            }
            None => {
                send(&[])?;
            }
        }
        Ok(())
    }
}
