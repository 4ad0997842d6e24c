//! A provider per test and short ways to run something in it.

use std::sync::Arc;
use std::time::Duration;

use freeboard_control::Evidence;
use freeboard_sandboxd::child::launcher::Launcher;
use freeboard_sandboxd::job::{Job, NoSink, Outcome, Payload};
pub(crate) use freeboard_sandboxd::provider::Allowance;
use freeboard_sandboxd::provider::native::{NativeConfig, NativeProvider};
use freeboard_sandboxd::provider::{Plan, Provider};

#[path = "../support/runs.rs"]
mod runs;

use runs::job_within;
pub(crate) use runs::{first, measured, run};

pub(crate) fn with_provider<T>(config: NativeConfig, test: impl AsyncFnOnce(NativeProvider) -> T) -> T {
    let launcher = Launcher::start_in_test().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async move { test(NativeProvider::new(config, launcher).unwrap()).await })
}

pub(crate) fn giving(allowance: Allowance) -> NativeConfig {
    NativeConfig { allowance, ..NativeConfig::default() }
}

pub(crate) fn job(payload: Payload) -> Job {
    job_within(Duration::from_secs(20), payload)
}

pub(crate) fn shell(script: &str) -> Job {
    job(Payload::Steps { steps: vec![script.into()] })
}

pub(crate) fn python(script: &str) -> Job {
    job(Payload::Command { argv: vec!["python3".into(), "-c".into(), script.into()] })
}

/// What was measured, and how it ended.
pub(crate) async fn run_with_evidence(provider: &NativeProvider, job: Job) -> (Evidence, Outcome) {
    let plan = Plan { job, prepared: None };
    let mut sandbox = provider.create(&plan).await.unwrap();
    let evidence = sandbox.measure().await.unwrap();
    (evidence, sandbox.release(Arc::new(NoSink)).await.unwrap())
}

/// One step in a provider of its own; its exit code and what it wrote.
pub(crate) fn once(job: Job) -> (i32, String, String) {
    with_provider(NativeConfig::default(), async |provider| {
        let outcome = run(&provider, job).await.unwrap();
        first(&outcome)
    })
}

/// Whether runs of this process get a control group: root does here, an ordinary user where systemd delegates.
pub(crate) fn has_group() -> bool {
    freeboard_sandboxd::isolate::cgroup::Groups::detect() != freeboard_sandboxd::isolate::cgroup::Groups::None
}

/// Folders in which groups of runs are made.
pub(crate) fn group_folders() -> Vec<std::path::PathBuf> {
    use freeboard_sandboxd::isolate::cgroup::Groups;
    match Groups::detect() {
        Groups::None => Vec::new(),
        Groups::Unified { base } => vec![base],
        Groups::PerController { memory, pids, cpu } => {
            [Some(memory), Some(pids), cpu].into_iter().flatten().collect()
        }
    }
}

/// Processes on this host whose command line is exactly this.
pub(crate) fn count_running(command: &str) -> usize {
    let wanted: Vec<u8> = command.split(' ').flat_map(|word| word.bytes().chain([0])).collect();
    std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter(|entry| std::fs::read(entry.path().join("cmdline")).is_ok_and(|line| line == wanted))
        .count()
}

pub(crate) fn is_running(command: &str) -> bool {
    count_running(command) > 0
}

/// Waits for a condition, within ten seconds.
pub(crate) fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let end = std::time::Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(std::time::Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
