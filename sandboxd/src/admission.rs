//! How much runs at once: slots for runs, slots for decoding, and a rate per caller. Refuses, never queues.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crate::limits::DECODE_SLOTS_PER_RUN;

/// Why there is no room. Nothing ran and nothing was charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    #[error("all {0} places for runs are taken")]
    Runs(u32),
    #[error("this caller's {0} places for runs are taken")]
    CallerRuns(u32),
    #[error("this caller has used its rate of {0} runs a minute")]
    Rate(u32),
    #[error("too many requests are being read")]
    Decoding,
    #[error("all {0} places for sessions are taken")]
    Sessions(u32),
    #[error("this caller's {0} places for sessions are taken")]
    CallerSessions(u32),
    #[error("all {0} sessions of this owner are busy")]
    OwnerSessions(u32),
    #[error("another call waits for this session already")]
    SessionBusy,
}

/// What may be admitted.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub concurrent: u32,
    pub concurrent_per_caller: u32,
    /// Runs per minute and caller, also the burst; 0 = no limit.
    pub rate_per_minute: u32,
}

/// What one caller may have instead of the daemon's limits for each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Own {
    pub concurrent: Option<u32>,
    pub rate_per_minute: Option<u32>,
    pub sessions: Option<u32>,
}

#[derive(Debug, Default)]
struct CallerState {
    running: u32,
    decoding: u32,
    /// Tokens used up, at `counted`; they come back with time.
    used: f64,
    counted: Option<Instant>,
}

impl CallerState {
    /// Takes one of the tokens that come back with time.
    fn charge(&mut self, rate_per_minute: u32, now: Instant) -> Result<(), Full> {
        let rate = f64::from(rate_per_minute);
        let elapsed = self.counted.map_or(0.0, |then| now.saturating_duration_since(then).as_secs_f64());
        let used = (self.used - elapsed * rate / 60.0).max(0.0);
        if rate_per_minute > 0 && used + 1.0 > rate {
            return Err(Full::Rate(rate_per_minute));
        }
        self.used = used + 1.0;
        self.counted = Some(now);
        Ok(())
    }
}

#[derive(Debug, Default)]
struct State {
    running: u32,
    decoding: u32,
    /// One entry per caller of the callers file, and one for anonymous ones: bounded by that file.
    callers: HashMap<Option<String>, CallerState>,
}

/// The daemon's places.
#[derive(Debug)]
pub struct Admission {
    limits: Limits,
    own: Mutex<HashMap<String, Own>>,
    state: Mutex<State>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Run,
    Decode,
}

/// A taken place; dropping it gives it back.
#[derive(Debug)]
pub struct Place {
    admission: Arc<Admission>,
    caller: Option<String>,
    kind: Kind,
}

impl Admission {
    pub fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { limits, own: Mutex::default(), state: Mutex::default() })
    }

    /// Replaces what callers have of their own. Who holds more places than that now keeps them.
    pub fn replace_own(&self, own: HashMap<String, Own>) {
        *self.own.lock().unwrap_or_else(PoisonError::into_inner) = own;
    }

    /// What this caller has of its own.
    pub fn own(&self, caller: Option<&str>) -> Own {
        let own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        caller.and_then(|caller| own.get(caller)).copied().unwrap_or_default()
    }

    /// Charges one call of a session, whose sandbox has its place already, to the caller's rate.
    pub fn charge(&self, caller: Option<&str>, now: Instant) -> Result<(), Full> {
        let rate = self.own(caller).rate_per_minute.unwrap_or(self.limits.rate_per_minute);
        self.with(caller, |_, _, state| state.charge(rate, now))
    }

    /// A place for a run, charged to the caller's rate.
    pub fn run(self: &Arc<Self>, caller: Option<&str>, now: Instant) -> Result<Place, Full> {
        let own = self.own(caller);
        let limits = Limits {
            concurrent_per_caller: own.concurrent.unwrap_or(self.limits.concurrent_per_caller),
            rate_per_minute: own.rate_per_minute.unwrap_or(self.limits.rate_per_minute),
            ..self.limits
        };
        self.with(caller, |running, _, state| {
            if *running >= limits.concurrent {
                return Err(Full::Runs(limits.concurrent));
            }
            if state.running >= limits.concurrent_per_caller {
                return Err(Full::CallerRuns(limits.concurrent_per_caller));
            }
            state.charge(limits.rate_per_minute, now)?;
            state.running += 1;
            *running += 1;
            Ok(())
        })?;
        Ok(self.place(caller, Kind::Run))
    }

    /// A place for reading and decoding one request; one caller gets half of them at most.
    pub fn decode(self: &Arc<Self>, caller: Option<&str>) -> Result<Place, Full> {
        let most = self.limits.concurrent.saturating_mul(DECODE_SLOTS_PER_RUN);
        self.with(caller, |_, decoding, state| {
            if *decoding >= most || state.decoding >= most.div_ceil(2) {
                return Err(Full::Decoding);
            }
            state.decoding += 1;
            *decoding += 1;
            Ok(())
        })?;
        Ok(self.place(caller, Kind::Decode))
    }

    fn place(self: &Arc<Self>, caller: Option<&str>, kind: Kind) -> Place {
        Place { admission: Arc::clone(self), caller: caller.map(str::to_owned), kind }
    }

    fn with<T>(
        &self,
        caller: Option<&str>,
        act: impl FnOnce(&mut u32, &mut u32, &mut CallerState) -> T,
    ) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State { running, decoding, callers } = &mut *state;
        act(running, decoding, callers.entry(caller.map(str::to_owned)).or_default())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.admission.with(self.caller.as_deref(), |running, decoding, state| match self.kind {
            Kind::Run => {
                state.running = state.running.saturating_sub(1);
                *running = running.saturating_sub(1);
            }
            Kind::Decode => {
                state.decoding = state.decoding.saturating_sub(1);
                *decoding = decoding.saturating_sub(1);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn admission(concurrent: u32, per_caller: u32, rate: u32) -> Arc<Admission> {
        Admission::new(Limits { concurrent, concurrent_per_caller: per_caller, rate_per_minute: rate })
    }

    #[test]
    fn a_caller_at_its_cap_leaves_room_for_another() {
        let admission = admission(3, 2, 0);
        let now = Instant::now();
        let mut held = vec![admission.run(Some("a"), now).unwrap(), admission.run(Some("a"), now).unwrap()];
        assert_eq!(admission.run(Some("a"), now).unwrap_err(), Full::CallerRuns(2));
        held.push(admission.run(Some("b"), now).unwrap());
        assert_eq!(admission.run(Some("b"), now).unwrap_err(), Full::Runs(3));
        held.clear();
        assert!(admission.run(Some("a"), now).is_ok());
    }

    #[test]
    fn a_callers_own_limits_take_the_place_of_the_daemons() {
        let admission = admission(4, 1, 1);
        let own = Own { concurrent: Some(2), rate_per_minute: Some(0), sessions: None };
        admission.replace_own(HashMap::from([("a".to_owned(), own)]));
        let now = Instant::now();
        let _held = [admission.run(Some("a"), now).unwrap(), admission.run(Some("a"), now).unwrap()];
        assert_eq!(admission.run(Some("a"), now).unwrap_err(), Full::CallerRuns(2));
        drop(admission.run(Some("b"), now).unwrap());
        assert_eq!(admission.run(Some("b"), now).unwrap_err(), Full::Rate(1));
        admission.replace_own(HashMap::new());
        assert_eq!(admission.run(Some("a"), now).unwrap_err(), Full::CallerRuns(1));
    }

    #[test]
    fn the_rate_is_a_burst_that_refills_smoothly() {
        let admission = admission(10, 10, 2);
        let now = Instant::now();
        assert!(admission.run(Some("a"), now).is_ok());
        assert!(admission.run(Some("a"), now).is_ok());
        assert_eq!(admission.run(Some("a"), now).unwrap_err(), Full::Rate(2));
        assert!(admission.run(Some("b"), now).is_ok(), "another caller has a rate of its own");
        assert!(admission.run(Some("a"), now + Duration::from_secs(29)).is_err());
        assert!(admission.run(Some("a"), now + Duration::from_secs(31)).is_ok());
        assert!(admission.run(Some("a"), now + Duration::from_secs(32)).is_err());
    }

    #[test]
    fn one_caller_gets_half_of_the_decoding_places() {
        let admission = admission(2, 2, 0);
        let held = [admission.decode(Some("a")).unwrap(), admission.decode(Some("a")).unwrap()];
        assert_eq!(admission.decode(Some("a")).unwrap_err(), Full::Decoding);
        assert!(admission.decode(Some("b")).is_ok());
        drop(held);
        assert!(admission.decode(Some("a")).is_ok());
    }
}
