//! A provider per test and short ways to run something in it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use freeboard_control::{Evidence, Fact};
use freeboard_sandboxd::child::launcher::Launcher;
use freeboard_sandboxd::job::{Job, NoSink, Outcome, Payload};
use freeboard_sandboxd::provider::gvisor::{GvisorConfig, GvisorProvider};
use freeboard_sandboxd::provider::{CreateError, Plan, Provider, RunFailure, Sandbox};

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
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let turn = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    Job {
        run: format!("{:016x}{:016x}", std::process::id(), turn),
        caller: None,
        trace_id: None,
        grants: Vec::new(),
        floor: None,
        timeout: Duration::from_secs(60),
        payload,
        files: Vec::new(),
        artifacts: Vec::new(),
        environment: Vec::new(),
        output_limit: 64 << 10,
        artifact_limit: 8 << 20,
    }
}

pub(crate) fn shell(script: &str) -> Job {
    job(Payload::Steps { steps: vec![script.into()] })
}

pub(crate) fn python(script: &str) -> Job {
    job(Payload::Command { argv: vec!["python3".into(), "-c".into(), script.into()] })
}

pub(crate) async fn run(provider: &GvisorProvider, job: Job) -> Result<Outcome, RunFailure> {
    let (sandbox, _) = measured(provider, job).await.unwrap();
    sandbox.release(Arc::new(NoSink)).await
}

pub(crate) async fn measured(
    provider: &GvisorProvider,
    job: Job,
) -> Result<(Box<dyn Sandbox>, Evidence), CreateError> {
    let plan = Plan { job, prepared: None };
    let mut sandbox = provider.create(&plan).await?;
    let evidence = sandbox.measure().await?;
    Ok((sandbox, evidence))
}

pub(crate) fn first(outcome: &Outcome) -> (i32, String, String) {
    let step = outcome.steps.first().unwrap_or_else(|| panic!("no step: {outcome:?}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (step.exit_code, text(&step.stdout), text(&step.stderr))
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
