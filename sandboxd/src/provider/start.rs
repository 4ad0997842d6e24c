//! Starts the configured providers. Called while the process has one thread: providers fork helpers of their own, and
//! a fork of a process with threads may only exec.

use std::path::PathBuf;
use std::sync::Arc;

use super::docker::{self, DockerConfig, DockerProvider};
use super::gvisor::{GvisorConfig, GvisorProvider, Platform};
use super::microvm::{MicrovmConfig, MicrovmProvider};
use super::native::{NativeConfig, NativeProvider};
use super::wasm::{self, WasmProvider};
use super::{Allowance, CreateError, Provider};
use crate::child::launcher::Launcher;

/// The kinds of boundary that this build knows, cheapest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Wasm,
    Native,
    Gvisor,
    Microvm,
    Docker,
}

impl Kind {
    pub const ALL: [Self; 5] = [Self::Wasm, Self::Native, Self::Gvisor, Self::Microvm, Self::Docker];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Wasm => "wasm",
            Self::Native => "native",
            Self::Gvisor => "gvisor",
            Self::Microvm => "microvm",
            Self::Docker => "docker",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// What one run may use, as configured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RunLimits {
    pub memory_mib: u32,
    pub cpus: f64,
    pub pids: u32,
    pub disk_mib: u32,
    /// Runs at once: how many places a pool needs.
    pub concurrent: u32,
}

impl RunLimits {
    /// Without a configuration. Runs at once do not matter to one of them.
    pub const USUAL: Self = Self { memory_mib: 256, cpus: 1.0, pids: 256, disk_mib: 128, concurrent: 1 };
}

/// What runs of `native`, `gvisor` and `microvm` see, as configured.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NativeView {
    /// Instead of the host's tools.
    pub root: Option<PathBuf>,
    /// Besides the host's tools.
    pub extra_read_only: Vec<PathBuf>,
}

/// Where the programs are that a provider needs besides this one, and how they are used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Engines {
    /// `None` = looked for in the usual folders.
    pub gvisor_runsc: Option<PathBuf>,
    /// `None` = as runsc chooses.
    pub gvisor_platform: Option<Platform>,
    /// `None` = looked for in the usual folders.
    pub microvm_qemu: Option<PathBuf>,
    /// `None` = the newest that will do.
    pub microvm_kernel: Option<PathBuf>,
    /// `None` = /dev/kvm.
    pub microvm_kvm: Option<PathBuf>,
    /// `None` = /var/run/docker.sock.
    pub docker_socket: Option<PathBuf>,
    /// `None` = there is no provider `docker`.
    pub docker_image: Option<String>,
    /// `None` = runc.
    pub docker_runtime: Option<docker::Runtime>,
    pub view: NativeView,
}

/// What providers are started for.
#[derive(Debug)]
pub enum Service {
    /// One run, here and now; then the process ends. Some of it may have been begun.
    OneRun(Option<Ahead>),
    /// One run at most, which most likely goes elsewhere: no helper is started before it comes. The process has one thread
    /// until then.
    Unlikely,
    /// Runs of any caller, one after the other and at once.
    ManyRuns,
}

/// What was begun for one run before anybody knew which. A provider that has no use for it drops it, which ends it.
#[derive(Debug)]
pub enum Ahead {
    Wasm(wasm::Ahead),
    /// Has made the first process of a run with [`RunLimits::USUAL`].
    Native(Launcher),
}

impl Ahead {
    /// Begins what a run without a configuration needs. Called while the process has one thread.
    pub fn begin(kind: Kind) -> Option<Self> {
        let usual = &RunLimits::USUAL;
        match kind {
            Kind::Wasm => wasm::Ahead::begin(&wasm::Settings::of(usual)).ok().map(Self::Wasm),
            Kind::Native => Launcher::start_for_one_run(Allowance::of(usual).limits()).ok().map(Self::Native),
            Kind::Gvisor | Kind::Microvm | Kind::Docker => None,
        }
    }
}

/// Starts one provider: preflight, helpers, smoke test where it has one.
pub fn start(
    kind: Kind,
    limits: &RunLimits,
    engines: &Engines,
    service: Service,
) -> Result<Arc<dyn Provider>, CreateError> {
    let view = &engines.view;
    let allowance = Allowance::of(limits);
    match kind {
        Kind::Native => {
            let config = NativeConfig {
                allowance,
                root: view.root.clone(),
                extra_read_only: view.extra_read_only.clone(),
                ..NativeConfig::default()
            };
            Ok(Arc::new(NativeProvider::start(config, service)?))
        }
        Kind::Wasm => {
            let settings = wasm::Settings::of(limits);
            Ok(Arc::new(match service {
                Service::OneRun(Some(Ahead::Wasm(ahead))) => {
                    WasmProvider::for_one_run(settings, Some(ahead))?
                }
                Service::OneRun(_) => WasmProvider::for_one_run(settings, None)?,
                Service::Unlikely => WasmProvider::without_workers(settings)?,
                Service::ManyRuns => WasmProvider::new(settings)?,
            }))
        }
        Kind::Gvisor => {
            let config = GvisorConfig {
                runsc: engines.gvisor_runsc.clone(),
                platform: engines.gvisor_platform,
                root: view.root.clone(),
                extra_read_only: view.extra_read_only.clone(),
                allowance,
                ..GvisorConfig::default()
            };
            Ok(Arc::new(GvisorProvider::start(config, service)?))
        }
        Kind::Docker => {
            let usual = DockerConfig::default();
            let config = DockerConfig {
                socket: engines.docker_socket.clone().unwrap_or(usual.socket),
                image: engines.docker_image.clone().unwrap_or_default(),
                runtime: engines.docker_runtime.unwrap_or(usual.runtime),
                allowance,
                ..DockerConfig::default()
            };
            Ok(Arc::new(DockerProvider::start(config)?))
        }
        Kind::Microvm => {
            let usual = MicrovmConfig::default();
            let config = MicrovmConfig {
                kvm: engines.microvm_kvm.clone().unwrap_or(usual.kvm),
                qemu: engines.microvm_qemu.clone(),
                kernel: engines.microvm_kernel.clone(),
                root: view.root.clone(),
                extra_read_only: view.extra_read_only.clone(),
                allowance,
                ..MicrovmConfig::default()
            };
            Ok(Arc::new(MicrovmProvider::start(config)?))
        }
    }
}
