//! Frames on a Unix stream socket, with descriptors.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::Interest;
use tokio::net::UnixStream;

/// Largest frame in bytes: a trace of 256 calls with long paths fits; more is a fault of the peer.
pub const MAX_FRAME_BYTES: usize = 4 << 20;
/// Most descriptors in one frame (the kernel allows 253, SCM_MAX_FD): a gate has about ten doors.
pub const MAX_DESCRIPTORS: usize = 64;

/// Why a frame could not be sent or received. The connection is of no further use.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    #[error("the peer closed the control connection")]
    Closed,
    #[error("control connection failed")]
    Io(#[from] std::io::Error),
    #[error("a control frame of {0} bytes is over the limit of {MAX_FRAME_BYTES}")]
    TooLarge(usize),
    #[error("a control frame carried {0} descriptors, at most {MAX_DESCRIPTORS} are taken")]
    TooManyDescriptors(usize),
    #[error("a control frame does not decode")]
    Malformed(#[from] serde_json::Error),
}

/// One end of a control connection. `send` and `receive` are not cancel-safe: give each direction to one task,
/// for example with [`Connection::split`].
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
}

impl Connection {
    pub const fn new(stream: UnixStream) -> Self {
        Self { stream }
    }

    /// One half for each direction. The connection is closed when both are dropped.
    pub fn split(self) -> (Sender, Receiver) {
        let shared = Arc::new(self);
        (Sender(Arc::clone(&shared)), Receiver(shared))
    }

    /// Sends one message with its descriptors. `TooLarge`, `TooManyDescriptors` and `Malformed` wrote nothing.
    pub async fn send<T: Serialize>(&self, message: &T, descriptors: &[OwnedFd]) -> Result<(), FrameError> {
        if descriptors.len() > MAX_DESCRIPTORS {
            return Err(FrameError::TooManyDescriptors(descriptors.len()));
        }
        let body = serde_json::to_vec(message)?;
        let length = u32::try_from(body.len()).ok().filter(|_| body.len() <= MAX_FRAME_BYTES);
        let Some(length) = length else { return Err(FrameError::TooLarge(body.len())) };
        let mut frame = Vec::with_capacity(body.len() + 4);
        frame.extend_from_slice(&length.to_be_bytes());
        frame.extend_from_slice(&body);
        let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        let mut sent = 0;
        while let Some(rest) = frame.get(sent..).filter(|rest| !rest.is_empty()) {
            // The descriptors travel with the first byte.
            let attached = if sent == 0 { borrowed.as_slice() } else { &[] };
            sent +=
                self.stream.async_io(Interest::WRITABLE, || send_some(&self.stream, rest, attached)).await?;
        }
        Ok(())
    }

    /// Receives one message and the descriptors that came with it, close-on-exec.
    pub async fn receive<T: DeserializeOwned>(&self) -> Result<(T, Vec<OwnedFd>), FrameError> {
        let mut descriptors = Vec::new();
        let mut header = [0_u8; 4];
        self.fill(&mut header, &mut descriptors).await?;
        let length = u32::from_be_bytes(header) as usize;
        if length > MAX_FRAME_BYTES {
            return Err(FrameError::TooLarge(length));
        }
        let mut body = vec![0; length];
        self.fill(&mut body, &mut descriptors).await?;
        Ok((serde_json::from_slice(&body)?, descriptors))
    }

    async fn fill(&self, mut buffer: &mut [u8], descriptors: &mut Vec<OwnedFd>) -> Result<(), FrameError> {
        while !buffer.is_empty() {
            let read = self
                .stream
                .async_io(Interest::READABLE, || receive_some(&self.stream, buffer, descriptors))
                .await?;
            // SECURITY: checked at every read, so that a peer cannot make us hold descriptors without end.
            if read.truncated || descriptors.len() > MAX_DESCRIPTORS {
                return Err(FrameError::TooManyDescriptors(descriptors.len()));
            }
            if read.bytes == 0 {
                return Err(FrameError::Closed);
            }
            buffer = buffer.get_mut(read.bytes..).unwrap_or_default();
        }
        Ok(())
    }
}

/// The sending half.
#[derive(Debug)]
pub struct Sender(Arc<Connection>);

impl Sender {
    /// See [`Connection::send`].
    pub async fn send<T: Serialize>(
        &mut self,
        message: &T,
        descriptors: &[OwnedFd],
    ) -> Result<(), FrameError> {
        self.0.send(message, descriptors).await
    }
}

/// The receiving half.
#[derive(Debug)]
pub struct Receiver(Arc<Connection>);

impl Receiver {
    /// See [`Connection::receive`].
    pub async fn receive<T: DeserializeOwned>(&mut self) -> Result<(T, Vec<OwnedFd>), FrameError> {
        self.0.receive().await
    }
}

struct Read {
    bytes: usize,
    /// The kernel dropped descriptors that did not fit.
    truncated: bool,
}

fn send_some(stream: &UnixStream, bytes: &[u8], attached: &[BorrowedFd<'_>]) -> std::io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !attached.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(attached));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    Ok(sendmsg(stream, &[IoSlice::new(bytes)], &mut ancillary, flags)?)
}

fn receive_some(
    stream: &UnixStream,
    buffer: &mut [u8],
    descriptors: &mut Vec<OwnedFd>,
) -> std::io::Result<Read> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let message = recvmsg(stream, &mut [IoSliceMut::new(buffer)], &mut ancillary, flags)?;
    for control in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = control {
            descriptors.extend(received);
        }
    }
    Ok(Read { bytes: message.bytes, truncated: message.flags.contains(ReturnFlags::CTRUNC) })
}
