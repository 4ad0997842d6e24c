//! Which refused questions are recorded one by one, and which only counted.
//!
//! A resolver asks the same name several times (A, AAAA, a second try), and a tunnel asks a new name with each query.
//! Each name is recorded once; its repetitions, and names beyond the limit, are recorded when their number reaches a
//! power of sixteen, with that number (ATTACKS D04, E23).

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::limits::REFUSED_NAMES_TOLD_APART;

/// Counts of one run.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    by_name: HashMap<Box<str>, u64>,
    others: u64,
}

/// What to record about a refused question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Worth {
    /// The first question for this name.
    First,
    /// So many questions for this name by now.
    Repeated(u64),
    /// So many questions for names that are not told apart any more.
    Many(u64),
    Nothing,
}

impl Refusals {
    pub(super) fn count(&self, name: &str) -> Worth {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.by_name.get_mut(name) {
            *count += 1;
            return if is_power_of_sixteen(*count) { Worth::Repeated(*count) } else { Worth::Nothing };
        }
        if counts.by_name.len() < REFUSED_NAMES_TOLD_APART {
            counts.by_name.insert(name.into(), 1);
            return Worth::First;
        }
        counts.others += 1;
        if is_power_of_sixteen(counts.others) { Worth::Many(counts.others) } else { Worth::Nothing }
    }
}

fn is_power_of_sixteen(count: u64) -> bool {
    count.is_power_of_two() && count.trailing_zeros().is_multiple_of(4)
}
