//! Grants by name: callers that gain or lose one, then rules, credentials and bounds for the callers that keep it.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use super::confirm::{Asked, Run};
use super::rules::{self, By, Found, Opened, Side};
use super::{Change, Direction, Kind, Risk, attributes, bounds, together};
use crate::compiled::{Grant, Route};
use crate::explain::RuleView;
use crate::model::ApiView;
use crate::route::PathEnd;
use crate::{Host, Policy, canonical};

const EVERYBODY: &str = "*";

/// One grant in both policies.
#[derive(Clone, Copy)]
pub(super) struct Pair<'p> {
    pub(super) policies: (&'p Policy, &'p Policy),
    pub(super) name: &'p Arc<str>,
    pub(super) old: Option<&'p Grant>,
    pub(super) new: Option<&'p Grant>,
}

pub(super) fn compare(old: &Policy, new: &Policy) -> Vec<Change> {
    let pairs = pairs(old, new);
    let mut changes = Vec::new();
    for pair in &pairs {
        if pair.is_same() {
            continue;
        }
        pair.callers_changed(&mut changes);
        if !pair.kept_callers().is_empty() {
            pair.rules_changed(&mut changes);
            attributes::of_requests(pair, &mut changes);
            bounds::of_grant(pair, &mut changes);
        }
    }
    together::compare(&pairs, &mut changes);
    changes
}

fn pairs<'p>(old: &'p Policy, new: &'p Policy) -> Vec<Pair<'p>> {
    let names: BTreeSet<&Arc<str>> =
        [old, new].into_iter().flat_map(|policy| &policy.compiled.grants).map(rules::name).collect();
    let pair = |name: &'p Arc<str>| Pair {
        policies: (old, new),
        name,
        old: grant(old, name),
        new: grant(new, name),
    };
    names.into_iter().map(pair).collect()
}

fn grant<'p>(policy: &'p Policy, name: &str) -> Option<&'p Grant> {
    policy.compiled.grants.get(*policy.compiled.grant_names.get(name)?)
}

/// Everything that a grant means, as text: equal texts are equal grants.
fn meaning(policy: &Policy, grant: &Grant) -> Vec<String> {
    let mut lines = vec![format!("{:?} {:?}", grant.callers, grant.view)];
    for rules in &grant.rules {
        let Some(api) = policy.compiled.apis.get(rules.api) else { continue };
        let credential = api.view.credential.as_ref().and_then(|name| policy.compiled.credentials.get(name));
        let ApiView {
            name: _,
            origins,
            ca_file,
            pin_sha256,
            addresses,
            traffic,
            alias,
            hidden,
            credential: _,
            per_minute,
            health_check,
            placeholder,
        } = &api.view;
        lines.push(format!(
            "{origins:?} {ca_file:?} {pin_sha256:?} {addresses:?} {traffic:?} {alias:?} {hidden}"
        ));
        lines.push(format!("{per_minute:?} {health_check:?} {placeholder:?}"));
        lines.push(format!("{:?}", credential.map(canonical::credential)));
        for (word, routes) in [("allow", &rules.allow.routes), ("deny", &rules.deny.routes)] {
            lines.extend(routes.iter().map(|route| {
                format!(
                    "{word} {:?}",
                    (rules::key(route), &route.terms.as_ref().map(|terms| terms.canonical()))
                )
            }));
        }
    }
    lines
}

impl<'p> Pair<'p> {
    fn is_same(&self) -> bool {
        let (old, new) = self.policies;
        self.old.zip(self.new).is_some_and(|(one, other)| meaning(old, one) == meaning(new, other))
    }

    fn sides(&self, host: &Host, port: u16) -> (Side<'p>, Side<'p>) {
        let (old, new) = self.policies;
        (Side::of(old, self.old, host, port), Side::of(new, self.new, host, port))
    }

    /// Both sides of every host that either grant allows something at.
    pub(super) fn hosts(&self) -> Vec<(Host, u16, Side<'p>, Side<'p>)> {
        let (old, new) = self.policies;
        let mut hosts = rules::hosts(old, self.old);
        for (host, allows) in rules::hosts(new, self.new) {
            *hosts.entry(host).or_insert(false) |= allows;
        }
        let allowing = hosts.into_iter().filter(|(_, allows)| *allows);
        allowing
            .map(|((host, port), _)| {
                let (before, after) = self.sides(&host, port);
                (host, port, before, after)
            })
            .collect()
    }

    /// Callers that may use the grant before and after.
    pub(super) fn kept_callers(&self) -> Vec<Arc<str>> {
        self.callers_where(|old, new| old && new)
    }

    fn callers_where(&self, wanted: impl Fn(bool, bool) -> bool) -> Vec<Arc<str>> {
        let of = |grant: Option<&'p Grant>| grant.map(|grant| grant.callers.as_slice()).unwrap_or_default();
        let (old, new) = (of(self.old), of(self.new));
        let may =
            |callers: &[Arc<str>], caller: &str| callers.iter().any(|c| **c == *caller || **c == *EVERYBODY);
        let all: BTreeSet<&Arc<str>> = old.iter().chain(new).collect();
        let wanted = all.into_iter().filter(|caller| {
            let plain = |callers: &[Arc<str>]| callers.contains(caller);
            if ***caller == *EVERYBODY {
                wanted(plain(old), plain(new))
            } else {
                wanted(may(old, caller), may(new, caller))
            }
        });
        wanted.cloned().collect()
    }

    /// A caller to ask as: for `*` one that nobody names.
    pub(super) fn representative(&self, callers: &[Arc<str>]) -> Arc<str> {
        match callers.iter().find(|caller| ***caller != *EVERYBODY) {
            Some(caller) => Arc::clone(caller),
            None => {
                let named = |name: &str| {
                    let grants = [self.old, self.new];
                    grants
                        .into_iter()
                        .flatten()
                        .any(|grant| grant.callers.iter().any(|caller| **caller == *name))
                };
                let mut names = (0_u32..).map(|number| {
                    if number == 0 { "any-caller".to_owned() } else { format!("any-caller-{number}") }
                });
                names.find(|name| !named(name)).unwrap_or_default().into()
            }
        }
    }

    fn callers_changed(&self, changes: &mut Vec<Change>) {
        let gained = self.callers_where(|old, new| !old && new);
        let lost = self.callers_where(|old, new| old && !new);
        for (callers, kind, grant, other) in
            [(gained, Kind::Allowed, self.new, self.old), (lost, Kind::Refused, self.old, self.new)]
        {
            if callers.is_empty() {
                continue;
            }
            let mut private = false;
            let all = self.hosts().into_iter().filter_map(|(host, port, old, new)| {
                let side = if kind == Kind::Allowed { &new } else { &old };
                private |= side.has_private_addresses();
                rules::any(side).map(|found| (host, port, found))
            });
            let best = all.min_by_key(|(host, _, found)| length(found).saturating_add(host.as_str().len()));
            let routes: Vec<&Route> = grant.into_iter().flat_map(allow_routes).collect();
            let what = match (kind, other) {
                (Kind::Allowed, None) => "the grant is new",
                (Kind::Allowed, Some(_)) => "callers are added",
                (_, None) => "the grant is gone",
                (_, Some(_)) => "callers are taken away",
            };
            // A grant that allows nothing by itself may still be named by runs.
            let Some((host, port, found)) = best else {
                let what = format!("{what}; it allows nothing by itself");
                changes.push(self.change(kind, &callers, &what, &routes));
                continue;
            };
            let mut change = self.change(kind, &callers, what, &routes);
            if kind == Kind::Allowed && other.is_none() {
                change.risks.push(Risk::NewHost);
            }
            if private {
                change.risks.push(Risk::PrivateAddresses);
            }
            self.show(&mut change, &[self.name], &host, port, &found);
            changes.push(change);
        }
    }

    fn rules_changed(&self, changes: &mut Vec<Change>) {
        let callers = self.kept_callers();
        for (host, port, old, new) in self.hosts() {
            for (kind, from, to) in [(Kind::Allowed, &old, &new), (Kind::Refused, &new, &old)] {
                for opened in rules::opened(from, to) {
                    let change = self.opened(kind, &callers, (&host, port), (from, to), &opened);
                    // Conditions of which neither side takes all that the other takes are told once, as wider.
                    let told = change.kind == Kind::Condition
                        && change.direction == Direction::Narrower
                        && changes.iter().any(|known| {
                            (known.kind, &known.grant) == (Kind::Condition, &change.grant)
                                && (&known.before, &known.after) == (&change.before, &change.after)
                        });
                    if !told {
                        add(changes, change);
                    }
                }
            }
        }
    }

    fn opened(
        &self,
        kind: Kind,
        callers: &[Arc<str>],
        (host, port): (&Host, u16),
        (from, to): (&Side<'_>, &Side<'_>),
        opened: &Opened<'_>,
    ) -> Change {
        let mut kind = kind;
        let direction = if kind == Kind::Refused { Direction::Narrower } else { Direction::Wider };
        if let By::Conditions { .. } = &opened.by {
            kind = Kind::Condition;
        }
        let (what, routes) = match (&opened.by, kind) {
            (By::Conditions { to, .. }, _) => ("a rule has other conditions", vec![*to]),
            (By::Allow(route), Kind::Allowed) => ("a rule is added or wider", vec![*route]),
            (By::Allow(route), _) => ("a rule is taken away or narrower", vec![*route]),
            (By::Deny(deny, rules), Kind::Allowed) => {
                ("a deny rule is taken away or narrower", [&[*deny], rules.as_slice()].concat())
            }
            (By::Deny(deny, rules), _) => {
                ("a deny rule is added or wider", [&[*deny], rules.as_slice()].concat())
            }
        };
        let mut change = self.change(kind, callers, what, &routes);
        change.direction = direction;
        if let By::Conditions { from, to } = &opened.by {
            let (from, to) = (terms(from), terms(to));
            let (before, after) = if direction == Direction::Wider { (from, to) } else { (to, from) };
            change.before = Some(before);
            change.after = Some(after);
        }
        if let By::Deny(deny, rules) = &opened.by {
            // What a deny rule lets through is what it denied and an allow rule allows.
            let writes = rules.iter().any(|route| writes(route)) && writes(deny);
            change.risks.retain(|risk| *risk != Risk::Writes || writes);
        }
        if from.allow.is_empty() && kind == Kind::Allowed {
            change.risks.push(Risk::NewHost);
        }
        if to.has_private_addresses() {
            change.risks.push(Risk::PrivateAddresses);
        }
        let expected = match (&opened.by, direction) {
            (By::Conditions { .. }, Direction::Wider) => (false, true),
            (By::Conditions { .. }, Direction::Narrower) => (true, false),
            _ => expected(kind),
        };
        self.show_as(&mut change, &[self.name], (host, port), &opened.found, expected);
        change
    }

    /// A change without its request.
    pub(super) fn change(&self, kind: Kind, callers: &[Arc<str>], what: &str, routes: &[&Route]) -> Change {
        let mut risks = Vec::new();
        if routes.iter().any(|route| writes(route)) {
            risks.push(Risk::Writes);
        }
        if callers.iter().any(|caller| **caller == *EVERYBODY) {
            risks.push(Risk::EveryCaller);
        }
        if routes.iter().any(|route| route.line.path.end == PathEnd::Rest) {
            risks.push(Risk::AnyPath);
        }
        Change {
            kind,
            direction: if kind == Kind::Refused { Direction::Narrower } else { Direction::Wider },
            grant: Arc::clone(self.name),
            with: None,
            callers: callers.to_vec(),
            what: what.to_owned(),
            rules: routes.iter().map(|route| RuleView::from(*route)).collect(),
            before: None,
            after: None,
            witness: None,
            conditional: false,
            undecided: false,
            risks,
        }
    }

    /// Asks both policies about what was found, and puts it into the change.
    pub(super) fn show(
        &self,
        change: &mut Change,
        grants: &[&Arc<str>],
        host: &Host,
        port: u16,
        found: &Found,
    ) {
        self.show_as(change, grants, (host, port), found, expected(change.kind));
    }

    /// The same with the answers that show the change. What the evaluator does not confirm is marked.
    fn show_as(
        &self,
        change: &mut Change,
        grants: &[&Arc<str>],
        (host, port): (&Host, u16),
        found: &Found,
        expected: (bool, bool),
    ) {
        change.risks.sort_unstable();
        change.risks.dedup();
        let (request, conditional) = match found {
            Found::Request(request) => (request, false),
            Found::Conditional(request) => (request, true),
            Found::Undecided => {
                change.undecided = true;
                change.direction = Direction::Wider;
                return;
            }
        };
        let caller = self.representative(&change.callers);
        let run = Run { caller: &caller, grants, tier: None };
        let confirms = |asked: &Asked| {
            (asked.old.allowed, asked.new.allowed) == expected
                && !asked.old.conditional
                && !asked.new.conditional
        };
        let asked = run.ask(self.policies, host, port, request, None);
        let confirmed = confirms(&asked);
        // What conditions decide is shown with a path, fields and a body that do it, where some are found.
        let shown = (conditional && !confirmed).then(|| {
            run.like(self.policies, host, port, request).iter().find_map(|request| {
                let samples = run.samples(self.policies, host, port, request);
                let mut asked =
                    samples.iter().map(|sample| run.ask(self.policies, host, port, request, Some(sample)));
                asked.find(confirms)
            })
        });
        let shown = shown.flatten();
        change.conditional |= conditional && !confirmed && shown.is_none();
        change.undecided |= !confirmed && !conditional;
        change.witness = Some(shown.unwrap_or(asked));
    }
}

/// What the old and the new policy say to a request that shows a change.
const fn expected(kind: Kind) -> (bool, bool) {
    match kind {
        Kind::Allowed => (false, true),
        Kind::Refused => (true, false),
        _ => (true, true),
    }
}

pub(super) fn length(found: &Found) -> usize {
    match found {
        Found::Request(request) | Found::Conditional(request) => request.target.len(),
        Found::Undecided => usize::MAX,
    }
}

/// Adds a change; the same one at another host of its rules is told once, with the shortest request.
pub(super) fn add(changes: &mut Vec<Change>, change: Change) {
    let same = |known: &&mut Change| {
        (known.kind, &known.grant, &known.with, &known.what)
            == (change.kind, &change.grant, &change.with, &change.what)
            && (&known.before, &known.after, &known.rules) == (&change.before, &change.after, &change.rules)
    };
    match changes.iter_mut().find(same) {
        Some(known) => merge(known, change),
        None => changes.push(change),
    }
}

fn merge(known: &mut Change, other: Change) {
    let shorter = |one: &Option<Asked>, other: &Option<Asked>| match (one, other) {
        (Some(one), Some(other)) => other.url.len() < one.url.len(),
        (one, _) => one.is_none(),
    };
    if shorter(&known.witness, &other.witness) {
        known.witness = other.witness;
    }
    known.undecided |= other.undecided;
    known.conditional |= other.conditional;
    known.direction = known.direction.min(other.direction);
    known.risks.extend(other.risks);
    known.risks.sort_unstable();
    known.risks.dedup();
}

/// The conditions of a rule for people.
fn terms(route: &Route) -> String {
    route.terms.as_ref().map_or_else(|| "none".to_owned(), |terms| said(terms.canonical()).to_string())
}

/// What a form says; fields that say nothing are left out.
fn said(form: Value) -> Value {
    let Value::Object(fields) = form else { return form };
    let empty = |value: &Value| {
        matches!(value, Value::Null | Value::Bool(false)) || value.as_array().is_some_and(Vec::is_empty)
    };
    Value::Object(
        fields
            .into_iter()
            .filter(|(_, value)| !empty(value))
            .map(|(name, value)| (name, said(value)))
            .collect(),
    )
}

pub(super) fn allow_routes(grant: &Grant) -> impl Iterator<Item = &Route> {
    grant.rules.iter().flat_map(|rules| &rules.allow.routes)
}

/// Whether a rule has methods that change something.
pub(super) fn writes(route: &Route) -> bool {
    route.line.methods.change_something()
}
