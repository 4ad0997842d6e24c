//! Calls, rate and concurrency of one run under one grant.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use freeboard_policy::{GrantView, Reason};

use crate::error::Stop;
use crate::limits;

/// What was used so far. A run lives on one worker thread, so nothing here is contended.
#[derive(Debug, Default)]
pub struct GrantBudget {
    calls: AtomicU64,
    in_flight: AtomicU64,
    minute: Mutex<Option<Minute>>,
}

/// A fixed window: it starts with the first call in it and lasts 60 seconds.
#[derive(Debug)]
struct Minute {
    start: Instant,
    calls: u64,
}

/// One call in flight, until dropped.
#[derive(Debug)]
#[must_use]
pub struct InFlight(Arc<GrantBudget>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl GrantBudget {
    /// Takes one call.
    ///
    /// # Errors
    /// `budget_exhausted`; a call refused for rate or concurrency does not use up the number of calls.
    pub fn begin(self: &Arc<Self>, grant: &GrantView, now: Instant) -> Result<InFlight, Stop> {
        let concurrent = grant.concurrent.unwrap_or(limits::DEFAULT_CONCURRENT);
        let before = self.in_flight.fetch_add(1, Ordering::Relaxed);
        let in_flight = InFlight(Arc::clone(self));
        if before >= concurrent {
            return Err(exhausted("concurrent", concurrent));
        }
        let calls = grant.calls.unwrap_or(limits::DEFAULT_CALLS);
        if self.calls.load(Ordering::Relaxed) >= calls {
            return Err(exhausted("calls", calls));
        }
        if let Some(per_minute) = grant.per_minute {
            self.take_of_minute(per_minute, now)?;
        }
        if self.calls.fetch_add(1, Ordering::Relaxed) >= calls {
            return Err(exhausted("calls", calls));
        }
        Ok(in_flight)
    }

    fn take_of_minute(&self, per_minute: u64, now: Instant) -> Result<(), Stop> {
        let mut minute = self.minute.lock().unwrap_or_else(PoisonError::into_inner);
        let over = minute
            .as_ref()
            .is_none_or(|minute| now.saturating_duration_since(minute.start) >= Duration::from_secs(60));
        if over {
            *minute = Some(Minute { start: now, calls: 0 });
        }
        match minute.as_mut() {
            Some(minute) if minute.calls < per_minute => {
                minute.calls += 1;
                Ok(())
            }
            _ => Err(exhausted("per_minute", per_minute)),
        }
    }
}

fn exhausted(which: &str, limit: u64) -> Stop {
    Stop::with(Reason::BudgetExhausted, format!("{which} = {limit}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(calls: Option<u64>, per_minute: Option<u64>, concurrent: Option<u64>) -> GrantView {
        GrantView {
            name: Arc::from("g"),
            floor: None,
            expires_unix: None,
            not_before_unix: None,
            schedule: Vec::new(),
            sessions: false,
            caller_per_minute: None,
            ttl_seconds: None,
            calls,
            per_minute,
            concurrent,
            request_bytes: None,
            response_bytes: None,
        }
    }

    #[test]
    fn refuses_the_call_after_the_last_one() {
        let (budget, grant, now) =
            (Arc::new(GrantBudget::default()), grant(Some(2), None, None), Instant::now());
        assert!(budget.begin(&grant, now).is_ok());
        assert!(budget.begin(&grant, now).is_ok());
        assert_eq!(budget.begin(&grant, now).unwrap_err().reason, Reason::BudgetExhausted);
    }

    #[test]
    fn counts_calls_in_flight_until_they_end() {
        let (budget, grant, now) =
            (Arc::new(GrantBudget::default()), grant(None, None, Some(1)), Instant::now());
        let first = budget.begin(&grant, now).unwrap();
        assert!(budget.begin(&grant, now).is_err());
        drop(first);
        assert!(budget.begin(&grant, now).is_ok());
    }

    #[test]
    fn a_rate_recovers_after_a_minute_and_its_refusals_cost_no_call() {
        let (budget, grant, now) =
            (Arc::new(GrantBudget::default()), grant(Some(2), Some(1), None), Instant::now());
        assert!(budget.begin(&grant, now).is_ok());
        assert!(budget.begin(&grant, now).is_err());
        assert!(budget.begin(&grant, now + Duration::from_secs(60)).is_ok());
    }
}
