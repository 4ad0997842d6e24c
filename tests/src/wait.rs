//! Waiting for a condition with a deadline. Tests do not sleep.

use std::time::{Duration, Instant};

/// Longest wait for something that should happen at once on an idle machine.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// Asks again and again until `condition` gives something.
///
/// # Panics
/// At the deadline, with `what`.
pub fn until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(begun.elapsed() < DEADLINE, "waited {DEADLINE:?} in vain until {what}");
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

/// [`until`] for a yes.
pub fn until_true(what: &str, mut condition: impl FnMut() -> bool) {
    until(what, || condition().then_some(()));
}
