//! Streams that a run's worker hands over, one per message of a SOCK_SEQPACKET socket.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;

use rustix::net::sockopt::socket_type;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketType, recvmsg};
use tokio::io::Interest;
use tokio::net::UnixStream;

/// The broker's end of a `streams` door. A `UnixStream` for its readiness only: bytes are never read through it.
#[derive(Debug)]
pub(super) struct Streams(UnixStream);

impl Streams {
    /// Takes the descriptor over.
    ///
    /// # Errors
    /// It is not a socket that can be waited for.
    pub(super) fn new(descriptor: OwnedFd) -> io::Result<Self> {
        let socket = StdUnixStream::from(descriptor);
        socket.set_nonblocking(true)?;
        Ok(Self(UnixStream::from_std(socket)?))
    }

    /// The next stream; `None` when the worker has closed its end. Messages that carry no stream socket are dropped.
    ///
    /// # Errors
    /// The socket failed.
    pub(super) async fn next(&self) -> io::Result<Option<UnixStream>> {
        loop {
            let (bytes, descriptor) = self.0.async_io(Interest::READABLE, || receive(&self.0)).await?;
            match descriptor {
                None if bytes == 0 => return Ok(None),
                None => {}
                Some(descriptor) => {
                    if let Some(stream) = stream(descriptor) {
                        return Ok(Some(stream));
                    }
                }
            }
        }
    }
}

fn receive(socket: &UnixStream) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut byte = [0_u8; 16];
    // Room for one descriptor: the kernel closes what does not fit.
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let message = recvmsg(socket.as_fd(), &mut [IoSliceMut::new(&mut byte)], &mut ancillary, flags)?;
    let mut received = None;
    for control in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = control {
            received = descriptors.into_iter().last().or(received);
        }
    }
    Ok((message.bytes, received))
}

fn stream(descriptor: OwnedFd) -> Option<UnixStream> {
    if socket_type(&descriptor).ok()? != SocketType::STREAM {
        return None;
    }
    let stream = StdUnixStream::from(descriptor);
    stream.set_nonblocking(true).ok()?;
    UnixStream::from_std(stream).ok()
}
