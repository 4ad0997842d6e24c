//! `sandboxd serve`: everything that may fail is tried before the first request is taken.

use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;

use freeboard_control::{Lifeline, ServiceManager, Sockets, inherited_file};
use freeboard_policy::Tier;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{Exit, Failure, put, say, start};
use crate::api::{App, Doorkeeper, Entrance, Tls, operate, serve_all, tell};
use crate::attest::Signer;
use crate::callers::Callers;
use crate::config::{Config, Flags, hardened};
use crate::launch::Launcher;
use crate::limits::CALLERS_LOOK_INTERVAL;
use crate::provider::{Pooled, Provider, Service};
use crate::runs::{JournalError, Runs};
use crate::session::Sessions;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    flags: Flags,
    /// Address of the API, loopback only
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// The callers file
    #[arg(long, value_name = "FILE")]
    callers: Option<std::path::PathBuf>,
    /// Print the configuration that holds, each value with where it came from, and end
    #[arg(long)]
    print_config: bool,
    /// Write `ready ADDRESS` and a line feed to this file descriptor once requests are served, and close it
    #[arg(long, value_name = "FD")]
    ready_fd: Option<std::os::fd::RawFd>,
    /// End in order, as on SIGTERM, when standard input ends: it must be a pipe, which ends when whoever holds it dies
    #[arg(long)]
    stop_with_stdin: bool,
    /// Let everybody on this host run code, without a token and without grants
    #[arg(long)]
    danger_without_tokens: bool,
}

/// Why the daemon does not start.
#[derive(Debug, thiserror::Error)]
enum ServeFailure {
    #[error("no callers file; make one with `sandboxd callers create NAME`, or name it with --callers")]
    NoCallers,
    #[error("provider `{name}` does not start")]
    Provider {
        name: &'static str,
        #[source]
        source: crate::provider::CreateError,
    },
    #[error(
        "`total_memory_mib` does not hold even one run of {memory_mib} MiB beside those that stand ready"
    )]
    Memory { memory_mib: u32 },
    #[error("`hardened` is set, and:\n  {}", .0.join("\n  "))]
    Hardened(Vec<String>),
    #[error("no provider here reaches the floor `{floor}`")]
    Floor { floor: Tier },
    #[error("file descriptor {0} of --ready-fd cannot be written")]
    ReadyFd(std::os::fd::RawFd, #[source] std::io::Error),
    #[error("--stop-with-stdin: standard input cannot be watched")]
    Stdin(#[source] std::io::Error),
    #[error("the socket that the service manager handed over cannot be used")]
    HandedOver(#[source] std::io::Error),
    #[error("cannot listen on {address}")]
    Listen {
        address: SocketAddr,
        #[source]
        source: std::io::Error,
    },
}

pub(super) fn main(arguments: Arguments) -> Result<Exit, Failure> {
    let sockets = Sockets::of_environment();
    let mut flags = arguments.flags.clone();
    flags.listen = arguments.listen;
    flags.callers.clone_from(&arguments.callers);
    let config = start::configuration(&flags)?;
    if arguments.print_config {
        put(&config.to_string());
        return Ok(Exit::Success);
    }
    super::log("info");
    check(&config, &arguments)?;
    let ready = match arguments.ready_fd {
        Some(fd) => Some(inherited_file(fd).map_err(|source| ServeFailure::ReadyFd(fd, source))?),
        None => None,
    };
    let doorkeeper = doorkeeper(&arguments, &config)?;
    let launcher = launcher(&config)?;
    let sessions = Sessions::new(config.sessions());
    let app = Arc::new(App { launcher, sessions, runs: runs(&config)?, doorkeeper });
    app.apply_limits();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let lifeline = async { arguments.stop_with_stdin.then(Lifeline::of_stdin).transpose() };
    let lifeline = runtime.block_on(lifeline).map_err(ServeFailure::Stdin)?;
    runtime.block_on(run(app, &config, ready, lifeline, sockets))?;
    Ok(Exit::Success)
}

/// What can be said before anything is started.
fn check(config: &Config, arguments: &Arguments) -> Result<(), ServeFailure> {
    if config.places() == 0 {
        return Err(ServeFailure::Memory { memory_mib: config.memory_mib.value });
    }
    let found = if config.hardened.value {
        hardened::violations(config, !arguments.danger_without_tokens)
    } else {
        Vec::new()
    };
    if found.is_empty() { Ok(()) } else { Err(ServeFailure::Hardened(found)) }
}

fn doorkeeper(arguments: &Arguments, config: &Config) -> Result<Doorkeeper, Failure> {
    if arguments.danger_without_tokens {
        tracing::warn!("everybody on this host may run code here: --danger-without-tokens");
        return Ok(Doorkeeper::DangerAnybody);
    }
    let file = config.callers.value.as_deref().ok_or(ServeFailure::NoCallers)?;
    Ok(Doorkeeper::tokens(Callers::load(file)?))
}

fn runs(config: &Config) -> Result<Arc<Runs>, JournalError> {
    let runs = match &config.state_folder.value {
        Some(folder) => Runs::in_folder(folder, tell)?,
        None => Runs::in_memory(tell),
    };
    if let Some(socket) = &config.attest_socket.value {
        runs.sign_with(Signer::new(socket.clone()));
    }
    Ok(runs)
}

/// Starts every configured provider; one that does not start keeps the daemon from serving.
fn launcher(config: &Config) -> Result<Launcher, ServeFailure> {
    let kinds = &config.providers.value;
    if kinds.is_empty() {
        tracing::warn!("no provider is configured (`providers` or SANDBOX_PROVIDER): nothing will run");
    }
    let (providers, failed) = start::providers(kinds, kinds.len(), config, |_| Service::ManyRuns);
    if let Some(failed) = failed.into_iter().next() {
        return Err(ServeFailure::Provider { name: failed.kind.name(), source: failed.error });
    }
    for provider in &providers {
        let description = provider.describe();
        tracing::info!(provider = description.name, tier = %description.tier, "provider started");
    }
    let providers = kinds.iter().zip(providers).map(|(kind, provider)| match config.pool(*kind) {
        0 => provider,
        size => Arc::new(Pooled::new(provider, size)) as Arc<dyn Provider>,
    });
    let launcher = start::launcher(config, providers.collect());
    let reached = launcher.descriptions().iter().map(|description| description.tier).max();
    match config.min_isolation.value {
        Some(floor) if reached.is_none_or(|tier| tier < floor) => Err(ServeFailure::Floor { floor }),
        _ => Ok(launcher),
    }
}

async fn run(
    app: Arc<App>,
    config: &Config,
    ready: Option<File>,
    lifeline: Option<Lifeline>,
    mut sockets: Sockets,
) -> Result<(), Failure> {
    let smoke = app.launcher.smoke_test().await;
    smoke.map_err(|(name, source)| ServeFailure::Provider { name, source })?;
    let proved = app.sessions.prove(&app.launcher).await;
    proved.map_err(|(name, source)| ServeFailure::Provider { name, source })?;
    app.launcher.warm().await;
    let address = config.listen.value;
    let failed = |source| ServeFailure::Listen { address, source };
    let listener = match sockets.tcp(0).map_err(ServeFailure::HandedOver)? {
        Some(listener) => TcpListener::from_std(listener).map_err(failed)?,
        None => TcpListener::bind(address).await.map_err(failed)?,
    };
    let address = listener.local_addr().map_err(failed)?;
    let metrics = metrics(&app, config).await?;
    let (mut entrances, tls) = (vec![Entrance { listener, tls: None }], tls(config).await?);
    let stop = Signals::new(lifeline)?;
    let reload = tokio::spawn(reload(
        Arc::clone(&app),
        config.clone(),
        tls.as_ref().map(|(_, tls)| Arc::clone(tls)),
        signal(SignalKind::hangup())?,
    ));
    tracing::info!(broker = ?config.broker.value, "serving on http://{address}");
    if let Some(mut ready) = ready {
        // Nobody waits any more when it cannot be written.
        let _ = writeln!(ready, "ready {address}");
    }
    ServiceManager.ready(&format!("serving on http://{address}"));
    let alive = tokio::spawn(say_alive());
    let stop = async {
        stop.wait().await;
        ServiceManager.stopping();
    };
    entrances.extend(tls.map(|(listener, tls)| Entrance { listener, tls: Some(tls) }));
    let served = serve_all(app, entrances, stop).await;
    reload.abort();
    alive.abort();
    // To the end of the grace time, so that it can be seen how it goes.
    metrics.inspect(tokio::task::JoinHandle::abort);
    served?;
    say("sandboxd: stopped");
    Ok(())
}

/// The way in over TLS, when one is wanted.
async fn tls(config: &Config) -> Result<Option<(TcpListener, Arc<Tls>)>, Failure> {
    let Some((address, files)) = config.tls() else { return Ok(None) };
    let tls = Arc::new(Tls::new(files)?);
    let failed = |source| ServeFailure::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    tracing::info!("serving on https://{}", listener.local_addr().map_err(failed)?);
    Ok(Some((listener, tls)))
}

/// Where a collector asks, when one is wanted.
async fn metrics(
    app: &Arc<App>,
    config: &Config,
) -> Result<Option<tokio::task::JoinHandle<std::io::Result<()>>>, ServeFailure> {
    let Some(address) = config.metrics_listen.value else { return Ok(None) };
    let failed = |source| ServeFailure::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    tracing::info!("metrics at http://{}/metrics", listener.local_addr().map_err(failed)?);
    Ok(Some(tokio::spawn(operate(Arc::clone(app), listener))))
}

/// Tells the service manager, as often as it wants to hear it, that this runtime still does its work.
async fn say_alive() {
    let Some(pause) = ServiceManager.watchdog() else { return };
    let mut turn = tokio::time::interval(pause);
    turn.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        turn.tick().await;
        ServiceManager.alive();
    }
}

/// SIGTERM, SIGINT and the end of a lifeline end the daemon.
struct Signals {
    lifeline: Option<Lifeline>,
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new(lifeline: Option<Lifeline>) -> std::io::Result<Self> {
        Ok(Self {
            lifeline,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn wait(mut self) {
        let lifeline = async {
            match &self.lifeline {
                Some(lifeline) => lifeline.ended().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = lifeline => {}
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
        tracing::info!("stopping: no new runs; active ones have {:?}", crate::limits::SHUTDOWN_GRACE);
    }
}

/// The callers file is read again on SIGHUP and when it has changed; a file that cannot be used changes nothing.
async fn reload(app: Arc<App>, config: Config, tls: Option<Arc<Tls>>, mut hangup: Signal) {
    let Some(file) = config.callers.value.as_deref() else { return };
    let mut seen = identity(file);
    let mut seen_tls = tls.as_deref().map(identities);
    loop {
        let look = tokio::time::sleep(CALLERS_LOOK_INTERVAL);
        let asked = tokio::select! {
            hangup = hangup.recv() => hangup.is_some(),
            () = look => false,
        };
        if let Some(tls) = &tls {
            let now = Some(identities(tls));
            if asked || now != seen_tls {
                seen_tls = now;
                match tls.reload() {
                    Ok(()) => tracing::info!("certificates reloaded"),
                    Err(error) => {
                        tracing::error!(error = crate::causes::chain(&error), "the old certificates stay");
                    }
                }
            }
        }
        let now = identity(file);
        if !asked && now == seen {
            continue;
        }
        seen = now;
        match Callers::load(file) {
            Ok(callers) => {
                tracing::info!(callers = callers.entries().len(), "callers reloaded");
                app.launcher.metrics().loads.add(&["loaded"]);
                app.replace_callers(callers);
            }
            Err(error) => {
                app.launcher.metrics().loads.add(&["refused"]);
                tracing::error!(error = crate::causes::chain(&error), "the old callers stay");
            }
        }
    }
}

/// Of all files of the way in over TLS.
fn identities(tls: &Tls) -> Vec<Option<FileIdentity>> {
    let files = tls.files();
    [Some(&files.certificate), Some(&files.key), files.client_ca.as_ref()]
        .into_iter()
        .flatten()
        .map(|file| identity(file))
        .collect()
}

type FileIdentity = (u64, u64, i64, i64);

/// Changes whenever the file does: it is replaced as a whole.
fn identity(file: &std::path::Path) -> Option<FileIdentity> {
    let metadata = std::fs::metadata(file).ok()?;
    Some((metadata.ino(), metadata.len(), metadata.mtime(), metadata.mtime_nsec()))
}
