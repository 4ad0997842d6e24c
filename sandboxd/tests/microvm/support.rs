//! A provider per test.

use freeboard_sandboxd::child::launcher::Launcher;
use freeboard_sandboxd::provider::Provider;
use freeboard_sandboxd::provider::microvm::{MicrovmConfig, MicrovmProvider};

#[path = "../own_kernel/common.rs"]
mod common;

pub(crate) use common::*;

/// The provider, and what its processes on the host are called.
pub(crate) const NAME: &str = "microvm";
pub(crate) const ENGINE: &str = "qemu-system";

pub(crate) fn with_provider(allowance: Allowance, test: impl AsyncFnOnce(&dyn Provider)) {
    let config = MicrovmConfig { allowance, ..MicrovmConfig::default() };
    with_microvm(config, async |provider| test(&provider).await);
}

pub(crate) fn with_shared(test: impl AsyncFnOnce(std::sync::Arc<dyn Provider>)) {
    with_microvm(MicrovmConfig::default(), async |provider| test(std::sync::Arc::new(provider)).await);
}

/// Runs a test, or says that it was not.
pub(crate) fn with_microvm(config: MicrovmConfig, test: impl AsyncFnOnce(MicrovmProvider)) {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: machines with a gate need root");
        return;
    }
    if !std::path::Path::new("/usr/bin/qemu-system-x86_64").exists() {
        eprintln!("SKIPPED: QEMU is not installed (tests/run installs it)");
        return;
    }
    let launcher = Launcher::start_in_test().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut config = MicrovmConfig { guest: Some(guest_program()), ..config };
    if config.kvm == MicrovmConfig::default().kvm && is_in_a_machine() {
        // What KVM can do inside another one is the matter of one test; the others do not wait for it each.
        config.kvm = "/nonexistent/not-asked".into();
    }
    runtime.block_on(async move { test(MicrovmProvider::new(config, launcher).unwrap()).await });
}

fn is_in_a_machine() -> bool {
    std::fs::read_to_string("/proc/cpuinfo").unwrap().contains(" hypervisor ")
}
