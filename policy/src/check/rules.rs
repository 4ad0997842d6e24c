//! Rules against each other: repeated, covered, dead, idle, too wide, and requests that two credentials could serve.

use crate::compiled::trie::{Relation, Trie};
use crate::compiled::{Api, Compiled, Grant, Route};
use crate::condition;
use crate::diagnostic::{Code, Diagnostic};
use crate::route::PathEnd;

/// Rules of one grant that say what another one says already, or that can never match.
pub(super) fn of_grant(compiled: &Compiled, grant: &Grant, found: &mut Vec<Diagnostic>) {
    for rules in &grant.rules {
        for trie in [&rules.allow, &rules.deny] {
            for route in &trie.routes {
                if let Some(other) = covering(trie, route) {
                    found.push(covered(route, other));
                }
            }
        }
        for route in &rules.allow.routes {
            if let Some(deny) = rules.deny.related(&route.line, Relation::Covers, |deny| {
                deny.terms.as_ref().is_none_or(|terms| !terms.narrows())
            }) {
                let message = format!("`{}` can never match: a deny rule covers it", route.line.written);
                let help = "deny wins over allow, whatever the order; remove one of the two, or narrow the deny rule";
                let diagnostic = Diagnostic::error(Code::UnreachableRule, message).at(route.place.clone());
                found.push(diagnostic.related(deny.place.clone(), "denied here").help(help));
            }
        }
        if let Some(api) = compiled.apis.get(rules.api) {
            found.extend(rules.allow.routes.iter().filter_map(|route| too_wide(api, route)));
        }
    }
}

/// A rule that says all that `route` says. One with the same meaning comes before any that says more, so that the order of
/// rules does not decide whether a repetition is seen; of two with the same meaning the later one is covered.
fn covering<'t>(trie: &'t Trie, route: &Route) -> Option<&'t Route> {
    let mut covering = None;
    trie.related(&route.line, Relation::Covers, |other| {
        if other.id == route.id
            || other.websocket != route.websocket
            || !condition::covers(other.terms.as_ref(), route.terms.as_ref())
        {
            return false;
        }
        let repeats = same(other, route);
        if repeats && other.place > route.place {
            return false;
        }
        if repeats || covering.is_none() {
            covering = Some(other);
        }
        repeats
    });
    covering
}

fn same(one: &Route, other: &Route) -> bool {
    one.line.canonical() == other.line.canonical()
        && condition::same(one.terms.as_ref(), other.terms.as_ref())
}

fn covered(route: &Route, other: &Route) -> Diagnostic {
    let place = other.place.clone();
    if same(route, other) {
        let message = format!("`{}` is there twice", route.line.written);
        let diagnostic = Diagnostic::error(Code::DuplicateRule, message).at(route.place.clone());
        return diagnostic.related(place, "first here").help("remove one of the two");
    }
    let message = format!("`{}` adds nothing: another rule covers it", route.line.written);
    let diagnostic = Diagnostic::warning(Code::ShadowedRule, message).at(route.place.clone());
    diagnostic
        .related(place, "covered by")
        .help("remove it, or narrow the other one if that is what is meant")
}

fn too_wide(api: &Api, route: &Route) -> Option<Diagnostic> {
    let whole = route.line.methods.is_every()
        && route.line.path.segments.is_empty()
        && route.line.path.end == PathEnd::Rest;
    let credential = api.view.credential.as_ref().filter(|_| whole)?;
    let message = format!("every request to API `{}` is sent with credential `{credential}`", api.view.name);
    let help = "list the routes that are needed; what the credential can do, the run can do";
    Some(Diagnostic::warning(Code::WideRule, message).at(route.place.clone()).help(help))
}

/// Allow rules of one grant that one request can match, and that demand different things of it. Of a route with conditions
/// and one without, the conditions would say nothing.
pub(super) fn ambiguous_terms(grant: &Grant, found: &mut Vec<Diagnostic>) {
    for rules in &grant.rules {
        for route in rules.allow.routes.iter().filter(|route| route.terms.is_some()) {
            let met = rules.allow.related(&route.line, Relation::Meets, |other| {
                other.id != route.id
                    && other.websocket == route.websocket
                    && !condition::same(other.terms.as_ref(), route.terms.as_ref())
                    && !excludes(other, route)
                    // Of two rules with conditions the later one is reported.
                    && (other.terms.is_none() || other.place < route.place)
            });
            let Some(met) = met else { continue };
            let message = format!(
                "one request can match `{}` and `{}`, whose rules demand different things",
                route.line.written, met.line.written
            );
            let diagnostic = Diagnostic::error(Code::AmbiguousRule, message).at(route.place.clone());
            let help = "make the routes disjoint, or the conditions such that no request meets both";
            found.push(diagnostic.related(met.place.clone(), "the other rule").help(help));
        }
    }
}

/// Two grants that one run can name together, of which one wants a person to approve a request and the other does not.
pub(super) fn ambiguous_approvals(compiled: &Compiled, found: &mut Vec<Diagnostic>) {
    let needs = |route: &Route| route.terms.as_ref().is_some_and(|terms| terms.approve.is_some());
    for first in &compiled.grants {
        for rules in &first.rules {
            for route in rules.allow.routes.iter().filter(|route| needs(route)) {
                let others = compiled.grants.iter().filter(|second| second.view.name != first.view.name);
                for second in others.filter(|second| share_a_caller(first, second)) {
                    let Some(others) = second.rules_of(rules.api) else { continue };
                    let met = others.allow.related(&route.line, Relation::Meets, |other| {
                        other.websocket == route.websocket && !needs(other) && !excludes(other, route)
                    });
                    let Some(met) = met else { continue };
                    let message = "one request needs a person's approval by one grant and not by another";
                    let diagnostic = Diagnostic::error(Code::AmbiguousRule, message).at(route.place.clone());
                    let help =
                        "a run that names both would need none: make the routes disjoint, or the callers";
                    found.push(diagnostic.related(met.place.clone(), "the other rule").help(help));
                }
            }
        }
    }
}

fn excludes(one: &Route, other: &Route) -> bool {
    one.terms.as_ref().zip(other.terms.as_ref()).is_some_and(|(one, other)| one.excludes(other))
}

/// Deny rules that no allow rule of their grant meets.
pub(super) fn idle_denies(compiled: &Compiled, grant: &Grant, found: &mut Vec<Diagnostic>) {
    for rules in &grant.rules {
        let Some(api) = compiled.apis.get(rules.api) else { continue };
        // Deny rules hold for every API of the grant on the same origin.
        let reached = grant.rules.iter().filter(|other| {
            compiled
                .apis
                .get(other.api)
                .is_some_and(|other| other.origins.iter().any(|o| api.origins.contains(o)))
        });
        let mut met = std::collections::HashSet::new();
        for allow in reached.flat_map(|other| &other.allow.routes) {
            rules.deny.related(&allow.line, Relation::Meets, |deny| {
                met.insert(&deny.id);
                false
            });
        }
        for deny in rules.deny.routes.iter().filter(|deny| !met.contains(&deny.id)) {
            let message = format!("`{}` denies what no rule of the grant allows", deny.line.written);
            let help = "it takes effect only in runs that name another grant beside this one";
            found.push(Diagnostic::warning(Code::IdleDeny, message).at(deny.place.clone()).help(help));
        }
    }
}

/// Two allow rules for APIs with the same origin and different credentials, in grants that one run can name together.
pub(super) fn ambiguous_credentials(compiled: &Compiled, found: &mut Vec<Diagnostic>) {
    for site in &compiled.sites {
        for (index, &one) in site.allowing.iter().enumerate() {
            for &other in site.allowing.iter().skip(index + 1) {
                let credential =
                    |api: usize| compiled.apis.get(api).and_then(|api| api.view.credential.as_ref());
                if credential(one) != credential(other) {
                    ambiguous_pair(compiled, one, other, found);
                }
            }
        }
    }
}

fn ambiguous_pair(compiled: &Compiled, one: usize, other: usize, found: &mut Vec<Diagnostic>) {
    let credential = |api: usize| match compiled.apis.get(api).and_then(|api| api.view.credential.as_ref()) {
        Some(name) => format!("credential `{name}`"),
        None => "no credential".to_owned(),
    };
    for first in &compiled.grants {
        let Some(rules) = first.rules_of(one) else { continue };
        for second in compiled.grants.iter().filter(|second| share_a_caller(first, second)) {
            let Some(others) = second.rules_of(other) else { continue };
            for route in &rules.allow.routes {
                let met = others.allow.related(&route.line, Relation::Meets, |met| {
                    met.websocket == route.websocket && !excludes(met, route)
                });
                let Some(met) = met else { continue };
                let message = format!(
                    "one request could be sent with {} or with {}",
                    credential(one),
                    credential(other)
                );
                let diagnostic =
                    Diagnostic::error(Code::AmbiguousCredential, message).at(route.place.clone());
                let help = "make the routes disjoint, or use one credential for both APIs";
                found.push(diagnostic.related(met.place.clone(), "the other rule").help(help));
            }
        }
    }
}

fn share_a_caller(one: &Grant, other: &Grant) -> bool {
    let all = |grant: &Grant| grant.callers.iter().any(|caller| **caller == *"*");
    all(one) || all(other) || one.callers.iter().any(|caller| other.callers.contains(caller))
}
