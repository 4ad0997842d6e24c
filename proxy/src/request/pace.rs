//! How long a guest may take to bring the body of a request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use freeboard_policy::Reason;
use tokio::time::Instant;

use super::Length;
use crate::error::Stop;
use crate::limits;

/// Counts the time that the broker waited for the guest, and no other: neither an upstream that is slow to take the body nor a
/// person who is asked for approval uses it up.
#[derive(Debug)]
pub struct Pace {
    waited: Duration,
    brought: u64,
    /// Where the length is not known: whoever sends it may be in a conversation, in which both sides are quiet at times.
    answered: Option<Answered>,
}

/// Says that the answer to a request has begun while its body may still be on its way.
#[derive(Debug, Clone, Default)]
pub struct Answered(Arc<AtomicBool>);

impl Answered {
    pub fn begin(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub fn has_begun(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// One wait for the next piece.
#[derive(Debug, Clone, Copy)]
pub struct Wait {
    began: Instant,
    until: Option<Instant>,
}

impl Wait {
    /// When it is over; `None` is never.
    pub fn until(self) -> Option<Instant> {
        self.until
    }
}

impl Pace {
    pub fn new(length: Length) -> Self {
        let answered = (length == Length::Unknown).then(Answered::default);
        Self { waited: Duration::ZERO, brought: 0, answered }
    }

    pub fn answered(&self) -> Option<&Answered> {
        self.answered.as_ref()
    }

    /// Begins to wait for the next piece: for `BODY_TIMEOUT`, and for all pieces together so long that a body of known length
    /// comes at `BODY_BYTES_PER_SECOND` or faster after a start of the same length (ATTACKS E01).
    pub fn wait(&self, began: Instant) -> Wait {
        let all = match &self.answered {
            // The answer has a time limit of its own, and what it brings is a sign of life.
            Some(answered) if answered.has_begun() => return Wait { began, until: None },
            Some(_) => limits::BODY_OF_UNKNOWN_LENGTH,
            None => limits::BODY_TIMEOUT + Duration::from_secs(self.brought / limits::BODY_BYTES_PER_SECOND),
        };
        let left = all.saturating_sub(self.waited);
        Wait { began, until: Some(began + left.min(limits::BODY_TIMEOUT)) }
    }

    /// The wait brought a piece.
    pub fn brought(&mut self, wait: Wait, now: Instant, bytes: usize) {
        self.waited += now.saturating_duration_since(wait.began);
        self.brought = self.brought.saturating_add(bytes as u64);
    }

    /// The wait was over before there was a piece.
    ///
    /// # Errors
    /// `client_timeout`, unless the answer began meanwhile.
    pub fn over(&mut self, wait: Wait, now: Instant) -> Result<(), Stop> {
        self.waited += now.saturating_duration_since(wait.began);
        match &self.answered {
            Some(answered) if answered.has_begun() => Ok(()),
            _ => Err(Stop::new(Reason::ClientTimeout, "the request body stalled, or came too slowly")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Brings `bytes` after each `pause` until the pace does not wait so long; answers how often.
    fn pieces(length: Length, pause: Duration, bytes: usize, at_most: u32) -> u32 {
        let (mut pace, mut now) = (Pace::new(length), Instant::now());
        for count in 0..at_most {
            let wait = pace.wait(now);
            now += pause;
            if wait.until().is_some_and(|until| until < now) {
                assert_eq!(pace.over(wait, now).unwrap_err().reason, Reason::ClientTimeout);
                return count;
            }
            pace.brought(wait, now, bytes);
        }
        at_most
    }

    /// E01: one byte a second holds its place for a minute, not for as many seconds as the body says it has bytes.
    #[test]
    fn e01_a_body_of_known_length_has_to_come_at_a_pace() {
        let sized = Length::Sized(1 << 30);
        assert_eq!(pieces(sized, SECOND, 1, 1000), 60);
        assert_eq!(pieces(sized, 59 * SECOND, 1, 1000), 1);
        assert_eq!(pieces(sized, SECOND, 500, 1000), 1000);
        assert_eq!(pieces(sized, 30 * SECOND, 16 << 10, 1000), 1000);
        assert_eq!(pieces(sized, 61 * SECOND, 1 << 20, 1000), 0);
    }

    #[test]
    fn e01_a_body_of_unknown_length_has_an_hour_until_its_answer_begins() {
        assert_eq!(pieces(Length::Unknown, SECOND, 1, 10_000), 3600);
        assert_eq!(pieces(Length::Unknown, 61 * SECOND, 1, 10), 0);
        let (mut pace, now) = (Pace::new(Length::Unknown), Instant::now());
        let wait = pace.wait(now);
        pace.answered().unwrap().begin();
        let later = now + 120 * SECOND;
        assert!(pace.over(wait, later).is_ok());
        assert_eq!(pace.wait(later).until(), None);
    }

    #[test]
    fn only_waiting_for_the_guest_counts() {
        let (mut pace, mut now) = (Pace::new(Length::Sized(1000)), Instant::now());
        for _ in 0..10 {
            let wait = pace.wait(now);
            assert!(wait.until().unwrap() > now + 50 * SECOND);
            pace.brought(wait, now + SECOND / 2, 1);
            // A person is asked, or the upstream takes its time.
            now += 600 * SECOND;
        }
    }
}
