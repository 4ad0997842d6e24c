//! Rates over all runs: of one API, and of one caller under one grant.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use freeboard_policy::{ApiView, GrantView, Reason};

use crate::error::Stop;
use crate::limits;

/// Whose requests are counted together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    Api(Arc<str>),
    Caller { grant: Arc<str>, caller: Option<Arc<str>> },
}

/// Fixed windows: each starts with the first request in it and lasts 60 seconds. Only what a policy bounds is counted.
#[derive(Debug, Default)]
pub struct Rates {
    windows: Mutex<HashMap<Key, (Instant, u64)>>,
}

const WINDOW: Duration = Duration::from_secs(60);

impl Rates {
    /// Counts a request where its API or its grant bounds the requests of all runs.
    ///
    /// # Errors
    /// `budget_exhausted`
    pub fn take(
        &self,
        api: &ApiView,
        grant: &GrantView,
        caller: Option<&Arc<str>>,
        now: Instant,
    ) -> Result<(), Stop> {
        if let Some(limit) = grant.caller_per_minute {
            let key = Key::Caller { grant: Arc::clone(&grant.name), caller: caller.cloned() };
            self.one(key, limit, now, "caller_per_minute")?;
        }
        match api.per_minute {
            Some(limit) => self.one(Key::Api(Arc::clone(&api.name)), limit, now, "per_minute of the API"),
            None => Ok(()),
        }
    }

    fn one(&self, key: Key, limit: u64, now: Instant, what: &str) -> Result<(), Stop> {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        let over = |start: Instant| now.saturating_duration_since(start) >= WINDOW;
        if windows.len() >= limits::RATE_WINDOWS {
            windows.retain(|_, (start, _)| !over(*start));
        }
        let window = windows.entry(key).or_insert((now, 0));
        if over(window.0) {
            *window = (now, 0);
        }
        if window.1 >= limit {
            return Err(Stop::with(Reason::BudgetExhausted, format!("{what} = {limit}")));
        }
        window.1 += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_shared_by_whom_its_key_names_and_starts_anew() {
        let (rates, now) = (Rates::default(), Instant::now());
        let key = |caller: &str| Key::Caller { grant: Arc::from("g"), caller: Some(Arc::from(caller)) };
        rates.one(key("a"), 2, now, "x").unwrap();
        rates.one(key("a"), 2, now, "x").unwrap();
        assert_eq!(rates.one(key("a"), 2, now, "x").unwrap_err().reason, Reason::BudgetExhausted);
        rates.one(key("b"), 2, now, "x").unwrap();
        rates.one(Key::Api(Arc::from("a")), 2, now, "x").unwrap();
        rates.one(key("a"), 2, now + WINDOW, "x").unwrap();
    }
}
