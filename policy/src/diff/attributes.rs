//! What changes for requests that stay allowed: credential, approval, what a rule demands beside, destination, addresses,
//! trust, rates.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use super::grants::{self, Pair};
use super::rules::{self, Allow, Found, Side};
use super::{Change, Direction, Kind, Risk};
use crate::compiled::Route;
use crate::condition::Terms;
use crate::limits::INSPECT_BYTES_DEFAULT;
use crate::model::{ApiView, Approval, PlaceholderView};
use crate::{Host, Policy, canonical};

/// One thing that goes with a request, comparable and for people.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Attribute {
    /// By what it is about. Empty for nothing.
    parts: BTreeMap<&'static str, Part>,
    shown: String,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    AtMost(u64),
    OneOf(BTreeSet<String>),
}

impl Part {
    fn one(text: impl Into<String>) -> Self {
        Self::OneOf(BTreeSet::from([text.into()]))
    }

    fn is_within(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::AtMost(one), Self::AtMost(other)) => one <= other,
            (Self::OneOf(one), Self::OneOf(other)) => one.is_subset(other),
            _ => false,
        }
    }
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AtMost(number) => write!(f, "{number}"),
            Self::OneOf(texts) => {
                let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
                f.write_str(&texts.join(", "))
            }
        }
    }
}

const OF_REQUESTS: [Kind; 7] = [
    Kind::Credential,
    Kind::Approval,
    Kind::Condition,
    Kind::Destination,
    Kind::Addresses,
    Kind::Trust,
    Kind::Budget,
];

/// Differences for requests that both grants allow.
pub(super) fn of_requests(pair: &Pair<'_>, changes: &mut Vec<Change>) {
    let callers = pair.kept_callers();
    for (host, port, old, new) in pair.hosts() {
        for kind in OF_REQUESTS {
            let (befores, afters) =
                (values(kind, pair.policies.0, &old), values(kind, pair.policies.1, &new));
            for before in &befores {
                for after in afters.iter().filter(|after| after.parts != before.parts) {
                    let sides = (&old, &new);
                    if let Some(change) = changed(pair, &callers, (&host, port), sides, kind, (before, after))
                    {
                        grants::add(changes, change);
                    }
                }
            }
        }
    }
}

fn values(kind: Kind, policy: &Policy, side: &Side<'_>) -> BTreeSet<Attribute> {
    let of_rules = matches!(kind, Kind::Condition | Kind::Approval);
    let mut apis = BTreeSet::new();
    // All rules of one API share everything but what their own tables say.
    let telling = side.allow.iter().filter(|allow| apis.insert(allow.api) || of_rules);
    telling.map(|allow| attribute(kind, policy, side, allow)).collect()
}

type Parts = BTreeMap<&'static str, Part>;

fn attribute(kind: Kind, policy: &Policy, side: &Side<'_>, allow: &Allow<'_>) -> Attribute {
    let view = policy.compiled.apis.get(allow.api).map(|api| &api.view);
    if kind == Kind::Credential {
        return credential(policy, view);
    }
    let mut parts = Parts::new();
    match kind {
        Kind::Approval => approval(allow.route, &mut parts),
        Kind::Condition => beside(allow.route, &mut parts),
        Kind::Destination => parts.extend(side.origin().map(|origin| ("", Part::one(origin)))),
        _ => view.into_iter().for_each(|view| match kind {
            Kind::Budget => rate(view, &mut parts),
            Kind::Addresses => several("", view.addresses.iter(), &mut parts),
            _ => {
                several("ca_file", view.ca_file.iter(), &mut parts);
                several("pin_sha256", view.pin_sha256.iter(), &mut parts);
            }
        }),
    }
    let shown = |(name, part): (&&str, &Part)| format!("{name} {part}").trim_start().to_owned();
    let texts: Vec<String> = parts.iter().map(shown).collect();
    Attribute { shown: if texts.is_empty() { "none".to_owned() } else { texts.join("; ") }, parts }
}

fn several(name: &'static str, texts: impl Iterator<Item = impl ToString>, parts: &mut Parts) {
    let texts: BTreeSet<String> = texts.map(|text| text.to_string()).collect();
    if !texts.is_empty() {
        parts.insert(name, Part::OneOf(texts));
    }
}

/// What a rule says that does not change which requests it is about; those conditions are compared with the routes.
fn beside(route: &Route, parts: &mut Parts) {
    let Some(terms) = &route.terms else { return };
    // Whoever adds a condition decides here whether it is one of those.
    let Terms {
        headers: _,
        content_type: _,
        body: _,
        grpc: _,
        approve: _,
        response_content_type,
        calls,
        inspect_bytes,
    } = &**terms;
    several("response_content_type", response_content_type.iter(), parts);
    parts.extend(calls.map(|calls| (CALLS, Part::AtMost(calls))));
    parts.extend(inspect_bytes.map(|bytes| (INSPECT_BYTES, Part::AtMost(bytes))));
}

const CALLS: &str = "calls";
const INSPECT_BYTES: &str = "inspect_bytes";
const HEALTH_CHECK: &str = "health_check";

/// Who must say yes to a request of the rule.
fn approval(route: &Route, parts: &mut Parts) {
    let approve = route.terms.as_ref().and_then(|terms| terms.approve.as_ref());
    let Some(Approval { by, timeout_seconds }) = approve else { return };
    parts.insert("approve", Part::one("human"));
    several("by", by.iter(), parts);
    parts.insert("timeout in seconds", Part::AtMost(*timeout_seconds));
}

/// What the API takes of all runs, and what the broker itself asks it.
fn rate(view: &ApiView, parts: &mut Parts) {
    parts.extend(view.per_minute.map(|calls| ("per_minute of all runs", Part::AtMost(calls))));
    let health = view.health_check.as_ref();
    parts.extend(health.map(|check| (HEALTH_CHECK, Part::one(format!("{} {}", check.method, check.path)))));
}

/// By definition, not by name: a renamed credential is the same one. What guests hold in its place belongs to it.
fn credential(policy: &Policy, view: Option<&ApiView>) -> Attribute {
    let name = view.and_then(|view| view.credential.as_ref());
    let found = name.and_then(|name| Some((name, policy.compiled.credentials.get(name)?)));
    match found {
        None => Attribute { parts: Parts::new(), shown: "none".to_owned() },
        Some((name, definition)) => {
            // The form holds references to secrets, never secrets.
            let form = canonical::credential(definition);
            let kind = form.get("kind").and_then(serde_json::Value::as_str).unwrap_or_default().to_owned();
            let mut shown = format!("`{name}` ({kind}) {form}");
            let mut parts = Parts::from([("", Part::one(form.to_string()))]);
            if let Some(PlaceholderView { variable, form }) = view.and_then(|view| view.placeholder.as_ref())
            {
                let held = format!("{variable}={form}");
                // Writing to a String cannot fail.
                let _ = write!(shown, ", placeholder {held}");
                parts.insert("placeholder", Part::one(held));
            }
            Attribute { parts, shown }
        }
    }
}

fn changed(
    pair: &Pair<'_>,
    callers: &[Arc<str>],
    (host, port): (&Host, u16),
    (old, new): (&Side<'_>, &Side<'_>),
    kind: Kind,
    (before, after): (&Attribute, &Attribute),
) -> Option<Change> {
    let has = |policy: &Policy, side: &Side<'_>, allow: &Allow<'_>, wanted: &Attribute| {
        attribute(kind, policy, side, allow).parts == wanted.parts
    };
    let mut best: Option<Found> = None;
    let mut routes: Vec<&Route> = Vec::new();
    for allow in new.allow.iter().filter(|allow| has(pair.policies.1, new, allow, after)) {
        let with_before = |other: &Route| {
            old.allow
                .iter()
                .any(|allow| std::ptr::eq(allow.route, other) && has(pair.policies.0, old, allow, before))
        };
        if let Some(found) = rules::shared(allow.route, new, old, with_before) {
            routes.push(allow.route);
            best = Some(best.map_or(found.clone(), |best| rules::shorter(best, found)));
        }
    }
    let found = best?;
    let mut change = pair.change(kind, callers, "for requests that stay allowed", &routes);
    change.direction = direction(kind, before, after);
    change.before = Some(before.shown.clone());
    change.after = Some(after.shown.clone());
    if kind == Kind::Addresses && !after.parts.is_empty() {
        change.risks.push(Risk::PrivateAddresses);
    }
    if kind == Kind::Destination {
        change.risks.push(Risk::NewHost);
    }
    pair.show(&mut change, &[pair.name], host, port, &found);
    Some(change)
}

/// Wider, unless it is plain that something is only taken away.
fn direction(kind: Kind, before: &Attribute, after: &Attribute) -> Direction {
    let narrower = match kind {
        // What is there is what may be used; what another credential or upstream can do is not known here.
        Kind::Credential | Kind::Destination | Kind::Addresses => is_within(after, before),
        // What is there bounds something.
        _ => {
            let names = before.parts.keys().chain(after.parts.keys());
            names.into_iter().all(|name| {
                let known =
                    |attribute: &Attribute| attribute.parts.get(name).cloned().or_else(|| missing(name));
                match (known(before), known(after)) {
                    (Some(before), Some(after)) => after.is_within(&before),
                    (None, _) => *name != HEALTH_CHECK,
                    (Some(_), None) => false,
                }
            })
        }
    };
    if narrower { Direction::Narrower } else { Direction::Wider }
}

fn is_within(one: &Attribute, other: &Attribute) -> bool {
    let within =
        |(name, part): (&&str, &Part)| other.parts.get(name).is_some_and(|bound| part.is_within(bound));
    one.parts.iter().all(within)
}

/// What holds where nothing is said.
fn missing(name: &str) -> Option<Part> {
    (name == INSPECT_BYTES).then_some(Part::AtMost(INSPECT_BYTES_DEFAULT))
}
