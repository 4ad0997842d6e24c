//! The start of the guest program in a kernel of its own: takes the channel, says what it sees, goes on to the job.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::fs::{Mode, OFlags, open};

use crate::protocol::{Kind, Ready, write_frame};
use crate::run::{GuestError, Surroundings, run};
use crate::user::StepUser;
use crate::witness;

/// Where the work directory is.
const WORK: &str = "/work";

/// The whole life of the program.
pub fn begin() -> Result<(), GuestError> {
    let mut channel = take_channel()?;
    std::env::set_current_dir(WORK)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let work = open(WORK, flags, Mode::empty()).map_err(io::Error::from)?;
    let step_user = StepUser::take(&work)?;
    let ready = Ready { facts: witness::facts(step_user) };
    write_frame(&mut channel, Kind::Ready, &serde_json::to_vec(&ready)?)?;
    run(channel, &Surroundings { work, step_user })
}

/// Standard input is the channel; afterwards all three standard descriptors lead nowhere, so that no step inherits it.
fn take_channel() -> io::Result<UnixStream> {
    let channel: OwnedFd = rustix::io::fcntl_dupfd_cloexec(io::stdin().as_fd(), 3)?;
    let null = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(channel.into())
}
