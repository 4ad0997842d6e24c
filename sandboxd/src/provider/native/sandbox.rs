//! One run of `native`: created, measured, released, gone.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use freeboard_control::{Door, Evidence};
use freeboard_guest::protocol::{
    Doors, JobSpec, Kind, OutputMode, Program, Ready, Report, ReportedEnding, SetupFailure, StepReport,
    decode_file, encode_file,
};
use futures_util::future::BoxFuture;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, pidfd_send_signal};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::channel::{Channel, Sender};
use super::link::{Child, Link, LinkError};
use super::outcome::Collector;
use super::session::NativeSession;
use crate::child::sys::watch_readable;
use crate::evidence::Expected;
use crate::input::Input;
use crate::isolate::cgroup::{Group, Usage};
use crate::isolate::{Boundary, environment};
use crate::job::{Ending, Job, Language, Outcome, OutputSink, Payload};
use crate::provider::{CreateError, RunFailure, Sandbox, Session};

/// How long building a boundary may take. It takes milliseconds; a host that needs this long is stuck.
const SETUP_LIMIT: Duration = Duration::from_secs(10);
/// The same where a kernel of the run's own starts: half a second on an idle machine, many on a busy one.
const KERNEL_SETUP_LIMIT: Duration = Duration::from_secs(45);
/// How much longer than its deadline a run may take before it is killed from outside: pid 1 inside stops it in time, and
/// this holds when pid 1 cannot.
const DEADLINE_GRACE: Duration = Duration::from_secs(2);
/// How long what runs around a broken guest program may take to say why.
const FAILURE_LIMIT: Duration = Duration::from_secs(1);
/// How long a killed run may take to be gone. Only a process stuck in the kernel takes longer; that is reported.
const GONE_LIMIT: Duration = Duration::from_secs(5);

/// How long an engine may take to remove what is left of a run that is dead: it deletes a copy of the image's files where its
/// storage knows nothing better.
const REMOVED_LIMIT: Duration = Duration::from_secs(30);

/// How a provider measures what was built.
pub(in crate::provider) type Measurement = Arc<dyn Fn(&Expected<'_>) -> io::Result<Evidence> + Send + Sync>;

/// The boundary of one run.
pub(in crate::provider) struct NativeSandbox {
    pub(super) boundary: Boundary,
    job: Job,
    pub(super) interpreters: Interpreters,
    measurement: Measurement,
    pub(super) channel: Channel,
    /// To what runs around the guest program, where that has a channel of its own.
    outer: Option<Channel>,
    /// On which a machine is asked about itself.
    monitor: Option<OwnedFd>,
    channel_inode: u64,
    ready: Ready,
    pub(super) doors: Vec<(Door, OwnedFd)>,
    pub(super) life: Life,
}

/// The programs that run snippets and cells: absolute in the guest.
#[derive(Debug, Clone)]
pub(in crate::provider) struct Interpreters {
    node: Option<String>,
    python: Option<String>,
}

impl Interpreters {
    pub(in crate::provider) fn of(node: Option<&Path>, python: Option<&Path>) -> Self {
        let text = |path: &Path| path.display().to_string();
        Self { node: node.map(text), python: python.map(text) }
    }

    /// Empty where there is none; whoever asks for it is refused before.
    fn program(&self, language: Language) -> String {
        let program = match language {
            Language::JavaScript => &self.node,
            Language::Python => &self.python,
        };
        program.clone().unwrap_or_default()
    }
}

/// Holds the run's life: dropping it kills everything inside.
pub(super) struct Life {
    pub(super) pid: i32,
    pidfd: OwnedFd,
    pub(super) group: Option<Group>,
    gone: Option<oneshot::Receiver<Usage>>,
    /// Somebody else counts what the run used, and removes the count with it.
    counted_elsewhere: bool,
    /// Keeps the launcher, and so the run, alive.
    _link: Option<Arc<Link>>,
}

/// A run that something else than our launcher started: a container engine.
pub(in crate::provider) struct Parts {
    pub boundary: Boundary,
    pub job: Job,
    pub interpreters: Interpreters,
    pub measurement: Measurement,
    /// A socket to the guest program.
    pub channel: OwnedFd,
    pub doors: Vec<(Door, OwnedFd)>,
    /// The first process, as the host numbers it, and the descriptor that names it.
    pub pid: i32,
    pub pidfd: OwnedFd,
    pub group: Group,
    /// Comes when nothing is left.
    pub gone: oneshot::Receiver<Usage>,
}

impl Drop for Life {
    fn drop(&mut self) {
        // It may be gone already; the descriptor names this process and never another.
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
    }
}

impl std::fmt::Debug for NativeSandbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NativeSandbox")
            .field("run", &self.boundary.run)
            .field("pid", &self.life.pid)
            .finish_non_exhaustive()
    }
}

impl NativeSandbox {
    /// Builds the boundary. When the future is dropped midway, the child sees the end of its channel and ends.
    pub(in crate::provider) async fn create(
        link: Arc<Link>,
        boundary: Boundary,
        job: Job,
        interpreters: Interpreters,
        measurement: Measurement,
    ) -> Result<Self, CreateError> {
        let step = |step: &str| {
            let step = step.to_owned();
            move |source| CreateError::Step { step, source }
        };
        let (channel, theirs) = Channel::pair().map_err(step("make the channel to the run"))?;
        let channel_inode =
            rustix::fs::fstat(&theirs).map_err(io::Error::from).map_err(step("look at the channel"))?;
        let limit = match &boundary.kernel {
            None => SETUP_LIMIT,
            Some(kernel) => kernel.setup_limit().unwrap_or(KERNEL_SETUP_LIMIT),
        };
        let child = link.create(boundary.clone(), theirs.as_fd()).await.map_err(|error| explain(&error))?;
        drop(theirs);
        let Child { pid, pidfd, group, gone } = child;
        let life = Life { pid, pidfd, group, gone: Some(gone), counted_elsewhere: false, _link: Some(link) };
        let mut sandbox = Self {
            boundary,
            job,
            interpreters,
            measurement,
            channel,
            outer: None,
            monitor: None,
            channel_inode: channel_inode.st_ino,
            ready: Ready::default(),
            doors: Vec::new(),
            life,
        };
        let built = timeout(limit, sandbox.wait_ready())
            .await
            .map_err(|_| step("wait for the boundary")(io::Error::from(io::ErrorKind::TimedOut)))
            .flatten();
        match built {
            Ok(()) => Ok(sandbox),
            Err(error) => {
                // Nothing of it is left when the caller hears of it: a second attempt may have the same name.
                let _ = sandbox.life.end().await;
                Err(error)
            }
        }
    }

    /// Takes a run over whose guest program is about to say that it stands.
    pub(in crate::provider) async fn over(parts: Parts, limit: Duration) -> Result<Self, CreateError> {
        let step = |source| CreateError::Step { step: "hear from the run's first process".into(), source };
        let Parts { boundary, job, interpreters, measurement, channel, doors, pid, pidfd, group, gone } =
            parts;
        let life =
            Life { pid, pidfd, group: Some(group), gone: Some(gone), counted_elsewhere: true, _link: None };
        let channel = Channel::over(channel).map_err(step)?;
        let mut sandbox = Self {
            boundary,
            job,
            interpreters,
            measurement,
            channel,
            outer: None,
            monitor: None,
            channel_inode: 0,
            ready: Ready::default(),
            doors,
            life,
        };
        let built = timeout(limit, sandbox.wait_ready()).await;
        match built.map_err(|_| step(io::Error::from(io::ErrorKind::TimedOut))).flatten() {
            Ok(()) => Ok(sandbox),
            Err(error) => {
                let _ = sandbox.life.end().await;
                Err(error)
            }
        }
    }

    /// Sends one frame before the job.
    pub(in crate::provider) async fn say(&mut self, kind: Kind, body: &[u8]) -> io::Result<()> {
        self.channel.send(kind, body).await
    }

    async fn wait_ready(&mut self) -> Result<(), CreateError> {
        let step = |source| CreateError::Step { step: "hear from the run's first process".into(), source };
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        loop {
            let (kind, body) = match self.channel.receive().await {
                Ok(frame) => frame,
                Err(error) => return Err(step(self.cause(error).await)),
            };
            match kind {
                Kind::Doors => {
                    let doors: Doors = serde_json::from_slice(&body).map_err(|error| step(error.into()))?;
                    let mut sockets = self.channel.take_descriptors();
                    if doors.guest_channel {
                        let guest = sockets.pop().ok_or_else(|| step(invalid()))?;
                        let guest = Channel::over(guest).map_err(step)?;
                        self.outer = Some(std::mem::replace(&mut self.channel, guest));
                    }
                    if doors.monitor {
                        self.monitor = Some(sockets.pop().ok_or_else(|| step(invalid()))?);
                    }
                    if sockets.len() != doors.doors.len() {
                        return Err(step(invalid()));
                    }
                    for (door, socket) in doors.doors.into_iter().zip(sockets) {
                        let door = serde_json::from_value(door).map_err(|error| step(error.into()))?;
                        self.doors.push((door, socket));
                    }
                }
                Kind::Ready => {
                    self.ready = serde_json::from_slice(&body).map_err(|error| step(error.into()))?;
                    return Ok(());
                }
                Kind::Failed => {
                    let failure: SetupFailure =
                        serde_json::from_slice(&body).map_err(|error| step(error.into()))?;
                    let source = match failure.errno {
                        Some(errno) => io::Error::from_raw_os_error(errno),
                        None => io::Error::other(failure.message),
                    };
                    return Err(setup_failed(failure.step, source));
                }
                _ => return Err(step(invalid())),
            }
        }
    }

    /// What runs around the guest program may know why its channel broke.
    async fn cause(&mut self, error: io::Error) -> io::Error {
        let Some(outer) = &mut self.outer else { return error };
        match timeout(FAILURE_LIMIT, outer.receive()).await {
            Ok(Ok((Kind::Failed, body))) => match serde_json::from_slice::<SetupFailure>(&body) {
                Ok(failure) => io::Error::other(format!("{}: {}", failure.step, failure.message)),
                Err(_) => error,
            },
            _ => error,
        }
    }

    /// In a session one program that uses the memory up shall not take the others with it. Where the group is an engine's, or
    /// around a kernel of the run's own, it stays as it is.
    pub(super) fn spare_the_rest(&self) -> io::Result<()> {
        let own = !self.life.counted_elsewhere && self.boundary.kernel.is_none();
        self.life.group.as_ref().filter(|_| own).map_or(Ok(()), Group::spare_the_rest)
    }

    /// Measures. `interpreters`: how many of them wait for a session's next cell.
    pub(super) fn measured(&self, interpreters: usize) -> io::Result<Evidence> {
        let expected = Expected {
            boundary: &self.boundary,
            pid: self.life.pid,
            group: self.life.group.as_ref(),
            channel_inode: self.channel_inode,
            inside: &self.ready.facts,
            interpreters,
            monitor: self.monitor.as_ref(),
        };
        (self.measurement)(&expected)
    }

    fn evidence(&self) -> Result<Evidence, CreateError> {
        let evidence = self
            .measured(0)
            .map_err(|source| CreateError::Step { step: "measure the boundary".into(), source })?;
        let missing: Vec<String> = evidence
            .facts
            .iter()
            .filter(|fact| !fact.met)
            .map(|fact| format!("{} is `{}`", fact.name, fact.value))
            .collect();
        if missing.is_empty() {
            return Ok(evidence);
        }
        Err(CreateError::Step {
            step: format!(
                "the boundary is not what tier `{}` requires: {}",
                evidence.tier,
                missing.join(", ")
            ),
            source: io::Error::from(io::ErrorKind::PermissionDenied),
        })
    }

    fn spec(&self, job: &Job, output: OutputMode) -> JobSpec {
        let user = if self.boundary.guest_ids().0 == 0 { "root" } else { "user" };
        let with_ca = !self.boundary.ca_pem.is_empty();
        JobSpec {
            program: self.program(&job.payload),
            environment: environment::environment(user, with_ca, &job.environment),
            artifacts: job.artifacts.clone(),
            timeout_ms: u64::try_from(job.timeout.as_millis()).unwrap_or(u64::MAX),
            output,
            artifact_limit: job.artifact_limit as u64,
            input: job.input.is_some(),
        }
    }

    fn program(&self, payload: &Payload) -> Program {
        match payload {
            Payload::JavaScript { code } => Program::Script {
                interpreter: vec![self.interpreters.program(Language::JavaScript), "-".into()],
                code: code.clone(),
            },
            Payload::Steps { steps } => Program::Steps { steps: steps.clone() },
            Payload::Command { argv } => Program::Command { argv: argv.clone() },
            Payload::Session => Program::Steps { steps: Vec::new() },
            Payload::Cell { language, code } => Program::Cell {
                language: *language,
                interpreter: self.interpreters.program(*language),
                code: code.clone(),
            },
        }
    }

    pub(super) async fn send_job(&mut self, job: Job, output: OutputMode) -> io::Result<()> {
        let spec = serde_json::to_vec(&self.spec(&job, output))?;
        self.channel.send(Kind::Job, &spec).await?;
        for file in job.files {
            self.channel.send(Kind::File, &encode_file(&file.path, &file.content)?).await?;
        }
        self.channel.send(Kind::Go, &[]).await
    }

    /// Collects what is reported, to the end of the report.
    pub(super) async fn hear(&mut self, collector: &mut Collector) -> io::Result<Report> {
        loop {
            let (kind, body) = self.channel.receive().await?;
            if let Some(report) = take(collector, kind, &body)? {
                return Ok(report);
            }
        }
    }

    /// Runs the job to the end of its report, its end by force, or the loss of the sandbox.
    async fn run(mut self, sink: Arc<dyn OutputSink>) -> Result<Outcome, RunFailure> {
        let lost = |error: io::Error| RunFailure::Lost(error.to_string());
        let job = self.job.clone();
        let output = output_mode(&job, sink.as_ref());
        let mut collector = Collector::new(commands(&job.payload), job.output_limit, sink);
        let end = Instant::now() + job.timeout + DEADLINE_GRACE;
        let input = job.input.clone();
        let conversation = async {
            self.send_job(job, output).await?;
            let Some(input) = input else { return self.hear(&mut collector).await };
            let way_in = self.channel.way_in()?;
            tokio::select! {
                report = self.hear(&mut collector) => report,
                error = pass_on(&input, way_in) => Err(error),
            }
        };
        let mut answer = tokio::time::timeout_at(end.into(), conversation).await;
        if let Ok(Err(error)) = answer {
            answer = Ok(Err(self.cause(error).await));
        }
        let usage = self.life.end().await?;
        match answer {
            Ok(Ok(report)) => Ok(collector.finish(report, usage, &self.boundary.limits)),
            // The kernel ended the whole run because its memory was used up, pid 1 included.
            Ok(Err(_)) if usage.memory_kills > 0 => Ok(collector.out_of_memory(usage, &self.boundary.limits)),
            // A kernel of the run's own may not survive that it gets no more threads.
            Ok(Err(_)) if self.boundary.kernel.is_some() && usage.pids_refusals > 0 => {
                Ok(collector.out_of_processes(usage, &self.boundary.limits))
            }
            Ok(Err(error)) => Err(lost(error)),
            Err(_) => Ok(collector.overdue()),
        }
    }
}

impl Life {
    /// Whether the first process, and with it everything inside, is dead.
    pub(super) fn is_over(&self) -> bool {
        let mut polled = [PollFd::new(&self.pidfd, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(poll(&mut polled, Some(&now)), Ok(1..))
    }

    /// Kills what is left and waits until nothing is.
    pub(super) async fn end(&mut self) -> Result<Usage, RunFailure> {
        let counted = match &self.group {
            Some(group) if self.counted_elsewhere => group.usage(),
            _ => Usage::default(),
        };
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
        let stuck = || RunFailure::Lost("a killed process of the run does not end".into());
        let gone = self.pidfd.try_clone().and_then(watch_readable);
        let gone = gone.map_err(|error| RunFailure::Lost(error.to_string()))?;
        // Readable when pid 1 is dead, which is after everything in its namespace is.
        let _ = timeout(GONE_LIMIT, gone.readable()).await.map_err(|_| stuck())?;
        let Some(usage) = self.gone.take() else { return Ok(counted) };
        let limit = if self.counted_elsewhere { REMOVED_LIMIT } else { GONE_LIMIT };
        // A lost launcher cannot say what was used; the run is over all the same.
        let usage = timeout(limit, usage).await.map_err(|_| stuck())?.unwrap_or_default();
        Ok(if self.counted_elsewhere { counted } else { usage })
    }
}

impl Sandbox for NativeSandbox {
    fn measure(&mut self) -> BoxFuture<'_, Result<Evidence, CreateError>> {
        // A few dozen reads of /proc, which do not wait for anything.
        Box::pin(async move { self.evidence() })
    }

    fn give_to(&mut self, job: &Job) -> bool {
        self.job = job.clone();
        !self.life.is_over()
    }

    fn take_doors(&mut self) -> Vec<(Door, OwnedFd)> {
        std::mem::take(&mut self.doors)
    }

    fn release(
        self: Box<Self>,
        output: Arc<dyn OutputSink>,
    ) -> BoxFuture<'static, Result<Outcome, RunFailure>> {
        Box::pin(self.run(output))
    }

    fn into_session(self: Box<Self>) -> BoxFuture<'static, Result<Box<dyn Session>, CreateError>> {
        Box::pin(async move {
            let session = NativeSession::begin(*self).await?;
            Ok(Box::new(session) as Box<dyn Session>)
        })
    }
}

/// Sends standard input as it comes, for as long as the run goes on; ends only with an error.
async fn pass_on(input: &Input, mut way_in: Sender) -> io::Error {
    let sent = async {
        while let Some(piece) = input.next().await {
            way_in.send(Kind::Stdin, &piece).await?;
        }
        way_in.send(Kind::StdinEnd, &[]).await
    };
    match sent.await {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => error,
        // All is there, or the run ends just now: the report says how.
        _ => std::future::pending().await,
    }
}

pub(super) fn output_mode(job: &Job, sink: &dyn OutputSink) -> OutputMode {
    if sink.wants_all() { OutputMode::All } else { OutputMode::Keep(job.output_limit as u64) }
}

/// Takes one frame of the run; the report is the last.
fn take(collector: &mut Collector, kind: Kind, body: &[u8]) -> io::Result<Option<Report>> {
    match kind {
        Kind::StepBegins => collector.begin(),
        Kind::Stdout => collector.stdout(body),
        Kind::Stderr => collector.stderr(body),
        Kind::StepEnds => collector.end(serde_json::from_slice::<StepReport>(body)?),
        Kind::Artifact => {
            let (path, content) =
                decode_file(body).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
            collector.artifact(path, content);
        }
        Kind::Done => return Ok(Some(serde_json::from_slice(body)?)),
        _ => return Err(io::Error::from(io::ErrorKind::InvalidData)),
    }
    Ok(None)
}

/// What each step is called in the result.
pub(super) fn commands(payload: &Payload) -> Vec<String> {
    match payload {
        Payload::JavaScript { .. } => vec!["node".into()],
        Payload::Steps { steps } => steps.clone(),
        Payload::Command { argv } => vec![argv.join(" ")],
        Payload::Session => Vec::new(),
        Payload::Cell { language, .. } => vec![language.word().into()],
    }
}

/// Says what of the host is missing, and how to mend it.
fn explain(error: &LinkError) -> CreateError {
    let LinkError::Failed { step, errno, message } = error else {
        return CreateError::Host { what: error.to_string(), help: "see the log of sandboxd".into() };
    };
    let help = match (step.as_str(), errno.map(io::Error::from_raw_os_error).map(|error| error.kind())) {
        ("clone into new namespaces", Some(io::ErrorKind::PermissionDenied)) => {
            "this user may not make user namespaces: allow them (sysctl kernel.unprivileged_userns_clone=1, \
             kernel.apparmor_restrict_unprivileged_userns=0) or run sandboxd as root"
        }
        ("clone into new namespaces", _) => {
            "no more namespaces can be made: see sysctl user.max_user_namespaces and user.max_net_namespaces"
        }
        ("write the id maps", _) => "the host does not let this user map ids: run sandboxd as root",
        _ => "see `sandboxd doctor`",
    };
    CreateError::Host { what: format!("cannot {step}: {message}"), help: help.into() }
}

/// An ordinary user who may make a user namespace but gets no rights in it (AppArmor on Ubuntu) fails in the middle of
/// the setup: that is the host's doing, and can be mended.
fn setup_failed(step: String, source: io::Error) -> CreateError {
    if source.kind() == io::ErrorKind::PermissionDenied && !rustix::process::geteuid().is_root() {
        return CreateError::Host {
            what: format!("cannot {step}: {source}"),
            help: "user namespaces have no rights on this host: set sysctl \
                   kernel.apparmor_restrict_unprivileged_userns=0, give sandboxd an AppArmor profile that allows \
                   `userns`, or run it as root"
                .into(),
        };
    }
    CreateError::Step { step, source }
}

/// How the guest's report reads as the ending of the run.
pub(super) fn ending(reported: ReportedEnding) -> Ending {
    match reported {
        ReportedEnding::Completed => Ending::Completed,
        ReportedEnding::TimedOut => Ending::TimedOut,
        ReportedEnding::SetupFailed | ReportedEnding::FilesRefused | ReportedEnding::NoInterpreter => {
            Ending::SetupFailed
        }
    }
}
