//! A provider per test.

use freeboard_sandboxd::provider::Provider;
use freeboard_sandboxd::provider::docker::{DockerConfig, DockerProvider, Runtime};

use crate::engine::Engine;

#[path = "../own_kernel/common.rs"]
mod common;

pub(crate) use common::*;

pub(crate) fn with_provider(allowance: Allowance, test: impl AsyncFnOnce(&dyn Provider)) {
    let config = DockerConfig { allowance, ..DockerConfig::default() };
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
