//! The life of pid 1 after the boundary stands: wait for the job, run it, report, end.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use crate::channel::Channel;
use crate::files::Existing;
use crate::input::Input;
use crate::machine::Group;
use crate::processes::{Kept, strike, wait_for_all};
use crate::protocol::{
    CERTIFICATES, Counted, JobSpec, Kind, Program, Report, ReportedEnding, StepReport, decode_file,
    read_frame, write_frame,
};
use crate::step::{Start, run_step};
use crate::user::StepUser;
use crate::{artifacts, files, session};

/// Where the guest program finds itself.
#[derive(Debug)]
pub struct Surroundings {
    /// The work directory, which is also the current one.
    pub work: OwnedFd,
    /// The steps' user, when it is another than this process's.
    pub step_user: Option<StepUser>,
    /// The group of all processes, where this kernel is the run's own and holds its limits.
    pub group: Option<Group>,
}

impl Surroundings {
    pub(crate) fn counted(&self) -> Counted {
        self.group.as_ref().map(Group::counted).unwrap_or_default()
    }
}

/// Why the guest program gave up. Nobody inside hears it: the daemon sees the channel close.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    #[error("the channel to the daemon failed")]
    Channel(#[from] io::Error),
    #[error("the daemon sent something else than a job")]
    Protocol,
    #[error("the job does not decode")]
    Job(#[from] serde_json::Error),
}

/// Waits for a job and runs it, or serves a session's calls. When it returns, the caller ends the process, and with it the
/// sandbox.
///
/// Until the job arrives nothing of the user is here, and the process may be inspected from outside. With the job it
/// becomes opaque to everybody inside.
pub fn run(mut channel: Channel, surroundings: &Surroundings) -> Result<(), GuestError> {
    loop {
        match read_frame(&mut channel)? {
            (Kind::Place, body) => place_certificate(&body)?,
            (Kind::Job, body) => return once(&body, channel, surroundings),
            (Kind::Session, _) => return session::serve(channel, surroundings),
            _ => return Err(GuestError::Protocol),
        }
    }
}

/// A file for tools that look for certificates there. No step is alive yet.
fn place_certificate(body: &[u8]) -> Result<(), GuestError> {
    let (path, content) = decode_file(body).ok_or(GuestError::Protocol)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(CERTIFICATES, flags, Mode::empty()).map_err(io::Error::from)?;
    Ok(files::place(&folder, path, content, Existing::Replace)?)
}

/// The one job of a run.
fn once(body: &[u8], mut channel: Channel, surroundings: &Surroundings) -> Result<(), GuestError> {
    let job: JobSpec = serde_json::from_slice(body)?;
    // SECURITY: the steps run under our user. This keeps our memory, descriptors and environment in /proc from them and
    // forbids tracing (test: a_step_cannot_look_into_pid_1).
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(io::Error::from)?;
    let refused = receive_files(&mut channel, surroundings, Existing::Refuse)?;
    let nobody = &mut Kept::default();
    let mut report = match refused {
        Some(detail) => Report { ending: ReportedEnding::SetupFailed, detail, ..Report::default() },
        None => run_steps(&job, &mut channel, surroundings.step_user, nobody)?,
    };
    say_full(&mut report, surroundings);
    report.counted = surroundings.counted();
    strike(nobody);
    wait_for_all();
    report.artifacts_truncated =
        artifacts::send(&mut channel, &surroundings.work, &job.artifacts, job.artifact_limit)?;
    write_frame(&mut channel, Kind::Done, &serde_json::to_vec(&report)?)?;
    Ok(())
}

/// Takes the files until `Go`. The first file that cannot be placed is the answer; the rest is still read.
pub(crate) fn receive_files(
    channel: &mut Channel,
    surroundings: &Surroundings,
    existing: Existing,
) -> Result<Option<String>, GuestError> {
    let mut refused = None;
    loop {
        let (kind, body) = read_frame(channel)?;
        match kind {
            Kind::Go => return Ok(refused),
            Kind::File => {
                let (path, content) = decode_file(&body).ok_or(GuestError::Protocol)?;
                if refused.is_none()
                    && let Err(error) = files::place(&surroundings.work, path, content, existing)
                {
                    refused = Some(format!("cannot place file `{path}`: {error}"));
                }
            }
            _ => return Err(GuestError::Protocol),
        }
    }
}

pub(crate) fn run_steps(
    job: &JobSpec,
    channel: &mut Channel,
    user: Option<StepUser>,
    kept: &mut Kept,
) -> Result<Report, GuestError> {
    let deadline = Instant::now() + Duration::from_millis(job.timeout_ms);
    let mut report = Report::default();
    let mut input = if job.input { Some(Input::new()?) } else { None };
    for argv in command_lines(&job.program) {
        let stdin = match &input {
            Some(input) => input.reader().map(Some),
            None => script_input(&job.program),
        };
        let stdin = match stdin {
            Ok(stdin) => stdin,
            Err(error) => {
                report.ending = ReportedEnding::SetupFailed;
                report.detail = format!("cannot place the script: {error}");
                break;
            }
        };
        write_frame(channel, Kind::StepBegins, &[])?;
        let start = Start { argv: &argv, stdin, environment: &job.environment, user };
        let step: StepReport = run_step(start, input.as_mut(), deadline, job.output, channel, kept)?;
        write_frame(channel, Kind::StepEnds, &serde_json::to_vec(&step)?)?;
        if step.timed_out {
            report.ending = ReportedEnding::TimedOut;
        }
        if step.exit_code != 0 {
            break;
        }
    }
    Ok(report)
}

fn command_lines(program: &Program) -> Vec<Vec<String>> {
    match program {
        Program::Script { interpreter, .. } => vec![interpreter.clone()],
        Program::Steps { steps } => {
            steps.iter().map(|step| vec!["/bin/sh".into(), "-c".into(), step.clone()]).collect()
        }
        Program::Command { argv } => vec![argv.clone()],
        // Cells have an interpreter, not a command line.
        Program::Cell { .. } => Vec::new(),
    }
}

/// The script as an unnamed file in the work directory: it appears in no listing and counts to no artifact.
fn script_input(program: &Program) -> io::Result<Option<OwnedFd>> {
    let Program::Script { code, .. } = program else { return Ok(None) };
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    let mut file = match rustix::fs::open(".", flags, Mode::from_raw_mode(0o600)) {
        Ok(file) => File::from(file),
        // A kernel without unnamed files (gVisor); memory without a name serves as well.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {
            File::from(rustix::fs::memfd_create("script", MemfdFlags::CLOEXEC)?)
        }
        Err(error) => return Err(error.into()),
    };
    file.write_all(code.as_bytes())?;
    rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0))?;
    Ok(Some(file.into()))
}

/// Whether no block or no inode is free where a step writes. Looked at before anything is captured or tidied.
pub(crate) fn say_full(report: &mut Report, surroundings: &Surroundings) {
    let is_full = |state: rustix::fs::StatVfs| {
        full(state.f_blocks, state.f_bavail) || full(state.f_files, state.f_ffree)
    };
    report.disk_full = rustix::fs::fstatvfs(surroundings.work.as_fd()).is_ok_and(is_full);
    report.tmp_full = rustix::fs::statvfs("/tmp").is_ok_and(is_full);
}

/// A file system that counts something and has none of it left.
fn full(total: u64, free: u64) -> bool {
    total > 0 && free == 0
}
