//! The life of a run, in order, with undo. Read this first.
//!
//! prepare (the broker says floor, ports and CA) -> place (floors, payload) -> admit -> create the boundary -> measure
//! it -> compare with every floor -> open the gate -> release the code -> close the gate -> result.
//!
//! Undo is by ownership: a sandbox that is dropped is destroyed, a gate that is dropped is closed, a place that is
//! dropped is free again. So leaving at any step, or being dropped at any await, leaves nothing behind. Everything
//! up to the release is a `Refusal`: nothing ran. Everything after it is a `Failure`: code may have run.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use freeboard_control::{Door, Evidence, OpenGate, Prepared, RunNote, SessionOfCall, Trace};
use freeboard_policy::{Reason, Tier};
use freeboard_wire::digest::hex;
use futures_util::future::BoxFuture;

use crate::admission::{Admission, Full, Place, Wait};
use crate::control_client::{Broker, BrokerError, Gate, Link};
use crate::input::Input;
use crate::job::{Job, JobFile, Less, Outcome, OutputSink, Payload};
use crate::limits::{GATE_GRACE, MAX_TIMEOUT};
use crate::metrics::Metrics;
use crate::placement::{Need, Unplaced, place};
use crate::provider::{CreateError, Description, Plan, Provider, RunFailure, Sandbox, Session};

/// A run as it was asked for; everything in it is within the wire's limits.
#[derive(Debug, Clone)]
pub struct Order {
    /// 32 lower-case hex digits; see [`new_run_id`].
    pub run: String,
    pub caller: Option<String>,
    pub trace_id: Option<String>,
    pub grants: Vec<String>,
    pub floor: Option<Tier>,
    /// `None` = the provider's default. Longer than allowed is clamped.
    pub timeout: Option<Duration>,
    /// The caller accepts only these software identities; empty = any.
    pub software: Vec<String>,
    pub payload: Payload,
    pub files: Vec<JobFile>,
    pub artifacts: Vec<String>,
    pub environment: Vec<(String, String)>,
    pub output_limit: usize,
    /// What it gets less of than it may have. More than that is refused.
    pub less: Less,
    /// Standard input of the program; `None` = it is empty.
    pub input: Option<Arc<Input>>,
    pub artifact_limit: usize,
    /// Set right before code is released: until then whoever gives up may say that nothing ran.
    pub released: Arc<AtomicBool>,
    /// Waits so long for a place; `None` = is refused when there is none.
    pub wait: Option<Wait>,
    /// Is told how far the run is.
    pub witness: Option<Arc<dyn Witness>>,
    pub session: InSession,
}

/// What a run has to do with a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum InSession {
    #[default]
    No,
    /// It opens one.
    Opens,
    /// It is a call of this one.
    Call(SessionOfCall),
}

impl InSession {
    pub fn is_any(&self) -> bool {
        *self != Self::No
    }

    fn of_call(&self) -> Option<&SessionOfCall> {
        match self {
            Self::Call(session) => Some(session),
            Self::No | Self::Opens => None,
        }
    }
}

/// Learns how far a run is, and can keep it from being released.
pub trait Witness: Send + Sync + std::fmt::Debug {
    /// The run has its place.
    fn admitted(&self);
    /// The boundary stands and was measured; code is released when this is done. An error refuses the run: what could not be
    /// noted down does not run.
    fn before_release(&self) -> BoxFuture<'_, std::io::Result<()>>;
}

/// A run that was released and has an outcome.
#[derive(Debug)]
pub struct Ran {
    pub evidence: Evidence,
    /// Content-addressed identity of the engine or root, or empty.
    pub environment: String,
    pub outcome: Outcome,
    /// What the run did through its gate; `None` without a broker or when the broker was lost.
    pub trace: Option<Trace>,
    pub policy_digest: String,
    pub started_unix_ms: u64,
    pub ended_unix_ms: u64,
    pub duration: Duration,
}

/// Why nothing ran.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// Unknown grant, or another caller's: the same words for both.
    #[error("a grant does not exist or is not available to this caller")]
    Grant,
    #[error("this daemon has no broker, so no run can have a grant")]
    NoBroker,
    #[error("the broker is not available")]
    Broker(#[source] BrokerError),
    #[error("{0}")]
    Unplaced(Unplaced),
    /// The boundary as measured is weaker than a floor.
    #[error("the boundary was measured at tier `{measured}`, the run needs `{needed}`{}", unmet_facts(.unmet))]
    Measured { needed: Tier, measured: Tier, unmet: Vec<String> },
    /// A grant came to the caller, or to this port, after the session was opened.
    #[error("a grant reaches port {0}, which the session's gate does not have: open another session")]
    Port(u16),
    #[error("the software that would run is not what the software rule accepts")]
    Software,
    #[error("{0}")]
    Full(Full),
    #[error(transparent)]
    Create(CreateError),
    #[error("no random bytes from the operating system")]
    Random,
    #[error("the journal of runs cannot be written")]
    Journal(#[source] std::io::Error),
}

fn unmet_facts(unmet: &[String]) -> String {
    if unmet.is_empty() { String::new() } else { format!(" (not met: {})", unmet.join(", ")) }
}

/// A run without a result.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Nothing ran.
    #[error(transparent)]
    Refused(Refusal),
    /// Code may have run.
    #[error(transparent)]
    Failed(RunFailure),
}

impl From<Refusal> for RunError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Everything that runs need; one per process.
#[derive(Debug)]
pub struct Launcher {
    providers: Vec<Arc<dyn Provider>>,
    broker: Option<Broker>,
    admission: Arc<Admission>,
    operator_floor: Option<Tier>,
    metrics: Metrics,
}

/// 128 random bits in hex: the name of a run in records and in the audit log.
pub fn new_run_id() -> Result<String, Refusal> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes).map_err(|_| Refusal::Random)?;
    Ok(hex(&bytes))
}

impl Launcher {
    pub fn new(
        providers: Vec<Arc<dyn Provider>>,
        broker: Option<Broker>,
        admission: Arc<Admission>,
        operator_floor: Option<Tier>,
    ) -> Self {
        Self { providers, broker, admission, operator_floor, metrics: Metrics::default() }
    }

    pub fn descriptions(&self) -> Vec<Description> {
        self.providers.iter().map(|provider| provider.describe()).collect()
    }

    /// Every provider tries the forbidden things; the first that lets one through is named.
    pub async fn smoke_test(&self) -> Result<(), (&'static str, CreateError)> {
        for provider in &self.providers {
            provider.smoke_test().await.map_err(|error| (provider.describe().name, error))?;
        }
        Ok(())
    }

    pub fn providers(&self) -> &[Arc<dyn Provider>] {
        &self.providers
    }

    pub fn broker(&self) -> Option<&Broker> {
        self.broker.as_ref()
    }

    pub fn admission(&self) -> &Arc<Admission> {
        &self.admission
    }

    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    pub fn operator_floor(&self) -> Option<Tier> {
        self.operator_floor
    }

    /// Carries one run from its order to its result. Dropped at any await, the run is killed, its gate closed and its
    /// boundary removed.
    pub async fn run(&self, order: Order, output: Arc<dyn OutputSink>) -> Result<Ran, RunError> {
        let link = self.link(&order.grants).await?;
        let (mut prepared, mut chosen) = self.placed(link.as_ref(), &order).await?;
        let caller = order.caller.as_deref();
        let _place = match (self.admission.run(caller, Instant::now()), order.wait) {
            (Err(Full::Runs(_) | Full::CallerRuns(_)), Some(wait)) => {
                let place = self.admission.wait(caller, wait).await.map_err(Refusal::Full)?;
                // Policy and grants may have changed while the run waited.
                (prepared, chosen) = self.placed(link.as_ref(), &order).await?;
                place
            }
            (place, _) => place.map_err(Refusal::Full)?,
        };
        if let Some(witness) = &order.witness {
            witness.admitted();
        }

        let started = Clock::start();
        let policy_digest =
            prepared.as_ref().map(|prepared| prepared.policy_digest.clone()).unwrap_or_default();
        let mut job = job(&order, &chosen);
        // First, so that the job's own variables win: a placeholder is a default, not an order.
        job.environment.splice(0..0, prepared.iter().flat_map(|prepared| prepared.variables.iter().cloned()));
        let plan = Plan { job, prepared };
        let (mut sandbox, evidence) = match build(chosen.provider.as_ref(), &plan, chosen.floor).await {
            Ok(built) => built,
            Err(refusal) => return Err(noted(link.as_ref(), &order, chosen.floor, refusal).await.into()),
        };
        let gate = match &link {
            Some(link) => match open_gate(link, &plan.job, None, &evidence, sandbox.take_doors()).await {
                Ok(gate) => Some(gate),
                Err(refusal) => return Err(noted(Some(link), &order, chosen.floor, refusal).await.into()),
            },
            None => None,
        };

        if let Some(witness) = &order.witness {
            witness.before_release().await.map_err(Refusal::Journal)?;
        }
        order.released.store(true, Ordering::SeqCst);
        let counted = self.metrics.released(chosen.description.name, started.elapsed());
        let ended = sandbox.release(output).await;
        // Authority ends before anything else is done with the result.
        let trace = close_gate(gate, &order.run).await;
        counted.ended(ended.as_ref().map_or("lost", |outcome| outcome.ending.word()), started.elapsed());
        let outcome = ended.map_err(RunError::Failed)?;
        let (started_unix_ms, ended_unix_ms, duration) = started.stop();
        let environment = chosen.description.environment;
        Ok(Ran {
            evidence,
            environment,
            outcome,
            trace,
            policy_digest,
            started_unix_ms,
            ended_unix_ms,
            duration,
        })
    }

    /// Opens a sandbox for the calls of a session: the same boundary, measured the same way, with a place of its own. Dropped
    /// midway, nothing is left.
    pub async fn open(&self, order: &Order) -> Result<Opened, Refusal> {
        let link = self.link(&order.grants).await?;
        let (prepared, chosen) = self.placed(link.as_ref(), order).await?;
        let place = self.admission.run(order.caller.as_deref(), Instant::now()).map_err(Refusal::Full)?;
        let ports = prepared.as_ref().map(|prepared| prepared.ports.clone()).unwrap_or_default();
        let plan = Plan { job: job(order, &chosen), prepared };
        let (sandbox, evidence) = match build(chosen.provider.as_ref(), &plan, chosen.floor).await {
            Ok(built) => built,
            Err(refusal) => return Err(noted(link.as_ref(), order, chosen.floor, refusal).await),
        };
        let session = sandbox.into_session().await.map_err(Refusal::Create)?;
        Ok(Opened { session, evidence, description: chosen.description, ports, place })
    }

    /// Lets providers that build ahead begin. Without an answer of the broker they begin with the first run.
    pub async fn warm(&self) {
        let prepared = match self.link(&[]).await {
            Ok(None) => None,
            Ok(Some(link)) => match link.prepare(None, &[], false).await {
                Ok(prepared) => Some(prepared),
                Err(_) => return,
            },
            Err(_) => return,
        };
        for provider in &self.providers {
            provider.warm(prepared.as_ref());
        }
    }

    /// The control connection, where there is a broker. A configured broker that cannot be reached refuses every run,
    /// also one without grants: its attempts could not be recorded.
    pub(crate) async fn link(&self, grants: &[String]) -> Result<Option<Link>, Refusal> {
        match &self.broker {
            Some(broker) => broker.connection().await.map(Some).map_err(Refusal::Broker),
            None if grants.is_empty() => Ok(None),
            None => Err(Refusal::NoBroker),
        }
    }

    /// What the broker says of the grants now, and where the run would go.
    async fn placed(
        &self,
        link: Option<&Link>,
        order: &Order,
    ) -> Result<(Option<Prepared>, Chosen), Refusal> {
        let prepared = prepare(link, order).await?;
        match self.choose(order, prepared.as_ref()) {
            Ok(chosen) => Ok((prepared, chosen)),
            Err(refusal) => Err(noted(link, order, None, refusal).await),
        }
    }

    /// What the broker says of these grants for this caller.
    pub async fn prepared(&self, caller: Option<&str>, grants: &[String]) -> Result<Prepared, Refusal> {
        let link = self.link(grants).await?.ok_or(Refusal::NoBroker)?;
        link.prepare(caller, grants, false).await.map_err(|error| match error {
            BrokerError::Refused { reason, message } => refused_by_broker(reason, message),
            other => Refusal::Broker(other),
        })
    }

    fn choose(&self, order: &Order, prepared: Option<&Prepared>) -> Result<Chosen, Refusal> {
        let granted = prepared.and_then(|prepared| prepared.floor);
        let floor = [order.floor, self.operator_floor, granted].into_iter().flatten().max();
        let need = Need {
            floor,
            payload: &order.payload,
            files: !order.files.is_empty() || !order.artifacts.is_empty(),
            grants: !order.grants.is_empty(),
            less: order.less,
        };
        let mut descriptions = self.descriptions();
        let index = place(&descriptions, &need).map_err(Refusal::Unplaced)?;
        let provider = self.providers.get(index).ok_or(Refusal::Unplaced(Unplaced::Disabled))?;
        // No provider here states a software identity, and an unstated one meets no rule.
        if !order.software.is_empty() {
            return Err(Refusal::Software);
        }
        Ok(Chosen { provider: Arc::clone(provider), description: descriptions.swap_remove(index), floor })
    }
}

/// A sandbox for a session.
#[expect(missing_debug_implementations, reason = "a sandbox has nothing to show")]
pub struct Opened {
    pub session: Box<dyn Session>,
    /// Measured before anything ran in it.
    pub evidence: Evidence,
    pub description: Description,
    /// Of its gate, besides those that every gate has.
    pub ports: Vec<u16>,
    pub place: Place,
}

/// Where a run goes.
struct Chosen {
    provider: Arc<dyn Provider>,
    description: Description,
    floor: Option<Tier>,
}

pub(crate) async fn prepare(link: Option<&Link>, order: &Order) -> Result<Option<Prepared>, Refusal> {
    let Some(link) = link else { return Ok(None) };
    match link.prepare(order.caller.as_deref(), &order.grants, order.session.is_any()).await {
        Ok(prepared) => Ok(Some(prepared)),
        Err(BrokerError::Refused { reason, message }) => {
            tracing::info!(run = order.run, caller = order.caller, %reason, message, "the broker refused to prepare");
            let refusal = refused_by_broker(reason, message);
            Err(noted(Some(link), order, None, refusal).await)
        }
        Err(error) => Err(Refusal::Broker(error)),
    }
}

fn refused_by_broker(reason: Reason, message: String) -> Refusal {
    match reason {
        Reason::GrantNotAvailable | Reason::GrantExpired | Reason::GrantRevoked => Refusal::Grant,
        _ => Refusal::Broker(BrokerError::Refused { reason, message }),
    }
}

fn job(order: &Order, chosen: &Chosen) -> Job {
    let description = &chosen.description;
    Job {
        run: order.run.clone(),
        caller: order.caller.clone(),
        trace_id: order.trace_id.clone(),
        grants: order.grants.clone(),
        floor: chosen.floor,
        timeout: timeout(order, description),
        payload: order.payload.clone(),
        files: order.files.clone(),
        artifacts: order.artifacts.clone(),
        environment: order.environment.clone(),
        output_limit: order.output_limit,
        less: order.less,
        input: order.input.clone(),
        artifact_limit: order.artifact_limit,
    }
}

/// The time of a run: as asked, else the provider's default, and never more than either allows.
pub(crate) fn timeout(order: &Order, description: &Description) -> Duration {
    let most = description.max_timeout.min(MAX_TIMEOUT);
    let wished = match (order.timeout, order.less.time) {
        (Some(wish), Some(limit)) => wish.min(limit),
        (wish, limit) => wish.or(limit).unwrap_or(description.default_timeout),
    };
    wished.min(most)
}

/// Creates and measures the boundary, and compares what was measured with the floor.
async fn build(
    provider: &dyn Provider,
    plan: &Plan,
    floor: Option<Tier>,
) -> Result<(Box<dyn Sandbox>, Evidence), Refusal> {
    let mut sandbox = provider.create(plan).await.map_err(Refusal::Create)?;
    let evidence = sandbox.measure().await.map_err(Refusal::Create)?;
    match floor {
        // SECURITY: the tier that counts is the one measured on this very boundary, not the configured one. Guarded by
        // a_boundary_measured_below_the_floor_never_runs.
        Some(needed) if evidence.tier < needed => {
            let unmet =
                evidence.facts.iter().filter(|fact| !fact.met).map(|fact| fact.name.clone()).collect();
            Err(Refusal::Measured { needed, measured: evidence.tier, unmet })
        }
        _ => Ok((sandbox, evidence)),
    }
}

pub(crate) async fn open_gate(
    link: &Link,
    job: &Job,
    session: Option<&SessionOfCall>,
    evidence: &Evidence,
    doors: Vec<(Door, OwnedFd)>,
) -> Result<Gate, Refusal> {
    let (doors, sockets) = doors.into_iter().unzip();
    let expires = SystemTime::now() + job.timeout + GATE_GRACE;
    let gate = OpenGate {
        run: job.run.clone(),
        caller: job.caller.clone(),
        grants: job.grants.clone(),
        evidence: evidence.clone(),
        expires_unix_ms: unix_ms(expires),
        trace_id: job.trace_id.clone(),
        session: session.cloned(),
        doors,
    };
    link.open(gate, sockets).await.map_err(|error| match error {
        BrokerError::Refused { reason, message } => refused_by_broker(reason, message),
        other => Refusal::Broker(other),
    })
}

pub(crate) async fn close_gate(gate: Option<Gate>, run: &str) -> Option<Trace> {
    match gate?.close().await {
        Ok(trace) => Some(trace),
        Err(error) => {
            tracing::warn!(run, %error, "the trace of a run is missing");
            None
        }
    }
}

/// Puts a refusal that is about isolation, grants or the broker's own decision into the audit log, and gives it back. That the log cannot be
/// written changes nothing: nothing ran either way.
pub(crate) async fn noted(
    link: Option<&Link>,
    order: &Order,
    floor: Option<Tier>,
    refusal: Refusal,
) -> Refusal {
    let (reason, floor, tier) = match &refusal {
        Refusal::Grant => (Reason::GrantNotAvailable, floor, None),
        Refusal::Broker(BrokerError::Refused { reason, .. }) => (*reason, floor, None),
        Refusal::Unplaced(Unplaced::TooWeak { needed, best, .. }) => {
            (Reason::InsufficientIsolation, Some(*needed), Some(*best))
        }
        Refusal::Measured { needed, measured, .. } => {
            (Reason::InsufficientIsolation, Some(*needed), Some(*measured))
        }
        _ => return refusal,
    };
    let Some(link) = link else { return refusal };
    let note = RunNote {
        run: order.run.clone(),
        caller: order.caller.clone(),
        grants: order.grants.clone(),
        floor,
        tier,
        reason,
        detail: refusal.to_string(),
        session: order.session.of_call().map(|session| session.fingerprint.clone()),
    };
    if let Err(error) = link.note(note).await {
        tracing::warn!(run = order.run, %error, "a refused run could not be put into the audit log");
    }
    refusal
}

/// Wall time of the start, monotonic time since: the end is never before the start, whatever the clock does.
pub(crate) struct Clock {
    wall: SystemTime,
    instant: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { wall: SystemTime::now(), instant: Instant::now() }
    }

    fn elapsed(&self) -> Duration {
        self.instant.elapsed()
    }

    pub(crate) fn stop(&self) -> (u64, u64, Duration) {
        let duration = self.instant.elapsed();
        let started = unix_ms(self.wall);
        (started, started.saturating_add(millis(duration)), duration)
    }
}

/// Milliseconds since 1970; 0 for a clock before that.
pub fn unix_ms(time: SystemTime) -> u64 {
    millis(time.duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// Whole milliseconds.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
