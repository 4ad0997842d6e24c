//! A comparison of two policies misses nothing that the evaluator shows, and shows nothing that the evaluator denies.

use freeboard_policy::diff::{Change, Diff, Direction, Kind, Verdict};
use freeboard_policy::{
    Decision, DestinationQuestion, Host, NoFields, Policy, RequestQuestion, ScopeQuestion, SourceFile,
    Target, Tier,
};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::{load, one, request, route};

/// Two hosts of one API, one of another with a credential, an alias.
const APIS: &str = r#"
[credential.k]
kind = "bearer"
token = { file = "/k" }

[api.a]
origins = ["https://a.test", "https://b.test:8443"]

[api.c]
origins = ["https://c.test"]
alias = "c.internal"
credential = "k"
"#;

/// APIs as another version of the folder may have them.
fn apis() -> impl Strategy<Value = String> {
    let change = select(vec![
        ("", ""),
        ("", ""),
        ("", ""),
        ("credential = \"k\"", ""),
        ("file = \"/k\"", "file = \"/other\""),
        ("alias = \"c.internal\"", "alias = \"c.internal\"\nhidden = true"),
        ("\"https://c.test\"", "\"https://d.test\""),
        (", \"https://b.test:8443\"", ""),
        ("alias = \"c.internal\"", "alias = \"c.internal\"\naddresses = [\"10.0.0.0/8\"]"),
    ]);
    change.prop_map(|(from, to)| if from.is_empty() { APIS.to_owned() } else { APIS.replace(from, to) })
}

#[derive(Debug, Clone)]
struct Rule {
    allow: bool,
    websocket: bool,
    api: &'static str,
    route: String,
}

#[derive(Debug, Clone)]
struct Grant {
    callers: Vec<&'static str>,
    floor: Option<&'static str>,
    rules: Vec<Rule>,
}

fn rule() -> impl Strategy<Value = Rule> {
    (prop::bool::weighted(0.7), prop::bool::weighted(0.1), select(vec!["a", "a", "c"]), route())
        .prop_map(|(allow, websocket, api, route)| Rule { allow, websocket: websocket && allow, api, route })
}

fn grant() -> impl Strategy<Value = Grant> {
    let callers = subsequence(vec!["x", "y", "*"], 1..=2);
    (
        callers,
        select(vec![None, None, Some("container"), Some("kernel")]),
        prop::collection::vec(rule(), 1..5),
    )
        .prop_map(|(callers, floor, rules)| Grant { callers, floor, rules })
}

/// What may become of a grant: it stays, or something of it changes.
fn changed(before: Grant, other: Grant, keep: Vec<bool>, how: usize) -> Option<Grant> {
    let mut after = before;
    match how {
        0 => {}
        1 => return None,
        2 => after.callers = other.callers,
        3 => after.floor = other.floor,
        _ => {
            let mut keep = keep.into_iter().cycle();
            after.rules.retain(|_| keep.next().unwrap_or(true));
            after.rules.extend(other.rules.into_iter().take(how % 3));
        }
    }
    Some(after)
}

fn text(apis: &str, grants: &[(&str, Option<Grant>)]) -> String {
    let mut text = apis.to_owned();
    for (name, grant) in grants {
        let Some(grant) = grant else { continue };
        text.push_str(&format!("[grant.{name}]\ncallers = {:?}\n", grant.callers));
        if let Some(floor) = grant.floor {
            text.push_str(&format!("floor = \"{floor}\"\n"));
        }
        for rule in &grant.rules {
            let word = if rule.allow { "allow" } else { "deny" };
            let websocket = if rule.websocket { "websocket = true\n" } else { "" };
            text.push_str(&format!(
                "[[grant.{name}.{word}]]\napi = \"{}\"\n{websocket}routes = ['{}']\n",
                rule.api, rule.route
            ));
        }
    }
    text
}

fn versions() -> impl Strategy<Value = (String, String)> {
    let one = || (grant(), grant(), prop::collection::vec(any::<bool>(), 4), 0..9_usize);
    (apis(), apis(), one(), one(), prop::bool::weighted(0.6)).prop_map(
        |(old_apis, new_apis, g, h, same_apis)| {
            let new_apis = if same_apis { old_apis.clone() } else { new_apis };
            let old = text(&old_apis, &[("g", Some(g.0.clone())), ("h", Some(h.0.clone()))]);
            let new =
                text(&new_apis, &[("g", changed(g.0, g.1, g.2, g.3)), ("h", changed(h.0, h.1, h.2, h.3))]);
            (old, new)
        },
    )
}

/// A run and its request.
struct Asked<'a> {
    caller: &'a str,
    grants: &'a [String],
    tier: Option<Tier>,
    host: &'a str,
    port: u16,
    method: &'a str,
    target: &'a Target,
    websocket: bool,
}

/// The credential's definition (here: its API's credential and file) where the request is allowed.
fn decide(policy: &Policy, asked: &Asked<'_>) -> Option<String> {
    let question = ScopeQuestion {
        caller: Some(asked.caller),
        grants: asked.grants,
        tier: asked.tier,
        session: false,
        now_unix: 0,
    };
    let scope = policy.scope(&question).ok()?;
    let host = Host::parse(asked.host).unwrap();
    let route =
        policy.destination(&DestinationQuestion { scope: &scope, host: &host, port: asked.port }).ok()?;
    let question = RequestQuestion {
        scope: &scope,
        route: &route,
        method: asked.method,
        target: asked.target,
        fields: &NoFields,
        websocket: asked.websocket,
        now_unix: 0,
    };
    match policy.evaluate(&question) {
        Decision::Allow(permit) => {
            let credential = permit.credential().and_then(|name| policy.credential(name));
            Some(format!("{credential:?} {} {:?}", route.host, policy.api(permit.api()).unwrap().addresses))
        }
        Decision::NeedsBody(_) | Decision::Refuse(_) => None,
    }
}

/// Whether a change speaks of such a run.
fn speaks_of(change: &Change, caller: &str, grants: &[String]) -> bool {
    let named = |name: &str| grants.iter().any(|grant| grant == name);
    named(&change.grant)
        && change.with.as_ref().is_none_or(|with| named(with))
        && change.callers.iter().any(|of| **of == *caller || **of == *"*")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, max_global_rejects: 100_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_difference_is_missed_and_every_one_that_is_shown_is_real(
        (old_text, new_text) in versions(),
        requests in prop::collection::vec((request(), select(vec![("a.test", 443), ("b.test", 8443), ("c.test", 443), ("c.internal", 443), ("d.test", 443)])), 24),
    ) {
        let (Some(old), Some(new)) = (load(&one(old_text.clone())), load(&one(new_text.clone()))) else {
            return Err(TestCaseError::reject("dead rules"));
        };
        let diff = Diff::between(&old, &new);
        for change in &diff.changes {
            prop_assert!(!change.undecided, "{}\n{old_text}\n---\n{new_text}", diff.render());
            let Some(asked) = &change.witness else {
                let of_grant = matches!(change.kind, Kind::Floor | Kind::Budget | Kind::Time);
                prop_assert!(of_grant || change.what.ends_with("it allows nothing by itself"));
                continue;
            };
            let expected = match change.kind {
                Kind::Allowed => (false, true),
                Kind::Refused => (true, false),
                Kind::Floor => (change.direction == Direction::Narrower, change.direction == Direction::Wider),
                _ => (true, true),
            };
            prop_assert_eq!((asked.old.allowed, asked.new.allowed), expected, "{}\n{}\n---\n{}", diff.render(), old_text, new_text);
        }
        for ((method, target, websocket), (host, port)) in &requests {
            let Ok(target) = Target::parse(target.as_bytes()) else { continue };
            for caller in ["x", "y", "z"] {
                for grants in [vec!["g"], vec!["h"], vec!["g", "h"]] {
                    let grants: Vec<String> = grants.into_iter().map(String::from).collect();
                    for tier in [None, Some(Tier::Process), Some(Tier::Container)] {
                        let asked = Asked { caller, grants: &grants, tier, host, port: *port, method, target: &target, websocket: *websocket };
                        let (before, after) = (decide(&old, &asked), decide(&new, &asked));
                        if before == after {
                            continue;
                        }
                        let wanted = |change: &&Change| match (&before, &after) {
                            _ if change.kind == Kind::Floor => true,
                            (None, Some(_)) => change.kind == Kind::Allowed && change.direction == Direction::Wider,
                            (Some(_), None) => change.kind == Kind::Refused,
                            _ => matches!(change.kind, Kind::Credential | Kind::Destination | Kind::Addresses),
                        };
                        let mut speaking = diff.changes.iter().filter(|change| speaks_of(change, caller, &grants));
                        prop_assert!(
                            speaking.any(|change| wanted(&change)),
                            "{} {}{} as {} with {:?}: {:?} then {:?}\n{}\n{}\n---\n{}",
                            method, host, target.wire(), caller, grants, before, after, diff.render(), old_text, new_text
                        );
                        prop_assert_ne!(diff.verdict, Verdict::Same);
                    }
                }
            }
        }
    }

    #[test]
    fn equal_policies_have_no_differences((text, _) in versions(), shuffle in any::<bool>()) {
        let Some(policy) = load(&one(text.clone())) else { return Err(TestCaseError::reject("dead rules")) };
        // The same in other words: comments, another file name, spellings of routes.
        let mut other = format!("# reviewed\n{}", text.replace("{x}", "{any}").replace("GET ", "GET   "));
        if shuffle {
            other = other.replace("{a|b}", "{b|a}");
        }
        let Some(same) = load(&[SourceFile::new("other.toml", other)]) else { return Err(TestCaseError::reject("dead rules")) };
        let diff = Diff::between(&policy, &same);
        prop_assert_eq!(diff.verdict, Verdict::Same, "{}", diff.render());
        prop_assert!(diff.changes.is_empty());
    }

    #[test]
    fn what_one_way_is_wider_is_narrower_the_other_way((old, new) in versions()) {
        let (Some(old), Some(new)) = (load(&one(old)), load(&one(new))) else { return Err(TestCaseError::reject("dead rules")) };
        let (there, back) = (Diff::between(&old, &new), Diff::between(&new, &old));
        let count = |diff: &Diff, kind: Kind| diff.changes.iter().filter(|change| change.kind == kind).count();
        prop_assert_eq!(count(&there, Kind::Allowed), count(&back, Kind::Refused));
        prop_assert_eq!(count(&there, Kind::Refused), count(&back, Kind::Allowed));
    }
}
