//! A session: call after call in one sandbox. Between two calls nothing runs, and the process may be measured again.

use std::io;
use std::time::{Duration, Instant};

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use crate::artifacts;
use crate::cells::{Cell, Cells, Ran};
use crate::channel::Channel;
use crate::files::Existing;
use crate::processes::sweep;
use crate::protocol::{
    JobSpec, Kind, Program, Report, ReportedEnding, SessionReport, read_frame, write_frame,
};
use crate::run::{GuestError, Surroundings, receive_files, run_steps, say_full};

/// Serves calls until the daemon hangs up.
pub(crate) fn serve(mut channel: Channel, surroundings: &Surroundings) -> Result<(), GuestError> {
    let mut cells = Cells::default();
    loop {
        let (kind, body) = read_frame(&mut channel)?;
        // SECURITY: as for a single run, and before anything of a call is alive again.
        set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(io::Error::from)?;
        let report = match kind {
            // It came when the call was over.
            Kind::Cancel => {
                set_dumpable_behavior(DumpableBehavior::Dumpable).map_err(io::Error::from)?;
                continue;
            }
            Kind::Suspend => suspend(&mut cells),
            Kind::Job => call(&serde_json::from_slice(&body)?, &mut channel, surroundings, &mut cells)?,
            _ => return Err(GuestError::Protocol),
        };
        // Before the daemon hears that the call is over: it may measure from then on. Everything else is dead or stopped, so
        // nobody inside can make use of it.
        set_dumpable_behavior(DumpableBehavior::Dumpable).map_err(io::Error::from)?;
        write_frame(&mut channel, Kind::Done, &serde_json::to_vec(&report)?)?;
    }
}

/// Ends the interpreters; the files stay.
fn suspend(cells: &mut Cells) -> Report {
    cells.end();
    let clean = sweep(&mut cells.kept);
    Report { session: Some(SessionReport { clean, ..SessionReport::default() }), ..Report::default() }
}

fn call(
    job: &JobSpec,
    channel: &mut Channel,
    surroundings: &Surroundings,
    cells: &mut Cells,
) -> Result<Report, GuestError> {
    let before = surroundings.counted();
    let refused = receive_files(channel, surroundings, Existing::Replace)?;
    let mut report = match (refused, &job.program) {
        (Some(detail), Program::Cell { .. }) => {
            Report { ending: ReportedEnding::FilesRefused, detail, ..Report::default() }
        }
        (Some(detail), _) => Report { ending: ReportedEnding::SetupFailed, detail, ..Report::default() },
        (None, Program::Cell { .. }) => cell(job, channel, surroundings, cells)?,
        (None, _) => run_steps(job, channel, surroundings.step_user, &mut cells.kept)?,
    };
    say_full(&mut report, surroundings);
    report.counted = surroundings.counted().since(before);
    let mut session = report.session.unwrap_or_default();
    session.clean = sweep(&mut cells.kept);
    cells.forget_dead();
    session.interpreters = u32::try_from(cells.kept.count()).unwrap_or(u32::MAX);
    report.session = Some(session);
    report.artifacts_truncated =
        artifacts::send(channel, &surroundings.work, &job.artifacts, job.artifact_limit)?;
    Ok(report)
}

fn cell(
    job: &JobSpec,
    channel: &mut Channel,
    surroundings: &Surroundings,
    cells: &mut Cells,
) -> Result<Report, GuestError> {
    let Program::Cell { language, interpreter, code } = &job.program else {
        return Err(GuestError::Protocol);
    };
    let cell = Cell {
        language: *language,
        interpreter,
        code,
        environment: &job.environment,
        user: surroundings.step_user,
        deadline: Instant::now() + Duration::from_millis(job.timeout_ms),
        output: job.output,
    };
    let mut report = Report::default();
    match cells.run(&cell, channel)? {
        Ran::NotReady(detail) => {
            report.ending = ReportedEnding::NoInterpreter;
            report.detail = detail;
        }
        Ran::Over { step, started, ended } => {
            if step.timed_out {
                report.ending = ReportedEnding::TimedOut;
            }
            report.session = Some(SessionReport { started, ended, ..SessionReport::default() });
            write_frame(channel, Kind::StepEnds, &serde_json::to_vec(&step)?)?;
        }
    }
    Ok(report)
}
