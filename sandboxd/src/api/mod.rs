//! plimsoll.v1 over Connect, and freeboard.v1: the daemon's way in for programs.
//!
//! `server` takes connections; `exchange` is the one outermost layer of every answer (request-id echo, panics);
//! `route` picks the procedure and checks everything about the HTTP request; `body` reads it; one file per
//! procedure answers it, those of freeboard.v1 in `runs`. `refuse` is the one table from our refusals to wire errors.

mod answer;
mod body;
mod describe;
mod exchange;
mod operate;
mod refuse;
mod route;
mod run;
mod runs;
mod server;
mod session;
mod tls;

use std::sync::{Arc, RwLock};

use futures_util::future::BoxFuture;

use crate::callers::Callers;
use crate::job::OutputSink;
use crate::launch::{Launcher, Order, Ran, RunError};
use crate::runs::{Launch, Runs};
use crate::session::Sessions;

pub use exchange::answer;
pub use operate::operate;
pub(crate) use route::bearer;
pub use runs::tell;
pub use server::{Entrance, ServeError, serve, serve_all};
pub(crate) use server::{accept, is_of_one_connection};
pub use tls::{Tls, TlsError, TlsFiles};

/// Who is let in.
#[derive(Debug)]
pub enum Doorkeeper {
    /// Bearer tokens of the callers file; the file is replaced as a whole on reload.
    Tokens(RwLock<Arc<Callers>>),
    /// Everybody, as one anonymous caller without a right to any grant.
    DangerAnybody,
}

impl Doorkeeper {
    pub fn tokens(callers: Callers) -> Self {
        Self::Tokens(RwLock::new(Arc::new(callers)))
    }

    /// Replaces the callers. Runs in progress go on.
    pub fn replace(&self, mut callers: Callers) {
        if let Self::Tokens(current) = self {
            let mut current = current.write().unwrap_or_else(std::sync::PoisonError::into_inner);
            callers.adopt(&current);
            *current = Arc::new(callers);
        }
    }

    /// The callers of now; `None` where everybody is let in.
    pub fn callers(&self) -> Option<Arc<Callers>> {
        let Self::Tokens(current) = self else { return None };
        Some(Arc::clone(&current.read().unwrap_or_else(std::sync::PoisonError::into_inner)))
    }
}

/// What every exchange needs.
#[derive(Debug)]
pub struct App {
    pub launcher: Launcher,
    pub sessions: Arc<Sessions>,
    pub runs: Arc<Runs>,
    pub doorkeeper: Doorkeeper,
}

impl App {
    /// Replaces the callers and the limits that they have of their own. Runs in progress go on.
    pub fn replace_callers(&self, callers: Callers) {
        self.doorkeeper.replace(callers);
        self.apply_limits();
    }

    /// Lets what callers have of their own count.
    pub fn apply_limits(&self) {
        if let Some(callers) = self.doorkeeper.callers() {
            self.launcher.admission().replace_own(callers.limits());
        }
    }
}

impl Launch for App {
    fn launch(&self, order: Order, output: Arc<dyn OutputSink>) -> BoxFuture<'_, Result<Ran, RunError>> {
        Box::pin(self.launcher.run(order, output))
    }
}
