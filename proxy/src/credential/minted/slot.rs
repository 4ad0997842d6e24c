//! The token of one holder: how long it is good, and what happened when the next one was asked for.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use freeboard_policy::Reason;
use tokio::time::Instant;

use super::MintError;
use super::reading::Reading;
use crate::credential::{Attach, Material, Scrubber, next_identity};
use crate::error::Stop;
use crate::limits::{
    MINT_EXPIRY_MARGIN, MINT_FAILURE_PAUSE, MINT_FAILURE_PAUSE_MAX, SECRET_RECHECK, TOKEN_RENEW_BEFORE,
};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Slot {
    state: Mutex<State>,
    /// Single flight: whoever holds it asks the issuer (ATTACKS E27).
    pub(super) working: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug, Default)]
struct State {
    entry: Option<Entry>,
    failed: Option<Failed>,
}

#[derive(Debug)]
struct Entry {
    material: Arc<Material>,
    life: Option<Life>,
    /// Where its secrets came from: a replaced one makes it stale.
    reading: Reading,
    checked: Instant,
}

/// Both clocks: the monotonic one does not jump, the wall clock goes on while the machine sleeps.
#[derive(Debug, Clone, Copy)]
struct Life {
    renew: Instant,
    end: Instant,
    end_unix: i64,
}

#[derive(Debug)]
struct Failed {
    until: Instant,
    pause: Duration,
    stop: Stop,
}

/// What is at hand.
#[derive(Debug)]
pub(super) enum Look {
    Fresh(Arc<Material>),
    /// Good, but it is time to fetch the next one.
    Aging(Arc<Material>),
    Nothing,
}

impl Slot {
    pub(super) fn look(&self, now_unix: i64) -> Look {
        let mut state = self.state();
        let Some(entry) = &mut state.entry else { return Look::Nothing };
        let now = Instant::now();
        // SECURITY: a token that is known to be expired is not sent. Guarded by `never_hands_out_an_expired_token`.
        if entry.life.is_some_and(|life| now >= life.end || now_unix >= life.end_unix) {
            return Look::Nothing;
        }
        if now.duration_since(entry.checked) >= SECRET_RECHECK {
            if !entry.reading.is_current() {
                return Look::Nothing;
            }
            entry.checked = now;
        }
        let material = Arc::clone(&entry.material);
        if entry.life.is_some_and(|life| now >= life.renew) {
            Look::Aging(material)
        } else {
            Look::Fresh(material)
        }
    }

    /// The last failure, while its pause lasts.
    pub(super) fn failure(&self) -> Option<Stop> {
        let state = self.state();
        let failed = state.failed.as_ref().filter(|failed| Instant::now() < failed.until)?;
        Some(failed.stop.clone())
    }

    /// Keeps what was minted. The identity stays where the same sources gave another token, so that upstream connections
    /// are not thrown away with every renewal.
    pub(super) fn keep(
        &self,
        name: &Arc<str>,
        (attach, scrubber): (Attach, Scrubber),
        lifetime: Option<Duration>,
        asked: Instant,
        now_unix: i64,
        reading: Reading,
    ) -> Arc<Material> {
        let mut state = self.state();
        let before = state.entry.as_ref().filter(|entry| entry.reading == reading && attach.is_renewable());
        let identity = before.map_or_else(next_identity, |entry| entry.material.identity);
        let material =
            Arc::new(Material { name: Arc::clone(name), identity, attach, scrubber: Arc::new(scrubber) });
        let life = lifetime.map(|lifetime| Life::new(lifetime, asked, now_unix));
        let kept = Arc::clone(&material);
        state.entry = Some(Entry { material: kept, life, reading, checked: Instant::now() });
        state.failed = None;
        material
    }

    /// Remembers a failure for a while that doubles with each further one; an issuer may ask for a longer one.
    pub(super) fn fail(&self, name: &str, error: MintError) -> Stop {
        let (reason, detail, retry_after, longest) = match error {
            MintError::Issuer { detail, retry_after } => {
                (Reason::IssuerUnavailable, detail, retry_after, MINT_FAILURE_PAUSE_MAX)
            }
            MintError::Unavailable(detail) => {
                (Reason::CredentialUnavailable, detail, None, MINT_FAILURE_PAUSE_MAX)
            }
            MintError::Unreadable(detail) => {
                (Reason::CredentialUnavailable, detail, None, MINT_FAILURE_PAUSE)
            }
        };
        let stop = Stop::with(reason, format!("credential `{name}`: {detail}"));
        let mut state = self.state();
        let doubled = state.failed.as_ref().map(|failed| failed.pause.saturating_mul(2));
        let pause = doubled.unwrap_or(MINT_FAILURE_PAUSE).max(retry_after.unwrap_or_default());
        let pause = pause.min(longest);
        state.failed = Some(Failed { until: Instant::now() + pause, pause, stop: stop.clone() });
        stop
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Life {
    /// Counted from before the issuer was asked, and ended a little early: what is on its way must arrive in time.
    fn new(lifetime: Duration, asked: Instant, now_unix: i64) -> Self {
        let usable = lifetime.saturating_sub(MINT_EXPIRY_MARGIN.min(lifetime / 10));
        let renew = lifetime.saturating_sub(TOKEN_RENEW_BEFORE.min(lifetime / 2));
        let end_unix = now_unix.saturating_add_unsigned(usable.as_secs());
        Self { renew: asked + renew, end: asked + usable, end_unix }
    }
}
