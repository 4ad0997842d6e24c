//! The gates of one control connection: opened, watched, closed.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use freeboard_audit::CloseCause;
use freeboard_control::{AnswerBody, OpenGate};
use freeboard_policy::Reason;

use super::{ControlServer, refused};
use crate::broker::Broker;
use crate::limits;
use crate::record::{gate_closed, gate_opened};
use crate::run::RunContext;

/// How many gates are open, over all connections.
#[derive(Debug)]
pub struct GateCount {
    open: Arc<AtomicUsize>,
    most: usize,
}

impl GateCount {
    pub fn new(most: usize) -> Self {
        Self { open: Arc::default(), most }
    }

    /// Gates that are open, or whose end is not recorded yet.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    fn take(&self) -> Option<GatePlace> {
        let place = GatePlace(Arc::clone(&self.open));
        (self.open.fetch_add(1, Ordering::Relaxed) < self.most).then_some(place)
    }
}

#[derive(Debug)]
struct GatePlace(Arc<AtomicUsize>);

impl Drop for GatePlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct Gate {
    run: Arc<RunContext>,
    cause: Arc<OnceLock<CloseCause>>,
}

/// The gates that one connection opened. Dropping it closes them.
#[derive(Debug)]
pub(super) struct Gates<'a> {
    server: &'a ControlServer,
    by_run: HashMap<String, Gate>,
}

impl<'a> Gates<'a> {
    pub(super) fn new(server: &'a ControlServer) -> Self {
        Self { server, by_run: HashMap::new() }
    }

    /// Opens a gate, or nothing at all: descriptors of a refused gate are closed here.
    pub(super) fn open(&mut self, gate: &OpenGate, descriptors: Vec<OwnedFd>) -> AnswerBody {
        let broker = &self.server.broker;
        if let Some(refusal) = check(broker, gate, descriptors.len()) {
            return refusal;
        }
        let Some(place) = self.server.gates.take() else {
            return refused(Reason::RunLimit, format!("{} gates are open", self.server.gates.most));
        };
        let run = match RunContext::open(gate, None, broker) {
            Ok(run) => run,
            Err(stop) => return refused(stop.reason, stop.to_string()),
        };
        if !broker.runs.insert(&run) {
            return refused(Reason::Malformed, "a gate of this run is open already");
        }
        let policy = crate::reload::identity(&broker.snapshot());
        let floor = run.scope(&broker.snapshot(), run.opened).ok().and_then(|scope| scope.floor);
        let opened = gate_opened(&run, gate, floor);
        if let Err(reason) = broker.recorder.event(Some(Arc::clone(&run.identity)), Some(policy), opened) {
            broker.runs.end(&run.id);
            return refused(reason, "the audit log cannot be written");
        }
        let cause = Arc::new(OnceLock::new());
        tokio::spawn(watch(Arc::clone(&run), Arc::clone(&cause), Arc::clone(broker), place));
        let doors = gate.doors.iter().copied().zip(descriptors).collect();
        self.server.workers.open_gate(&run, doors, broker);
        self.by_run.insert(gate.run.clone(), Gate { run, cause });
        AnswerBody::Opened
    }

    /// A credential for a run of this connection.
    pub(super) fn issue(&self, run: &str) -> AnswerBody {
        match self.by_run.get(run).map(|gate| gate.run.issue_proxy_token()) {
            Some(Ok(token)) => AnswerBody::Issued(token),
            Some(Err(stop)) => refused(stop.reason, stop.to_string()),
            None => refused(Reason::RunEnded, "no gate of this run was opened on this connection"),
        }
    }

    /// Ends a run's authority at once. Its answer comes when what was in flight is cut and recorded, and holds the trace.
    /// `None` when no gate of the run was opened on this connection.
    pub(super) fn close(&mut self, run: &str) -> Option<Closing> {
        let gate = self.by_run.remove(run)?;
        end(&self.server.broker, &gate, CloseCause::Closed);
        Some(Closing { run: gate.run })
    }
}

impl Drop for Gates<'_> {
    fn drop(&mut self) {
        let draining = self.server.broker.draining.is_cancelled();
        let cause = if draining { CloseCause::Shutdown } else { CloseCause::ConnectionLost };
        for gate in self.by_run.values() {
            end(&self.server.broker, gate, cause);
        }
    }
}

/// A run that has no authority any more, and whose connections are being cut.
#[derive(Debug)]
pub(super) struct Closing {
    pub(super) run: Arc<RunContext>,
}

impl Closing {
    /// The trace, once nothing of the run is in flight.
    pub(super) async fn settled(self) -> AnswerBody {
        AnswerBody::Closed(settled_trace(&self.run).await)
    }
}

/// Ends a gate. One that has ended by itself keeps its own cause.
fn end(broker: &Broker, gate: &Gate, cause: CloseCause) {
    if !gate.run.ended.is_cancelled() {
        // An error means that another cause came first.
        let _ = gate.cause.set(cause);
    }
    broker.runs.end(&gate.run.id);
    gate.run.ended.cancel();
}

/// Refuses what must not be opened.
fn check(broker: &Broker, gate: &OpenGate, descriptors: usize) -> Option<AnswerBody> {
    if broker.draining.is_cancelled() {
        return Some(refused(Reason::ShuttingDown, "the broker is shutting down"));
    }
    let is_id =
        gate.run.len() == 32 && gate.run.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if !is_id {
        return Some(refused(Reason::Malformed, "a run is named by 32 lower-case hex digits"));
    }
    if descriptors != gate.doors.len() {
        let message = format!("{} doors, but {descriptors} descriptors", gate.doors.len());
        return Some(refused(Reason::Malformed, message));
    }
    let unmet = gate.evidence.facts.iter().find(|fact| !fact.met)?;
    Some(refused(Reason::InsufficientIsolation, format!("the evidence `{}` is not met", unmet.name)))
}

/// Waits for the end of the run and records it. The run ends itself when its time is over.
async fn watch(
    run: Arc<RunContext>,
    cause: Arc<OnceLock<CloseCause>>,
    broker: Arc<Broker>,
    _place: GatePlace,
) {
    run.ended.cancelled().await;
    broker.runs.end(&run.id);
    let trace = settled_trace(&run).await;
    let draining = broker.draining.is_cancelled();
    let cause = *cause.get_or_init(|| if draining { CloseCause::Shutdown } else { CloseCause::Expired });
    let policy = crate::reload::identity(&broker.snapshot());
    let closed = gate_closed(cause, &trace);
    if broker.recorder.event(Some(Arc::clone(&run.identity)), Some(policy), closed).is_err() {
        tracing::error!(run = %run.id, "the end of a gate was not recorded: the audit log cannot be written");
    }
    run.leases.give_back(&run.id).await;
}

/// The trace once every connection of the run is gone, so that what was cut is in it; at most `GATE_SETTLE`.
async fn settled_trace(run: &Arc<RunContext>) -> freeboard_control::Trace {
    let deadline = tokio::time::Instant::now() + limits::GATE_SETTLE;
    while run.connections() > 0 && tokio::time::Instant::now() < deadline {
        tokio::time::sleep(limits::GATE_SETTLE_STEP).await;
    }
    run.trace()
}
