//! A sandbox that serves the calls of a session.

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use freeboard_control::{Door, Evidence, Fact};
use freeboard_guest::protocol::{Kind, Report, ReportedEnding, SessionReport, header};
use futures_util::future::BoxFuture;
use tokio::time::{timeout, timeout_at};

use super::outcome::Collector;
use super::sandbox::{NativeSandbox, commands, output_mode};
use crate::evidence::container::DESCRIPTORS;
use crate::evidence::process::Process;
use crate::isolate::cgroup::Usage;
use crate::job::{Job, NoSink, OutputSink};
use crate::provider::{
    CallFailure, Called, Cancel, CellEnd, CreateError, Over, ReadBack, RunFailure, Session,
};

/// How much longer than its deadline a call may take before its sandbox is killed from outside. Inside, the deadline is
/// kept, what the call left is killed, and artifacts are sent; on a busy machine that takes its time.
const CALL_GRACE: Duration = Duration::from_secs(15);
/// How long ending the interpreters may take.
const SUSPEND_LIMIT: Duration = Duration::from_secs(15);

pub(super) struct NativeSession {
    sandbox: NativeSandbox,
    /// As measured when it was opened.
    opened: Evidence,
    /// Interpreters that wait, stopped, for their next cell.
    interpreters: usize,
    /// A second handle of the channel, on which a call can be cancelled while its report is awaited on the first.
    canceller: UnixStream,
}

impl NativeSession {
    /// Tells the guest program that calls follow.
    pub(super) async fn begin(mut sandbox: NativeSandbox) -> Result<Self, CreateError> {
        let failed = |source| CreateError::Step { step: "begin the session".into(), source };
        sandbox.spare_the_rest().map_err(failed)?;
        let opened = sandbox.measured(0).map_err(failed)?;
        let canceller = sandbox.channel.second_handle().map_err(failed)?;
        sandbox.channel.send(Kind::Session, &[]).await.map_err(failed)?;
        Ok(Self { sandbox, opened, interpreters: 0, canceller })
    }

    async fn converse(
        &mut self,
        job: Job,
        cancel: Cancel,
        sink: Arc<dyn OutputSink>,
    ) -> Result<Called, CallFailure> {
        let before = self.usage();
        let output = output_mode(&job, sink.as_ref());
        let mut collector = Collector::new(commands(&job.payload), job.output_limit, sink);
        let end = Instant::now() + job.timeout + CALL_GRACE;
        let sandbox = &mut self.sandbox;
        let canceller = &mut self.canceller;
        let conversation = async {
            sandbox.send_job(job, output).await?;
            let mut report = pin!(sandbox.hear(&mut collector));
            tokio::select! {
                report = &mut report => report,
                () = cancel.notified() => {
                    // Five bytes into a socket that is empty in this direction. Failing, the call ends at its deadline.
                    let _ = header(Kind::Cancel, 0).and_then(|frame| canceller.write_all(&frame));
                    report.await
                }
            }
        };
        match timeout_at(end.into(), conversation).await {
            Ok(Ok(report)) => self.settle(collector, report, before),
            Ok(Err(error)) => self.lost(collector, error).await,
            Err(_) => {
                self.sandbox.life.end().await.map_err(CallFailure::Lost)?;
                Ok(called(collector.overdue(), Some(Over::BoundaryFailed)))
            }
        }
    }

    fn settle(&mut self, collector: Collector, report: Report, before: Usage) -> Result<Called, CallFailure> {
        let session = report.session.clone().unwrap_or_default();
        self.interpreters = session.interpreters as usize;
        match report.ending {
            ReportedEnding::FilesRefused => return Err(CallFailure::Files(report.detail)),
            ReportedEnding::NoInterpreter => return Err(CallFailure::NoInterpreter(report.detail)),
            ReportedEnding::Completed | ReportedEnding::TimedOut | ReportedEnding::SetupFailed => {}
        }
        let over = (!self.is_clean(&session)).then_some(Over::BoundaryFailed);
        let now = self.usage();
        let used = Usage {
            memory_kills: now.memory_kills.saturating_sub(before.memory_kills),
            pids_refusals: now.pids_refusals.saturating_sub(before.pids_refusals),
            ..now
        };
        let limits = self.sandbox.boundary.limits;
        let cell = CellEnd { started: session.started, ended: session.ended };
        Ok(Called { cell, ..called(collector.finish(report, used, &limits), over) })
    }

    /// The first process is gone in the middle of a call.
    async fn lost(&mut self, collector: Collector, error: io::Error) -> Result<Called, CallFailure> {
        let used = self.sandbox.life.end().await.map_err(CallFailure::Lost)?;
        let limits = self.sandbox.boundary.limits;
        if used.memory_kills > 0 {
            let outcome = collector.out_of_memory(used, &limits);
            return Ok(called(outcome, Some(Over::MainProcessEnded)));
        }
        Err(CallFailure::Lost(RunFailure::Lost(error.to_string())))
    }

    /// Nothing but the stopped interpreters is alive.
    ///
    /// SECURITY: what is left would run beside the next call, with its grants. The guest program sees all processes that
    /// do not hide; on the host's kernel the host sees those as well (test: a_process_that_hides_ends_the_session).
    fn is_clean(&self, session: &SessionReport) -> bool {
        if self.sandbox.boundary.kernel.is_some() {
            return session.clean;
        }
        let Ok(processes) = Process::descendants(self.sandbox.life.pid) else { return false };
        let is_alive = |process: &&Process| {
            process.status().is_ok_and(|status| !status.value("State").starts_with(['Z', 'X']))
        };
        session.clean && processes.iter().filter(is_alive).count() <= self.interpreters
    }

    fn usage(&self) -> Usage {
        self.sandbox.life.group.as_ref().map(crate::isolate::cgroup::Group::usage).unwrap_or_default()
    }
}

fn called(outcome: crate::job::Outcome, over: Option<Over>) -> Called {
    Called { outcome, cell: CellEnd::default(), over }
}

impl Session for NativeSession {
    fn read_back(&mut self) -> Result<(), ReadBack> {
        if self.sandbox.life.is_over() {
            return Err(ReadBack::Gone);
        }
        let now = self.sandbox.measured(self.interpreters).map_err(ReadBack::Unreadable)?;
        match difference(&self.opened, &now) {
            None => Ok(()),
            Some(name) => Err(ReadBack::Changed(name)),
        }
    }

    fn doors(&self) -> io::Result<Vec<(Door, OwnedFd)>> {
        self.sandbox.doors.iter().map(|(door, socket)| Ok((*door, socket.try_clone()?))).collect()
    }

    fn call(
        &mut self,
        job: Job,
        cancel: Cancel,
        output: Arc<dyn OutputSink>,
    ) -> BoxFuture<'_, Result<Called, CallFailure>> {
        Box::pin(self.converse(job, cancel, output))
    }

    fn suspend(&mut self) -> BoxFuture<'_, Result<(), RunFailure>> {
        Box::pin(async move {
            let lost = |text: String| RunFailure::Lost(text);
            let mut collector = Collector::new(Vec::new(), 0, Arc::new(NoSink));
            let conversation = async {
                self.sandbox.channel.send(Kind::Suspend, &[]).await?;
                self.sandbox.hear(&mut collector).await
            };
            let report = timeout(SUSPEND_LIMIT, conversation)
                .await
                .map_err(|_| lost("the sandbox does not answer".into()))?
                .map_err(|error| lost(error.to_string()))?;
            self.interpreters = 0;
            if report.session.is_some_and(|session| self.is_clean(&session)) {
                Ok(())
            } else {
                Err(lost("a process is left".into()))
            }
        })
    }

    fn end(mut self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            if let Err(error) = self.sandbox.life.end().await {
                tracing::warn!(run = self.sandbox.boundary.run, %error, "a session's sandbox does not end");
            }
        })
    }
}

/// The first fact that is not what it was. How many descriptors the first process has depends on the interpreters.
fn difference(opened: &Evidence, now: &Evidence) -> Option<String> {
    if opened.tier != now.tier || opened.facts.len() != now.facts.len() {
        return Some("tier".into());
    }
    let same = |old: &Fact, new: &Fact| {
        old.name == new.name && new.met && (old.value == new.value || new.name == DESCRIPTORS)
    };
    let mut pairs = opened.facts.iter().zip(&now.facts);
    pairs.find(|(old, new)| !same(old, new)).map(|(_, new)| format!("{} is `{}`", new.name, new.value))
}
