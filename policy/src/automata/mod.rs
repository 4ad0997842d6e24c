//! Exact questions about route lines: is there a request that these match and those do not, and which is the shortest?
//!
//! Rules come in, a witness request comes out, or the proof that there is none. Methods, canonical paths, queries and the
//! websocket flag are covered whole, with both readings of deny rules. Conditions on bodies and headers, callers and hosts
//! are not looked at: give the rules of one host.
//!
//! Paths are decided by walking the automata of all rules together (`path`), queries by going through every set of
//! parameters that makes a difference (`query`, `values`). Every witness is checked with the plain matcher of `route`.

mod alphabet;
mod machine;
mod path;
mod query;
mod search;
#[cfg(test)]
mod tests;
mod values;

pub(crate) use search::search;

use crate::route::RouteLine;
use crate::route::compare::Reading;
use crate::route::pattern::{Decoded, Pattern};

/// One rule of a question.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rule<'p> {
    pub(crate) line: &'p RouteLine,
    pub(crate) reading: Reading,
    /// Allow rules match handshakes or other requests, never both; a deny rule matches whatever this says.
    pub(crate) websocket: bool,
}

impl<'p> Rule<'p> {
    pub(crate) const fn allow(line: &'p RouteLine, websocket: bool) -> Self {
        Self { line, reading: Reading::Allow, websocket }
    }

    pub(crate) const fn deny(line: &'p RouteLine) -> Self {
        Self { line, reading: Reading::Deny, websocket: false }
    }

    /// Whether the rule matches, by the plain matcher.
    pub(crate) fn matches(&self, request: &Witness) -> bool {
        let Ok(target) = crate::Target::parse(request.target.as_bytes()) else { return false };
        match self.reading {
            Reading::Allow => {
                self.websocket == request.websocket && self.line.mismatch(&request.method, &target).is_none()
            }
            Reading::Deny => self.line.denies(&request.method, &target),
        }
    }
}

/// A request that answers a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Witness {
    pub(crate) method: String,
    /// Canonical path and query.
    pub(crate) target: String,
    pub(crate) websocket: bool,
}

/// What a question comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Of the requests that answer it, one with the shortest target.
    Witness(Witness),
    /// There is none.
    None,
    /// The rules are too many or too intricate together (`AUTOMATA_STATES_MAX`). Take it as the worse answer.
    Undecided,
}

impl Answer {
    pub(crate) fn witness(self) -> Option<Witness> {
        match self {
            Self::Witness(witness) => Some(witness),
            Self::None | Self::Undecided => None,
        }
    }
}

/// A request that both rules match.
pub(crate) fn overlap(one: Rule<'_>, other: Rule<'_>) -> Answer {
    search(&[one, other], 0, |hits| matches!(hits, [true, true]))
}

/// A request that `rule` matches and none of `by`.
pub(crate) fn uncovered(rule: Rule<'_>, by: &[Rule<'_>]) -> Answer {
    let rules: Vec<Rule<'_>> = std::iter::once(rule).chain(by.iter().copied()).collect();
    search(&rules, 0, |hits| !hits.iter().skip(1).any(|hit| *hit))
}

/// Texts that tell these patterns apart: a shortest one for each combination of patterns that match it. Empty where they are
/// too large together.
pub(crate) fn texts(patterns: &[&Pattern]) -> Vec<String> {
    let patterns: Vec<_> = patterns.iter().map(|pattern| (*pattern, Reading::Allow)).collect();
    let parts = values::parts(&patterns).unwrap_or_default();
    let decoded = parts.iter().map(|raw| Decoded::of(raw.as_bytes()).collect());
    decoded.filter_map(|text| String::from_utf8(text).ok()).collect()
}

/// More states than a question may look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TooLarge;
