//! Boundaries, one folder each, all behind the same two traits: plan, create, measure, release, destroy.

mod allowance;
mod around;
pub mod docker;
pub mod gvisor;
pub mod microvm;
pub mod native;
mod pool;
mod program;
mod session;
mod start;
pub mod wasm;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use freeboard_control::{Door, Evidence, Prepared};
use freeboard_policy::Tier;
use futures_util::future::BoxFuture;

pub use self::allowance::Allowance;
pub use self::pool::Pooled;
pub use self::session::{CallFailure, Called, Cancel, CellEnd, Over, ReadBack, Session};
pub use self::start::{Ahead, Engines, Kind, NativeView, RunLimits, Service, start};
use crate::job::{Job, Outcome, OutputSink};

/// What a provider says of itself before any run.
#[derive(Debug, Clone)]
pub struct Description {
    pub name: &'static str,
    /// The tier that preflight and smoke test support. A run's own tier is measured again.
    pub tier: Tier,
    /// Why it is not the tier that a provider of its kind can reach; `None` where it is.
    pub weaker: Option<String>,
    /// Content-addressed identity of the engine or root, or empty.
    pub environment: String,
    pub supports_javascript: bool,
    pub supports_project: bool,
    pub supports_grants: bool,
    pub supports_sessions: bool,
    /// A run can have less memory than the others.
    pub lowers_memory: bool,
    /// Languages that were proved to start: `javascript`, `python`.
    pub languages: Vec<String>,
    pub default_timeout: Duration,
    pub max_timeout: Duration,
    pub memory_mib: u32,
    pub cpus: f64,
    pub pids: u32,
    pub disk_mib: u32,
}

/// What is needed to build a boundary for one run.
#[derive(Debug, Clone)]
pub struct Plan {
    pub job: Job,
    /// What the broker said of the run's grants; `None` = no grants, and so no gate sockets and no way to anything.
    pub prepared: Option<Prepared>,
}

/// Why no boundary could be made. Nothing ran.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// The provider cannot run this kind of payload.
    #[error("provider `{provider}` does not run {what}")]
    Unsupported { provider: &'static str, what: String },
    /// This host lacks something; `help` says how to mend it.
    #[error("{what} ({help})")]
    Host { what: String, help: String },
    #[error("a step of building the boundary failed: {step}")]
    Step {
        step: String,
        #[source]
        source: std::io::Error,
    },
}

/// Why a released run has no outcome. The code may have run.
#[derive(Debug, thiserror::Error)]
pub enum RunFailure {
    #[error("the sandbox was lost: {0}")]
    Lost(String),
    #[error("the run was cancelled")]
    Cancelled,
}

/// A kind of boundary.
pub trait Provider: Send + Sync + std::fmt::Debug {
    fn describe(&self) -> Description;
    /// Builds the boundary of one run. No user code runs yet. Dropping the sandbox destroys the boundary.
    fn create<'a>(&'a self, plan: &'a Plan) -> BoxFuture<'a, Result<Box<dyn Sandbox>, CreateError>>;
    /// Checks what must hold whenever a sandbox is used, also one that has stood for a while: the payload, and the programs that
    /// were proved.
    fn ready_for<'a>(&'a self, _plan: &'a Plan) -> BoxFuture<'a, Result<(), CreateError>> {
        Box::pin(std::future::ready(Ok(())))
    }
    /// Says what the gates of runs look like that name no grants, so that a provider which builds ahead can begin.
    fn warm(&self, _prepared: Option<&Prepared>) {}
    /// Tries the forbidden things in a real run. Daemons do it once before they serve, and `doctor` does; a single run
    /// goes without, since its own boundary is measured anyway.
    fn smoke_test(&self) -> BoxFuture<'_, Result<(), CreateError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// The boundary of one run. Dropping it kills everything inside and removes it from the host.
pub trait Sandbox: Send {
    /// Measures the live boundary from outside, before any user code.
    fn measure(&mut self) -> BoxFuture<'_, Result<Evidence, CreateError>>;
    /// Gives a sandbox that was built for nobody to this run. False: it is not there any more, or was built for its run.
    fn give_to(&mut self, _job: &Job) -> bool {
        false
    }
    /// The sockets of the gate, for the broker. Empty when the run has no grants... but attempts are still refused.
    fn take_doors(&mut self) -> Vec<(Door, OwnedFd)>;
    /// Lets the code run and waits for its end, the deadline of the job, or a lost sandbox. When it returns, no process
    /// of the run is alive.
    fn release(
        self: Box<Self>,
        output: Arc<dyn OutputSink>,
    ) -> BoxFuture<'static, Result<Outcome, RunFailure>>;

    /// Keeps the boundary for the calls of a session, instead of one release.
    fn into_session(self: Box<Self>) -> BoxFuture<'static, Result<Box<dyn Session>, CreateError>> {
        drop(self);
        let what = "sessions".to_owned();
        Box::pin(std::future::ready(Err(CreateError::Unsupported { provider: "this provider", what })))
    }
}
