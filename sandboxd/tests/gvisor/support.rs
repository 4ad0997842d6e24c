//! A provider per test and short ways to run something in it.

use std::path::PathBuf;
use std::time::Duration;

use freeboard_control::{Evidence, Fact};
use freeboard_sandboxd::child::launcher::Launcher;
use freeboard_sandboxd::job::{Job, Payload};
use freeboard_sandboxd::provider::gvisor::{GvisorConfig, GvisorProvider};

#[path = "../support/runs.rs"]
mod runs;

use runs::job_within;
pub(crate) use runs::{first, measured, run};

/// Runs a test, or says that it was not.
pub(crate) fn with_provider(config: GvisorConfig, test: impl AsyncFnOnce(GvisorProvider)) {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: gVisor runs with a gate need root");
        return;
    }
    let launcher = Launcher::start_in_test().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = GvisorConfig { guest: Some(guest_program()), ..config };
    runtime.block_on(async move { test(GvisorProvider::new(config, launcher).unwrap()).await });
}

/// Beside the programs of this build: tests are one folder below.
fn guest_program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().unwrap().parent().unwrap().join("freeboard-guest");
    assert!(program.is_file(), "`{}` is missing: cargo build --workspace --bins", program.display());
    program
}

pub(crate) fn job(payload: Payload) -> Job {
    job_within(Duration::from_secs(60), payload)
}

pub(crate) fn shell(script: &str) -> Job {
    job(Payload::Steps { steps: vec![script.into()] })
}

pub(crate) fn python(script: &str) -> Job {
    job(Payload::Command { argv: vec!["python3".into(), "-c".into(), script.into()] })
}

pub(crate) fn fact<'a>(evidence: &'a Evidence, name: &str) -> &'a Fact {
    evidence.facts.iter().find(|fact| fact.name == name).unwrap_or_else(|| panic!("{name}: {evidence:?}"))
}

/// Processes of the runtime on this host that carry the id of a run in their command line.
pub(crate) fn runtime_processes(run: &str) -> usize {
    std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok())
        .map(|line| String::from_utf8_lossy(&line).into_owned())
        .filter(|line| line.contains("runsc") && line.contains(run))
        .count()
}

/// Waits for a condition, within twenty seconds.
pub(crate) fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let end = std::time::Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(std::time::Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
