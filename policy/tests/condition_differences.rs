//! Changes of conditions and settings: each is told, in its direction, with a request that it decides where there is one.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use freeboard_policy::diff::{Change, Diff, Direction, Kind, Verdict};
use freeboard_policy::explain::{Request, Verdict as Answer};
use freeboard_policy::{Policy, SourceFile, render_all};
use proptest::prelude::*;
use proptest::sample::select;

fn load(text: &str) -> Policy {
    let loaded = Policy::load(&[SourceFile::new("p.toml", text)]);
    loaded.unwrap_or_else(|problems| panic!("{}\n{text}", render_all(&problems))).policy
}

/// A grant with an allow rule for everything and a deny rule, each with its condition; `None`: no such rule.
fn policy(allow: Option<&str>, deny: Option<&str>) -> String {
    let mut text = "[api.a]\norigins = [\"https://a.test\"]\n[grant.g]\ncallers = [\"x\"]\n\
                    [[grant.g.allow]]\napi = \"a\"\nroutes = [\"GET /status\"]\n"
        .to_owned();
    for (word, condition) in [("allow", allow), ("deny", deny)] {
        if let Some(condition) = condition {
            text.push_str(&format!(
                "[[grant.g.{word}]]\napi = \"a\"\nroutes = [\"POST /v1/**\"]\n{condition}\n"
            ));
        }
    }
    text
}

/// What the two policies say to the request that a change is shown with.
fn answers(change: &Change) -> Option<(bool, bool)> {
    change.witness.as_ref().map(|asked| (asked.old.allowed, asked.new.allowed))
}

#[test]
fn each_change_of_a_condition_is_shown_with_a_request_that_it_decides() {
    use Direction::{Narrower, Wider};
    for (old, new, direction, shown) in [
        ("headers = { x = \"a\" }", "headers = { x = [\"a\", \"b\"] }", Wider, "header    x: b"),
        ("headers = { x = [\"a\", \"b\"] }", "headers = { x = \"a\" }", Narrower, "header    x: b"),
        ("headers = { x = \"a\" }", "headers = { x = { pattern = \"[a-c]\" } }", Wider, "header    x: b"),
        ("headers = { x = { absent = true } }", "", Wider, "header    x: x"),
        (
            "headers = { x = \"a\" }",
            "headers = { x = { pattern = \"a\", optional = true } }",
            Wider,
            "new       allowed",
        ),
        ("headers = { x = \"a\" }", "headers = { x = \"b\" }", Wider, "header    x: b"),
        ("content_type = \"text/plain\"", "content_type = \"text/*\"", Wider, "content-type: text/x"),
        (
            "content_type = [\"text/plain\", \"image/png\"]",
            "content_type = \"text/plain\"",
            Narrower,
            "content-type: image/png",
        ),
        (
            "json = { \"/n\" = { max = 10 } }",
            "json = { \"/n\" = { max = 20 } }",
            Wider,
            r#"body      {"n":11}"#,
        ),
        (
            "json = { \"/n\" = { max = 20 } }",
            "json = { \"/n\" = { min = 1, max = 20 } }",
            Narrower,
            r#"body      {"n":0}"#,
        ),
        (
            "json = { \"/n\" = { type = \"integer\" } }",
            "json = { \"/n\" = { type = \"number\" } }",
            Wider,
            r#"body      {"n":0.5}"#,
        ),
        (
            "json = { \"/s\" = { type = \"string\", max_length = 3 } }",
            "json = { \"/s\" = { type = \"string\", max_length = 5 } }",
            Wider,
            r#"body      {"s":"aaaa"}"#,
        ),
        (
            "json = { \"/s\" = { pattern = \"[a-f]+\" } }",
            "json = { \"/s\" = { pattern = \"[a-z]+\" } }",
            Wider,
            r#"body      {"s":"g"}"#,
        ),
        (
            "json = { \"/l\" = { type = \"array\", max_items = 1 } }",
            "json = { \"/l\" = { type = \"array\" } }",
            Wider,
            r#"body      {"l":[0,0]}"#,
        ),
        (
            "json = { \"/s\" = \"a\" }",
            "json = { \"/s\" = { enum = [\"a\"], optional = true } }",
            Wider,
            "body      {}",
        ),
        (
            "json = { \"/admin\" = { absent = true } }",
            "json = { \"/admin\" = { type = \"boolean\", optional = true } }",
            Wider,
            r#"body      {"admin":true}"#,
        ),
        ("json = { \"/a\" = 1 }", "json = { \"/a\" = 1, \"/b/c\" = 2 }", Narrower, r#"body      {"a":1}"#),
        ("json = { \"/l/*\" = [1, 2] }", "json = { \"/l/*\" = 1 }", Narrower, r#"body      {"l":[2]}"#),
        (
            "json = { \"\" = { members = [\"a\"] } }",
            "json = { \"\" = { members = [\"a\", \"b\"] } }",
            Wider,
            r#"body      {"a":0,"b":0}"#,
        ),
        (
            "graphql = { operations = [\"query\"] }",
            "graphql = { operations = [\"query\", \"mutation\"] }",
            Wider,
            "mutation { other }",
        ),
        (
            "graphql = { operations = [\"query\"], fields = [\"a\", \"b\"] }",
            "graphql = { operations = [\"query\"], fields = [\"a\"] }",
            Narrower,
            "query { b }",
        ),
        (
            "graphql = { operations = [\"query\"], names = [\"N\"] }",
            "graphql = { operations = [\"query\"] }",
            Wider,
            "query",
        ),
        ("mcp = { methods = [\"tools/list\"] }", "mcp = { methods = [\"tools/*\"] }", Wider, "tools/"),
        (
            "mcp = { methods = [\"tools/call\"], tools = [\"a\"] }",
            "mcp = { methods = [\"tools/call\"], tools = [\"a\", \"b\"] }",
            Wider,
            r#""name":"b""#,
        ),
        (
            "mcp = { methods = [\"tools/call\"], arguments = { \"/n\" = { max = 1 } } }",
            "mcp = { methods = [\"tools/call\"], arguments = { \"/n\" = { max = 2 } } }",
            Wider,
            r#""n":2"#,
        ),
        (
            "mcp = { methods = [\"ping\"], responses = true }",
            "mcp = { methods = [\"ping\"] }",
            Narrower,
            r#""result""#,
        ),
        ("", "json = { \"/a\" = 1 }", Narrower, "old       allowed"),
    ] {
        let diff = Diff::between(&load(&policy(Some(old), None)), &load(&policy(Some(new), None)));
        let text = diff.render();
        let of = |change: &&Change| change.kind == Kind::Condition && change.direction == direction;
        let change = diff.changes.iter().find(of).unwrap_or_else(|| panic!("{old} / {new}\n{text}"));
        assert!(!change.conditional && !change.undecided, "{old} / {new}\n{text}");
        let expected = if direction == Wider { (false, true) } else { (true, false) };
        assert_eq!(answers(change), Some(expected), "{old} / {new}\n{text}");
        assert!(text.contains(shown), "{old} / {new}: {shown}\n{text}");
        let verdict = if direction == Wider { Verdict::Wider } else { Verdict::Narrower };
        assert_eq!(diff.verdict, verdict, "{old} / {new}\n{text}");
    }
}

#[test]
fn conditions_of_endpoints_and_of_deny_rules_are_shown_too() {
    let grpc = |methods: &str| {
        policy(None, None)
            + &format!(
                "[[grant.g.allow]]\napi = \"a\"\nroutes = [\"POST /a.B/{{m}}\"]\ngrpc = {{ methods = {methods} }}\n"
            )
    };
    let git = |push: &str| {
        policy(None, None)
            + &format!(
                "[[grant.g.allow]]\napi = \"a\"\nroutes = [\"POST /r.git/git-receive-pack\"]\ngit = {{ operation = \"push\", {push} }}\n"
            )
    };
    for (old, new, direction, shown) in [
        (
            git("refs = [\"refs/heads/bot/*\"]"),
            git("refs = [\"refs/heads/bot/**\", \"refs/tags/*\"]"),
            Direction::Wider,
            "refs/tags/x",
        ),
        (
            git("refs = [\"refs/heads/*\"]"),
            git("refs = [\"refs/heads/*\"], changes = [\"create\", \"delete\"]"),
            Direction::Wider,
            "1111 0000",
        ),
        (
            git("refs = [\"refs/heads/a\", \"refs/heads/b\"]"),
            git("refs = [\"refs/heads/a\"]"),
            Direction::Narrower,
            "refs/heads/b",
        ),
        (
            policy(Some(""), None),
            policy(Some(""), Some("json = { \"/v\" = \"public\" }")),
            Direction::Narrower,
            r#"{"v":"public"}"#,
        ),
        (
            policy(Some(""), Some("headers = { x = \"raw\" }")),
            policy(Some(""), None),
            Direction::Wider,
            "x: raw",
        ),
        (grpc("[\"a.B/C\"]"), grpc("[\"a.B/*\"]"), Direction::Wider, "POST https://a.test/a.B/a"),
        (
            grpc("[\"a.B/C\", \"a.B/Delete\"]"),
            grpc("[\"a.B/C\"]"),
            Direction::Narrower,
            "POST https://a.test/a.B/Delete",
        ),
        (grpc("[\"a.B/C\"]"), grpc("[\"a.B/D\"]"), Direction::Wider, "POST https://a.test/a.B/D"),
    ] {
        let diff = Diff::between(&load(&old), &load(&new));
        let text = diff.render();
        let change = diff.changes.iter().find(|change| change.direction == direction);
        let change = change.unwrap_or_else(|| panic!("{old}\n{new}\n{text}"));
        assert!(text.contains(shown), "{shown}\n{text}");
        let verdict = if direction == Direction::Wider { Verdict::Wider } else { Verdict::Narrower };
        assert_eq!(diff.verdict, verdict, "{text}");
        assert!(!change.conditional, "{text}");
    }
}

/// A policy with every setting that a grant and an API can have.
const SETTINGS: &str = r#"
[defaults]
floor = "container"

[group.team]
callers = ["carol"]

[credential.k]
kind = "bearer"
token = { file = "/k" }

[api.a]
origins = ["https://a.test"]
credential = "k"
per_minute = 100
health_check = "GET /health"

[grant.base]
callers = ["x"]
[[grant.base.allow]]
api = "a"
routes = ["GET /v1/{int}"]

[grant.g]
callers = ["y"]
groups = ["team"]
extends = "base"
ttl = "15m"
not_before = 2026-01-01
expires = 2027-01-31
schedule = ["Mon-Fri 08:00-18:00"]
budget = { calls = 10, per_minute = 5, caller_per_minute = 50, concurrent = 2, request_bytes = "1KiB", response_bytes = "2KiB" }
[[grant.g.allow]]
api = "a"
routes = ["POST /v1/{int}"]
calls = 3
response_content_type = "application/json"
inspect_bytes = "1KiB"
json = { "/a" = 1 }
[[grant.g.allow]]
api = "a"
routes = ["DELETE /v1/{int}"]
approve = { by = ["alice", "bob"], timeout = "15m" }
"#;

#[test]
fn every_setting_is_compared_in_both_directions() {
    for (from, to, kind, direction) in [
        ("floor = \"container\"", "floor = \"process\"", Kind::Floor, Direction::Wider),
        ("callers = [\"carol\"]", "callers = [\"carol\", \"dave\"]", Kind::Allowed, Direction::Wider),
        ("per_minute = 100", "per_minute = 200", Kind::Budget, Direction::Wider),
        ("per_minute = 100\n", "", Kind::Budget, Direction::Wider),
        ("GET /health", "GET /other", Kind::Budget, Direction::Wider),
        ("file = \"/k\"", "file = \"/other\"", Kind::Credential, Direction::Wider),
        ("extends = \"base\"\n", "", Kind::Refused, Direction::Narrower),
        ("GET /v1/{int}", "GET /v1/{slug}", Kind::Allowed, Direction::Wider),
        ("ttl = \"15m\"", "ttl = \"20m\"", Kind::Time, Direction::Wider),
        ("not_before = 2026-01-01", "not_before = 2026-02-01", Kind::Time, Direction::Narrower),
        ("expires = 2027-01-31", "expires = 2027-02-28", Kind::Time, Direction::Wider),
        ("Mon-Fri 08:00-18:00", "Mon-Fri 09:00-17:00", Kind::Time, Direction::Narrower),
        ("Mon-Fri 08:00-18:00", "Sat 08:00-18:00", Kind::Time, Direction::Wider),
        ("{ calls = 10", "{ calls = 11", Kind::Budget, Direction::Wider),
        (" per_minute = 5", " per_minute = 4", Kind::Budget, Direction::Narrower),
        ("caller_per_minute = 50", "caller_per_minute = 51", Kind::Budget, Direction::Wider),
        ("concurrent = 2", "concurrent = 1", Kind::Budget, Direction::Narrower),
        ("request_bytes = \"1KiB\"", "request_bytes = \"2KiB\"", Kind::Budget, Direction::Wider),
        ("response_bytes = \"2KiB\"", "response_bytes = \"1KiB\"", Kind::Budget, Direction::Narrower),
        ("calls = 3", "calls = 2", Kind::Condition, Direction::Narrower),
        ("calls = 3\n", "", Kind::Condition, Direction::Wider),
        ("= \"application/json\"", "= [\"application/json\", \"text/*\"]", Kind::Condition, Direction::Wider),
        ("inspect_bytes = \"1KiB\"", "inspect_bytes = \"2KiB\"", Kind::Condition, Direction::Wider),
        ("inspect_bytes = \"1KiB\"\n", "", Kind::Condition, Direction::Wider),
        ("timeout = \"15m\"", "timeout = \"5m\"", Kind::Approval, Direction::Narrower),
        ("[\"alice\", \"bob\"]", "[\"alice\"]", Kind::Approval, Direction::Narrower),
        ("by = [\"alice\", \"bob\"], ", "", Kind::Approval, Direction::Wider),
        ("approve = { by = [\"alice\", \"bob\"], timeout = \"15m\" }", "", Kind::Approval, Direction::Wider),
    ] {
        assert!(SETTINGS.contains(from), "{from}");
        let (old, new) = (load(SETTINGS), load(&SETTINGS.replacen(from, to, 1)));
        let diff = Diff::between(&old, &new);
        let found = diff.changes.iter().any(|change| (change.kind, change.direction) == (kind, direction));
        assert!(found, "{from} / {to}\n{}", diff.render());
        let verdict = if direction == Direction::Wider { Verdict::Wider } else { Verdict::Narrower };
        assert_eq!(diff.verdict, verdict, "{from} / {to}\n{}", diff.render());
        let back = Diff::between(&new, &old);
        assert_ne!(back.verdict, Verdict::Same);
        assert_eq!(Diff::between(&new, &new).verdict, Verdict::Same);
    }
}

const CONDITIONS: [&str; 22] = [
    "",
    "headers = { x = \"a\" }",
    "headers = { x = [\"a\", \"b\"] }",
    "headers = { x = { absent = true } }",
    "headers = { x = { pattern = \"[ab]+\", optional = true } }",
    "content_type = \"text/*\"",
    "content_type = [\"text/plain\", \"application/json\"]",
    "json = { \"/a\" = 1 }",
    "json = { \"/a\" = { type = \"integer\", max = 5 } }",
    "json = { \"/a\" = { type = \"integer\", optional = true } }",
    "json = { \"/a\" = [1, 7], \"/b\" = { absent = true } }",
    "json = { \"/b\" = { type = \"string\", max_length = 2 } }\nheaders = { x = \"a\" }",
    "json = { \"/b\" = { pattern = \"[a-c]*\" } }",
    "graphql = { operations = [\"query\"] }",
    "graphql = { operations = [\"query\", \"mutation\"], fields = [\"f\"] }",
    "mcp = { methods = [\"tools/call\"], tools = [\"t\"] }",
    "mcp = { methods = [\"tools/*\"], arguments = { \"/a\" = 1 } }",
    "mcp = { methods = [\"ping\"], responses = true }",
    "grpc = { methods = [\"v1/C\"] }",
    "calls = 5",
    "approve = \"human\"",
    "response_content_type = \"text/plain\"",
];

const BODIES: [&str; 18] = [
    "",
    "{}",
    "{\"a\":1}",
    "{\"a\":3}",
    "{\"a\":7}",
    "{\"a\":\"1\"}",
    "{\"a\":1,\"b\":\"ab\"}",
    "{\"b\":\"ab\"}",
    "{\"b\":\"\"}",
    "{\"b\":\"abcd\"}",
    "{\"query\":\"{ f }\"}",
    "{\"query\":\"mutation { f }\"}",
    "{\"query\":\"mutation M { g }\"}",
    "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}",
    "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}",
    "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"t\",\"arguments\":{\"a\":1}}}",
    "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"u\",\"arguments\":{}}}",
    "not json",
];

fn condition() -> impl Strategy<Value = Option<&'static str>> {
    prop::option::weighted(0.9, select(CONDITIONS.to_vec()))
}

fn deny() -> impl Strategy<Value = Option<&'static str>> {
    let narrow = CONDITIONS.iter().filter(|text| {
        !text.is_empty()
            && !["calls", "approve", "response", "optional", "absent"].iter().any(|word| text.contains(word))
    });
    prop::option::weighted(0.3, select(narrow.copied().collect::<Vec<_>>()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_difference_in_conditions_is_missed(
        (old_allow, new_allow) in (condition(), condition()),
        (old_deny, new_deny) in (deny(), deny()),
    ) {
        let texts = (policy(old_allow, old_deny), policy(new_allow, new_deny));
        let (old, new) = (load(&texts.0), load(&texts.1));
        let diff = Diff::between(&old, &new);
        for change in &diff.changes {
            let answers = answers(change);
            match change.kind {
                _ if change.conditional || change.undecided => {}
                Kind::Allowed => prop_assert_eq!(answers, Some((false, true)), "{}", diff.render()),
                Kind::Refused => prop_assert_eq!(answers, Some((true, false)), "{}", diff.render()),
                _ => prop_assert!(answers.is_some_and(|(old, new)| old || new), "{}", diff.render()),
            }
        }
        for path in ["/v1/x", "/v1/C"] {
            for kind in [None, Some("application/json"), Some("text/plain"), Some("application/grpc")] {
                for header in [None, Some("a"), Some("b"), Some("c")] {
                    let headers: Vec<(String, String)> = [("content-type", kind), ("x", header)]
                        .into_iter()
                        .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())))
                        .collect();
                    for body in BODIES {
                        let url = format!("https://a.test{path}");
                        let request = Request {
                            caller: Some("x"), grants: None, tier: None, method: "POST", url: &url, headers: &headers,
                            body: Some(body.as_bytes()), websocket: false, now_unix: 0,
                        };
                        let allowed = |policy: &Policy| policy.explain(&request).verdict == Answer::Allow;
                        let told = |direction: Direction, kinds: [Kind; 2]| {
                            diff.changes.iter().any(|change| kinds.contains(&change.kind) && (change.direction == direction || change.kind == Kind::Condition))
                        };
                        let fits = match (allowed(&old), allowed(&new)) {
                            (false, true) => told(Direction::Wider, [Kind::Allowed, Kind::Condition]) && diff.verdict == Verdict::Wider,
                            (true, false) => told(Direction::Narrower, [Kind::Refused, Kind::Condition]),
                            _ => true,
                        };
                        prop_assert!(fits, "{} {:?} {}\n{}\n{}---\n{}", path, headers, body, diff.render(), texts.0, texts.1);
                    }
                }
            }
        }
    }
}
