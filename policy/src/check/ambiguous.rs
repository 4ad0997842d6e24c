//! Requests that two allow rules could decide differently: with other credentials, other approvals, other conditions. Each is
//! an error with a request that shows it; which of the rules would win is nobody's guess.

use super::places::Places;
use crate::automata::Answer;
use crate::compiled::trie::Relation;
use crate::compiled::{ApiRules, Grant, Route};
use crate::condition;
use crate::diagnostic::{Code, Diagnostic};
use crate::model::Approval;

/// Another rule, where one request can match both.
struct Met<'p> {
    other: &'p Route,
    site: usize,
    answer: Answer,
}

/// The first rule of `rules` that decides a request of `route` too, and that `wanted` takes.
fn met<'p>(
    places: &Places<'p>,
    (route, api, grant): (&Route, usize, &'p Grant),
    (rules, other_grant): (&'p ApiRules, &'p Grant),
    wanted: impl Fn(&Route) -> bool,
) -> Option<Met<'p>> {
    let mut found = None;
    rules.allow.related(&route.line, Relation::Meets, |other| {
        if other.id == route.id
            || other.websocket != route.websocket
            || !wanted(other)
            || excludes(other, route)
        {
            return false;
        }
        found = places.shared(api, rules.api).find_map(|site| {
            let answer = places.both(site, &[grant, other_grant], route, other)?;
            Some(Met { other, site, answer })
        });
        found.is_some()
    });
    found
}

fn report(
    places: &Places<'_>,
    code: Code,
    route: &Route,
    met: Met<'_>,
    (message, help): (&str, &str),
) -> Diagnostic {
    let problem = Diagnostic::error(code, message).at(route.place.clone());
    let problem = problem.related(met.other.place.clone(), "the other rule").help(help);
    places.show(problem, Some(met.site), met.answer)
}

/// Allow rules of one grant that one request can match, and that demand different things of it. Of a route with conditions
/// and one without, the conditions would say nothing.
pub(super) fn terms<'p>(places: &Places<'p>, grant: &'p Grant, found: &mut Vec<Diagnostic>) {
    for rules in &grant.rules {
        for route in rules.allow.routes.iter().filter(|route| route.terms.is_some()) {
            let differs = |other: &Route| {
                !condition::same(other.terms.as_ref(), route.terms.as_ref())
                    // Of two rules with conditions the later one is reported.
                    && (other.terms.is_none() || other.place < route.place)
            };
            let others = places.neighbours(rules.api).into_iter().filter_map(|api| grant.rules_of(api));
            let met = others
                .into_iter()
                .find_map(|others| met(places, (route, rules.api, grant), (others, grant), differs));
            let Some(met) = met else { continue };
            let message = format!(
                "one request can match `{}` and `{}`, whose rules demand different things",
                route.line.written, met.other.line.written
            );
            let help = "make the routes disjoint, or the conditions such that no request meets both";
            found.push(report(places, Code::AmbiguousRule, route, met, (&message, help)));
        }
    }
}

/// Two grants that one run can name together, of which one wants a person to approve a request and the other does not, or
/// wants other people to.
pub(super) fn approvals(places: &Places<'_>, found: &mut Vec<Diagnostic>) {
    for first in &places.compiled.grants {
        let approved: Vec<(usize, &Route)> = first.rules.iter().flat_map(of_approvals).collect();
        if approved.is_empty() {
            continue;
        }
        let others = places.compiled.grants.iter().filter(|second| second.view.name != first.view.name);
        for second in others.filter(|second| share_a_caller(first, second)) {
            for (api, route) in &approved {
                let differs = |other: &Route| {
                    approval(other) != approval(route)
                        && (approval(other).is_none() || other.place < route.place)
                };
                let rules = places.neighbours(*api).into_iter().filter_map(|api| second.rules_of(api));
                let met = rules
                    .into_iter()
                    .find_map(|rules| met(places, (route, *api, first), (rules, second), differs));
                let Some(met) = met else { continue };
                let (message, help) = match approval(met.other) {
                    None => (
                        "one request needs a person's approval by one grant and not by another",
                        "a run that names both would need none: make the routes disjoint, or the callers",
                    ),
                    Some(_) => (
                        "one request needs different people's approval by two grants",
                        "let the same people approve within the same time, or make the routes disjoint, or the callers",
                    ),
                };
                found.push(report(places, Code::AmbiguousRule, route, met, (message, help)));
            }
        }
    }
}

fn approval(route: &Route) -> Option<&Approval> {
    route.terms.as_ref().and_then(|terms| terms.approve.as_ref())
}

fn of_approvals(rules: &ApiRules) -> impl Iterator<Item = (usize, &Route)> {
    let approved = rules.allow.routes.iter().filter(|route| approval(route).is_some());
    approved.map(|route| (rules.api, route))
}

/// Two allow rules for APIs with the same origin and different credentials, in grants that one run can name together.
pub(super) fn credentials(places: &Places<'_>, found: &mut Vec<Diagnostic>) {
    let credential = |api: usize| places.compiled.apis.get(api).and_then(|api| api.view.credential.as_ref());
    for one in 0..places.compiled.apis.len() {
        for other in places.neighbours(one).into_iter().filter(|other| *other > one) {
            if credential(one) != credential(other) {
                of_pair(places, one, other, found);
            }
        }
    }
}

fn of_pair(places: &Places<'_>, one: usize, other: usize, found: &mut Vec<Diagnostic>) {
    let apis = &places.compiled.apis;
    let credential = |api: usize| match apis.get(api).and_then(|api| api.view.credential.as_ref()) {
        Some(name) => format!("credential `{name}`"),
        None => "no credential".to_owned(),
    };
    for first in &places.compiled.grants {
        let Some(rules) = first.rules_of(one) else { continue };
        for second in places.compiled.grants.iter().filter(|second| share_a_caller(first, second)) {
            let Some(others) = second.rules_of(other) else { continue };
            for route in &rules.allow.routes {
                let Some(met) = met(places, (route, one, first), (others, second), |_| true) else {
                    continue;
                };
                let message = format!(
                    "one request could be sent with {} or with {}",
                    credential(one),
                    credential(other)
                );
                let help = "make the routes disjoint, or use one credential for both APIs";
                found.push(report(places, Code::AmbiguousCredential, route, met, (&message, help)));
            }
        }
    }
}

fn excludes(one: &Route, other: &Route) -> bool {
    one.terms.as_ref().zip(other.terms.as_ref()).is_some_and(|(one, other)| one.excludes(other))
}

fn share_a_caller(one: &Grant, other: &Grant) -> bool {
    let all = |grant: &Grant| grant.callers.iter().any(|caller| **caller == *"*");
    all(one) || all(other) || one.callers.iter().any(|caller| other.callers.contains(caller))
}
