//! The start of the guest program in a kernel of its own: takes the channel, says what it sees, goes on to the job.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, open};

use crate::channel::Channel;
use crate::machine::{self, Group};
use crate::protocol::{Kind, Ready, write_frame};
use crate::run::{GuestError, Surroundings, run};
use crate::user::StepUser;
use crate::witness::{self, Fact};

/// Where the work directory is.
const WORK: &str = "/work";

/// The whole life of the program where something else built the room that it is in.
pub fn begin() -> Result<(), GuestError> {
    serve(take_channel()?, Vec::new(), None)
}

/// The same as the first process of a machine: it builds the room first.
pub fn begin_in_machine() -> Result<(), GuestError> {
    let built = machine::build()?;
    silence()?;
    serve(built.channel, built.facts, Some(built.group))
}

fn serve(mut channel: Channel, seen: Vec<Fact>, group: Option<Group>) -> Result<(), GuestError> {
    std::env::set_current_dir(WORK)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let work = open(WORK, flags, Mode::empty()).map_err(io::Error::from)?;
    let step_user = StepUser::take(&work)?;
    let mut facts = witness::facts(step_user);
    facts.extend(seen);
    let ready = Ready { facts };
    write_frame(&mut channel, Kind::Ready, &serde_json::to_vec(&ready)?)?;
    run(channel, &Surroundings { work, step_user, group })
}

/// Standard input is the channel, with standard output for the way back where input is a pipe; afterwards all three standard
/// descriptors lead nowhere, so that no step inherits it.
fn take_channel() -> io::Result<Channel> {
    let from: OwnedFd = rustix::io::fcntl_dupfd_cloexec(io::stdin().as_fd(), 3)?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&from)?.st_mode);
    let channel = if kind == FileType::Fifo {
        let to = rustix::io::fcntl_dupfd_cloexec(io::stdout().as_fd(), 3)?;
        Channel::one_way_each(from, to)
    } else {
        Channel::both_ways(from)
    };
    silence()?;
    Ok(channel)
}

fn silence() -> io::Result<()> {
    let null = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}
