//! How a daemon and whoever started it speak without signals: a line when it is ready, an end when its input ends.
//!
//! In: descriptors that the daemon inherited. Out: a file to write the line to, and the end of a pipe. A supervisor that is
//! killed closes its pipes whatever it was doing, so its daemons do not outlive it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, RawFd};

use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use tokio::net::unix::pipe;

/// A file over an inherited descriptor, which is named by its number and stays open itself.
///
/// # Errors
/// The descriptor is not open, or not for writing.
pub fn inherited_file(descriptor: RawFd) -> io::Result<File> {
    match descriptor {
        1 => return io::stdout().as_fd().try_clone_to_owned().map(File::from),
        2 => return io::stderr().as_fd().try_clone_to_owned().map(File::from),
        _ => {}
    }
    // Opened by its name, so that no raw descriptor is taken over unchecked. That opens a pipe anew and asks whose it is: one
    // that another user made is refused, and then the kernel is asked for a copy of the descriptor itself (Linux 5.6).
    let opened = File::options().write(true).open(format!("/proc/self/fd/{descriptor}"));
    opened.or_else(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => {
            let own = pidfd_open(getpid(), PidfdFlags::empty())?;
            Ok(File::from(pidfd_getfd(own, descriptor, PidfdGetfdFlags::empty())?))
        }
        _ => Err(error),
    })
}

/// Standard input as a sign of life: it ends when whoever holds the other end closes it or dies.
#[derive(Debug)]
pub struct Lifeline(pipe::Receiver);

impl Lifeline {
    /// Inside a tokio runtime.
    ///
    /// # Errors
    /// Standard input is no pipe.
    pub fn of_stdin() -> io::Result<Self> {
        let stdin = io::stdin().as_fd().try_clone_to_owned()?;
        pipe::Receiver::from_owned_fd(stdin).map(Self)
    }

    /// Returns when the input has ended. What is written to it means nothing. Cancel-safe.
    pub async fn ended(&self) {
        let mut ignored = [0_u8; 512];
        loop {
            if self.0.readable().await.is_err() {
                return;
            }
            match self.0.try_read(&mut ignored) {
                Ok(0) => return,
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return,
                Ok(_) | Err(_) => {}
            }
        }
    }
}
