//! Sessions: sandboxes that stay for call after call.
//!
//! open (a place in the table, a measured sandbox) -> call (turn, read-back, gate, release, record) -> close. `table` knows
//! which sessions there are and how many there may be; `entry` is one of them with its turns and its chain; `call` runs one
//! call; `tend` suspends, expires and forgets. A session is known by the fingerprint of its id: the id itself, which is
//! the right to use it, is kept nowhere.
//!
//! What never happens: two calls at once in one sandbox; a call in a sandbox that is not as it was measured; a call that
//! may have run and is not counted.

mod call;
mod entry;
mod open;
mod smoke;
mod table;
mod tend;

use std::time::Duration;

pub use call::CallError;
pub use entry::{Chain, Ended, Entry, Facts, Turn};
pub use open::{OpenError, Wish};
pub use table::{Sessions, Summary};

use crate::limits::{
    DEFAULT_SESSION_IDLE, DEFAULT_SESSION_LIFETIME, MAX_SESSION_TIME, MIN_SESSION_TIME, UNCLAIMED_AFTER,
};

/// What an operator chooses about sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Sessions at once; 0 = none are offered.
    pub most: u32,
    /// Of one caller; 0 = no cap of its own.
    pub per_caller: u32,
    /// Of one owner; 0 = no cap of its own.
    pub per_owner: u32,
    pub lifetime: Duration,
    /// Without a call for so long, a session is suspended; zero = never.
    pub idle: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            most: 4,
            per_caller: 2,
            per_owner: 0,
            lifetime: DEFAULT_SESSION_LIFETIME,
            idle: DEFAULT_SESSION_IDLE,
        }
    }
}

impl Settings {
    /// Lifetime and idle time of a session whose request asks for these: a request may only shorten.
    fn times(&self, lifetime: Duration, idle: Duration) -> (Duration, Duration) {
        let shorter = |asked: Duration, ours: Duration| match (asked.is_zero(), ours.is_zero()) {
            (true, _) => ours,
            (false, true) => asked.max(MIN_SESSION_TIME),
            (false, false) => asked.max(MIN_SESSION_TIME).min(ours),
        };
        let lifetime = shorter(lifetime, self.lifetime.clamp(MIN_SESSION_TIME, MAX_SESSION_TIME));
        (lifetime, shorter(idle, self.idle))
    }
}

/// How long a session waits for its first request.
fn unclaimed_after(idle: Duration) -> Duration {
    if idle.is_zero() { UNCLAIMED_AFTER } else { idle }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_shortens_and_never_lengthens() {
        let second = Duration::from_secs(1);
        let settings = Settings { lifetime: 100 * second, idle: 10 * second, ..Settings::default() };
        let none = Duration::ZERO;
        assert_eq!(settings.times(none, none), (100 * second, 10 * second));
        assert_eq!(settings.times(50 * second, 5 * second), (50 * second, 5 * second));
        assert_eq!(settings.times(1000 * second, 1000 * second), (100 * second, 10 * second));
        assert_eq!(settings.times(second / 1000, second / 1000), (second, second));
        let never = Settings { idle: none, ..settings };
        assert_eq!(never.times(none, none).1, none);
        assert_eq!(never.times(none, 3 * second).1, 3 * second);
    }
}
