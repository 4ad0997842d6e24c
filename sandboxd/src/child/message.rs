//! What daemon and launcher say to each other: one JSON message per packet, descriptors along with it.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::isolate::Boundary;
use crate::isolate::cgroup::{Group, Usage};

/// Largest packet in bytes: a view of a few hundred places and a CA. The kernel's default buffer of a socket is larger.
pub const MAX_PACKET_BYTES: usize = 64 << 10;

/// Descriptors of one packet at most.
const MAX_DESCRIPTORS: usize = 4;

/// From the daemon.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum ToLauncher {
    /// Make the child of a run. Its end of the channel to the daemon comes along.
    Create { id: u64, boundary: Box<Boundary> },
}

/// From the launcher.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum FromLauncher {
    /// The child exists, in its namespaces and its group; its pidfd comes along. It reports by its channel when its
    /// boundary stands.
    Created { id: u64, pid: i32, group: Option<Group> },
    /// There is no child.
    Failed { id: u64, step: String, errno: Option<i32>, message: String },
    /// The child and everything that it started are gone, and so is its group.
    Gone { id: u64, usage: Usage },
}

/// From the launcher to the first process of a run, with that process's end of the channel to the daemon.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Birth {
    pub boundary: Boundary,
}

/// Sends one packet.
pub fn send<T: Serialize>(socket: impl AsFd, message: &T, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let body = serde_json::to_vec(message)?;
    if body.len() > MAX_PACKET_BYTES || descriptors.len() > MAX_DESCRIPTORS {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    sendmsg(socket, &[IoSlice::new(&body)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives one packet; `None` at the end of the connection.
pub fn receive<T: DeserializeOwned>(
    socket: impl AsFd,
    flags: RecvFlags,
) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut body = vec![0; MAX_PACKET_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(socket, &mut [IoSliceMut::new(&mut body)], &mut ancillary, flags)?;
    if received.bytes == 0 {
        return Ok(None);
    }
    let mut descriptors = Vec::new();
    for control in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = control {
            descriptors.extend(rights);
        }
    }
    let body = body.get(..received.bytes).unwrap_or_default();
    Ok(Some((serde_json::from_slice(body)?, descriptors)))
}
