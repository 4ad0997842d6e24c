//! How long things took, in fixed steps.

use std::sync::atomic::{AtomicU64, Ordering};

/// Upper ends of the steps in microseconds: half a millisecond, where an allowed request to a near API ends, to a minute, after
/// which somebody waits for a person or a language model.
pub const STEPS_US: [u64; 16] = [
    500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    5_000_000, 10_000_000, 30_000_000, 60_000_000,
];

/// One histogram. Adding to it costs two relaxed atomic additions.
#[derive(Debug, Default)]
pub struct Histogram {
    /// Not cumulative; the last one holds what took longer than the last step.
    steps: [AtomicU64; STEPS_US.len() + 1],
    sum_us: AtomicU64,
}

/// A histogram as it stood at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// Upper end in microseconds and how many took no longer.
    pub up_to: Vec<(u64, u64)>,
    pub count: u64,
    pub sum_us: u64,
}

impl Histogram {
    pub fn observe(&self, duration_us: u64) {
        let step = STEPS_US.partition_point(|end| *end < duration_us);
        if let Some(step) = self.steps.get(step) {
            step.fetch_add(1, Ordering::Relaxed);
        }
        self.sum_us.fetch_add(duration_us, Ordering::Relaxed);
    }

    pub fn read(&self) -> Reading {
        let mut count = 0;
        let mut up_to = Vec::with_capacity(STEPS_US.len());
        for (place, step) in self.steps.iter().enumerate() {
            count += step.load(Ordering::Relaxed);
            if let Some(end) = STEPS_US.get(place) {
                up_to.push((*end, count));
            }
        }
        Reading { up_to, count, sum_us: self.sum_us.load(Ordering::Relaxed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_duration_counts_in_its_step_and_all_above() {
        let histogram = Histogram::default();
        for duration in [0, 500, 501, 60_000_000, 60_000_001] {
            histogram.observe(duration);
        }
        let read = histogram.read();
        assert_eq!(read.up_to[0], (500, 2), "the end belongs to the step");
        assert_eq!(read.up_to[1], (1_000, 3));
        assert_eq!(read.up_to[15], (60_000_000, 4));
        assert_eq!((read.count, read.sum_us), (5, 120_001_002));
    }
}
