//! Standard input of the steps: the daemon's frames go into one pipe that all steps share, as in a shell script. What no step
//! reads waits in the pipe, then here, then at the daemon.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::OFlags;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::protocol::{Kind, read_frame};

/// The pipe and what is on its way into it.
#[derive(Debug)]
pub(crate) struct Input {
    /// Kept, so that writing never fails for want of a reader.
    reader: OwnedFd,
    /// `None` = the steps see the end.
    writer: Option<File>,
    unsent: Vec<u8>,
    ended: bool,
}

impl Input {
    pub(crate) fn new() -> io::Result<Self> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
        let flags = rustix::fs::fcntl_getfl(&writer)?;
        rustix::fs::fcntl_setfl(&writer, flags | OFlags::NONBLOCK)?;
        Ok(Self { reader, writer: Some(writer.into()), unsent: Vec::new(), ended: false })
    }

    /// For the next step.
    pub(crate) fn reader(&self) -> io::Result<OwnedFd> {
        self.reader.try_clone()
    }

    /// Whether the daemon may go on: one frame is held at most.
    pub(crate) fn wants_more(&self) -> bool {
        self.unsent.is_empty() && !self.ended
    }

    /// What says that the pipe has room for what is held.
    pub(crate) fn room(&self) -> Option<PollFd<'_>> {
        let writer = self.writer.as_ref().filter(|_| !self.unsent.is_empty())?;
        Some(PollFd::new(writer, PollFlags::OUT))
    }

    /// Takes one frame of the daemon. `false` = it is none of input.
    pub(crate) fn take(&mut self, channel: &mut impl Read) -> io::Result<bool> {
        let (kind, body) = read_frame(channel)?;
        match kind {
            Kind::Stdin => self.unsent = body,
            Kind::StdinEnd => self.ended = true,
            _ => return Ok(false),
        }
        self.pass_on()?;
        Ok(true)
    }

    /// Puts into the pipe what fits; closes it behind the last byte.
    pub(crate) fn pass_on(&mut self) -> io::Result<()> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        while !self.unsent.is_empty() {
            match writer.write(&self.unsent) {
                Ok(written) => drop(self.unsent.drain(..written)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        if self.ended {
            self.writer = None;
        }
        Ok(())
    }
}
