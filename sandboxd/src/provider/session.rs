//! A boundary that stays for call after call.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use freeboard_control::Door;
use futures_util::future::BoxFuture;
use tokio::sync::Notify;

use super::RunFailure;
use crate::job::{Job, Outcome, OutputSink};

/// Told once, when nobody waits for a call any more.
pub type Cancel = Arc<Notify>;

/// What came of a call whose code was released.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Called {
    pub outcome: Outcome,
    /// Of a cell.
    pub cell: CellEnd,
    /// The session is over with this call.
    pub over: Option<Over>,
}

/// What a cell did to its interpreter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CellEnd {
    pub started: bool,
    pub ended: bool,
}

/// Why a sandbox serves no further call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    /// Its first process is gone.
    MainProcessEnded,
    /// What a call left behind could not be proved gone.
    BoundaryFailed,
}

/// Why a call has no outcome.
#[derive(Debug, thiserror::Error)]
pub enum CallFailure {
    /// A file of a cell could not be placed. Nothing ran.
    #[error("{0}")]
    Files(String),
    /// No interpreter came up. The cell's code was not sent to one.
    #[error("the interpreter cannot start: {0}")]
    NoInterpreter(String),
    /// The sandbox is gone; code may have run.
    #[error(transparent)]
    Lost(RunFailure),
}

/// Why a sandbox could not be found as it was. Nothing ran.
#[derive(Debug, thiserror::Error)]
pub enum ReadBack {
    /// It is another one than was measured when it was opened.
    #[error("the sandbox has changed since the session was opened: {0}")]
    Changed(String),
    #[error("the sandbox's first process is gone")]
    Gone,
    #[error("the sandbox could not be measured")]
    Unreadable(#[source] io::Error),
}

/// The boundary of a session. Dropping it kills everything inside and removes it from the host.
///
/// Between two calls nothing inside runs: what a call left is killed, interpreters are stopped.
pub trait Session: Send {
    /// Measures again, and compares with what was measured when the session was opened.
    fn read_back(&mut self) -> Result<(), ReadBack>;
    /// The gate's sockets, for the broker, for one call.
    fn doors(&self) -> io::Result<Vec<(Door, OwnedFd)>>;
    /// Runs one call to its end or the deadline of its job. Not to be dropped midway: the sandbox is lost then.
    fn call(
        &mut self,
        job: Job,
        cancel: Cancel,
        output: Arc<dyn OutputSink>,
    ) -> BoxFuture<'_, Result<Called, CallFailure>>;
    /// Ends the interpreters; the files stay.
    fn suspend(&mut self) -> BoxFuture<'_, Result<(), RunFailure>>;
    /// Kills everything and waits until nothing is left.
    fn end(self: Box<Self>) -> BoxFuture<'static, ()>;
}
