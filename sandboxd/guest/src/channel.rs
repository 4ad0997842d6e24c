//! The line to the daemon: one socket or device for both ways, or a pipe for each.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// What the guest program hears the daemon by, and speaks with it.
#[derive(Debug)]
pub struct Channel {
    from: File,
    /// `None` = the same.
    to: Option<File>,
}

impl Channel {
    /// One descriptor for both ways.
    pub fn both_ways(descriptor: OwnedFd) -> Self {
        Self { from: descriptor.into(), to: None }
    }

    pub(crate) fn one_way_each(from: OwnedFd, to: OwnedFd) -> Self {
        Self { from: from.into(), to: Some(to.into()) }
    }
}

impl From<UnixStream> for Channel {
    fn from(socket: UnixStream) -> Self {
        Self::both_ways(socket.into())
    }
}

impl Read for Channel {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.from.read(buffer)
    }
}

impl Write for Channel {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.to.as_mut().unwrap_or(&mut self.from).write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What says that the daemon has spoken or hung up.
impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.from.as_fd()
    }
}
