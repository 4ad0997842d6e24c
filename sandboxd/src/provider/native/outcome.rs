//! Puts a run's result together from what its first process reports and what the kernel counted.

use std::sync::Arc;
use std::time::Duration;

use freeboard_guest::protocol::{Report, StepReport};

use super::sandbox::ending;
use crate::isolate::Limits;
use crate::isolate::cgroup::Usage;
use crate::isolate::limits::{TMP_BYTES, TMP_INODES};
use crate::job::{Ending, JobFile, Outcome, OutputSink, StepOutcome};

/// 128 + SIGKILL: what a shell says of a program that the kernel killed, as it does when memory is used up.
const EXIT_KILLED: i32 = 137;
/// As of timeout(1).
const EXIT_TIMED_OUT: i32 = 124;

/// Collects frames while they come.
pub(super) struct Collector {
    /// What the steps are called, in order.
    commands: std::vec::IntoIter<String>,
    /// Bytes kept per stream and step.
    limit: usize,
    sink: Arc<dyn OutputSink>,
    steps: Vec<StepOutcome>,
    running: bool,
    details: Vec<String>,
    artifacts: Vec<JobFile>,
}

impl Collector {
    pub(super) fn new(commands: Vec<String>, limit: usize, sink: Arc<dyn OutputSink>) -> Self {
        let commands = commands.into_iter();
        Self {
            commands,
            limit,
            sink,
            steps: Vec::new(),
            running: false,
            details: Vec::new(),
            artifacts: Vec::new(),
        }
    }

    pub(super) fn begin(&mut self) {
        let command = self.commands.next().unwrap_or_default();
        self.steps.push(StepOutcome { command, ..StepOutcome::default() });
        self.running = true;
    }

    pub(super) fn stdout(&mut self, bytes: &[u8]) {
        self.sink.stdout(bytes);
        if let Some(step) = self.steps.last_mut() {
            step.stdout_truncated |= keep(&mut step.stdout, bytes, self.limit);
        }
    }

    pub(super) fn stderr(&mut self, bytes: &[u8]) {
        self.sink.stderr(bytes);
        if let Some(step) = self.steps.last_mut() {
            step.stderr_truncated |= keep(&mut step.stderr, bytes, self.limit);
        }
    }

    pub(super) fn end(&mut self, report: StepReport) {
        self.running = false;
        if !report.detail.is_empty() {
            self.details.push(report.detail);
        }
        if let Some(step) = self.steps.last_mut() {
            step.exit_code = report.exit_code;
            step.timed_out = report.timed_out;
            step.stdout_truncated |= report.stdout_truncated;
            step.stderr_truncated |= report.stderr_truncated;
            step.duration = Duration::from_micros(report.duration_us);
        }
    }

    pub(super) fn artifact(&mut self, path: &str, content: &[u8]) {
        self.artifacts.push(JobFile { path: path.to_owned(), content: content.to_owned() });
    }

    /// The ordinary end.
    pub(super) fn finish(mut self, report: Report, mut usage: Usage, limits: &Limits) -> Outcome {
        usage.memory_kills += report.counted.memory_kills;
        usage.pids_refusals += report.counted.pids_refusals;
        if !report.detail.is_empty() {
            self.details.push(report.detail);
        }
        if report.disk_full {
            self.details
                .push(format!("disk: /work is full ({} bytes, {} files)", limits.disk_bytes, limits.inodes));
        }
        if report.tmp_full {
            self.details.push(format!("disk: /tmp is full ({TMP_BYTES} bytes, {TMP_INODES} files)"));
        }
        self.say_usage(usage, limits);
        self.outcome(ending(report.ending), report.artifacts_truncated)
    }

    /// The kernel killed the run as a whole because its memory was used up. The step that was running has that status.
    pub(super) fn out_of_memory(mut self, usage: Usage, limits: &Limits) -> Outcome {
        self.say_usage(usage, limits);
        if self.running
            && let Some(step) = self.steps.last_mut()
        {
            step.exit_code = EXIT_KILLED;
        }
        let ending = if self.steps.is_empty() { Ending::SetupFailed } else { Ending::Completed };
        self.outcome(ending, false)
    }

    /// The run's own kernel ended because it got no more threads of the host.
    pub(super) fn out_of_processes(self, usage: Usage, limits: &Limits) -> Outcome {
        self.out_of_memory(usage, limits)
    }

    /// The run did not stop by itself at its deadline and was killed from outside.
    pub(super) fn overdue(mut self) -> Outcome {
        if self.running
            && let Some(step) = self.steps.last_mut()
        {
            step.exit_code = EXIT_TIMED_OUT;
            step.timed_out = true;
        }
        self.details.push("the run did not end at its deadline and was killed from outside".into());
        self.outcome(Ending::TimedOut, false)
    }

    fn say_usage(&mut self, usage: Usage, limits: &Limits) {
        if usage.memory_kills > 0 {
            self.details.push(format!("memory: the limit of {} bytes was reached", limits.memory_bytes));
        }
        if usage.pids_refusals > 0 {
            self.details.push(format!("pids: the limit of {} processes was reached", limits.pids));
        }
    }

    fn outcome(self, ending: Ending, artifacts_truncated: bool) -> Outcome {
        Outcome {
            steps: self.steps,
            ending,
            detail: self.details.join("; "),
            artifacts: self.artifacts,
            artifacts_truncated,
        }
    }
}

/// Appends what fits. Whether something did not.
fn keep(kept: &mut Vec<u8>, bytes: &[u8], limit: usize) -> bool {
    let room = limit.saturating_sub(kept.len()).min(bytes.len());
    kept.extend_from_slice(bytes.get(..room).unwrap_or_default());
    room < bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::NoSink;

    const LIMITS: Limits =
        Limits { memory_bytes: 1024, pids: 7, cpu_milli: 1000, disk_bytes: 4096, inodes: 1 };

    fn collector() -> Collector {
        let mut collector = Collector::new(vec!["one".into()], 4, Arc::new(NoSink));
        collector.begin();
        collector
    }

    fn report() -> Report {
        Report::default()
    }

    #[test]
    fn keeps_a_prefix_and_flags_the_rest() {
        let mut collector = collector();
        collector.stdout(b"123");
        collector.stdout(b"456");
        collector.stderr(b"1234");
        collector.end(StepReport { exit_code: 3, ..StepReport::default() });
        let outcome = collector.finish(report(), Usage::default(), &LIMITS);
        let step = &outcome.steps[0];
        assert_eq!((step.stdout.as_slice(), step.stdout_truncated), (b"1234".as_slice(), true));
        assert_eq!((step.stderr.as_slice(), step.stderr_truncated), (b"1234".as_slice(), false));
        assert_eq!((step.exit_code, outcome.ending), (3, Ending::Completed));
    }

    #[test]
    fn f07_f08_f09_the_limit_that_was_reached_is_named() {
        let usage = Usage { memory_peak_bytes: 0, memory_kills: 1, pids_refusals: 2 };
        let mut collector = collector();
        collector.end(StepReport { exit_code: 137, ..StepReport::default() });
        let outcome = collector.finish(Report { disk_full: true, ..report() }, usage, &LIMITS);
        for word in ["memory", "pids", "disk"] {
            assert!(outcome.detail.contains(word), "{}", outcome.detail);
        }
    }

    #[test]
    fn f08_a_run_killed_for_its_memory_is_no_success() {
        let usage = Usage { memory_kills: 1, ..Usage::default() };
        let outcome = collector().out_of_memory(usage, &LIMITS);
        assert_eq!(outcome.steps[0].exit_code, 137);
        assert!(outcome.detail.contains("memory"));
    }

    #[test]
    fn f24_a_run_that_had_to_be_killed_is_timed_out() {
        let outcome = collector().overdue();
        assert_eq!((outcome.ending, outcome.steps[0].exit_code), (Ending::TimedOut, 124));
    }
}
