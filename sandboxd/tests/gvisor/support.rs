//! A provider per test.

use freeboard_sandboxd::child::launcher::Launcher;
use freeboard_sandboxd::provider::Provider;
use freeboard_sandboxd::provider::gvisor::{GvisorConfig, GvisorProvider};

#[path = "../own_kernel/common.rs"]
mod common;

pub(crate) use common::*;

/// The provider, and what its processes on the host are called.
pub(crate) const NAME: &str = "gvisor";
pub(crate) const ENGINE: &str = "runsc";

pub(crate) fn with_provider(allowance: Allowance, test: impl AsyncFnOnce(&dyn Provider)) {
    let config = GvisorConfig { allowance, ..GvisorConfig::default() };
    with_gvisor(config, async |provider| test(&provider).await);
}

pub(crate) fn with_shared(test: impl AsyncFnOnce(std::sync::Arc<dyn Provider>)) {
    with_gvisor(GvisorConfig::default(), async |provider| test(std::sync::Arc::new(provider)).await);
}

/// Runs a test, or says that it was not.
pub(crate) fn with_gvisor(config: GvisorConfig, test: impl AsyncFnOnce(GvisorProvider)) {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: gVisor runs with a gate need root");
        return;
    }
    let launcher = Launcher::start_in_test().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = GvisorConfig { guest: Some(guest_program()), ..config };
    runtime.block_on(async move { test(GvisorProvider::new(config, launcher).unwrap()).await });
}
