//! The only unsafe file of this crate: a short-lived child process for questions that change the one who asks, and the one
//! ioctl that makes a tap.

#![expect(unsafe_code, reason = "fork and ioctl have no safe form")]

use std::io;
use std::os::fd::{AsFd, AsRawFd as _};

use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

/// Runs `question` in a child process and returns its answer (0..=255).
///
/// `question` must do nothing but system calls on memory that exists already: no allocation, no lock, no panic. A
/// thread of the parent may have held any lock when the child was made.
pub(crate) fn ask_in_child(question: impl FnOnce() -> u8) -> io::Result<u8> {
    // SAFETY: the child only runs `question`, which by this function's contract is async-signal-safe, and leaves through
    // `_exit` without unwinding into code of the parent.
    match unsafe { fork() }? {
        ForkResult::Child => {
            let answer = question();
            // SAFETY: `_exit` takes any status, runs no handlers and does not return.
            unsafe { nix::libc::_exit(i32::from(answer)) }
        }
        ForkResult::Parent { child } => loop {
            match waitpid(child, None) {
                Ok(WaitStatus::Exited(_, status)) => return Ok(u8::try_from(status).unwrap_or(u8::MAX)),
                Ok(WaitStatus::Signaled(..)) => return Err(io::ErrorKind::Interrupted.into()),
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        },
    }
}

/// Makes an open `/dev/net/tun` the tap of this name in the calling thread's network namespace.
///
/// Plain frames, without the header by which a guest could tell the host's kernel how to cut and check them.
pub(crate) fn name_tap(device: impl AsFd, name: &str) -> io::Result<()> {
    const TAP: u16 = 0x0002;
    const NO_PACKET_INFORMATION: u16 = 0x1000;
    /// `TUNSETIFF` of linux/if_tun.h.
    const SET_INTERFACE: nix::libc::Ioctl = 0x4004_54ca;
    // struct ifreq: 16 bytes of name, then the flags in a union of 24 bytes.
    let mut request = [0_u8; 40];
    let name = name.as_bytes();
    let (Some(place), true) = (request.get_mut(..name.len()), name.len() < 16) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    place.copy_from_slice(name);
    if let Some(flags) = request.get_mut(16..18) {
        flags.copy_from_slice(&(TAP | NO_PACKET_INFORMATION).to_ne_bytes());
    }
    let request = request.as_mut_ptr();
    // SAFETY: TUNSETIFF reads and writes one `struct ifreq`, which is 40 bytes on every 64-bit Linux and lives across the
    // call; the descriptor is borrowed for the call.
    let result = unsafe { nix::libc::ioctl(device.as_fd().as_raw_fd(), SET_INTERFACE, request) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
