//! One step: a process with pipes, watched until it ends, the time is over, it floods, or the daemon is gone.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::input::Input;
use crate::limits::{DRAIN_BYTES, FLOOD_BYTES, LOOK_INTERVAL, READ_CHUNK_BYTES, REAP_INTERVAL};
use crate::processes::{Kept, reap, strike};
use crate::protocol::{Kind, OutputMode, StepReport, write_frame};
use crate::user::StepUser;

/// Exit code of a step that was stopped at the deadline, as of timeout(1).
pub(crate) const EXIT_TIMED_OUT: i32 = 124;
/// Exit code of a command that was found but cannot be executed, as of a shell.
const EXIT_CANNOT_EXECUTE: i32 = 126;
/// Exit code of a command that was not found, as of a shell.
const EXIT_NOT_FOUND: i32 = 127;
/// 128 + SIGXFSZ: the step wrote more than anybody would keep.
pub(crate) const EXIT_FLOOD: i32 = 153;

/// What is started.
pub(crate) struct Start<'a> {
    pub argv: &'a [String],
    pub stdin: Option<OwnedFd>,
    pub environment: &'a [(String, String)],
    pub user: Option<StepUser>,
}

/// Runs one step to its end. An error means that the daemon is gone.
pub(crate) fn run_step(
    start: Start<'_>,
    input: Option<&mut Input>,
    deadline: Instant,
    output: OutputMode,
    channel: &mut (impl Read + Write + AsFd),
    kept: &mut Kept,
) -> io::Result<StepReport> {
    let began = Instant::now();
    let mut report = match spawn(start) {
        Ok(running) => watch(running, input, deadline, output, channel, kept)?,
        Err((exit_code, text)) => {
            write_frame(channel, Kind::Stderr, text.as_bytes())?;
            StepReport { exit_code, detail: text.trim_end().to_owned(), ..StepReport::default() }
        }
    };
    report.duration_us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
    Ok(report)
}

/// A program with its pipes.
pub(crate) struct Running {
    pub(crate) pid: Pid,
    /// `None` in a kernel without such descriptors (gVisor): its end is then looked for in short intervals.
    pidfd: Option<OwnedFd>,
    pub(crate) stdout: Stream,
    pub(crate) stderr: Stream,
}

/// One pipe of a step.
pub(crate) struct Stream {
    pipe: Option<std::fs::File>,
    kind: Kind,
    sent: u64,
    dropped: u64,
}

/// Starts a program; else its exit code and what there is to say.
pub(crate) fn spawn(start: Start<'_>) -> Result<Running, (i32, String)> {
    let Some((name, arguments)) = start.argv.split_first() else {
        return Err((EXIT_NOT_FOUND, "there is no command\n".into()));
    };
    let program = find_program(name, start.environment)?;
    let cannot = |error: io::Error| (EXIT_CANNOT_EXECUTE, format!("cannot execute `{name}`: {error}\n"));
    let mut command = Command::new(&program);
    command
        .arg0(name)
        .args(arguments)
        .env_clear()
        .envs(start.environment.iter().map(|(name, value)| (name, value)))
        .process_group(0)
        .stdin(start.stdin.map_or_else(Stdio::null, Stdio::from))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let spawned = match start.user {
        None => command.spawn(),
        // Real, effective and saved id: the step has no way back.
        Some(user) => user.raised(|| command.uid(user.uid()).gid(user.gid()).spawn()).flatten(),
    };
    let mut child = spawned.map_err(cannot)?;
    let pid = Pid::from_child(&child);
    let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => Some(pidfd),
        Err(rustix::io::Errno::NOSYS) => None,
        Err(error) => return Err(cannot(error.into())),
    };
    let stdout = child.stdout.take().map(|pipe| std::fs::File::from(OwnedFd::from(pipe)));
    let stderr = child.stderr.take().map(|pipe| std::fs::File::from(OwnedFd::from(pipe)));
    // The handle is dropped without waiting: pid 1 reaps by itself, this child like every orphan.
    Ok(Running {
        pid,
        pidfd,
        stdout: Stream { pipe: stdout, kind: Kind::Stdout, sent: 0, dropped: 0 },
        stderr: Stream { pipe: stderr, kind: Kind::Stderr, sent: 0, dropped: 0 },
    })
}

/// The file to execute for a command name, as a shell would find it.
fn find_program(name: &str, environment: &[(String, String)]) -> Result<std::path::PathBuf, (i32, String)> {
    if name.contains('/') {
        let path = std::path::PathBuf::from(name);
        return if path.exists() { Ok(path) } else { Err(not_found(name)) };
    }
    let search = environment.iter().rev().find(|(key, _)| key == "PATH");
    let search = search.map_or("/usr/local/bin:/usr/bin:/bin", |(_, value)| value);
    search
        .split(':')
        .map(|folder| std::path::Path::new(if folder.is_empty() { "." } else { folder }).join(name))
        .find(|path| is_executable(path))
        .ok_or_else(|| not_found(name))
}

fn not_found(name: &str) -> (i32, String) {
    (EXIT_NOT_FOUND, format!("command not found: `{name}`\n"))
}

fn is_executable(path: &std::path::Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

fn watch(
    mut running: Running,
    mut input: Option<&mut Input>,
    deadline: Instant,
    output: OutputMode,
    channel: &mut (impl Read + Write + AsFd),
    kept: &mut Kept,
) -> io::Result<StepReport> {
    let mut report = StepReport::default();
    let mut buffer = vec![0; READ_CHUNK_BYTES];
    let mut cancelled = false;
    loop {
        let now = Instant::now();
        if now >= deadline || cancelled {
            report.exit_code = EXIT_TIMED_OUT;
            report.timed_out = true;
            strike(kept);
            break;
        }
        let hear = input.as_deref().is_none_or(Input::wants_more);
        let room = input.as_deref().and_then(Input::room);
        let longest = (deadline - now).min(REAP_INTERVAL);
        let ready = wait_for_something(&running, room, channel, hear, longest)?;
        match &mut input {
            Some(input) if ready.spoken => cancelled = !input.take(channel)?,
            Some(input) if ready.line => input.pass_on()?,
            Some(_) => {}
            None => cancelled = ready.spoken,
        }
        if ready.stdout {
            running.stdout.forward(&mut buffer, output, channel)?;
        }
        if ready.stderr {
            running.stderr.forward(&mut buffer, output, channel)?;
        }
        if running.is_flood() {
            report.exit_code = EXIT_FLOOD;
            report.detail = format!("a step wrote more than {FLOOD_BYTES} bytes beyond what is kept");
            strike(kept);
            break;
        }
        if let Some(code) = reap(running.pid, kept) {
            report.exit_code = code;
            break;
        }
    }
    running.drain(&mut report, &mut buffer, output, channel)?;
    Ok(report)
}

/// What a look found.
#[derive(Default)]
pub(crate) struct Readiness {
    pub(crate) stdout: bool,
    pub(crate) stderr: bool,
    /// Of the line to an interpreter, or the pipe of standard input.
    pub(crate) line: bool,
    /// The daemon has said something. In the middle of a call without input that can only be that nobody waits for it any more.
    pub(crate) spoken: bool,
}

/// Waits for output, the end of the step, the line to it, the daemon where it is to be heard, or the given time. An error when the
/// daemon hung up.
pub(crate) fn wait_for_something(
    running: &Running,
    line: Option<PollFd<'_>>,
    channel: &impl AsFd,
    hear: bool,
    longest: Duration,
) -> io::Result<Readiness> {
    let longest = if running.pidfd.is_some() { longest } else { longest.min(LOOK_INTERVAL) };
    let hear = if hear { PollFlags::IN } else { PollFlags::empty() };
    let mut polled = vec![PollFd::new(channel, PollFlags::RDHUP | hear)];
    polled.extend(running.pidfd.as_ref().map(|pidfd| PollFd::new(pidfd, PollFlags::IN)));
    let has_line = line.is_some();
    polled.extend(line);
    for pipe in [&running.stdout.pipe, &running.stderr.pipe].into_iter().flatten() {
        polled.push(PollFd::new(pipe, PollFlags::IN));
    }
    let timeout = Timespec {
        tv_sec: i64::try_from(longest.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(longest.subsec_nanos()),
    };
    match poll(&mut polled, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let mut events = polled.iter().map(PollFd::revents);
    let channel = events.next().unwrap_or(PollFlags::empty());
    if channel.intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR) {
        return Err(io::Error::from(io::ErrorKind::BrokenPipe));
    }
    if running.pidfd.is_some() {
        events.next();
    }
    let ready = |event: Option<PollFlags>| event.is_some_and(|event| !event.is_empty());
    Ok(Readiness {
        line: has_line && ready(events.next()),
        stdout: running.stdout.pipe.is_some() && ready(events.next()),
        stderr: running.stderr.pipe.is_some() && ready(events.next()),
        spoken: channel.contains(PollFlags::IN),
    })
}

impl Running {
    pub(crate) fn is_flood(&self) -> bool {
        self.stdout.is_flood() || self.stderr.is_flood()
    }

    /// Takes what the pipes hold already, and says what was cut.
    pub(crate) fn drain(
        &mut self,
        report: &mut StepReport,
        buffer: &mut [u8],
        output: OutputMode,
        channel: &mut impl Write,
    ) -> io::Result<()> {
        self.stdout.drain(buffer, output, channel)?;
        self.stderr.drain(buffer, output, channel)?;
        report.stdout_truncated = self.stdout.dropped > 0;
        report.stderr_truncated = self.stderr.dropped > 0;
        Ok(())
    }

    /// Counts anew, for the next cell.
    pub(crate) fn begin_anew(&mut self) {
        for stream in [&mut self.stdout, &mut self.stderr] {
            (stream.sent, stream.dropped) = (0, 0);
        }
    }
}

impl Stream {
    fn is_flood(&self) -> bool {
        self.dropped > FLOOD_BYTES
    }

    /// Reads once and sends what is within the limit. Returns how much was read.
    pub(crate) fn forward(
        &mut self,
        buffer: &mut [u8],
        output: OutputMode,
        channel: &mut impl Write,
    ) -> io::Result<usize> {
        let Some(pipe) = &mut self.pipe else { return Ok(0) };
        let read = match pipe.read(buffer) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(0),
            Err(_) => 0,
        };
        if read == 0 {
            self.pipe = None;
            return Ok(0);
        }
        let room = match output {
            OutputMode::All => u64::MAX,
            OutputMode::Keep(limit) => limit.saturating_sub(self.sent),
        };
        let kept = usize::try_from(room).unwrap_or(usize::MAX).min(read);
        if let Some(bytes) = buffer.get(..kept).filter(|bytes| !bytes.is_empty()) {
            write_frame(channel, self.kind, bytes)?;
        }
        self.sent += kept as u64;
        self.dropped += (read - kept) as u64;
        Ok(read)
    }

    /// Takes what is in the pipe already, without waiting for more.
    fn drain(&mut self, buffer: &mut [u8], output: OutputMode, channel: &mut impl Write) -> io::Result<()> {
        let mut taken = 0;
        while taken < DRAIN_BYTES {
            let Some(pipe) = &self.pipe else { break };
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            let mut polled = [PollFd::new(pipe, PollFlags::IN)];
            if !matches!(poll(&mut polled, Some(&now)), Ok(1..)) {
                break;
            }
            taken += self.forward(buffer, output, channel)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
