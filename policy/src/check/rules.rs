//! Rules of one grant against each other: repeated, covered, dead, idle, too wide. Decided on all requests (`automata`), not by
//! the look of the rules: a rule that several others cover together adds nothing either.

use std::collections::HashSet;

use super::places::{Places, allow, beside, narrows};
use crate::automata::{self, Answer, Rule};
use crate::compiled::trie::{Relation, Trie};
use crate::compiled::{Api, ApiRules, Grant, Route};
use crate::condition;
use crate::diagnostic::{Code, Diagnostic};
use crate::draft::Effect;
use crate::route::PathEnd;

/// Rules of one grant that say what others say already, or that can never match.
pub(super) fn of_grant<'p>(places: &Places<'p>, grant: &'p Grant, found: &mut Vec<Diagnostic>) {
    for rules in &grant.rules {
        let site = places.first(rules.api);
        redundant(places, site, grant, (&rules.allow, Some(&rules.deny)), found);
        redundant(places, site, grant, (&rules.deny, None), found);
        found.extend(rules.allow.routes.iter().filter_map(|route| dead(places, grant, rules, route)));
        if let Some(api) = places.compiled.apis.get(rules.api) {
            found.extend(rules.allow.routes.iter().filter_map(|route| too_wide(api, route)));
        }
    }
}

/// Rules of one kind for one API; of allow rules with the deny rules that refuse some of their requests anyway.
type Rules<'r> = (&'r Trie, Option<&'r Trie>);

/// Of rules with the same meaning the later one is reported, of a rule and others that cover it the covered one. All that
/// are reported can go at once: what covers them stays. A rule that the grant inherits is looked at where it is written:
/// the grant that extends may say more.
fn redundant(
    places: &Places<'_>,
    site: Option<usize>,
    grant: &Grant,
    (trie, denies): Rules<'_>,
    found: &mut Vec<Diagnostic>,
) {
    let mut order: Vec<&Route> = trie.routes.iter().collect();
    order.sort_by(|one, other| other.place.cmp(&one.place));
    let mut gone = HashSet::new();
    for route in order {
        let stays = |other: &Route| other.id != route.id && !gone.contains(&other.id);
        if let Some(problem) = covered(places, site, (trie, denies), route, stays) {
            let inherited = !grant.wrote(route);
            if !inherited || problem.code != Code::ShadowedRule {
                found.push(problem);
            }
            gone.insert(&route.id);
        }
    }
}

fn covered(
    places: &Places<'_>,
    site: Option<usize>,
    (trie, denies): Rules<'_>,
    route: &Route,
    stays: impl Fn(&Route) -> bool,
) -> Option<Diagnostic> {
    let effect = if denies.is_some() { Effect::Allow } else { Effect::Deny };
    let (terms, websocket) = (route.terms.as_ref(), route.websocket);
    // Allow rules that demand different things are ambiguous, which is another problem.
    let takes_all = |other: &Route| match effect {
        Effect::Allow => other.websocket == websocket && condition::same(other.terms.as_ref(), terms),
        Effect::Deny => condition::covers(other.terms.as_ref(), terms),
    };
    let mut near: Vec<&Route> = Vec::new();
    trie.related(&route.line, Relation::Meets, |other| {
        if takes_all(other) && stays(other) {
            near.push(other);
        }
        false
    });
    if near.is_empty() {
        return None;
    }
    if let Some(other) = near.iter().find(|other| same(other, route)) {
        let message = format!("`{}` is there twice", route.line.written);
        let problem = Diagnostic::error(Code::DuplicateRule, message).at(route.place.clone());
        return Some(problem.related(other.place.clone(), "first here").help("remove one of the two"));
    }
    let rule = |route| as_rule(effect, route);
    let refused = denies.map(|denies| denying(denies, route)).unwrap_or_default();
    let by = |others: &[&Route]| {
        let others = others.iter().map(|other| as_rule(effect, other));
        let others: Vec<Rule<'_>> = others.chain(refused.iter().map(|deny| Rule::deny(&deny.line))).collect();
        automata::uncovered(rule(route), &others) == Answer::None
    };
    if !by(&near) {
        return None;
    }
    // The fewest of them that are easily found: each is left out where the rest is enough.
    near.sort_by(|one, other| one.place.cmp(&other.place));
    for other in near.clone() {
        let rest: Vec<&Route> = near.iter().copied().filter(|one| !std::ptr::eq(*one, other)).collect();
        if by(&rest) {
            near = rest;
        }
    }
    // Where deny rules alone are enough, the rule is dead.
    let first = *near.first()?;
    let words = if near.len() == 1 { "another rule covers it" } else { "other rules cover it together" };
    let message = format!("`{}` adds nothing: {words}", route.line.written);
    let problem = Diagnostic::error(Code::ShadowedRule, message).at(route.place.clone());
    let problem = beside(problem, near.iter().map(|other| &other.place), "covered by");
    let help = "remove it, or narrow what covers it if that is what is meant";
    Some(places.show(problem.help(help), site, automata::overlap(rule(route), rule(first))))
}

/// Deny rules without conditions that may meet a route.
fn denying<'r>(denies: &'r Trie, route: &Route) -> Vec<&'r Route> {
    let mut found = Vec::new();
    denies.related(&route.line, Relation::Meets, |deny| {
        if !narrows(deny) {
            found.push(deny);
        }
        false
    });
    found
}

fn as_rule(effect: Effect, route: &Route) -> Rule<'_> {
    match effect {
        Effect::Allow => allow(route),
        Effect::Deny => Rule::deny(&route.line),
    }
}

fn same(one: &Route, other: &Route) -> bool {
    one.line.canonical() == other.line.canonical()
        && condition::same(one.terms.as_ref(), other.terms.as_ref())
}

/// An allow rule all of whose requests deny rules refuse, wherever its API answers.
fn dead<'p>(places: &Places<'p>, grant: &'p Grant, rules: &ApiRules, route: &Route) -> Option<Diagnostic> {
    let mut covering: Vec<&Route> = Vec::new();
    for site in places.of(rules.api) {
        let denies = places.denies(*site, &[grant], route);
        let by: Vec<Rule<'_>> = denies.iter().map(|deny| Rule::deny(&deny.line)).collect();
        if by.is_empty() || automata::uncovered(allow(route), &by) != Answer::None {
            return None;
        }
        let new = denies.into_iter().filter(|deny| !covering.iter().any(|known| std::ptr::eq(*known, *deny)));
        covering.extend(new.collect::<Vec<_>>());
    }
    covering.sort_by(|one, other| one.place.cmp(&other.place));
    let asked = covering.iter().map(|deny| automata::overlap(allow(route), Rule::deny(&deny.line)));
    let answer = asked.into_iter().find(|answer| *answer != Answer::None)?;
    let words = if covering.len() == 1 { "a deny rule covers it" } else { "deny rules cover it together" };
    let message = format!("`{}` can never match: {words}", route.line.written);
    let help = "deny wins over allow, whatever the order; remove one of the two, or narrow the deny rule";
    let problem = Diagnostic::error(Code::UnreachableRule, message).at(route.place.clone()).help(help);
    let problem = beside(problem, covering.iter().map(|deny| &deny.place), "denied here");
    Some(places.show(problem, places.first(rules.api), answer))
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

/// Deny rules that no allow rule of their grant meets.
pub(super) fn idle_denies(places: &Places<'_>, grant: &Grant, found: &mut Vec<Diagnostic>) {
    for rules in grant.rules.iter().filter(|rules| !rules.deny.is_empty()) {
        let Some(api) = places.compiled.apis.get(rules.api) else { continue };
        // Deny rules hold for every API of the grant on the same origin.
        let reached = grant.rules.iter().filter(|other| {
            let other = places.compiled.apis.get(other.api);
            other.is_some_and(|other| other.origins.iter().any(|origin| api.origins.contains(origin)))
        });
        let mut met = HashSet::new();
        for route in reached.flat_map(|other| &other.allow.routes) {
            rules.deny.related(&route.line, Relation::Meets, |deny| {
                if !met.contains(&deny.id)
                    && automata::overlap(allow(route), Rule::deny(&deny.line)) != Answer::None
                {
                    met.insert(&deny.id);
                }
                false
            });
        }
        for deny in rules.deny.routes.iter().filter(|deny| !met.contains(&deny.id)) {
            let message = format!("`{}` denies what no rule of the grant allows", deny.line.written);
            let help = "it takes effect only in runs that name another grant beside this one";
            let problem = Diagnostic::warning(Code::IdleDeny, message).at(deny.place.clone()).help(help);
            let answer = automata::search(&[Rule::deny(&deny.line)], 0, |_| true);
            found.push(places.show(problem, places.first(rules.api), answer));
        }
    }
}
