//! `wasm`: JavaScript in an engine that is itself WebAssembly, in a worker process that has given up everything.
//!
//! plan -> a locked-down worker of this caller (`workers`) -> measured from outside (`measure`) -> the code, a fresh
//! instance, its end (`sandbox`, `worker`). Two walls: the instance can call six functions of ours (`worker/host.rs`), and
//! the process around it has no file, no network and no right to anything. Tier `process`.
//!
//! A worker serves one caller only, run after run, each in a new instance of the snapshot. So a fault of WebAssembly
//! itself reaches at most later runs of the same caller, and never a secret: no process with one is involved.

mod engine_config;
mod frame;
pub mod limits;
mod measure;
mod process;
mod sandbox;
mod worker;
mod workers;

use std::path::PathBuf;
use std::sync::Arc;

use freeboard_policy::Tier;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::{CreateError, Description, Plan, Provider, RunLimits, Sandbox};
use crate::job::Payload;
use process::Process;
use sandbox::WasmSandbox;
pub use worker::{SUBCOMMAND, run_if_asked};
use workers::Workers;

/// The name in configuration, answers and the audit log.
pub const NAME: &str = "wasm";

/// SHA-256 of the engine's WebAssembly file that this build carries, as stored in the repository.
pub const ENGINE_SHA256: &str = env!("FREEBOARD_ENGINE_SHA256");

#[derive(Debug, Clone)]
pub struct Settings {
    /// The program that becomes a worker when called with [`SUBCOMMAND`]: sandboxd itself.
    pub program: PathBuf,
    /// Linear memory per run in MiB.
    pub memory_mib: u32,
    /// Runs at once.
    pub max_workers: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            // The running file, even when it was replaced on disk since: daemon and worker must be one build.
            program: PathBuf::from("/proc/self/exe"),
            memory_mib: limits::DEFAULT_MEMORY_MIB,
            max_workers: limits::MAX_WORKERS,
        }
    }
}

impl Settings {
    /// What one run may use, as configured. CPUs, processes and disk mean nothing here: a run has one thread, no process
    /// and no disk.
    pub fn of(limits: &RunLimits) -> Self {
        let max_workers =
            usize::try_from(limits.concurrent).unwrap_or(limits::MAX_WORKERS).clamp(1, limits::MAX_WORKERS);
        let memory_mib = limits.memory_mib.clamp(limits::MIN_MEMORY_MIB, limits::MAX_MEMORY_MIB);
        Self { memory_mib, max_workers, ..Self::default() }
    }
}

/// A worker that was forked before anybody knew for which run. Dropped, it is killed.
#[derive(Debug)]
pub struct Ahead {
    worker: Process,
    memory_mib: u32,
}

impl Ahead {
    /// Called while the process has one thread.
    pub fn begin(settings: &Settings) -> Result<Self, CreateError> {
        let memory_mib = settings.memory_mib;
        Ok(Self { worker: Process::fork(memory_mib)?, memory_mib })
    }
}

#[derive(Debug)]
pub struct WasmProvider {
    settings: Settings,
    workers: Arc<Workers>,
}

impl WasmProvider {
    /// Starts one worker process at once, so that the first run finds it ready or nearly so.
    pub fn new(settings: Settings) -> Result<Self, CreateError> {
        let provider = Self::without_workers(settings)?;
        provider.workers.keep_spares()?;
        Ok(provider)
    }

    /// For one run, here and now: its worker is forked, unless one with these settings was begun ahead. Called while the
    /// process has one thread.
    pub fn for_one_run(settings: Settings, ahead: Option<Ahead>) -> Result<Self, CreateError> {
        let memory_mib = settings.memory_mib;
        let provider = Self::without_workers(settings)?;
        let worker = match ahead.filter(|ahead| ahead.memory_mib == memory_mib) {
            Some(ahead) => ahead.worker,
            None => Process::fork(memory_mib)?,
        };
        provider.workers.adopt(worker);
        Ok(provider)
    }

    /// Starts no process before the first run.
    pub fn without_workers(settings: Settings) -> Result<Self, CreateError> {
        if !(limits::MIN_MEMORY_MIB..=limits::MAX_MEMORY_MIB).contains(&settings.memory_mib) {
            return Err(CreateError::Host {
                what: format!(
                    "a run of the provider `{NAME}` cannot have {} MiB of memory",
                    settings.memory_mib
                ),
                help: format!("choose {} to {} MiB", limits::MIN_MEMORY_MIB, limits::MAX_MEMORY_MIB),
            });
        }
        let workers = Workers::new(settings.program.clone(), settings.memory_mib, settings.max_workers);
        Ok(Self { settings, workers })
    }
}

impl Provider for WasmProvider {
    fn describe(&self) -> Description {
        Description {
            name: NAME,
            tier: Tier::Process,
            weaker: None,
            environment: format!("sha256:{ENGINE_SHA256}"),
            supports_javascript: true,
            supports_project: false,
            supports_grants: true,
            supports_sessions: false,
            lowers_memory: false,
            languages: vec!["javascript".to_owned()],
            default_timeout: limits::DEFAULT_TIMEOUT,
            max_timeout: limits::MAX_TIMEOUT,
            memory_mib: self.settings.memory_mib,
            cpus: 1.0,
            pids: 0,
            disk_mib: 0,
        }
    }

    fn create<'a>(&'a self, plan: &'a Plan) -> BoxFuture<'a, Result<Box<dyn Sandbox>, CreateError>> {
        async move {
            let code = code(plan)?;
            let worker = self.workers.acquire(plan.job.caller.as_deref()).await?;
            Ok(Box::new(WasmSandbox::new(plan, code, worker)?) as Box<dyn Sandbox>)
        }
        .boxed()
    }
}

/// The source text, when the plan asks for nothing else.
fn code(plan: &Plan) -> Result<String, CreateError> {
    let unsupported = |what: &str| CreateError::Unsupported { provider: NAME, what: what.to_owned() };
    let code = match &plan.job.payload {
        Payload::JavaScript { code } => code,
        Payload::Steps { .. } => return Err(unsupported("shell steps")),
        Payload::Command { .. } => return Err(unsupported("commands")),
        Payload::Session | Payload::Cell { .. } => return Err(unsupported("sessions")),
    };
    if !plan.job.files.is_empty() || !plan.job.artifacts.is_empty() {
        return Err(unsupported("programs with files"));
    }
    if !plan.job.environment.is_empty() {
        return Err(unsupported("programs with an environment"));
    }
    if code.len() > limits::MAX_CODE_BYTES {
        return Err(unsupported(&format!(
            "source text of {} bytes (at most {})",
            code.len(),
            limits::MAX_CODE_BYTES
        )));
    }
    if code.contains('\0') {
        return Err(unsupported("source text with a NUL character"));
    }
    Ok(code.clone())
}
