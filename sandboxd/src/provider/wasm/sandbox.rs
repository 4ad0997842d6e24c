//! One run on a worker: measured, released, read to its end.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use freeboard_control::{Door, Evidence};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use tokio::time::timeout_at;

use super::super::{CreateError, Plan, RunFailure, Sandbox};
use super::frame::{Body, Done, Frame, RunMessage};
use super::limits::{DEADLINE_GRACE, MAX_TIMEOUT};
use super::workers::Lease;
use crate::job::{Ending, Outcome, OutputSink, StepOutcome};

/// What the engine's trap is to a program; the worker that saw one is not used again.
const TRAP_STATUS: i32 = 134;

pub(super) struct WasmSandbox {
    worker: Lease,
    code: String,
    surface: String,
    timeout: Duration,
    output_limit: usize,
    /// The door's end for the gate, until it is taken, and the one for the worker.
    gate: Option<OwnedFd>,
    door: Option<OwnedFd>,
}

impl WasmSandbox {
    pub(super) fn new(plan: &Plan, code: String, worker: Lease) -> Result<Self, CreateError> {
        let (gate, door) = match &plan.prepared {
            None => (None, None),
            Some(_) => {
                let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
                let failed = |errno: rustix::io::Errno| CreateError::Step {
                    step: "making the door of the gate".to_owned(),
                    source: errno.into(),
                };
                let (gate, door) = pair.map_err(failed)?;
                (Some(gate), Some(door))
            }
        };
        Ok(Self {
            worker,
            code,
            surface: surface(plan),
            timeout: plan.job.timeout.min(MAX_TIMEOUT),
            output_limit: plan.job.output_limit,
            gate,
            door,
        })
    }

    async fn run(self, output: Arc<dyn OutputSink>) -> Result<Outcome, RunFailure> {
        let Self { mut worker, code, surface, timeout, output_limit, gate, door } = self;
        drop(gate);
        let started = Instant::now();
        let number = worker.begin_run();
        let message = RunMessage {
            timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
            output_limit: output_limit as u64,
            code,
            surface,
        };
        let frame = Frame { run: number, body: Body::Run(message) };
        let mut kept = Kept { output, limit: output_limit, step: StepOutcome::default() };
        let read = async {
            worker.send(&frame, door.as_ref().map(AsFd::as_fd)).await?;
            // The worker has it: when it closes it, the gate must see that.
            drop(door);
            read_to_end(&mut worker, number, &mut kept).await
        };
        let read = timeout_at((started + timeout + DEADLINE_GRACE).into(), read).await;
        let done = match read {
            Ok(Ok(done)) => {
                if done.exit_code != TRAP_STATUS {
                    worker.give_back();
                }
                done
            }
            Ok(Err(error)) => {
                let status = worker.kill();
                return Err(RunFailure::Lost(format!("the worker ended with {status} ({error})")));
            }
            // The worker did not end the run itself: its process is ended, which ends the run for certain.
            Err(_late) => {
                worker.kill();
                late()
            }
        };
        Ok(kept.outcome(done, started.elapsed()))
    }
}

/// JSON for the guest's `host` object; empty without grants.
fn surface(plan: &Plan) -> String {
    let apis = plan.prepared.as_ref().map(|prepared| prepared.surface.as_slice()).unwrap_or_default();
    if apis.is_empty() { String::new() } else { serde_json::to_string(apis).unwrap_or_default() }
}

fn late() -> Done {
    Done {
        exit_code: 124,
        timed_out: true,
        stdout_truncated: false,
        stderr_truncated: false,
        detail: "the time was over and the worker had to be killed".to_owned(),
    }
}

async fn read_to_end(worker: &mut Lease, number: u64, kept: &mut Kept) -> std::io::Result<Done> {
    loop {
        let frame = worker.receive().await?;
        // F27: an answer to another run is no answer.
        if frame.run != number {
            return Err(std::io::ErrorKind::InvalidData.into());
        }
        match frame.body {
            Body::Output { stream, bytes } => kept.push(stream, &bytes),
            Body::Done(done) => return Ok(done),
            Body::Ready { .. } | Body::Failed { .. } | Body::Run(_) => {
                return Err(std::io::ErrorKind::InvalidData.into());
            }
        }
    }
}

/// Output as far as it is kept. The worker cuts it too, but is not trusted to.
struct Kept {
    output: Arc<dyn OutputSink>,
    limit: usize,
    step: StepOutcome,
}

impl Kept {
    fn push(&mut self, stream: u8, bytes: &[u8]) {
        let step = &mut self.step;
        let (kept, truncated) = match stream {
            1 => (&mut step.stdout, &mut step.stdout_truncated),
            _ => (&mut step.stderr, &mut step.stderr_truncated),
        };
        let room = self.limit.saturating_sub(kept.len());
        let bytes = if bytes.len() > room {
            *truncated = true;
            bytes.get(..room).unwrap_or_default()
        } else {
            bytes
        };
        kept.extend_from_slice(bytes);
        match stream {
            1 => self.output.stdout(bytes),
            _ => self.output.stderr(bytes),
        }
    }

    fn outcome(mut self, done: Done, duration: Duration) -> Outcome {
        self.step.stdout_truncated |= done.stdout_truncated;
        self.step.stderr_truncated |= done.stderr_truncated;
        self.step.exit_code = done.exit_code;
        self.step.timed_out = done.timed_out;
        self.step.duration = duration;
        Outcome {
            steps: vec![self.step],
            ending: if done.timed_out { Ending::TimedOut } else { Ending::Completed },
            detail: done.detail,
            artifacts: Vec::new(),
            artifacts_truncated: false,
        }
    }
}

impl Sandbox for WasmSandbox {
    fn measure(&mut self) -> BoxFuture<'_, Result<Evidence, CreateError>> {
        let evidence = self.worker.boundary.evidence();
        let step = |source| CreateError::Step { step: "measuring the worker".to_owned(), source };
        std::future::ready(evidence.map_err(step)).boxed()
    }

    fn take_doors(&mut self) -> Vec<(Door, OwnedFd)> {
        self.gate.take().map(|gate| (Door::Streams, gate)).into_iter().collect()
    }

    fn release(
        self: Box<Self>,
        output: Arc<dyn OutputSink>,
    ) -> BoxFuture<'static, Result<Outcome, RunFailure>> {
        self.run(output).boxed()
    }
}
