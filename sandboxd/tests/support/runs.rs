//! Short ways to run something in a provider, whichever it is.

use std::sync::Arc;
use std::time::Duration;

use freeboard_control::Evidence;
use freeboard_sandboxd::job::{Job, NoSink, Outcome, Payload};
use freeboard_sandboxd::provider::{CreateError, Plan, Provider, RunFailure, Sandbox};

/// A run of its own id, without grants.
pub(crate) fn job_within(timeout: Duration, payload: Payload) -> Job {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let turn = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let run = format!("{:016x}{:016x}", std::process::id(), turn);
    Job { output_limit: 64 << 10, artifact_limit: 8 << 20, ..Job::of_nobody(run, payload, timeout) }
}

/// Creates, measures and releases.
pub(crate) async fn run(provider: &dyn Provider, job: Job) -> Result<Outcome, RunFailure> {
    let (sandbox, _) = measured(provider, job).await.unwrap();
    sandbox.release(Arc::new(NoSink)).await
}

pub(crate) async fn measured(
    provider: &dyn Provider,
    job: Job,
) -> Result<(Box<dyn Sandbox>, Evidence), CreateError> {
    let plan = Plan { job, prepared: None };
    let mut sandbox = provider.create(&plan).await?;
    let evidence = sandbox.measure().await?;
    Ok((sandbox, evidence))
}

/// Exit code and output of the first step.
pub(crate) fn first(outcome: &Outcome) -> (i32, String, String) {
    let step = outcome.steps.first().unwrap_or_else(|| panic!("no step: {outcome:?}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (step.exit_code, text(&step.stdout), text(&step.stderr))
}
