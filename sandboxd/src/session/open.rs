//! Opens a session: a place in the table, a place among the runs, a measured sandbox, an id.

use std::sync::Arc;
use std::time::Duration;

use freeboard_wire::SoftwareRule;
use freeboard_wire::digest::session_fingerprint;

use super::entry::{Entry, Facts, Live};
use super::table::Sessions;
use crate::admission::Full;
use crate::launch::{Launcher, Order, Refusal, new_run_id};

/// What a caller asks for besides what every run has.
#[derive(Debug, Clone, Default)]
pub struct Wish {
    pub owner: Option<String>,
    pub rule: Option<SoftwareRule>,
    /// Zero = the daemon's.
    pub lifetime: Duration,
    /// Zero = the daemon's.
    pub idle: Duration,
}

/// Why no session was opened. Nothing ran.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("this daemon offers no sessions")]
    NotOffered,
    #[error(transparent)]
    Full(Full),
    #[error(transparent)]
    Refused(Refusal),
}

impl Sessions {
    /// Opens one and gives its id, which is stored nowhere. Dropped midway, what was made is destroyed.
    pub async fn open(
        self: &Arc<Self>,
        launcher: &Launcher,
        order: &Order,
        wish: Wish,
    ) -> Result<(String, Arc<Entry>), OpenError> {
        if !self.are_offered() {
            return Err(OpenError::NotOffered);
        }
        let caller = order.caller.as_deref();
        let own = launcher.admission().own(caller).sessions;
        let per_caller = own.unwrap_or(self.settings.per_caller);
        let reservation = self.reserve(caller, wish.owner.as_deref(), per_caller).map_err(OpenError::Full)?;
        let id = new_run_id().map_err(OpenError::Refused)?;
        let mut opened = launcher.open(order).await.map_err(OpenError::Refused)?;
        let provider = opened.description.name;
        opened.description.languages = self.languages(provider, &opened.description.languages);
        let (lifetime, idle) = self.settings.times(wish.lifetime, wish.idle);
        let facts = Facts {
            evidence: opened.evidence,
            description: opened.description,
            rule: wish.rule,
            ports: opened.ports,
            lifetime,
            idle,
        };
        let live = Live { session: opened.session, place: Some(opened.place) };
        let entry = Entry::new(
            session_fingerprint(&id),
            order.caller.clone(),
            wish.owner,
            facts,
            live,
            Arc::clone(&self.changed),
        );
        let entry = reservation.fill(entry).await.map_err(OpenError::Full)?;
        tracing::info!(
            session = entry.fingerprint,
            caller,
            provider,
            run = order.run,
            "a session was opened"
        );
        Ok((id, entry))
    }
}
