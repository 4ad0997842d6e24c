//! The process that runs helpers, and how one is run.

use std::ffi::OsString;
use std::io::{IoSliceMut, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Gid, Pid, Uid};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use zeroize::Zeroizing;

use crate::limits::{HELPERS_AT_ONCE, SECRET_EXEC_TIMEOUT, SECRET_MAX_BYTES};
use crate::privileges::{self, Identity};

/// First byte of an answer: output follows. Anything else is followed by what went wrong.
pub const PRINTED: u8 = b'p';
const FAILED: u8 = b'f';
/// How a problem begins where a program printed more than is taken.
pub const TOO_MUCH: &str = "printed more than";
/// The command arrives at once; somebody who sends half of one is not waited for.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(5);

/// Becomes this user for good, as the broker does, and serves standard input until the broker closes its end.
pub fn serve(uid: u32, gid: u32) -> Result<(), Box<dyn std::error::Error>> {
    let change = Uid::effective().is_root() && uid != 0;
    privileges::drop_to(&Identity { uid: Uid::from_raw(uid), gid: Gid::from_raw(gid), change })?;
    let running = Arc::new(AtomicUsize::new(0));
    loop {
        let Some(end) = receive()? else { return Ok(()) };
        let running = Arc::clone(&running);
        let answer = move || {
            if running.fetch_add(1, Ordering::Relaxed) < HELPERS_AT_ONCE {
                // The broker may have gone: there is nobody left to tell.
                let _ = answer(UnixStream::from(end));
            }
            running.fetch_sub(1, Ordering::Relaxed);
        };
        // Without a thread the broker is told nothing and refuses; this process goes on, as nobody could start it again.
        let _ = std::thread::Builder::new().name("helper".to_owned()).spawn(answer);
    }
}

/// The next socket; `None` at the end.
fn receive() -> std::io::Result<Option<OwnedFd>> {
    let stdin = std::io::stdin();
    loop {
        let mut byte = [0];
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut buffers = [IoSliceMut::new(&mut byte)];
        let message = match recvmsg(stdin.as_fd(), &mut buffers, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => continue,
            other => other?,
        };
        let found = ancillary.drain().find_map(|control| match control {
            RecvAncillaryMessage::ScmRights(mut received) => received.next(),
            _ => None,
        });
        if found.is_some() || message.bytes == 0 {
            return Ok(found);
        }
    }
}

fn answer(mut stream: UnixStream) -> std::io::Result<()> {
    stream.set_read_timeout(Some(COMMAND_TIMEOUT))?;
    let mut document = Vec::new();
    let limit = u64::try_from(SECRET_MAX_BYTES).unwrap_or(u64::MAX);
    (&stream).take(limit).read_to_end(&mut document)?;
    let command: Vec<String> = serde_json::from_slice(&document).map_err(std::io::Error::other)?;
    match run(&command) {
        Ok(output) => {
            stream.write_all(&[PRINTED])?;
            stream.write_all(&output)
        }
        Err(problem) => {
            stream.write_all(&[FAILED])?;
            stream.write_all(problem.as_bytes())
        }
    }
}

/// PATH and HOME, and nothing else.
pub fn environment() -> impl Iterator<Item = (&'static str, OsString)> {
    ["PATH", "HOME"].into_iter().filter_map(|name| Some((name, std::env::var_os(name)?)))
}

/// Runs one helper to its end. Blocks.
///
/// # Errors
/// What went wrong, without anything that it printed.
pub fn run(command: &[String]) -> Result<Zeroizing<Vec<u8>>, String> {
    let (program, arguments) = command.split_first().ok_or("has no name")?;
    let mut helper = Command::new(program);
    // Its standard error may repeat the secret: it goes nowhere. Its own group, so that it can be ended with its children.
    helper.args(arguments).env_clear().envs(environment()).process_group(0);
    helper.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = helper.spawn().map_err(|error| format!("cannot be started: {error}"))?;
    let group = i32::try_from(child.id()).map(Pid::from_raw).map_err(|error| error.to_string())?;
    let (done, waiting) = channel::<()>();
    let watch = std::thread::Builder::new().name("helper-watch".to_owned()).spawn(move || {
        let late = waiting.recv_timeout(SECRET_EXEC_TIMEOUT) == Err(RecvTimeoutError::Timeout);
        if late {
            // It may have ended in this moment.
            let _ = killpg(group, Signal::SIGKILL);
        }
        late
    });
    let watch = watch.map_err(|error| {
        // Nobody would end it in time.
        let _ = killpg(group, Signal::SIGKILL);
        error.to_string()
    })?;
    let limit = u64::try_from(SECRET_MAX_BYTES).unwrap_or(u64::MAX);
    let mut output = Zeroizing::new(Vec::with_capacity(SECRET_MAX_BYTES + 1));
    let read = match child.stdout.take() {
        Some(stdout) => stdout.take(limit + 1).read_to_end(&mut output),
        None => Ok(0),
    };
    let too_large = output.len() > SECRET_MAX_BYTES;
    if too_large {
        // It would wait for a reader that has gone.
        let _ = killpg(group, Signal::SIGKILL);
    }
    let status = child.wait();
    drop(done);
    if watch.join().unwrap_or(false) {
        return Err(format!("took longer than {} s", SECRET_EXEC_TIMEOUT.as_secs()));
    }
    if too_large {
        return Err(format!("{TOO_MUCH} {SECRET_MAX_BYTES} bytes"));
    }
    read.map_err(|error| format!("cannot be read from: {error}"))?;
    let status = status.map_err(|error| error.to_string())?;
    if status.success() { Ok(output) } else { Err(format!("ended with {status}")) }
}
