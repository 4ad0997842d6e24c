//! What time does to sessions: idle ones are suspended, unclaimed and old ones end, ended ones are forgotten.

use std::sync::Arc;
use std::time::{Duration, Instant};

use freeboard_wire::SessionEnd;

use super::entry::{Due, Entry, Turn};
use super::table::Sessions;

/// How long to sleep when nothing is due; what changes wakes earlier.
const QUIET: Duration = Duration::from_secs(3600);

impl Sessions {
    /// Tends all sessions until it is dropped. Dropped midway through an end, the sandbox is destroyed all the same.
    pub async fn tend(self: Arc<Self>) {
        loop {
            let next = self.look().await;
            tokio::select! {
                () = tokio::time::sleep_until(next.into()) => {}
                () = self.changed.notified() => {}
            }
        }
    }

    /// Does what is due, and says when to look again.
    async fn look(&self) -> Instant {
        let mut next = Instant::now() + QUIET;
        for entry in self.all() {
            let (when, due) = entry.due();
            if when > Instant::now() {
                next = next.min(when);
            } else if due == Due::Forget {
                self.forget(&entry.fingerprint);
            } else if let Some(turn) = entry.try_turn() {
                act(&turn, due).await;
                next = next.min(entry.due().0);
            }
            // A busy one is looked at again when its call is over, which wakes us.
        }
        next
    }

    /// Ends all sessions: idle ones now, busy ones with their call.
    pub async fn shut_down(&self) {
        self.stop_opening();
        for entry in self.all() {
            if let Some(turn) = entry.try_turn() {
                turn.end(SessionEnd::Shutdown, "the daemon stops").await;
            }
        }
    }
}

async fn act(turn: &Turn, due: Due) {
    match due {
        Due::Expire => turn.expire().await,
        Due::Unclaimed => turn.end(SessionEnd::Unclaimed, "nobody used it in time").await,
        Due::Suspend => suspend(turn).await,
        Due::Forget => {}
    }
}

/// Ends the interpreters and gives the place back; the files stay.
async fn suspend(turn: &Turn) {
    let entry: &Entry = &turn.entry;
    let Some(mut live) = turn.take() else { return };
    match live.session.suspend().await {
        Ok(()) => {
            live.place = None;
            tracing::info!(session = entry.fingerprint, "an idle session was suspended");
            turn.put_back(live);
        }
        Err(error) => {
            turn.put_back(live);
            turn.end(SessionEnd::BoundaryFailed, error.to_string()).await;
        }
    }
}
