//! How much runs at once: slots for runs, slots for decoding, and a rate per caller. Refuses when there is no room, except
//! a run that asked to wait for its turn.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use freeboard_wire::runs::{Priority, Standing};
use tokio::sync::Notify;

use crate::limits::{DECODE_SLOTS_PER_RUN, MAX_WAITING_PER_CALLER};

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
    #[error("this caller has {0} runs waiting already")]
    Waiting(usize),
    #[error("this caller has started {0} runs that have not ended")]
    Started(usize),
}

/// How long a run may wait for a place, and whose turn comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    pub until: Instant,
    pub priority: Priority,
}

/// The place of a run among those that wait: higher priority first, then in the order in which they came.
type Turn = (Reverse<Priority>, u64);

/// A run that waits.
#[derive(Debug)]
struct Waiting {
    caller: Option<String>,
    /// The most runs of its caller at once.
    most: u32,
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
    waiting: BTreeMap<Turn, Waiting>,
    /// How many have waited so far.
    arrivals: u64,
}

impl State {
    /// Whether a run that waits goes before one with this turn: one whose caller is at its cap does not, since it could not
    /// take the place anyway.
    fn is_behind(&self, turn: Option<Turn>) -> bool {
        let ahead = self.waiting.iter().take_while(|(other, _)| turn.is_none_or(|turn| **other < turn));
        let running = |caller: &Option<String>| self.callers.get(caller).map_or(0, |state| state.running);
        ahead.into_iter().any(|(_, one)| running(&one.caller) < one.most)
    }
}

/// The daemon's places.
#[derive(Debug)]
pub struct Admission {
    limits: Limits,
    own: Mutex<HashMap<String, Own>>,
    state: Mutex<State>,
    /// Told whenever a place is free again, and when one that waited gives up.
    freed: Notify,
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
        Arc::new(Self { limits, own: Mutex::default(), state: Mutex::default(), freed: Notify::new() })
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

    /// What this caller may have and has, sessions left out.
    pub fn standing(&self, caller: Option<&str>) -> Standing {
        let own = self.own(caller);
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = state.waiting.values().filter(|one| one.caller.as_deref() == caller).count();
        Standing {
            max_concurrent: own.concurrent.unwrap_or(self.limits.concurrent_per_caller),
            running: state.callers.get(&caller.map(str::to_owned)).map_or(0, |state| state.running),
            waiting: u32::try_from(waiting).unwrap_or(u32::MAX),
            rate_per_minute: own.rate_per_minute.unwrap_or(self.limits.rate_per_minute),
            max_sessions: 0,
        }
    }

    /// The same of all callers together.
    pub fn overall(&self) -> Standing {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        Standing {
            max_concurrent: self.limits.concurrent,
            running: state.running,
            waiting: u32::try_from(state.waiting.len()).unwrap_or(u32::MAX),
            rate_per_minute: self.limits.rate_per_minute,
            max_sessions: 0,
        }
    }

    /// Charges one call of a session, whose sandbox has its place already, to the caller's rate.
    pub fn charge(&self, caller: Option<&str>, now: Instant) -> Result<(), Full> {
        let rate = self.own(caller).rate_per_minute.unwrap_or(self.limits.rate_per_minute);
        self.with(caller, |_, _, state| state.charge(rate, now))
    }

    /// A place for a run, charged to the caller's rate. Nobody who waits is overtaken.
    pub fn run(self: &Arc<Self>, caller: Option<&str>, now: Instant) -> Result<Place, Full> {
        self.take(caller, None, now)
    }

    /// Waits for a place until `wait` is over, then says why there was none. A caller that has used its rate does not wait:
    /// that is its own doing, not a lack of room.
    pub async fn wait(self: &Arc<Self>, caller: Option<&str>, wait: Wait) -> Result<Place, Full> {
        let queued = self.queue(caller, wait.priority)?;
        loop {
            let mut freed = std::pin::pin!(self.freed.notified());
            // Before the look, so that a place that is freed meanwhile is not missed.
            freed.as_mut().enable();
            let full = match self.take(caller, Some(queued.turn), Instant::now()) {
                Err(full @ (Full::Runs(_) | Full::CallerRuns(_))) => full,
                ended => return ended,
            };
            if tokio::time::timeout_at(wait.until.into(), freed).await.is_err() {
                return Err(full);
            }
        }
    }

    fn queue(self: &Arc<Self>, caller: Option<&str>, priority: Priority) -> Result<Queued<'_>, Full> {
        let most = self.own(caller).concurrent.unwrap_or(self.limits.concurrent_per_caller);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = state.waiting.values().filter(|one| one.caller.as_deref() == caller).count();
        if waiting >= MAX_WAITING_PER_CALLER {
            return Err(Full::Waiting(waiting));
        }
        let turn = (Reverse(priority), state.arrivals);
        state.arrivals += 1;
        state.waiting.insert(turn, Waiting { caller: caller.map(str::to_owned), most });
        Ok(Queued { admission: self, turn })
    }

    fn take(self: &Arc<Self>, caller: Option<&str>, turn: Option<Turn>, now: Instant) -> Result<Place, Full> {
        let own = self.own(caller);
        let most = own.concurrent.unwrap_or(self.limits.concurrent_per_caller);
        let rate = own.rate_per_minute.unwrap_or(self.limits.rate_per_minute);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.running >= self.limits.concurrent || state.is_behind(turn) {
            return Err(Full::Runs(self.limits.concurrent));
        }
        let of_caller = state.callers.entry(caller.map(str::to_owned)).or_default();
        if of_caller.running >= most {
            return Err(Full::CallerRuns(most));
        }
        of_caller.charge(rate, now)?;
        of_caller.running += 1;
        state.running += 1;
        drop(state);
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
        let State { running, decoding, callers, .. } = &mut *state;
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
        if self.kind == Kind::Run {
            self.admission.freed.notify_waiters();
        }
    }
}

/// A run in the queue; dropping it takes it out.
struct Queued<'a> {
    admission: &'a Admission,
    turn: Turn,
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.admission.state.lock().unwrap_or_else(PoisonError::into_inner).waiting.remove(&self.turn);
        // It may have been the one that others waited behind.
        self.admission.freed.notify_waiters();
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

    fn wait(priority: Priority) -> Wait {
        Wait { until: Instant::now() + Duration::from_secs(60), priority }
    }

    /// Starts to wait, and says so once it is in the queue.
    async fn waiting(
        admission: &Arc<Admission>,
        caller: &'static str,
        priority: Priority,
    ) -> tokio::task::JoinHandle<Result<Place, Full>> {
        let queue = || admission.state.lock().unwrap().waiting.len();
        let before = queue();
        let mine = Arc::clone(admission);
        let task = tokio::spawn(async move { mine.wait(Some(caller), wait(priority)).await });
        while queue() == before {
            tokio::task::yield_now().await;
        }
        task
    }

    #[tokio::test]
    async fn the_highest_priority_goes_first_then_the_one_that_came_first() {
        let admission = admission(1, 1, 0);
        let held = admission.run(Some("x"), Instant::now()).unwrap();
        let mut tasks = HashMap::new();
        for (caller, priority) in
            [("a", Priority::Normal), ("b", Priority::Normal), ("c", Priority::High), ("d", Priority::Low)]
        {
            tasks.insert(caller, waiting(&admission, caller, priority).await);
        }
        let mut held = Some(held);
        for next in ["c", "a", "b", "d"] {
            assert!(tasks.values().all(|task| !task.is_finished()), "before {next}");
            drop(held.take());
            // A place is free, but not for one that comes now.
            assert_eq!(admission.run(Some("late"), Instant::now()).unwrap_err(), Full::Runs(1));
            held = Some(tasks.remove(next).unwrap().await.unwrap().unwrap());
        }
        drop(held);
        assert!(admission.run(Some("late"), Instant::now()).is_ok());
    }

    #[tokio::test]
    async fn who_is_at_its_cap_does_not_hold_up_the_others() {
        let admission = admission(2, 1, 0);
        let _held = admission.run(Some("a"), Instant::now()).unwrap();
        let second = waiting(&admission, "a", Priority::High).await;
        assert!(admission.run(Some("b"), Instant::now()).is_ok());
        assert!(!second.is_finished());
    }

    #[tokio::test]
    async fn waiting_ends_in_time_and_leaves_nothing_behind() {
        let admission = admission(1, 1, 0);
        let held = admission.run(Some("a"), Instant::now()).unwrap();
        let short = Wait { until: Instant::now() + Duration::from_millis(5), priority: Priority::Normal };
        assert_eq!(admission.wait(Some("b"), short).await.unwrap_err(), Full::Runs(1));
        let given_up = waiting(&admission, "b", Priority::Normal).await;
        given_up.abort();
        assert!(given_up.await.unwrap_err().is_cancelled());
        drop(held);
        assert!(admission.run(Some("c"), Instant::now()).is_ok());
    }

    #[tokio::test]
    async fn the_queue_of_a_caller_has_an_end() {
        let admission = admission(1, 1, 0);
        let _held = admission.run(Some("a"), Instant::now()).unwrap();
        let mut tasks = Vec::new();
        for _ in 0..MAX_WAITING_PER_CALLER {
            tasks.push(waiting(&admission, "b", Priority::Normal).await);
        }
        let full = admission.wait(Some("b"), wait(Priority::High)).await.unwrap_err();
        assert_eq!(full, Full::Waiting(MAX_WAITING_PER_CALLER));
        tasks.push(waiting(&admission, "c", Priority::Normal).await);
        tasks.iter().for_each(tokio::task::JoinHandle::abort);
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
