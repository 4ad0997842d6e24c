//! The smoke test: a real run that tries forbidden things. A provider that lets one through does not serve.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::job::{Job, NoSink, Payload};
use crate::provider::{CreateError, Plan, Provider};

/// Each line ends with the number of what worked and must not. Only what a shell has built in, so that it works in any
/// root; `0` at the end means that the ordinary thing, writing a file in the work directory, worked.
pub(super) const SCRIPT: &str = "\
(: > /usr/.freeboard-smoke) 2>/dev/null && exit 11
(: > /etc/.freeboard-smoke) 2>/dev/null && exit 12
(: < /proc/1/environ) 2>/dev/null && exit 13
(: > /proc/sys/kernel/hostname) 2>/dev/null && exit 14
for place in /root/.* /root/* /home/*; do
  case $place in */.|*/..|*'*'*) ;; *) exit 16 ;; esac
done
kill -9 1 2>/dev/null
: > /work/.freeboard-smoke || exit 17
echo fenced
";

/// How long the test may take: it takes milliseconds.
pub(super) const LIMIT: Duration = Duration::from_secs(5);

/// Builds a boundary, measures it, runs the script, which must end with the word `fenced` alone.
pub(in crate::provider) async fn try_forbidden(
    provider: &dyn Provider,
    script: &str,
    limit: Duration,
) -> Result<(), CreateError> {
    let plan = Plan { job: job(script, limit), prepared: None };
    let mut sandbox = provider.create(&plan).await?;
    sandbox.measure().await?;
    let failed = |what: String| CreateError::Step {
        step: "the smoke test, a run that tries forbidden things".into(),
        source: io::Error::other(what),
    };
    let outcome = sandbox.release(Arc::new(NoSink)).await.map_err(|error| failed(error.to_string()))?;
    match outcome.steps.first() {
        Some(step) if step.exit_code == 0 && step.stdout == b"fenced\n" => Ok(()),
        Some(step) => Err(failed(format!("it ended with {} {}", step.exit_code, outcome.detail))),
        None => Err(failed(outcome.detail)),
    }
}

fn job(script: &str, limit: Duration) -> Job {
    let (run, payload) =
        (format!("{:032x}", std::process::id()), Payload::Steps { steps: vec![script.into()] });
    Job { output_limit: 4096, ..Job::of_nobody(run, payload, limit) }
}
