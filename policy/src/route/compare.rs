//! Whether one route line covers another (every request of the second matches the first) or meets it (some request
//! matches both). `covers` may say no too often, never yes; `meets` may say yes too often, never no.

use std::collections::BTreeSet;

use super::pattern::Pattern;
use super::query::{Listed, QueryPattern};
use super::{PathEnd, PathPattern, RouteLine};

/// How literal texts and queries of the first line are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// Both lines allow.
    Allow,
    /// The first line denies: letter case of its literals, a trailing slash and unlisted parameters do not matter, and an
    /// escaped slash of a request or of the line is read both as data and as a border of segments.
    Deny,
}

/// Whether every request that allow line `second` matches is matched by `first`.
pub(crate) fn covers(first: &RouteLine, second: &RouteLine, reading: Reading) -> bool {
    let methods = match reading {
        Reading::Allow => first.methods.covers(&second.methods),
        Reading::Deny => first.methods.deny_covers(&second.methods),
    };
    methods
        && first.paths(reading).any(|first| path_covers(first, &second.path, reading))
        && query_covers(&first.query, &second.query, reading)
}

/// Whether some request is matched by `first` and by allow line `second`.
pub(crate) fn meets(first: &RouteLine, second: &RouteLine, reading: Reading) -> bool {
    let methods = match reading {
        Reading::Allow => first.methods.meets(&second.methods),
        Reading::Deny => first.methods.deny_meets(&second.methods),
    };
    methods
        && first.paths(reading).any(|first| path_meets(first, &second.path, reading))
        && query_meets(&first.query, &second.query, reading)
}

fn path_covers(first: &PathPattern, second: &PathPattern, reading: Reading) -> bool {
    let (a, b) = (first.segments.len(), second.segments.len());
    let ends = match (first.end, second.end) {
        (PathEnd::Rest, _) => a <= b,
        (_, PathEnd::Rest) => false,
        (one, other) => a == b && (one == other || reading == Reading::Deny),
    };
    ends && first
        .segments
        .iter()
        .zip(&second.segments)
        .all(|(one, other)| pattern_covers(one, other, reading))
}

fn path_meets(first: &PathPattern, second: &PathPattern, reading: Reading) -> bool {
    let (a, b) = (first.segments.len(), second.segments.len());
    let ends = match (first.end, second.end) {
        (PathEnd::Rest, PathEnd::Rest) => true,
        (PathEnd::Rest, _) => a <= b,
        (_, PathEnd::Rest) => b <= a,
        (one, other) => a == b && (one == other || reading == Reading::Deny),
    };
    let plain = ends
        && first.segments.iter().zip(&second.segments).all(|(one, other)| pattern_meets(one, other, reading));
    plain || (reading == Reading::Deny && split_path_meets(first, second))
}

/// Whether some path of allow line `second` with an escaped slash is matched by `first` where that slash parts segments.
fn split_path_meets(first: &PathPattern, second: &PathPattern) -> bool {
    if !second.segments.iter().any(Pattern::may_hold_slash) {
        return false;
    }
    let length = first.segments.len();
    // How many segments of `first` the segments of `second` so far may have matched.
    let mut reached = BTreeSet::from([0]);
    for (index, segment) in second.segments.iter().enumerate() {
        if first.end == PathEnd::Rest && reached.contains(&length) {
            return true;
        }
        let last = index + 1 == second.segments.len() && second.end == PathEnd::Nothing;
        reached = reached.into_iter().flat_map(|from| pieces_meet(first, from, segment, last)).collect();
    }
    // Whatever is left of `first` may be matched by the rest of the path.
    if second.end == PathEnd::Rest { !reached.is_empty() } else { reached.contains(&length) }
}

/// How many segments of `first` may be matched once those from `from` on have met one segment of an allow line.
fn pieces_meet(first: &PathPattern, from: usize, segment: &Pattern, last: bool) -> Vec<usize> {
    let Some(left) = first.segments.get(from..).filter(|left| !left.is_empty()) else { return Vec::new() };
    if !segment.may_hold_slash() {
        let met = left.first().is_some_and(|one| pattern_meets(one, segment, Reading::Deny));
        return if met { vec![from + 1] } else { Vec::new() };
    }
    let Some(texts) = segment.literals() else {
        // Any pieces, as many as there are: assume that some text has them.
        return (from + 1..=first.segments.len()).collect();
    };
    let ends = texts.iter().filter_map(|text| {
        // A slash at the end of the path belongs to no segment.
        let text = if last { text.strip_suffix(b"/").unwrap_or(text) } else { text };
        let mut left = left.iter();
        let mut to = from;
        for piece in text.split(|byte| *byte == b'/') {
            match left.next() {
                Some(pattern) if pattern.matches_folded(piece) => to += 1,
                Some(_) => return None,
                None if first.end == PathEnd::Rest => return Some(to),
                None => return None,
            }
        }
        Some(to)
    });
    ends.collect()
}

fn matches(pattern: &Pattern, text: &[u8], reading: Reading) -> bool {
    match reading {
        Reading::Allow => pattern.matches(text),
        Reading::Deny => pattern.matches_folded(text),
    }
}

pub(crate) fn pattern_covers(first: &Pattern, second: &Pattern, reading: Reading) -> bool {
    if first == second || matches!(first, Pattern::AnyOrEmpty) {
        return true;
    }
    if let Some(texts) = second.literals() {
        return texts.iter().all(|text| matches(first, text, reading));
    }
    match (first, second) {
        (_, Pattern::AnyOrEmpty) => false,
        (Pattern::Any, _) => true,
        _ => match (first.automaton(), second.automaton()) {
            (Some(one), Some(other)) => other.some_text(one, |other, one| other && !one) == Some(false),
            _ => false,
        },
    }
}

pub(crate) fn pattern_meets(first: &Pattern, second: &Pattern, reading: Reading) -> bool {
    if let Some(texts) = second.literals() {
        return texts.iter().any(|text| matches(first, text, reading));
    }
    if let Some(texts) = first.literals() {
        // A deny literal stands for its other letter cases too; they are not enumerated: assume that one matches.
        return texts.iter().any(|text| second.matches(text))
            || (reading == Reading::Deny
                && texts.iter().any(|text| text.iter().any(u8::is_ascii_alphabetic)));
    }
    match (first.automaton(), second.automaton()) {
        (Some(one), Some(other)) => one.some_text(other, |one, other| one && other) != Some(false),
        _ => true,
    }
}

fn query_covers(first: &QueryPattern, second: &QueryPattern, reading: Reading) -> bool {
    let listed = match (first, reading) {
        (QueryPattern::Any, _) | (QueryPattern::None, Reading::Deny) => return true,
        (QueryPattern::None, Reading::Allow) => return *second == QueryPattern::None,
        (QueryPattern::Listed(listed), _) => listed,
    };
    match (second, reading) {
        (QueryPattern::Any, _) => false,
        (QueryPattern::None, Reading::Allow) => listed.parameters.iter().all(|parameter| !parameter.required),
        (QueryPattern::None, Reading::Deny) => listed.parameters.is_empty(),
        (QueryPattern::Listed(other), Reading::Allow) => listed_covers(listed, other),
        (QueryPattern::Listed(other), Reading::Deny) => listed.parameters.iter().all(|parameter| {
            other.find(&parameter.name).is_some_and(|found| {
                found.required && pattern_covers(&parameter.value, &found.value, Reading::Deny)
            })
        }),
    }
}

fn listed_covers(first: &Listed, second: &Listed) -> bool {
    let takes_all = second.parameters.iter().all(|parameter| match first.find(&parameter.name) {
        Some(found) => pattern_covers(&found.value, &parameter.value, Reading::Allow),
        None => first.others,
    });
    let needs_no_more = first.parameters.iter().all(|parameter| match second.find(&parameter.name) {
        Some(found) => !parameter.required || found.required,
        None => !parameter.required && !second.others,
    });
    takes_all && needs_no_more && (first.others || !second.others)
}

fn query_meets(first: &QueryPattern, second: &QueryPattern, reading: Reading) -> bool {
    match (first, second, reading) {
        (QueryPattern::Any, _, _) | (_, QueryPattern::Any, _) | (QueryPattern::None, _, Reading::Deny) => {
            true
        }
        (QueryPattern::None, QueryPattern::None, _) => true,
        (QueryPattern::None, QueryPattern::Listed(listed), Reading::Allow)
        | (QueryPattern::Listed(listed), QueryPattern::None, Reading::Allow) => {
            listed.parameters.iter().all(|parameter| !parameter.required)
        }
        (QueryPattern::Listed(listed), QueryPattern::None, Reading::Deny) => listed.parameters.is_empty(),
        (QueryPattern::Listed(one), QueryPattern::Listed(other), Reading::Allow) => {
            requirements_fit(one, other) && requirements_fit(other, one)
        }
        (QueryPattern::Listed(one), QueryPattern::Listed(other), Reading::Deny) => one
            .parameters
            .iter()
            .all(|parameter| fits(&parameter.name, &parameter.value, other, Reading::Deny)),
    }
}

/// Whether each parameter that `first` requires may be there under `second`.
fn requirements_fit(first: &Listed, second: &Listed) -> bool {
    let mut required = first.parameters.iter().filter(|parameter| parameter.required);
    required.all(|parameter| fits(&parameter.name, &parameter.value, second, Reading::Allow))
}

fn fits(name: &[u8], value: &Pattern, listed: &Listed, reading: Reading) -> bool {
    match listed.find(name) {
        Some(found) => pattern_meets(value, &found.value, reading),
        // A deny rule ignores letter case of names; the exact name is the only one looked up, so assume a meeting.
        None => {
            listed.others
                || (reading == Reading::Deny
                    && listed.parameters.iter().any(|p| p.name.eq_ignore_ascii_case(name)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Reading, covers, meets};
    use crate::route::line;

    fn check(first: &str, second: &str, reading: Reading) -> (bool, bool) {
        let read =
            |text: &str| line::parse(text).0.unwrap_or_else(|| panic!("{text}: {:?}", line::parse(text).1));
        (covers(&read(first), &read(second), reading), meets(&read(first), &read(second), reading))
    }

    #[test]
    fn tells_covering_from_meeting_from_apart() {
        for (first, second, covered, met) in [
            ("GET /a", "GET /a", true, true),
            ("GET /a", "HEAD /a", true, true),
            ("HEAD /a", "GET /a", false, true),
            ("* /a", "GET|POST /a", true, true),
            ("* /a", "PROPFIND /a", false, false),
            ("GET /a", "* /a", false, true),
            ("GET /a/**", "GET /a", true, true),
            ("GET /a/**", "GET /a/b/{int}", true, true),
            ("GET /a/b/**", "GET /a/**", false, true),
            ("GET /a/{x}", "GET /a/{int}", true, true),
            ("GET /a/{int}", "GET /a/{x}", false, true),
            ("GET /a/{hex}", "GET /a/{int}", true, true),
            ("GET /a/{int}", "GET /a/{uuid}", false, false),
            ("GET /a/{slug}", "GET /a/{uuid}", true, true),
            ("GET /a/{a|b|c}", "GET /a/{b|c}", true, true),
            ("GET /a/{a|b}", "GET /a/{b|c}", false, true),
            ("GET /a/{re:[a-z]+}", "GET /a/{re:[a-f]+}", true, true),
            ("GET /a/{re:[a-z]+}", "GET /a/{int}", false, false),
            ("GET /a/{n}.git", "GET /a/x.git", true, true),
            ("GET /a/{n}.git", "GET /a/x.hg", false, false),
            ("GET /a", "GET /a/", false, false),
            ("GET /A", "GET /a", false, false),
            ("GET /a?*", "GET /a?b", true, true),
            ("GET /a?b", "GET /a", true, true),
            ("GET /a?b!", "GET /a", false, false),
            ("GET /a", "GET /a?b", false, true),
            ("GET /a?b={any}", "GET /a?b={int}", true, true),
            ("GET /a?b!={int}", "GET /a?b={slug}", false, true),
            ("GET /a?b!=1", "GET /a?b!=2", false, false),
            ("GET /a?b&*", "GET /a?b&c", true, true),
            ("GET /a?b={int}&*", "GET /a?*", false, true),
        ] {
            assert_eq!(check(first, second, Reading::Allow), (covered, met), "{first} / {second}");
        }
    }

    #[test]
    fn a_deny_line_is_read_widely() {
        for (first, second, covered, met) in [
            ("* /a", "PROPFIND /a", true, true),
            ("GET /A", "GET /a/", true, true),
            ("GET /a", "GET /a?*", true, true),
            ("GET /a?b", "GET /a?*", false, true),
            ("GET /a?b", "GET /a?b!", true, true),
            ("GET /a?b", "GET /a?c", false, false),
            ("POST /a", "GET /a", false, false),
            ("GET /a/b", "GET /a%2Fb", false, true),
            ("GET /A/b", "GET /a%2FB%2F", false, true),
            ("GET /a/b", "GET /{x}", false, true),
            ("GET /a/b", "GET /{int}", false, false),
            ("GET /a/b", "GET /{re:[^/]+}", false, false),
            ("GET /a/b", "GET /{x}.git", false, true),
            ("GET /a/b/c", "GET /a%2Fb", false, false),
            ("GET /a/b/c", "GET /{x|a%2Fb}/c", false, true),
            ("GET /a/b/d", "GET /{x|a%2Fb}/c", false, false),
            ("GET /a/**", "GET /a%2Fb/c", false, true),
            ("GET /a/b/**", "GET /a%2Fb", false, true),
            ("GET /a/b/c/d", "GET /a%2Fb/**", false, true),
            ("GET /b/**", "GET /a%2Fb", false, false),
        ] {
            assert_eq!(check(first, second, Reading::Deny), (covered, met), "{first} / {second}");
        }
    }
}
