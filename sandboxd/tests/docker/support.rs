//! A provider per test.

use freeboard_sandboxd::provider::Provider;
use freeboard_sandboxd::provider::docker::{DockerConfig, DockerProvider, Runtime};

use crate::engine::Engine;

#[path = "../own_kernel/common.rs"]
mod common;

pub(crate) use common::*;

/// What the tests of every provider may choose.
pub(crate) struct Settings {
    pub(crate) memory_mib: u32,
    pub(crate) pids: u32,
    pub(crate) disk_mib: u32,
}

impl Default for Settings {
    fn default() -> Self {
        let DockerConfig { memory_mib, pids, disk_mib, .. } = DockerConfig::default();
        Self { memory_mib, pids, disk_mib }
    }
}

pub(crate) fn with_provider(settings: Settings, test: impl AsyncFnOnce(&dyn Provider)) {
    let Settings { memory_mib, pids, disk_mib } = settings;
    let config = DockerConfig { memory_mib, pids, disk_mib, ..DockerConfig::default() };
    with_docker(config, async |provider, _| test(&provider).await);
}

/// Runs a test with an engine of its own, or says that it was not.
pub(crate) fn with_docker(config: DockerConfig, test: impl AsyncFnOnce(DockerProvider, &Engine)) {
    let Some(engine) = Engine::start() else { return };
    let provider = DockerProvider::start(on(&engine, config)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { test(provider, &engine).await });
    drop(runtime);
    wait_until("no container is left", || engine.containers() == 0);
}

/// The engine's image and socket, where the configuration names none.
pub(crate) fn on(engine: &Engine, config: DockerConfig) -> DockerConfig {
    let image = if config.image.is_empty() { engine.image.clone() } else { config.image };
    DockerConfig { image, socket: engine.socket(), guest: Some(guest_program()), ..config }
}

pub(crate) fn with_runsc() -> Option<DockerConfig> {
    if !std::path::Path::new("/usr/bin/runsc").exists() {
        eprintln!("SKIPPED: `runsc` is not installed (tests/run installs it)");
        return None;
    }
    Some(DockerConfig { runtime: Runtime::Runsc, ..DockerConfig::default() })
}
