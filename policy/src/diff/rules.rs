//! One grant at one host, before and after: which requests are allowed on one side only.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::automata::{self, Answer, Rule, Witness};
use crate::compiled::trie::Relation;
use crate::compiled::{Compiled, Grant, Route};
use crate::route::compare::{self, Reading};
use crate::{Host, Policy};

/// Allow rules that are looked at for a shorter witness once one is found: a deny rule for everything meets thousands.
const FURTHER_RULES_MAX: usize = 64;

/// What a grant says about one host and port.
pub(super) struct Side<'p> {
    pub(super) allow: Vec<Allow<'p>>,
    pub(super) deny: Vec<&'p Route>,
    compiled: &'p Compiled,
    grant: Option<&'p Grant>,
    site: Option<usize>,
}

/// An allow rule with the API that it is for.
#[derive(Clone, Copy)]
pub(super) struct Allow<'p> {
    pub(super) route: &'p Route,
    pub(super) api: usize,
}

/// Two rules with one key match the same requests: route, websocket, conditions.
pub(super) type Key = (String, bool, Option<String>);

pub(super) fn key(route: &Route) -> Key {
    (route.line.canonical(), route.websocket, about(route))
}

/// What a rule demands beside its route that changes which requests it is about; the rest is compared as attributes.
fn about(route: &Route) -> Option<String> {
    let mut form = route.terms.as_ref().filter(|terms| terms.narrows())?.canonical();
    if let Some(fields) = form.as_object_mut() {
        for beside in ["response_content_type", "calls", "approve", "inspect_bytes"] {
            fields.remove(beside);
        }
    }
    Some(form.to_string())
}

/// Whether the conditions of one allow rule take every request that those of the other take, as far as that is plain.
fn takes_all(one: &Route, other: &Route) -> bool {
    let within = one.terms.as_ref().zip(other.terms.as_ref()).is_some_and(|(one, other)| other.within(one));
    !narrows(one) || within || about(one) == about(other)
}

/// The same of deny rules, which are read widely.
fn denies_all(one: &Route, other: &Route) -> bool {
    !narrows(one) || about(one) == about(other)
}

/// Whether a rule is about some of the requests of its route only.
fn narrows(route: &Route) -> bool {
    route.terms.as_ref().is_some_and(|terms| terms.narrows())
}

impl<'p> Side<'p> {
    pub(super) fn of(policy: &'p Policy, grant: Option<&'p Grant>, host: &Host, port: u16) -> Self {
        let compiled = &policy.compiled;
        let ports = compiled.hosts.get(host);
        let site = ports.and_then(|ports| ports.iter().find(|(of, _)| *of == port)).map(|(_, site)| *site);
        let mut side = Self { allow: Vec::new(), deny: Vec::new(), compiled, grant, site };
        let (Some(grant), Some(found)) = (grant, site.and_then(|site| compiled.sites.get(site))) else {
            return side;
        };
        for &api in &found.allowing {
            let routes = grant.rules_of(api).into_iter().flat_map(|rules| &rules.allow.routes);
            side.allow.extend(routes.map(|route| Allow { route, api }));
        }
        let denying = found.denying.iter().filter_map(|api| grant.rules_of(*api));
        side.deny = denying.flat_map(|rules| &rules.deny.routes).collect();
        side
    }

    /// The origin that requests go to.
    pub(super) fn origin(&self) -> Option<String> {
        let site = self.compiled.sites.get(self.site?)?;
        let traffic = self.compiled.traffic(site);
        Some(traffic.url(&site.origin.host, site.origin.port))
    }

    /// Whether an API that something is allowed of has addresses that are not public.
    pub(super) fn has_private_addresses(&self) -> bool {
        let apis = self.allow.iter().filter_map(|allow| self.compiled.apis.get(allow.api));
        apis.into_iter().any(|api| !api.view.addresses.is_empty())
    }

    pub(super) fn keys(&self) -> BTreeSet<Key> {
        self.allow.iter().map(|allow| key(allow.route)).collect()
    }

    pub(super) fn deny_keys(&self) -> BTreeSet<Key> {
        self.deny.iter().map(|route| key(route)).collect()
    }

    /// Deny rules that the other side does not have.
    pub(super) fn denies_beyond(&self, other: &Self) -> Vec<&'p Route> {
        let known = other.deny_keys();
        self.deny.iter().copied().filter(|deny| !known.contains(&key(deny))).collect()
    }

    /// Allow rules that may have a request in common with an allow rule; one that covers it whole is enough.
    fn allow_near(&self, route: &Route) -> Vec<&'p Route> {
        let near = |relation: Relation| {
            let mut found = Vec::new();
            for rules in self.rules_at(|site| &site.allowing) {
                rules.allow.related(&route.line, relation, |other| {
                    let enough = relation == Relation::Meets || takes_all(other, route);
                    if other.websocket == route.websocket && enough {
                        found.push(other);
                    }
                    relation == Relation::Covers && !found.is_empty()
                });
            }
            found
        };
        let covering = near(Relation::Covers);
        if covering.is_empty() { near(Relation::Meets) } else { covering }
    }

    /// Deny rules that may have a request in common with an allow line.
    pub(super) fn deny_near(&self, route: &Route) -> Vec<&'p Route> {
        let mut found = Vec::new();
        for rules in self.rules_at(|site| &site.denying) {
            rules.deny.related(&route.line, Relation::Meets, |other| {
                found.push(other);
                false
            });
        }
        found
    }

    fn rules_at(
        &self,
        apis: impl Fn(&'p crate::compiled::Site) -> &'p Vec<usize>,
    ) -> impl Iterator<Item = &'p crate::compiled::ApiRules> {
        let site = self.site.and_then(|site| self.compiled.sites.get(site));
        let grant = self.grant;
        site.into_iter().flat_map(apis).filter_map(move |api| grant.and_then(|grant| grant.rules_of(*api)))
    }
}

/// Requests that `to` allows and `from` does not, because of one rule.
pub(super) struct Opened<'p> {
    pub(super) by: By<'p>,
    pub(super) found: Found,
}

/// What opens them.
pub(super) enum By<'p> {
    /// An allow rule that only `to` has.
    Allow(&'p Route),
    /// An allow rule of `to` that has other conditions than the one of `from`.
    Conditions { from: &'p Route, to: &'p Route },
    /// A deny rule that only `from` has, and the allow rules that it stood before.
    Deny(&'p Route, Vec<&'p Route>),
}

/// What a search came to.
#[derive(Clone)]
pub(super) enum Found {
    /// Decided by the head of the request alone.
    Request(Witness),
    /// Decided by what conditions say of fields or a body, which are not searched.
    Conditional(Witness),
    Undecided,
}

/// Everything that `to` allows and `from` does not. Every such request is matched by an allow rule that only `to` has, or
/// by a deny rule that only `from` has; so only those are looked at.
pub(super) fn opened<'p>(from: &Side<'p>, to: &Side<'p>) -> Vec<Opened<'p>> {
    let (known, mut opened) = (from.keys(), Vec::new());
    let gone = from.denies_beyond(to);
    for allow in to.allow.iter().filter(|allow| !known.contains(&key(allow.route))) {
        beyond(allow.route, from, to, &gone, &mut opened);
    }
    for deny in gone {
        let met = to.allow.iter().map(|allow| allow.route).filter(|allow| meets(deny, allow));
        if let Some((found, rules)) = behind(deny, met, |allow| to.deny_near(allow)) {
            opened.push(Opened { by: By::Deny(deny, rules), found });
        }
    }
    opened
}

fn meets(deny: &Route, allow: &Route) -> bool {
    compare::meets(&deny.line, &allow.line, Reading::Deny)
}

/// Requests of an allow rule of `to` that `from` refuses: by no rule of the route, and by conditions.
fn beyond<'p>(
    allow: &'p Route,
    from: &Side<'p>,
    to: &Side<'p>,
    gone: &[&Route],
    opened: &mut Vec<Opened<'p>>,
) {
    let near = from.allow_near(allow);
    let gone: Vec<&Route> = gone.iter().copied().filter(|deny| meets(deny, allow)).collect();
    let mut others: Vec<Rule<'_>> = gone.iter().map(|route| Rule::deny(&route.line)).collect();
    others.extend(near.iter().map(|route| as_allow(route)));
    // A deny rule that both sides have refuses on both; only one that is gone makes a difference.
    let was = |hits: &[bool], wanted: &dyn Fn(&Route) -> bool| {
        let (denied, allowed) = hits.split_at_checked(gone.len()).unwrap_or_default();
        !denied.contains(&true) && allowed.iter().zip(&near).any(|(hit, route)| *hit && wanted(route))
    };
    let denies = to.deny_near(allow);
    if let Some(found) = ask(allow, &denies, |deny| !narrows(deny), &others, |hits| !was(hits, &|_| true)) {
        opened.push(Opened { by: By::Allow(allow), found });
    }
    let covers = |route: &Route| takes_all(route, allow);
    if near.iter().all(|route| covers(route)) {
        return;
    }
    let by_conditions = |hits: &[bool]| was(hits, &|_| true) && !was(hits, &covers);
    if let Some(found) = ask(allow, &denies, |deny| !narrows(deny), &others, by_conditions) {
        let hit = |route: &&&Route| match &found {
            Found::Request(request) | Found::Conditional(request) => as_allow(route).matches(request),
            Found::Undecided => true,
        };
        if let Some(from) = near.iter().find(hit) {
            let found = match found {
                Found::Request(request) => Found::Conditional(request),
                found => found,
            };
            opened.push(Opened { by: By::Conditions { from, to: allow }, found });
        }
    }
}

/// The shortest request that a deny rule refuses, some allow rule allows and no deny rule that is left refuses; with the
/// allow rules that have such requests.
pub(super) fn behind<'p>(
    deny: &Route,
    allow: impl Iterator<Item = &'p Route>,
    denies: impl Fn(&Route) -> Vec<&'p Route>,
) -> Option<(Found, Vec<&'p Route>)> {
    let (mut best, mut rules): (Option<Found>, Vec<&Route>) = (None, Vec::new());
    let mut further = 0;
    for route in allow {
        further += usize::from(best.is_some());
        if further > FURTHER_RULES_MAX {
            break;
        }
        let sure = |left: &Route| denies_all(left, deny);
        let gone = [Rule::deny(&deny.line)];
        let found = ask(route, &denies(route), sure, &gone, |hits| matches!(hits, [true]));
        let Some(mut found) = found else { continue };
        if let (Found::Request(request), true) = (&found, narrows(deny)) {
            found = Found::Conditional(request.clone());
        }
        rules.push(route);
        best = Some(match best {
            Some(best) => shorter(best, found),
            None => found,
        });
    }
    best.map(|best| (best, rules))
}

/// The shortest request that both sides allow.
pub(super) fn kept(old: &Side<'_>, new: &Side<'_>) -> Option<Found> {
    let all = old.allow.iter().filter_map(|allow| shared(allow.route, old, new, |_| true));
    all.take(FURTHER_RULES_MAX).reduce(shorter)
}

/// The shortest request of an allow rule of `one` that `other` allows too, by a rule that `wanted` takes.
pub(super) fn shared(
    allow: &Route,
    one: &Side<'_>,
    other: &Side<'_>,
    wanted: impl Fn(&Route) -> bool,
) -> Option<Found> {
    let met: Vec<&Route> = other
        .allow
        .iter()
        .map(|allow| allow.route)
        .filter(|met| {
            met.websocket == allow.websocket
                && wanted(met)
                && compare::meets(&met.line, &allow.line, Reading::Allow)
        })
        .collect();
    if met.is_empty() {
        return None;
    }
    let denies: Vec<&Route> = one.deny_near(allow).into_iter().chain(other.deny_near(allow)).collect();
    let others: Vec<Rule<'_>> = met.iter().map(|route| as_allow(route)).collect();
    let found = ask(allow, &denies, |deny| !narrows(deny), &others, |hits| hits.contains(&true))?;
    match found {
        Found::Request(request) if met.iter().any(|route| narrows(route)) => {
            Some(Found::Conditional(request))
        }
        found => Some(found),
    }
}

/// The shortest request that one side allows.
pub(super) fn any(side: &Side<'_>) -> Option<Found> {
    let answers = side.allow.iter().filter_map(|allow| {
        ask(allow.route, &side.deny_near(allow.route), |deny| !narrows(deny), &[], |_| true)
    });
    answers.take(FURTHER_RULES_MAX).reduce(shorter)
}

/// The shortest request of an allow rule that no deny rule touches and for which `wanted` holds; where there is none, one
/// that no `sure` deny rule touches. `wanted` gets one flag for each of `others`.
fn ask(
    allow: &Route,
    denies: &[&Route],
    sure: impl Fn(&Route) -> bool,
    others: &[Rule<'_>],
    wanted: impl Fn(&[bool]) -> bool,
) -> Option<Found> {
    let mut rules = vec![as_allow(allow)];
    rules.extend(denies.iter().map(|route| Rule::deny(&route.line)));
    rules.extend(others.iter().copied());
    let search = |counts: &dyn Fn(&Route) -> bool| {
        automata::search(&rules, 0, |hits| {
            let (denied, others) =
                hits.get(1..).and_then(|hits| hits.split_at_checked(denies.len())).unwrap_or_default();
            !denied.iter().zip(denies).any(|(hit, deny)| *hit && counts(deny)) && wanted(others)
        })
    };
    let plain = !narrows(allow);
    match search(&|_| true) {
        Answer::Witness(request) if plain => return Some(Found::Request(request)),
        Answer::Witness(request) => return Some(Found::Conditional(request)),
        Answer::Undecided => return Some(Found::Undecided),
        Answer::None if denies.iter().all(|deny| sure(deny)) => return None,
        Answer::None => {}
    }
    match search(&|deny| sure(deny)) {
        Answer::Witness(request) => Some(Found::Conditional(request)),
        Answer::Undecided => Some(Found::Undecided),
        Answer::None => None,
    }
}

fn as_allow(route: &Route) -> Rule<'_> {
    Rule::allow(&route.line, route.websocket)
}

/// The shorter one; one that is plain before one that depends on conditions.
pub(super) fn shorter(one: Found, other: Found) -> Found {
    let rank = |found: &Found| match found {
        Found::Request(request) => (0, request.target.len()),
        Found::Conditional(request) => (1, request.target.len()),
        Found::Undecided => (2, 0),
    };
    if rank(&other) < rank(&one) { other } else { one }
}

/// Hosts and ports that a grant's rules name: where something is allowed, and where something is denied.
pub(super) fn hosts(policy: &Policy, grant: Option<&Grant>) -> BTreeMap<(Host, u16), bool> {
    let mut hosts = BTreeMap::new();
    for rules in grant.into_iter().flat_map(|grant| &grant.rules) {
        let Some(api) = policy.compiled.apis.get(rules.api) else { continue };
        for origin in &api.origins {
            let named = (!api.view.hidden).then_some(&origin.host);
            for host in named.into_iter().chain(&api.view.alias) {
                *hosts.entry((host.clone(), origin.port)).or_insert(false) |= !rules.allow.is_empty();
            }
        }
    }
    hosts
}

pub(super) fn name(grant: &Grant) -> &Arc<str> {
    &grant.view.name
}
