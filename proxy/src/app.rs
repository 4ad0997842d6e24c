//! The broker from configuration to its end: builds every part in order, or says which one is missing.
//!
//! In: [`Config`]. Out: the cause of its end. What needs privilege (CA key, sockets) comes first, then privileges go, then
//! everything else; so what is read later, and read again at each reload, is read as the user that the broker is.

use std::io;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use freeboard_audit::{Event, Loaded as Cause, Started, Stopped};
use freeboard_control::{Evidence, Lifeline, OpenGate, ServiceManager, Sockets};
use freeboard_policy::{Policy, Tier};
use tokio_util::sync::CancellationToken;

use crate::accept::explicit::Entrance;
use crate::accept::guard::guard_config;
use crate::accept::worker::Workers;
use crate::broker::{Broker, Clock};
use crate::config::{Config, ExplicitRun, Guard};
use crate::confine::{ConfineError, confine};
use crate::control_server::{ControlServer, GateCount};
use crate::credential::unready;
use crate::error::Stop;
use crate::helpers;
use crate::limits::TRACES_END;
use crate::operate::Operate;
use crate::privileges::{self, Identity, PrivilegeError};
use crate::record::{LogError, Recorder, Writer, gate_opened};
use crate::reload::{self, LoadError, Reloader};
use crate::run::RunContext;
use crate::shutdown::{Asked, Signals, Until, drain};
use crate::tasks::Tasks;
use crate::tls::{Authority, AuthorityError, CaError, CertificateAuthority};
use crate::traces::{Exporter, Traces};
use crate::upstream::dial::{DialSettings, Dialler};
use crate::upstream::trust::Trust;

/// Why the broker did not start. Each variant has an exit code of its own.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("no interception CA")]
    Ca(#[from] CaError),
    #[error("the interception CA cannot be used")]
    Authority(#[from] AuthorityError),
    #[error("no policy")]
    Policy(#[from] LoadError),
    #[error("no audit log")]
    Audit(#[from] LogError),
    #[error("the audit log cannot be written")]
    AuditRefused,
    #[error("cannot listen on `{address}`")]
    Listen { address: String, source: io::Error },
    #[error("another broker listens on `{}`", path.display())]
    AlreadyListening { path: PathBuf },
    #[error("privileges cannot be dropped")]
    Privileges(#[from] PrivilegeError),
    #[error("the explicit run `{id}` cannot be opened: {stop}")]
    ExplicitRun { id: String, stop: Stop },
    #[error("the token hash `{}` of an explicit run cannot be used: {problem}", path.display())]
    TokenHash { path: PathBuf, problem: String },
    #[error("the socket that the service manager handed over as number {place} cannot be used")]
    HandedOver { place: usize, source: io::Error },
    #[error("--stop-with-stdin needs a pipe as standard input")]
    Lifeline(#[source] io::Error),
    #[error("the guard cannot be served: {0}")]
    Guard(String),
    #[error(transparent)]
    Confine(#[from] ConfineError),
    #[error("secrets that others can read: {0}")]
    ReadableSecrets(String),
    #[error("the process that runs helpers cannot be started")]
    Helpers(#[source] io::Error),
    #[error("the system gives no threads or descriptors")]
    System(#[source] io::Error),
}

/// A broker that holds everything it needs and serves nothing yet.
#[derive(Debug)]
pub struct App {
    config: Config,
    broker: Arc<Broker>,
    writer: Writer,
    workers: Arc<Workers>,
    control: Control,
    explicit: Option<TcpListener>,
    guard: Option<(TcpListener, Entrance)>,
    metrics: Option<TcpListener>,
    exporter: Option<Exporter>,
    /// Of the explicit runs, in their order.
    tokens: Vec<[u8; 32]>,
    files: usize,
    warnings: usize,
}

impl App {
    /// Builds everything. Drops privileges for the whole process; must run before any other thread exists. Sockets that
    /// the service manager bound are served instead of ones of our own: the control socket first, then the explicit door.
    pub fn start(config: Config, mut handed: Sockets) -> Result<Self, StartError> {
        let clock = Clock;
        let identity = privileges::identity(&config.user)?;
        let ca =
            CertificateAuthority::load(&config.ca_certificate, &config.ca_key, clock.now().unix_seconds())?;
        let control = Control::listen(&config.control_socket, &identity, &mut handed)?;
        let explicit =
            config.explicit_listen.map(|address| bind_explicit(address, &mut handed)).transpose()?;
        let guard = bind_guard(&config.guard)?;
        let metrics = bind_metrics(&config)?;
        hand_over_audit(&config.audit.folder, &identity);
        // Before privileges go: our program may lie where its own user cannot reach it.
        helpers::start(&identity).map_err(StartError::Helpers)?;
        privileges::drop_to(&identity)?;

        // Before the broker confines itself: a folder that is made later is none of its places. The log says what is amiss.
        let _ = make_private(&config.audit.folder);
        let read = reload::read(&config.policy)?;
        let tokens = config.explicit_runs.iter().map(|run| token_hash(&run.token_sha256_file));
        let tokens = tokens.collect::<Result<Vec<_>, _>>()?;
        refuse_readable_secrets(&read.snapshot.policy)?;
        confine(&config, &read.snapshot.policy)?;
        let (recorder, writer) = Recorder::start(config.audit.clone(), clock)?;
        let settings = DialSettings {
            hosts: config.hosts.clone(),
            own_listeners: [
                config.explicit_listen,
                config.guard.listen,
                config.metrics.listen,
                config.otlp_collector,
            ]
            .into_iter()
            .flatten()
            .collect(),
            chain: config.upstream_proxy.clone(),
        };
        let dialler = Dialler::new(settings, Trust::system());
        let (traces, exporter) = config.otlp_collector.map(Traces::to).unzip();
        let authority = Authority::new(Arc::new(ca))?;
        let mut broker = Broker::new(read.snapshot, authority, dialler, recorder);
        broker.traces = traces;
        let broker = Arc::new(broker);
        record_start(&broker)?;
        let workers = Arc::new(Workers::start(worker_count(config.workers)).map_err(StartError::System)?);
        for warning in &read.warnings {
            tracing::warn!("{}", warning.render().trim_end());
        }
        let (files, warnings) = (read.files, read.warnings.len());
        Ok(Self {
            config,
            broker,
            writer,
            workers,
            control,
            explicit,
            guard,
            metrics,
            exporter,
            tokens,
            files,
            warnings,
        })
    }

    /// Serves until a signal (or `until`), then ends in order. `ready` is called once everything listens.
    pub fn run(self, until: Until, ready: impl FnOnce()) -> Result<(), StartError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(StartError::System)?;
        let broker = Arc::clone(&self.broker);
        let writer = runtime.block_on(self.serve(until, ready))?;
        // Ends tasks that still hold the broker, then the log.
        drop(runtime);
        drop(broker);
        writer.stop();
        Ok(())
    }

    async fn serve(self, until: Until, ready: impl FnOnce()) -> Result<Writer, StartError> {
        let Self {
            config,
            broker,
            writer,
            workers,
            control,
            explicit,
            guard,
            metrics,
            exporter,
            tokens,
            files,
            warnings,
        } = self;
        let lifeline = match until {
            Until::Signal => None,
            Until::StdinEnds => Some(Lifeline::of_stdin().map_err(StartError::Lifeline)?),
        };
        let mut signals = Signals::listen(lifeline).map_err(StartError::System)?;
        let mut reloader = Reloader::new(config.policy.clone(), Arc::clone(&broker), files, warnings);
        for (run, token) in config.explicit_runs.iter().zip(tokens) {
            workers.keep(&open_explicit_run(run, token, &broker)?, &broker);
        }
        if let Some(listener) = explicit {
            workers.open_explicit(listener, Entrance::Explicit, &broker);
        }
        if let Some((listener, entrance)) = guard {
            workers.open_explicit(listener, entrance, &broker);
        }
        let server = Arc::new(ControlServer {
            broker: Arc::clone(&broker),
            workers: Arc::clone(&workers),
            uids: allowed_uids(&config),
            gates: GateCount::new(config.max_gates),
        });
        let mut tasks = Tasks::default();
        let listener = tokio::net::UnixListener::from_std(control.listener).map_err(StartError::System)?;
        tasks.spawn("control", Arc::clone(&server).serve(listener));
        if let Some(listener) = metrics {
            let operate = Operate::new(&broker, &workers);
            tasks.spawn("metrics", operate.serve(listener));
        }
        let told = CancellationToken::new();
        let telling = exporter.map(|exporter| tokio::spawn(exporter.run(told.clone())));
        ready();
        ServiceManager.ready("serving");
        let cause = tokio::select! {
            cause = supervise(&mut signals, &mut reloader, config.reload_every) => cause,
            never = say_alive(&workers) => match never {},
        };
        tracing::info!(cause, "stopping");
        ServiceManager.stopping();
        let cut = drain(&broker, config.grace, &mut signals).await;
        // Closes every control connection and with it every gate; what is still in flight is cut.
        drop(tasks);
        broker.runs.end_all();
        end_recorded(&broker, &server.gates, cause, cut).await;
        drop(workers);
        told.cancel();
        if let Some(telling) = telling {
            // What the collector does not take now is lost with the broker.
            let _ = tokio::time::timeout(TRACES_END, telling).await;
        }
        if control.own {
            // Best effort: the next start replaces a socket that nobody listens on.
            let _ = std::fs::remove_file(&config.control_socket);
        }
        Ok(writer)
    }
}

/// Reloads when asked until told to stop; the signal's name.
async fn supervise(
    signals: &mut Signals,
    reloader: &mut Reloader,
    every: Option<std::time::Duration>,
) -> &'static str {
    let mut look = every.map(tokio::time::interval);
    loop {
        let tick = async {
            match &mut look {
                Some(interval) => {
                    interval.tick().await;
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            asked = signals.next() => match asked {
                Asked::Reload => reloader.reload(Cause::Signal),
                Asked::Stop(name) => return name,
            },
            () = tick => reloader.look(),
        }
    }
}

/// SECURITY: what other users could read is no secret any more; serving on would hide that. Guarded by
/// `does_not_start_with_a_secret_that_others_can_read`.
fn refuse_readable_secrets(policy: &Policy) -> Result<(), StartError> {
    let open = unready(policy).into_iter().filter(|found| found.open);
    let open: Vec<String> =
        open.map(|found| format!("credential `{}`: {}", found.credential, found.problem)).collect();
    if open.is_empty() { Ok(()) } else { Err(StartError::ReadableSecrets(open.join("; "))) }
}

/// Tells the service manager, as often as it wants to hear it, that every worker thread still takes work. Never ends.
async fn say_alive(workers: &Workers) -> std::convert::Infallible {
    let Some(pause) = ServiceManager.watchdog() else { return std::future::pending().await };
    let mut turn = tokio::time::interval(pause);
    turn.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        turn.tick().await;
        workers.answer().await;
        ServiceManager.alive();
    }
}

/// Waits for the last records, then says that the broker stopped.
async fn end_recorded(broker: &Broker, gates: &GateCount, cause: &'static str, cut: u64) {
    // The workers see the end of their runs and record what was cut; then each gate's end is recorded.
    let deadline = tokio::time::Instant::now() + crate::limits::GATE_SETTLE * 2;
    while gates.open() > 0 && tokio::time::Instant::now() < deadline {
        tokio::time::sleep(crate::limits::DRAIN_STEP).await;
    }
    let policy = reload::identity(&broker.snapshot());
    let stopped = Event::Stopped(Stopped { cause: cause.into(), cut });
    let recorded = broker.recorder.event(None, Some(policy), stopped).is_ok();
    if !recorded || !broker.recorder.flush(crate::limits::AUDIT_STOP) {
        tracing::error!("the end was not recorded: the audit log cannot be written");
    }
}

fn record_start(broker: &Broker) -> Result<(), StartError> {
    let started = Event::Started(Started {
        version: env!("CARGO_PKG_VERSION").into(),
        pid: std::process::id(),
        uid: rustix::process::geteuid().as_raw(),
    });
    let policy = reload::identity(&broker.snapshot());
    broker.recorder.event(None, Some(policy), started).map_err(|_| StartError::AuditRefused)
}

fn worker_count(configured: usize) -> usize {
    match configured {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        count => count,
    }
}

/// Root, the broker itself, and who is configured.
fn allowed_uids(config: &Config) -> Vec<u32> {
    let own = rustix::process::geteuid().as_raw();
    [0, own].into_iter().chain(config.control_uids.iter().copied()).collect()
}

/// The control socket, and whether this process made it.
#[derive(Debug)]
struct Control {
    listener: UnixListener,
    own: bool,
}

impl Control {
    fn listen(path: &Path, identity: &Identity, handed: &mut Sockets) -> Result<Self, StartError> {
        let place = 0;
        match handed.unix(place).map_err(|source| StartError::HandedOver { place, source })? {
            Some(listener) => Ok(Self { listener, own: false }),
            None => Ok(Self { listener: bind_control(path, identity)?, own: true }),
        }
    }
}

/// Binds the control socket with mode 0660; it belongs to the broker's user.
fn bind_control(path: &Path, identity: &Identity) -> Result<UnixListener, StartError> {
    let failed = |source| StartError::Listen { address: path.display().to_string(), source };
    if let Some(folder) = path.parent()
        && !folder.exists()
    {
        std::fs::create_dir_all(folder).map_err(failed)?;
        give(folder, identity).map_err(failed)?;
    }
    if path.exists() {
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(StartError::AlreadyListening { path: path.to_owned() });
        }
        std::fs::remove_file(path).map_err(failed)?;
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660)).map_err(failed)?;
    give(path, identity).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
}

fn bind_explicit(address: std::net::SocketAddr, handed: &mut Sockets) -> Result<TcpListener, StartError> {
    let place = 1;
    if let Some(listener) = handed.tcp(place).map_err(|source| StartError::HandedOver { place, source })? {
        return Ok(listener);
    }
    bind(address)
}

/// The guard's listener and its certificate. Its key may belong to root.
fn bind_guard(guard: &Guard) -> Result<Option<(TcpListener, Entrance)>, StartError> {
    let Some(address) = guard.listen else { return Ok(None) };
    let (Some(certificate), Some(key)) = (&guard.certificate, &guard.key) else {
        return Err(StartError::Guard("`guard_listen` needs `guard_certificate` and `guard_key`".to_owned()));
    };
    let config = guard_config(certificate, key).map_err(StartError::Guard)?;
    Ok(Some((bind(address)?, Entrance::Guard(config.into()))))
}

fn bind(address: std::net::SocketAddr) -> Result<TcpListener, StartError> {
    let failed = |source| StartError::Listen { address: address.to_string(), source };
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
}

/// The standard address may be another broker's: nobody asked for it here, and nothing is safer without a policy in force.
fn bind_metrics(config: &Config) -> Result<Option<TcpListener>, StartError> {
    let Some(address) = config.metrics.listen else { return Ok(None) };
    match bind(address) {
        Ok(listener) => Ok(Some(listener)),
        Err(error) if config.metrics.wanted => Err(error),
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "no metrics: set `metrics_listen` to another address or to \"off\""
            );
            Ok(None)
        }
    }
}

fn give(path: &Path, identity: &Identity) -> io::Result<()> {
    if identity.change {
        nix::unistd::chown(path, Some(identity.uid), Some(identity.gid))?;
    }
    Ok(())
}

/// A new audit folder belongs to the broker's user. One that exists is left as it is: the log says why it cannot be written.
fn hand_over_audit(folder: &Path, identity: &Identity) {
    if folder.exists() || !identity.change {
        return;
    }
    if let Err(error) = make_private(folder).and_then(|()| give(folder, identity)) {
        tracing::warn!(%error, "the audit folder could not be made as root");
    }
}

fn make_private(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Opens a run of the configuration: known by its token, at tier `process`, for as long as the broker runs.
fn open_explicit_run(
    explicit: &ExplicitRun,
    token: [u8; 32],
    broker: &Broker,
) -> Result<Arc<RunContext>, StartError> {
    let gate = OpenGate {
        run: explicit.id.clone(),
        caller: explicit.caller.clone(),
        grants: explicit.grants.clone(),
        evidence: Evidence { provider: "explicit".to_owned(), tier: Tier::Process, facts: Vec::new() },
        expires_unix_ms: u64::MAX,
        trace_id: None,
        session: None,
        doors: Vec::new(),
    };
    let failed = |stop| StartError::ExplicitRun { id: explicit.id.clone(), stop };
    let run = RunContext::open(&gate, Some(token), broker).map_err(failed)?;
    let policy = reload::identity(&broker.snapshot());
    broker
        .recorder
        .event(Some(Arc::clone(&run.identity)), Some(policy), gate_opened(&run, &gate, None))
        .map_err(|_| StartError::AuditRefused)?;
    broker.runs.insert(&run);
    Ok(run)
}

fn token_hash(path: &Path) -> Result<[u8; 32], StartError> {
    let problem = |problem: String| StartError::TokenHash { path: path.to_owned(), problem };
    let text = std::fs::read_to_string(path).map_err(|error| problem(error.to_string()))?;
    // `sha256sum` writes the hash, two spaces and a name.
    let word = text.split_whitespace().next().unwrap_or_default();
    let digest = freeboard_audit::Digest::parse(&word.to_ascii_lowercase());
    digest.map(freeboard_audit::Digest::bytes).ok_or_else(|| problem("64 hex digits are wanted".to_owned()))
}
