//! The daemon's end of the channel to a run: frames both ways, descriptors with the first.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use freeboard_guest::protocol::{Kind, header, parse_header};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType, recvmsg,
    socketpair,
};
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::UnixStream;

/// Descriptors that are taken in one read: a gate has fewer doors.
const MAX_DESCRIPTORS: usize = 64;

/// Bytes of the buffer between two reads.
const READ_BYTES: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct Channel {
    stream: UnixStream,
    /// Read, not yet taken: `buffer[taken..]`.
    buffer: Vec<u8>,
    taken: usize,
    descriptors: Vec<OwnedFd>,
}

impl Channel {
    /// A channel and the end for the run's first process.
    pub(super) fn pair() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        Ok((Self::over(ours)?, theirs))
    }

    /// A channel over a connected socket.
    pub(super) fn over(socket: OwnedFd) -> io::Result<Self> {
        let socket = std::os::unix::net::UnixStream::from(socket);
        socket.set_nonblocking(true)?;
        let stream = UnixStream::from_std(socket)?;
        Ok(Self { stream, buffer: Vec::new(), taken: 0, descriptors: Vec::new() })
    }

    /// The same socket once more, blocking for whoever uses it between two sends of this one.
    pub(super) fn second_handle(&self) -> io::Result<std::os::unix::net::UnixStream> {
        Ok(self.stream.as_fd().try_clone_to_owned()?.into())
    }

    /// The way in alone, for what is sent while this one is heard.
    pub(super) fn way_in(&self) -> io::Result<Sender> {
        let socket = self.second_handle()?;
        socket.set_nonblocking(true)?;
        Ok(Sender(UnixStream::from_std(socket)?))
    }

    /// Not cancel-safe: a half-sent frame makes the channel useless, and its owner gives the run up then.
    pub(super) async fn send(&mut self, kind: Kind, body: &[u8]) -> io::Result<()> {
        send(&mut self.stream, kind, body).await
    }

    /// The next frame. The end of the stream is an error.
    pub(super) async fn receive(&mut self) -> io::Result<(Kind, Vec<u8>)> {
        loop {
            let unread = self.buffer.get(self.taken..).unwrap_or_default();
            if let Some((first, rest)) = unread.split_first_chunk::<5>() {
                let (kind, length) = parse_header(*first)?;
                if let Some(body) = rest.get(..length) {
                    let body = body.to_vec();
                    self.taken += 5 + length;
                    return Ok((kind, body));
                }
            }
            self.fill().await?;
        }
    }

    /// Descriptors that came so far.
    pub(super) fn take_descriptors(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.descriptors)
    }

    async fn fill(&mut self) -> io::Result<()> {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        let old = self.buffer.len();
        self.buffer.resize(old + READ_BYTES, 0);
        let Self { stream, buffer, descriptors, .. } = self;
        let read = stream
            .async_io(Interest::READABLE, || {
                let free = buffer.get_mut(old..).unwrap_or_default();
                let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
                let mut ancillary = RecvAncillaryBuffer::new(&mut space);
                let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
                let message = recvmsg(&*stream, &mut [IoSliceMut::new(free)], &mut ancillary, flags)?;
                for control in ancillary.drain() {
                    if let RecvAncillaryMessage::ScmRights(rights) = control {
                        descriptors.extend(rights);
                    }
                }
                Ok(message.bytes)
            })
            .await;
        let read = match read {
            Ok(read) => read,
            Err(error) => {
                self.buffer.truncate(old);
                return Err(error);
            }
        };
        self.buffer.truncate(old + read);
        if read == 0 { Err(io::Error::from(io::ErrorKind::UnexpectedEof)) } else { Ok(()) }
    }
}

/// Sends frames beside the channel, which sends none meanwhile.
#[derive(Debug)]
pub(super) struct Sender(UnixStream);

impl Sender {
    /// As [`Channel::send`].
    pub(super) async fn send(&mut self, kind: Kind, body: &[u8]) -> io::Result<()> {
        send(&mut self.0, kind, body).await
    }
}

async fn send(stream: &mut UnixStream, kind: Kind, body: &[u8]) -> io::Result<()> {
    let header = header(kind, body.len())?;
    if body.len() <= 4096 {
        let mut frame = header.to_vec();
        frame.extend_from_slice(body);
        return stream.write_all(&frame).await;
    }
    stream.write_all(&header).await?;
    stream.write_all(body).await
}
