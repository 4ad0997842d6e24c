//! Frames on a Unix stream socket, with descriptors.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
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

/// One end of a control connection. `send` and `receive` are not cancel-safe: give each direction to one task.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
}

impl Connection {
    pub fn new(stream: UnixStream) -> Self {
        Self { stream }
    }

    /// Sends one message with its descriptors.
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
            sent += self
                .stream
                .async_io(Interest::WRITABLE, || {
                    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
                    let mut ancillary = SendAncillaryBuffer::new(&mut space);
                    if sent == 0 && !borrowed.is_empty() {
                        ancillary.push(SendAncillaryMessage::ScmRights(&borrowed));
                    }
                    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
                    Ok(sendmsg(&self.stream, &[IoSlice::new(rest)], &mut ancillary, flags)?)
                })
                .await?;
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
        if descriptors.len() > MAX_DESCRIPTORS {
            return Err(FrameError::TooManyDescriptors(descriptors.len()));
        }
        Ok((serde_json::from_slice(&body)?, descriptors))
    }

    async fn fill(&self, mut buffer: &mut [u8], descriptors: &mut Vec<OwnedFd>) -> Result<(), FrameError> {
        while !buffer.is_empty() {
            let read = self
                .stream
                .async_io(Interest::READABLE, || {
                    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
                    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
                    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
                    let message =
                        recvmsg(&self.stream, &mut [IoSliceMut::new(buffer)], &mut ancillary, flags)?;
                    for control in ancillary.drain() {
                        if let RecvAncillaryMessage::ScmRights(received) = control {
                            descriptors.extend(received);
                        }
                    }
                    Ok(message.bytes)
                })
                .await?;
            if read == 0 {
                return Err(FrameError::Closed);
            }
            buffer = buffer.get_mut(read..).unwrap_or_default();
        }
        Ok(())
    }
}
