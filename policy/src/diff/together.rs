//! Deny rules as runs see them that name two grants: a deny rule of one refuses what the other allows.
//!
//! Two are enough: a request that several grants decide differently is allowed by one of them, and refused by a deny rule of
//! one of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::grants::{self, Pair};
use super::rules::{self, Side};
use super::{Change, Kind};
use crate::compiled::{Grant, Route};
use crate::{Host, Policy};

pub(super) fn compare(pairs: &[Pair<'_>], changes: &mut Vec<Change>) {
    for pair in pairs {
        let (Some(old), Some(new)) = (pair.old, pair.new) else { continue };
        let callers = pair.kept_callers();
        if callers.is_empty() || (!has_denies(old) && !has_denies(new)) {
            continue;
        }
        for (host, port) in denying_hosts(pair) {
            let (before, after) = sides(pair, &host, port);
            if before.deny_keys() == after.deny_keys() {
                continue;
            }
            for other in pairs.iter().filter(|other| other.name != pair.name) {
                with_another(pair, other, &callers, (&host, port), changes);
            }
        }
    }
}

fn has_denies(grant: &Grant) -> bool {
    grant.rules.iter().any(|rules| !rules.deny.is_empty())
}

fn denying_hosts(pair: &Pair<'_>) -> BTreeSet<(Host, u16)> {
    // Deny rules hold at every name of their origins, whichever API of another grant allows something there.
    let of = |policy: &Policy, grant: Option<&Grant>| {
        let mut origins = BTreeSet::new();
        let denying = grant.into_iter().flat_map(|grant| &grant.rules).filter(|rules| !rules.deny.is_empty());
        for api in denying.filter_map(|rules| policy.compiled.apis.get(rules.api)) {
            origins.extend(api.origins.iter().cloned());
        }
        let named = policy.compiled.hosts.iter().flat_map(|(host, ports)| {
            ports
                .iter()
                .filter_map(move |(port, site)| Some((host, *port, policy.compiled.sites.get(*site)?)))
        });
        let here = named.filter(|(_, _, site)| origins.contains(&site.origin));
        here.map(|(host, port, _)| (host.clone(), port)).collect::<BTreeSet<_>>()
    };
    let (old, new) = pair.policies;
    let mut hosts = of(old, pair.old);
    hosts.extend(of(new, pair.new));
    hosts
}

fn sides<'p>(pair: &Pair<'p>, host: &Host, port: u16) -> (Side<'p>, Side<'p>) {
    let (old, new) = pair.policies;
    (Side::of(old, pair.old, host, port), Side::of(new, pair.new, host, port))
}

fn with_another(
    pair: &Pair<'_>,
    other: &Pair<'_>,
    callers: &[Arc<str>],
    (host, port): (&Host, u16),
    changes: &mut Vec<Change>,
) {
    if other.old.is_none() || other.new.is_none() {
        return;
    }
    let both = shared_callers(callers, &other.kept_callers());
    if both.is_empty() {
        return;
    }
    let (mine, others) = (sides(pair, host, port), sides(other, host, port));
    for (kind, from, to, allowing) in
        [(Kind::Allowed, &mine.0, &mine.1, &others.1), (Kind::Refused, &mine.1, &mine.0, &others.0)]
    {
        for deny in from.denies_beyond(to) {
            let met = allowing.allow.iter().map(|allow| allow.route);
            let left = |allow: &Route| [to.deny_near(allow), allowing.deny_near(allow)].concat();
            let Some((found, routes)) = rules::behind(deny, met, left) else { continue };
            let what = match kind {
                Kind::Allowed => "a deny rule is taken away or narrower",
                _ => "a deny rule is added or wider",
            };
            let mut change = pair.change(kind, &both, what, &[&[deny], routes.as_slice()].concat());
            change.with = Some(Arc::clone(other.name));
            pair.show(&mut change, &[pair.name, other.name], host, port, &found);
            grants::add(changes, change);
        }
    }
}

/// Callers of both lists; `*` stands for whoever the other one names.
fn shared_callers(one: &[Arc<str>], other: &[Arc<str>]) -> Vec<Arc<str>> {
    let has = |callers: &[Arc<str>], caller: &str| callers.iter().any(|c| **c == *caller || **c == *"*");
    let all: BTreeSet<&Arc<str>> = one.iter().chain(other).collect();
    let shared = all.into_iter().filter(|caller| {
        if ***caller == *"*" {
            one.contains(caller) && other.contains(caller)
        } else {
            has(one, caller) && has(other, caller)
        }
    });
    shared.cloned().collect()
}
