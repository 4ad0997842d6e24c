//! One netlink socket: sends messages, waits for the kernel's word on them.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with,
};

use crate::limits::{NETLINK_ANSWER, NETLINK_ANSWER_BYTES};
use crate::message::{Messages, acknowledgements};

/// Belongs for ever to the network namespace in which it was opened.
#[derive(Debug)]
pub(crate) struct Netlink {
    socket: OwnedFd,
}

impl Netlink {
    pub(crate) fn open_routes() -> io::Result<Self> {
        Self::open(None)
    }

    pub(crate) fn open_netfilter() -> io::Result<Self> {
        Self::open(Some(netlink::NETFILTER))
    }

    fn open(protocol: Option<Protocol>) -> io::Result<Self> {
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
        set_socket_timeout(&socket, Timeout::Recv, Some(NETLINK_ANSWER))?;
        Ok(Self { socket })
    }

    /// Sends `messages`, the last of which must ask for an acknowledgement, and waits for it. The first error that the
    /// kernel reports for any of them is the answer: it takes a batch whole or not at all.
    pub(crate) fn request(&self, messages: &Messages) -> io::Result<()> {
        sendto(&self.socket, messages.bytes(), SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
        let mut answer = [0_u8; NETLINK_ANSWER_BYTES];
        loop {
            let (_, length) = recv(&self.socket, answer.as_mut_slice(), RecvFlags::TRUNC)?;
            for (sequence, errno) in acknowledgements(answer.get(..length).unwrap_or(&answer)) {
                if errno != 0 {
                    return Err(io::Error::from_raw_os_error(errno));
                }
                if sequence == messages.last {
                    return Ok(());
                }
            }
        }
    }
}
