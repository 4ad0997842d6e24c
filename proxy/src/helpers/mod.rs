//! Programs that print secrets, run by a small process of its own.
//!
//! In: program and arguments of a policy. Out: what it printed. The broker, which parses hostile bytes, never starts a
//! program itself while it serves: it hands the command to a process that does nothing else, has no socket to a guest and
//! no policy. One socket pair per command; the process ends with the broker.

pub mod runner;

use std::io::{IoSlice, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, sendmsg,
    socketpair,
};
use zeroize::Zeroizing;

use crate::confine;
use crate::limits::{SECRET_EXEC_TIMEOUT, SECRET_MAX_BYTES};
use crate::privileges::Identity;

/// Word on the command line that makes `freeboard` this process.
pub const VERB: &str = "run-helpers";

/// How long after a helper's own limit the process may take to say so.
const GRACE: Duration = Duration::from_secs(2);

#[derive(Debug)]
struct Runner {
    program: PathBuf,
    identity: Identity,
    channel: Mutex<OwnedFd>,
}

static RUNNER: OnceLock<Runner> = OnceLock::new();

/// Starts the process, which becomes `identity` by itself. Until then, and in programs that never call it, helpers are run
/// by this process.
pub fn start(identity: &Identity) -> std::io::Result<()> {
    let program = std::env::current_exe()?;
    let channel = Mutex::new(spawn(&program, identity)?);
    // Only a second start would find it set; its process ends when its channel is dropped.
    let _ = RUNNER.set(Runner { program, identity: identity.clone(), channel });
    Ok(())
}

fn spawn(program: &Path, identity: &Identity) -> std::io::Result<OwnedFd> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let mut command = Command::new(program);
    command.args([VERB, &identity.uid.to_string(), &identity.gid.to_string()]);
    command.env_clear().envs(runner::environment());
    command.stdin(Stdio::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn()?;
    Ok(ours)
}

/// What the program prints, at most `SECRET_MAX_BYTES`, within `SECRET_EXEC_TIMEOUT`.
///
/// # Errors
/// What went wrong, without anything that the program printed.
pub async fn run(command: &[String]) -> Result<Zeroizing<Vec<u8>>, String> {
    let command = command.to_vec();
    let ran = tokio::task::spawn_blocking(move || run_blocking(&command)).await;
    ran.map_err(|_| "could not be waited for".to_owned())?
}

/// The same for a thread that may wait.
///
/// # Errors
/// As for [`run`].
pub fn run_blocking(command: &[String]) -> Result<Zeroizing<Vec<u8>>, String> {
    let Some(runner) = RUNNER.get() else { return runner::run(command) };
    let failed = |error: std::io::Error| format!("cannot be handed over: {error}");
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    runner.hand_over(&theirs).map_err(failed)?;
    drop(theirs);
    let document = serde_json::to_vec(command).map_err(|error| error.to_string())?;
    let answer = ask(&ours, &document).map_err(|error| match error.kind() {
        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => "is not answered for".to_owned(),
        _ => failed(error),
    })?;
    match answer.split_first() {
        Some((&runner::PRINTED, output)) => Ok(Zeroizing::new(output.to_vec())),
        Some((_, problem)) => Err(String::from_utf8_lossy(problem).into_owned()),
        None => Err("is not answered for".to_owned()),
    }
}

fn ask(mut stream: &UnixStream, document: &[u8]) -> std::io::Result<Zeroizing<Vec<u8>>> {
    let patience = Some(SECRET_EXEC_TIMEOUT + GRACE);
    stream.set_read_timeout(patience)?;
    stream.set_write_timeout(patience)?;
    stream.write_all(document)?;
    stream.shutdown(std::net::Shutdown::Write)?;
    let limit = u64::try_from(SECRET_MAX_BYTES).unwrap_or(u64::MAX);
    let mut answer = Zeroizing::new(Vec::with_capacity(SECRET_MAX_BYTES + 2));
    stream.take(limit + 2).read_to_end(&mut answer)?;
    Ok(answer)
}

impl Runner {
    /// Sends one end of a socket pair; once more to a new process where the one before has ended. A broker that has confined
    /// itself can start none.
    fn hand_over(&self, end: &UnixStream) -> std::io::Result<()> {
        let mut channel = self.channel.lock().unwrap_or_else(PoisonError::into_inner);
        if send(&channel, end).is_ok() {
            return Ok(());
        }
        if confine::state().calls {
            tracing::error!("the process that runs helpers has ended: start the broker anew");
            return Err(std::io::Error::other("the process that runs helpers has ended"));
        }
        tracing::warn!("the process that runs helpers has ended: it is started again");
        *channel = spawn(&self.program, &self.identity)?;
        send(&channel, end)
    }
}

fn send(channel: &OwnedFd, end: &UnixStream) -> std::io::Result<()> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let ends = [end.as_fd()];
    ancillary.push(SendAncillaryMessage::ScmRights(&ends));
    sendmsg(channel, &[IoSlice::new(b"r")], &mut ancillary, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn shell(script: &str) -> Vec<String> {
        ["/bin/sh", "-c", script].map(str::to_owned).to_vec()
    }

    #[tokio::test]
    async fn helpers_have_a_clean_environment_and_end_in_time() {
        let printed = run(&shell("env | cut -d= -f1 | sort | tr '\\n' ' '")).await.unwrap();
        let names = String::from_utf8(printed.to_vec()).unwrap();
        // The shell itself adds some.
        assert!(!names.contains("CARGO"), "{names}");
        for (script, says) in [
            ("exit 3", "ended with"),
            ("head -c 100000 /dev/zero", "more than"),
            ("kill -9 $$", "ended with"),
        ] {
            assert!(run(&shell(script)).await.unwrap_err().contains(says), "{script}");
        }
        assert!(run(&["/nonexistent".to_owned()]).await.unwrap_err().contains("cannot be started"));
        // What it leaves running in its group does not keep it open.
        let begun = Instant::now();
        assert!(run(&shell("sleep 60 & sleep 60")).await.unwrap_err().contains("longer than"));
        assert!(begun.elapsed() < SECRET_EXEC_TIMEOUT + Duration::from_secs(5));
    }
}
