//! What the broker counts, for those who watch it.
//!
//! In: outcomes and events, a few relaxed atomic additions each. Out: numbers, which `page` writes down. Labels come from lists
//! of ours and from the policy; nothing that a guest chose becomes one, so their number is bounded whatever guests do.

pub mod families;
pub mod histogram;
pub mod page;

use std::sync::atomic::{AtomicU64, Ordering};

use freeboard_policy::Reason;

use crate::record::{Kind, Outcome, Verdict};
use histogram::Histogram;

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub fn one_more(&self) {
        self.add(1);
    }

    /// For a number that is known anew each time.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Reasons, and none at all.
const REASONS: usize = Reason::ALL.len() + 1;

/// The counters of one broker.
#[derive(Debug)]
pub struct Metrics {
    /// By kind, verdict and reason.
    decisions: Box<[Counter]>,
    requests: [Histogram; Verdict::ALL.len()],
    upstream: Histogram,
    to_upstream_bytes: Counter,
    to_guest_bytes: Counter,
    secrets_masked: Counter,
    tokens_masked: Counter,
    pub handshakes: Counter,
    pub aborts: Aborts,
    pub policies_loaded: Counter,
    pub policies_refused: Counter,
    pub policy_loaded_at: Counter,
    pub credentials_unready: Counter,
    pub accept_failures: Counter,
    pub connections_over_limit: Counter,
    pub probes_ready: Counter,
    pub probes_unready: Counter,
}

/// How guests went away once they had seen our certificate.
#[derive(Debug, Default)]
pub struct Aborts {
    pub alert: Counter,
    pub closed: Counter,
    pub silent: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        let cells = Kind::ALL.len() * Verdict::ALL.len() * REASONS;
        Self {
            decisions: (0..cells).map(|_| Counter::default()).collect(),
            requests: Default::default(),
            upstream: Histogram::default(),
            to_upstream_bytes: Counter::default(),
            to_guest_bytes: Counter::default(),
            secrets_masked: Counter::default(),
            tokens_masked: Counter::default(),
            handshakes: Counter::default(),
            aborts: Aborts::default(),
            policies_loaded: Counter::default(),
            policies_refused: Counter::default(),
            policy_loaded_at: Counter::default(),
            credentials_unready: Counter::default(),
            accept_failures: Counter::default(),
            connections_over_limit: Counter::default(),
            probes_ready: Counter::default(),
            probes_unready: Counter::default(),
        }
    }
}

impl Metrics {
    /// Called by `Broker::record`, once for each outcome.
    pub fn note(&self, outcome: &Outcome) {
        if let Some(cell) = self.decisions.get(cell(outcome.kind, outcome.verdict, outcome.reason)) {
            cell.one_more();
        }
        if outcome.kind != Kind::Request {
            return;
        }
        if let Some(histogram) = self.requests.get(outcome.verdict as usize) {
            histogram.observe(outcome.duration_us);
        }
        if outcome.upstream_us > 0 {
            self.upstream.observe(outcome.upstream_us);
        }
        self.to_upstream_bytes.add(outcome.request_bytes);
        self.to_guest_bytes.add(outcome.response_bytes);
        for what in &outcome.stripped {
            match *what {
                "secret_in_answer" => self.secrets_masked.one_more(),
                "token_in_answer" => self.tokens_masked.one_more(),
                _ => {}
            }
        }
    }

    /// How often this has happened.
    pub fn decisions(&self, kind: Kind, verdict: Verdict, reason: Option<Reason>) -> u64 {
        self.decisions.get(cell(kind, verdict, reason)).map_or(0, Counter::read)
    }

    /// Every combination that has happened.
    fn all_decisions(&self) -> impl Iterator<Item = (Kind, Verdict, Option<Reason>, u64)> {
        let reasons = || std::iter::once(None).chain(Reason::ALL.iter().copied().map(Some));
        let kinds = Kind::ALL.into_iter();
        let all = kinds.flat_map(move |kind| {
            Verdict::ALL
                .into_iter()
                .flat_map(move |verdict| reasons().map(move |reason| (kind, verdict, reason)))
        });
        all.filter_map(|(kind, verdict, reason)| {
            let count = self.decisions(kind, verdict, reason);
            (count > 0).then_some((kind, verdict, reason, count))
        })
    }
}

/// The place of a combination among `decisions`.
fn cell(kind: Kind, verdict: Verdict, reason: Option<Reason>) -> usize {
    let reason = reason.map_or(0, |reason| reason as usize + 1);
    (kind as usize * Verdict::ALL.len() + verdict as usize) * REASONS + reason
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_has_a_place_of_its_own() {
        let mut seen = std::collections::HashSet::new();
        let reasons = || std::iter::once(None).chain(Reason::ALL.iter().copied().map(Some));
        let metrics = Metrics::default();
        for kind in Kind::ALL {
            for verdict in Verdict::ALL {
                for reason in reasons() {
                    let place = cell(kind, verdict, reason);
                    assert!(place < metrics.decisions.len());
                    assert!(seen.insert(place), "{kind:?} {verdict:?} {reason:?}");
                }
            }
        }
        assert_eq!(seen.len(), metrics.decisions.len());
    }
}
