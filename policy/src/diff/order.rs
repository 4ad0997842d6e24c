//! The order of a report: what a reviewer must see first stands first.

use std::cmp::Reverse;

use super::{Change, Risk};

/// Wider before narrower; write methods, new hosts, private addresses, weaker floors, more callers first.
pub(super) fn by_risk(changes: &mut [Change]) {
    changes.sort_by_cached_key(|change| {
        let lacks = |risk: Risk| !change.risks.contains(&risk);
        let first_rule = change.rules.first().map(|rule| (rule.file.clone(), rule.line, rule.id.clone()));
        (
            (change.direction, !change.undecided, lacks(Risk::Writes), lacks(Risk::NewHost)),
            (lacks(Risk::PrivateAddresses), lacks(Risk::WeakerFloor), lacks(Risk::EveryCaller)),
            (Reverse(change.callers.len()), change.kind, change.grant.clone(), change.with.clone()),
            (first_rule, change.what.clone()),
        )
    });
}
