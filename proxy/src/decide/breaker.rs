//! What an API says of its own load, shared by all runs: while it wants no requests, none are sent to it.
//!
//! In: the status and `Retry-After` of every answer. Out: whether a request may be sent now. Nothing is remembered of APIs
//! that answer as they should, and nothing is looked up while all do.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use freeboard_policy::Reason;

use crate::error::Stop;
use crate::limits::{BREAKER_ANSWERS, BREAKER_PAUSE, BREAKER_PAUSE_MAX};

/// APIs in trouble.
#[derive(Debug, Default)]
pub struct Breakers {
    by_api: Mutex<HashMap<Arc<str>, State>>,
    /// As many as are in the map: read first, without the lock.
    troubled: AtomicUsize,
}

#[derive(Debug)]
enum State {
    /// It answered 429 or 503 so many times in a row, without saying for how long.
    Failing(u32),
    Open(Open),
}

#[derive(Debug, Clone, Copy)]
struct Open {
    said: Overload,
    until: Instant,
    pause: Duration,
    /// Somebody asks whether it is over.
    is_tried: bool,
}

/// What an API said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overload {
    /// 429: it works, and counts. Its time is waited out.
    TooMany,
    /// 503: whether it works again has to be tried.
    Unavailable,
}

impl Overload {
    /// `None` for every other status.
    pub const fn of(status: u16) -> Option<Self> {
        match status {
            429 => Some(Self::TooMany),
            503 => Some(Self::Unavailable),
            _ => None,
        }
    }

    const fn status(self) -> u16 {
        match self {
            Self::TooMany => 429,
            Self::Unavailable => 503,
        }
    }
}

/// Whether a request may be sent.
#[derive(Debug)]
pub enum Admission<'b> {
    Sent(Ticket<'b>),
    /// Not now. With `probe`, the caller asks the health route and tells [`Breakers::probed`].
    Shed {
        stop: Stop,
        probe: bool,
    },
}

/// A request on its way to an API.
#[derive(Debug)]
pub struct Ticket<'b> {
    breakers: &'b Breakers,
    api: &'b Arc<str>,
    /// The one that tries whether a 503 is over.
    is_trial: bool,
}

/// A trial without an answer tells nothing: the next request tries.
impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if self.is_trial
            && let Some(State::Open(open)) = self.breakers.lock().get_mut(self.api)
        {
            open.is_tried = false;
        }
    }
}

impl Breakers {
    /// Asks for one request. `has_health`: the API names a route that tells whether it works.
    pub fn admit<'b>(&'b self, api: &'b Arc<str>, has_health: bool, now: Instant) -> Admission<'b> {
        let ticket = |is_trial| Ticket { breakers: self, api, is_trial };
        if self.troubled.load(Ordering::Relaxed) == 0 {
            return Admission::Sent(ticket(false));
        }
        let mut by_api = self.lock();
        let Some(State::Open(open)) = by_api.get_mut(api) else { return Admission::Sent(ticket(false)) };
        let over = now >= open.until;
        match (over, open.said, open.is_tried) {
            (true, Overload::TooMany, _) => {
                // One more without a time of its own opens it again.
                by_api.insert(Arc::clone(api), State::Failing(BREAKER_ANSWERS.saturating_sub(1)));
                Admission::Sent(ticket(false))
            }
            (true, Overload::Unavailable, false) => {
                open.is_tried = true;
                if has_health {
                    Admission::Shed { stop: shed(*open, now), probe: true }
                } else {
                    Admission::Sent(ticket(true))
                }
            }
            _ => Admission::Shed { stop: shed(*open, now), probe: false },
        }
    }

    /// The APIs that nothing is sent to now.
    pub fn open(&self) -> Vec<Arc<str>> {
        let by_api = self.lock();
        let open = by_api.iter().filter(|(_, state)| matches!(state, State::Open(_)));
        open.map(|(api, _)| Arc::clone(api)).collect()
    }

    /// What the health route said.
    pub fn probed(&self, api: &Arc<str>, works: bool, now: Instant) {
        let mut by_api = self.lock();
        let Some(State::Open(open)) = by_api.get_mut(api) else { return };
        if works {
            self.forget(&mut by_api, api);
        } else {
            *open = Open::new(Overload::Unavailable, doubled(open.pause), now);
        }
    }

    fn answered(
        &self,
        ticket: &Ticket<'_>,
        status: u16,
        retry_after: Option<Duration>,
        now: Instant,
    ) -> Option<Duration> {
        let Some(said) = Overload::of(status) else {
            if self.troubled.load(Ordering::Relaxed) > 0 {
                self.recovered(ticket);
            }
            return None;
        };
        let mut by_api = self.lock();
        let before = by_api.get(ticket.api);
        let pause = match (before, retry_after.filter(|pause| !pause.is_zero())) {
            // Sent before it opened: known already.
            (Some(State::Open(_)), _) if !ticket.is_trial => return None,
            (_, Some(pause)) => pause.min(BREAKER_PAUSE_MAX),
            (Some(State::Open(open)), None) => doubled(open.pause),
            (Some(State::Failing(times)), None) if times.saturating_add(1) < BREAKER_ANSWERS => {
                let times = times.saturating_add(1);
                self.keep(&mut by_api, ticket.api, State::Failing(times));
                return None;
            }
            (Some(State::Failing(_)), None) => BREAKER_PAUSE,
            (None, None) => {
                self.keep(&mut by_api, ticket.api, State::Failing(1));
                return None;
            }
        };
        self.keep(&mut by_api, ticket.api, State::Open(Open::new(said, pause, now)));
        Some(pause)
    }

    /// An answer of the API as it should be. One to a request from before it opened says nothing of now.
    fn recovered(&self, ticket: &Ticket<'_>) {
        let mut by_api = self.lock();
        match by_api.get(ticket.api) {
            Some(State::Failing(_)) => self.forget(&mut by_api, ticket.api),
            Some(State::Open(_)) if ticket.is_trial => self.forget(&mut by_api, ticket.api),
            _ => {}
        }
    }

    fn keep(&self, by_api: &mut HashMap<Arc<str>, State>, api: &Arc<str>, state: State) {
        by_api.insert(Arc::clone(api), state);
        self.troubled.store(by_api.len(), Ordering::Relaxed);
    }

    fn forget(&self, by_api: &mut HashMap<Arc<str>, State>, api: &Arc<str>) {
        by_api.remove(api);
        self.troubled.store(by_api.len(), Ordering::Relaxed);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Arc<str>, State>> {
        self.by_api.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ticket<'_> {
    /// Told of the answer's head. `Some`: the breaker has opened for this long.
    pub fn answered(&self, status: u16, retry_after: Option<Duration>, now: Instant) -> Option<Duration> {
        self.breakers.answered(self, status, retry_after, now)
    }
}

impl Open {
    fn new(said: Overload, pause: Duration, now: Instant) -> Self {
        Self { said, until: now + pause, pause, is_tried: false }
    }
}

fn doubled(pause: Duration) -> Duration {
    pause.max(BREAKER_PAUSE).saturating_mul(2).min(BREAKER_PAUSE_MAX)
}

fn shed(open: Open, now: Instant) -> Stop {
    let left = open.until.saturating_duration_since(now).max(Duration::from_secs(1));
    let seconds = left.as_secs() + u64::from(left.subsec_nanos() > 0);
    let detail = format!("the API said {}; nothing is sent for another {seconds} s", open.said.status());
    Stop { retry_after: Some(seconds), ..Stop::with(Reason::Shed, detail) }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct World {
        breakers: Breakers,
        api: Arc<str>,
        start: Instant,
    }

    impl World {
        fn new() -> Self {
            Self { breakers: Breakers::default(), api: Arc::from("a"), start: Instant::now() }
        }

        fn at(&self, seconds: u64) -> Instant {
            self.start + Duration::from_secs(seconds)
        }

        fn sent(&self, has_health: bool, seconds: u64) -> Ticket<'_> {
            match self.breakers.admit(&self.api, has_health, self.at(seconds)) {
                Admission::Sent(ticket) => ticket,
                Admission::Shed { stop, .. } => panic!("shed at {seconds}: {stop}"),
            }
        }

        /// Seconds that the guest is told, and whether to probe.
        fn shed(&self, has_health: bool, seconds: u64) -> (u64, bool) {
            match self.breakers.admit(&self.api, has_health, self.at(seconds)) {
                Admission::Shed { stop, probe } => (stop.retry_after.unwrap(), probe),
                Admission::Sent(_) => panic!("sent at {seconds}"),
            }
        }

        fn answer(&self, status: u16, retry_after: Option<u64>, seconds: u64) -> Option<u64> {
            let ticket = self.sent(false, seconds);
            let opened = ticket.answered(status, retry_after.map(Duration::from_secs), self.at(seconds));
            opened.map(|pause| pause.as_secs())
        }
    }

    #[test]
    fn waits_out_what_the_api_says_and_no_longer_than_the_limit() {
        let world = World::new();
        assert_eq!(world.answer(429, Some(30), 0), Some(30));
        assert_eq!(world.shed(true, 10), (20, false), "a 429 is not probed");
        assert_eq!(world.answer(200, None, 30), None);
        assert_eq!(world.answer(429, None, 31), None, "forgotten: one without a time does not open it");
        assert_eq!(world.answer(503, Some(1_000_000), 32), Some(BREAKER_PAUSE_MAX.as_secs()));
        let other = Arc::from("b");
        let other = world.breakers.admit(&other, false, world.at(33));
        assert!(matches!(other, Admission::Sent(_)), "another API is another breaker");
    }

    #[test]
    fn opens_after_several_in_a_row_without_a_time() {
        let world = World::new();
        for _ in 1..BREAKER_ANSWERS {
            assert_eq!(world.answer(503, None, 0), None);
        }
        assert_eq!(world.answer(200, None, 0), None);
        for _ in 1..BREAKER_ANSWERS {
            assert_eq!(world.answer(503, None, 0), None, "counted anew");
        }
        assert_eq!(world.answer(503, None, 0), Some(1));
    }

    #[test]
    fn one_request_tries_whether_a_503_is_over_and_each_failure_doubles_the_pause() {
        let world = World::new();
        let before = world.sent(false, 0);
        assert_eq!(world.answer(503, Some(2), 0), Some(2));
        assert_eq!(before.answered(200, None, world.at(1)), None);
        world.shed(false, 1);
        let trial = world.sent(false, 2);
        world.shed(false, 2);
        assert_eq!(trial.answered(503, None, world.at(2)), Some(Duration::from_secs(4)));
        drop(trial);
        world.shed(false, 5);
        drop(world.sent(false, 6));
        let trial = world.sent(false, 6);
        assert_eq!(trial.answered(404, None, world.at(6)), None, "any other answer says that it works");
        world.sent(false, 6);
        world.sent(false, 6);
    }

    #[test]
    fn a_health_route_is_asked_by_one_and_nothing_is_sent_until_it_says_yes() {
        let world = World::new();
        world.answer(503, Some(2), 0);
        assert!(!world.shed(true, 1).1);
        assert!(world.shed(true, 2).1);
        assert!(!world.shed(true, 3).1, "it is asked already");
        world.breakers.probed(&world.api, false, world.at(3));
        assert_eq!(world.shed(true, 3), (4, false));
        assert!(world.shed(true, 7).1);
        world.breakers.probed(&world.api, true, world.at(8));
        world.sent(true, 8);
    }
}
