//! Starts the configured providers. Called while the process has one thread: providers fork helpers of their own, and
//! a fork of a process with threads may only exec.

use std::path::PathBuf;
use std::sync::Arc;

use super::gvisor::{GvisorConfig, GvisorProvider, Platform};
use super::native::{NativeConfig, NativeProvider};
use super::wasm::{self, WasmProvider};
use super::{CreateError, Provider};

/// The kinds of boundary that this build knows, cheapest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Wasm,
    Native,
    Gvisor,
}

impl Kind {
    pub const ALL: [Self; 3] = [Self::Wasm, Self::Native, Self::Gvisor];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Wasm => "wasm",
            Self::Native => "native",
            Self::Gvisor => "gvisor",
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

/// What runs of `native` and `gvisor` see, as configured.
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
    pub view: NativeView,
}

/// What providers are started for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// One run, here and now; then the process ends.
    OneRun,
    /// Runs of any caller, one after the other and at once.
    ManyRuns,
}

/// Starts one provider: preflight, helpers, smoke test where it has one.
pub fn start(
    kind: Kind,
    limits: &RunLimits,
    engines: &Engines,
    service: Service,
) -> Result<Arc<dyn Provider>, CreateError> {
    let view = &engines.view;
    match kind {
        Kind::Native => {
            let config = NativeConfig {
                memory_mib: limits.memory_mib,
                cpus: limits.cpus,
                pids: limits.pids,
                disk_mib: limits.disk_mib,
                root: view.root.clone(),
                extra_read_only: view.extra_read_only.clone(),
                ..NativeConfig::default()
            };
            Ok(Arc::new(NativeProvider::start(config, service)?))
        }
        Kind::Wasm => {
            let settings = wasm::Settings::of(limits);
            Ok(Arc::new(match service {
                Service::OneRun => WasmProvider::for_one_run(settings)?,
                Service::ManyRuns => WasmProvider::new(settings)?,
            }))
        }
        Kind::Gvisor => {
            let config = GvisorConfig {
                runsc: engines.gvisor_runsc.clone(),
                platform: engines.gvisor_platform,
                root: view.root.clone(),
                extra_read_only: view.extra_read_only.clone(),
                memory_mib: limits.memory_mib,
                cpus: limits.cpus,
                pids: limits.pids,
                disk_mib: limits.disk_mib,
                ..GvisorConfig::default()
            };
            Ok(Arc::new(GvisorProvider::start(config)?))
        }
    }
}
