//! Short words of the tests of every provider with a kernel of its own.

use std::path::PathBuf;
use std::time::Duration;

use freeboard_control::{Evidence, Fact};
use freeboard_sandboxd::job::{Job, Payload};
pub(crate) use freeboard_sandboxd::provider::Allowance;

#[path = "../support/runs.rs"]
mod runs;

use runs::job_within;
pub(crate) use runs::{first, measured, run};

/// Beside the programs of this build: tests are one folder below.
pub(crate) fn guest_program() -> PathBuf {
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

/// Waits for a condition, within twenty seconds.
pub(crate) fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let end = std::time::Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(std::time::Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
