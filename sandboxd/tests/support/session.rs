//! A fake sandbox that serves calls: it answers, hangs or is lost, and counts how often it was suspended and destroyed.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use freeboard_control::Door;
use freeboard_sandboxd::job::{Ending, Job, Outcome, OutputSink, Payload, StepOutcome};
use freeboard_sandboxd::provider::{CallFailure, Called, Cancel, CellEnd, ReadBack, RunFailure, Session};
use futures_util::future::BoxFuture;

use super::{Act, Counts};

pub struct FakeSession {
    pub act: Act,
    pub counts: Arc<Counts>,
}

impl Drop for FakeSession {
    fn drop(&mut self) {
        self.counts.destroyed.fetch_add(1, Ordering::SeqCst);
    }
}

impl Session for FakeSession {
    fn read_back(&mut self) -> Result<(), ReadBack> {
        match self.counts.read_back.lock().unwrap().take() {
            Some(refusal) => Err(refusal),
            None => Ok(()),
        }
    }

    fn doors(&self) -> io::Result<Vec<(Door, OwnedFd)>> {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        Ok(vec![(Door::Tcp { port: 443 }, socket.into())])
    }

    fn call(
        &mut self,
        job: Job,
        cancel: Cancel,
        _output: Arc<dyn OutputSink>,
    ) -> BoxFuture<'_, Result<Called, CallFailure>> {
        Box::pin(async move {
            self.counts.released.fetch_add(1, Ordering::SeqCst);
            let outcome = match &self.act {
                Act::Lose => {
                    return Err(CallFailure::Lost(RunFailure::Lost("the secret inner reason".into())));
                }
                Act::Hang => {
                    let timed_out = tokio::time::timeout(job.timeout, cancel.notified()).await;
                    if timed_out.is_ok() {
                        self.counts.cancelled.fetch_add(1, Ordering::SeqCst);
                    }
                    let step = StepOutcome { timed_out: true, exit_code: 124, ..StepOutcome::default() };
                    Outcome { steps: vec![step], ending: Ending::TimedOut, ..empty() }
                }
                Act::Answer(outcome) => {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    outcome.clone()
                }
                Act::Panic => panic!("a fault of ours"),
                Act::NoHost => unreachable!("there is no sandbox"),
            };
            let started = matches!(job.payload, Payload::Cell { .. });
            Ok(Called { outcome, cell: CellEnd { started, ended: false }, over: None })
        })
    }

    fn suspend(&mut self) -> BoxFuture<'_, Result<(), RunFailure>> {
        self.counts.suspended.fetch_add(1, Ordering::SeqCst);
        Box::pin(std::future::ready(Ok(())))
    }

    fn end(self: Box<Self>) -> BoxFuture<'static, ()> {
        drop(self);
        Box::pin(std::future::ready(()))
    }
}

fn empty() -> Outcome {
    Outcome {
        steps: Vec::new(),
        ending: Ending::Completed,
        detail: String::new(),
        artifacts: Vec::new(),
        artifacts_truncated: false,
    }
}
