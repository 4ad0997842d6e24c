//! What a reviewer reads of a change of policy: each kind of difference once, as text, Markdown and JSON.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use freeboard_policy::diff::{Diff, Direction, Kind, Risk, Verdict};
use freeboard_policy::{Policy, SourceFile, render_all};

const BASE: &str = r#"
[credential.reader]
kind = "bearer"
token = { file = "/etc/freeboard/secrets/reader" }

[credential.writer]
kind = "bearer"
token = { file = "/etc/freeboard/secrets/writer" }

[api.code]
origins = ["https://code.example.com"]
credential = "reader"

[api.wiki]
origins = ["https://wiki.example.com"]
credential = "writer"
alias = "wiki.internal"

[grant.triage]
callers = ["bot"]
floor = "kernel"
ttl = "15m"
expires = 2027-01-31
budget = { calls = 100 }

[[grant.triage.allow]]
api = "code"
routes = ["GET /repos/acme/{repo}/issues?state={open|closed}", "POST /repos/acme/{repo}/issues/{int}/comments"]

[[grant.triage.deny]]
api = "code"
routes = ["* /repos/acme/secrets/**"]

[grant.wiki]
callers = ["bot", "writer"]

[[grant.wiki.allow]]
api = "wiki"
routes = ["GET /pages/{slug}"]
"#;

fn load(text: &str) -> Policy {
    let files = [SourceFile::new("policy.toml", text)];
    Policy::load(&files).unwrap_or_else(|problems| panic!("{}", render_all(&problems))).policy
}

#[track_caller]
fn compare(edits: &[(&str, &str)]) -> Diff {
    let new = edits.iter().fold(BASE.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    });
    Diff::between(&load(BASE), &load(&new))
}

/// (kind, direction, shortest request)
fn shown(diff: &Diff) -> Vec<(Kind, Direction, String)> {
    let request = |change: &freeboard_policy::diff::Change| {
        change.witness.as_ref().map(|asked| format!("{} {}", asked.method, asked.url)).unwrap_or_default()
    };
    diff.changes.iter().map(|change| (change.kind, change.direction, request(change))).collect()
}

#[test]
fn each_edit_is_told_as_what_it_means() {
    use Direction::{Narrower, Wider};
    for (edits, expected) in [
        (&[("GET /pages/{slug}", "GET    /pages/{slug}")][..], vec![]),
        (
            &[(
                "issues?state={open|closed}\"",
                "issues?state=open\", \"GET /repos/acme/{repo}/issues?state=closed\"",
            )],
            vec![],
        ),
        (
            &[("GET /pages/{slug}", "GET|PUT /pages/{slug}")],
            vec![(Kind::Allowed, Wider, "PUT https://wiki.internal/pages/a")],
        ),
        (
            &[("GET /pages/{slug}", "GET /pages/{int}")],
            vec![(Kind::Refused, Narrower, "GET https://wiki.internal/pages/a")],
        ),
        (
            &[("{open|closed}", "{open|closed|all}")],
            vec![(Kind::Allowed, Wider, "GET https://code.example.com/repos/acme/a/issues?state=all")],
        ),
        (
            &[("* /repos/acme/secrets/**", "GET /repos/acme/secrets/**")],
            vec![(
                Kind::Allowed,
                Wider,
                "POST https://code.example.com/repos/acme/secrets/issues/0/comments",
            )],
        ),
        (
            &[("callers = [\"bot\"]", "callers = [\"*\"]")],
            vec![(Kind::Allowed, Wider, "GET https://code.example.com/repos/acme/a/issues")],
        ),
        (
            &[("[\"bot\", \"writer\"]", "[\"bot\"]")],
            vec![(Kind::Refused, Narrower, "GET https://wiki.internal/pages/a")],
        ),
        (
            &[("floor = \"kernel\"", "floor = \"container\"")],
            vec![(Kind::Floor, Wider, "GET https://code.example.com/repos/acme/a/issues")],
        ),
        (
            &[("ttl = \"15m\"", "ttl = \"5m\""), ("calls = 100", "calls = 500")],
            vec![
                (Kind::Budget, Wider, "GET https://code.example.com/repos/acme/a/issues"),
                (Kind::Time, Narrower, "GET https://code.example.com/repos/acme/a/issues"),
            ],
        ),
        (
            // Requests at the wiki become connections that nobody reads.
            &[
                (
                    "origins = [\"https://wiki.example.com\"]\ncredential = \"writer\"\nalias = \"wiki.internal\"",
                    "origins = [\"https://wiki.example.com\"]\ntls = \"passthrough\"",
                ),
                ("\napi = \"wiki\"\nroutes = [\"GET /pages/{slug}\"]", "\napi = \"wiki\""),
            ],
            vec![
                (Kind::Allowed, Wider, "CONNECT tls://wiki.example.com"),
                (Kind::Refused, Narrower, "GET https://wiki.internal/pages/a"),
            ],
        ),
        (
            &[("secrets/reader", "secrets/other")],
            vec![(Kind::Credential, Wider, "GET https://code.example.com/repos/acme/a/issues")],
        ),
        (&[("credential.reader", "credential.renamed"), ("= \"reader\"", "= \"renamed\"")], vec![]),
        (
            &[("alias = \"wiki.internal\"", "alias = \"wiki.internal\"\naddresses = [\"10.0.0.0/8\"]")],
            vec![(Kind::Addresses, Wider, "GET https://wiki.internal/pages/a")],
        ),
        (
            &[(
                "alias = \"wiki.internal\"",
                "alias = \"wiki.internal\"\nplaceholder = { variable = \"WIKI_TOKEN\", value = \"wiki-****************\" }",
            )],
            vec![(Kind::Credential, Wider, "GET https://wiki.internal/pages/a")],
        ),
    ] {
        let diff = compare(edits);
        let expected: Vec<(Kind, Direction, String)> = expected
            .into_iter()
            .map(|(kind, direction, request): (Kind, Direction, &str)| (kind, direction, request.to_owned()))
            .collect();
        let mut found = shown(&diff);
        found.dedup();
        assert_eq!(found, expected, "{edits:?}\n{}", diff.render());
    }
}

#[test]
fn connections_are_compared_as_requests_are() {
    use Direction::{Narrower, Wider};
    const DB: &str = "[api.db]\ntcp = [\"db.internal:5432\"]\n\n[grant.db]\ncallers = [\"bot\"]\n\n[[grant.db.allow]]\napi = \"db\"\n";
    const DENY: &str = "\n[[grant.db.deny]]\napi = \"db\"\n[[grant.db.allow]]\napi = \"code\"\nroutes = [\"GET /a\"]\n[api.code]\norigins = [\"https://code.example.com\"]\n";
    let allows_code = DENY.replace("\n[[grant.db.deny]]\napi = \"db\"", "");
    for (old, new, expected) in [
        (DB.to_owned(), DB.to_owned(), vec![]),
        (
            DB.to_owned(),
            DB.replace("5432\"", "5432\", \"db.internal:5433\""),
            vec![(Kind::Allowed, Wider, "CONNECT tcp://db.internal:5433")],
        ),
        (
            DB.to_owned(),
            DB.replace(
                "tcp = [\"db.internal:5432\"]",
                "origins = [\"https://db.internal:5432\"]\ntls = \"passthrough\"",
            ),
            vec![(Kind::Destination, Wider, "CONNECT tls://db.internal:5432")],
        ),
        (
            DB.to_owned(),
            format!("{DB}approve = \"human\"\n"),
            vec![(Kind::Approval, Narrower, "CONNECT tcp://db.internal:5432")],
        ),
        (
            format!("{DB}calls = 2\n"),
            format!("{DB}calls = 3\n"),
            vec![(Kind::Condition, Wider, "CONNECT tcp://db.internal:5432")],
        ),
        (
            format!("{DB}{allows_code}"),
            DB.replace("[[grant.db.allow]]\napi = \"db\"\n", &DENY[1..]),
            vec![(Kind::Refused, Narrower, "CONNECT tcp://db.internal:5432")],
        ),
    ] {
        let diff = Diff::between(&load(&old), &load(&new));
        let expected: Vec<(Kind, Direction, String)> = expected
            .into_iter()
            .map(|(kind, direction, request)| (kind, direction, request.to_owned()))
            .collect();
        let mut found = shown(&diff);
        found.dedup();
        assert_eq!(found, expected, "{}", diff.render());
        assert!(diff.changes.iter().all(|change| !change.undecided), "{}", diff.render());
    }
}

#[test]
fn a_deny_rule_of_one_grant_that_guards_another_is_not_lost_silently() {
    let guard = "\n[grant.guard]\ncallers = [\"bot\"]\n[[grant.guard.deny]]\napi = \"wiki\"\nroutes = [\"* /pages/admin\"]\n\
                 [[grant.guard.allow]]\napi = \"wiki\"\nroutes = [\"GET /other\"]\n";
    let (old, new) = (format!("{BASE}{guard}"), format!("{BASE}{}", guard.replace("admin", "nothing")));
    let diff = Diff::between(&load(&old), &load(&new));
    assert_eq!(diff.verdict, Verdict::Wider);
    let change = diff.changes.first().unwrap();
    assert_eq!((&*change.grant, change.with.as_deref()), ("guard", Some("wiki")), "{}", diff.render());
    let asked = change.witness.as_ref().unwrap();
    assert_eq!(
        (asked.url.as_str(), asked.old.allowed, asked.new.allowed),
        ("https://wiki.internal/pages/admin", false, true)
    );
}

/// A name with `%2F` is one segment to the allow rule and two to an upstream that decodes first: the deny rule holds for it.
#[test]
fn a_deny_rule_below_a_segment_is_a_difference_at_an_escaped_slash() {
    let segment = ("GET /pages/{slug}", "GET /pages/{name}");
    let deny = "\n[[grant.wiki.deny]]\napi = \"wiki\"\nroutes = [\"* /pages/admin/users\"]\n";
    let without = BASE.replace(segment.0, segment.1);
    let diff = Diff::between(&load(&without), &load(&format!("{without}{deny}")));
    assert_eq!(diff.verdict, Verdict::Narrower, "{}", diff.render());
    let [change] = diff.changes.as_slice() else { panic!("{}", diff.render()) };
    assert!(!change.undecided && change.kind == Kind::Refused, "{}", diff.render());
    let asked = change.witness.as_ref().unwrap();
    assert_eq!(asked.url, "https://wiki.internal/pages/admin%2Fusers");

    // Behind a deny rule that stays, such a request is none that a new allow rule opens.
    let both = ("GET /pages/{slug}", "GET /pages/admin%2Fusers\", \"GET /pages/{slug}");
    let old = format!("{BASE}{deny}");
    let added = old.replace(both.0, both.1).replace("admin%2Fusers", "{admin%2Fusers|a%2Fb}");
    let diff = Diff::between(&load(&old), &load(&added));
    let [change] = diff.changes.as_slice() else { panic!("{}", diff.render()) };
    let asked = change.witness.as_ref().unwrap();
    assert_eq!(asked.url, "https://wiki.internal/pages/a%2Fb", "{}", diff.render());
}

#[test]
fn an_empty_piece_behind_an_escaped_slash_is_no_name() {
    let routes = "\n[grant.odd]\ncallers = [\"bot\"]\n[[grant.odd.allow]]\napi = \"wiki\"\nroutes = [\"GET /a/a%2f*\"]\n\
                  [[grant.odd.deny]]\napi = \"wiki\"\nroutes = [\"GET|POST /a/a/{x}\"]\n";
    let diff = Diff::between(&load(&format!("{BASE}{routes}")), &load(BASE));
    let [change] = diff.changes.as_slice() else { panic!("{}", diff.render()) };
    assert!(!change.undecided && change.kind == Kind::Refused, "{}", diff.render());
}

#[test]
fn what_a_reviewer_must_see_first_stands_first() {
    let diff = compare(&[
        ("floor = \"kernel\"\n", ""),
        ("GET /pages/{slug}", "GET|DELETE /pages/{slug}"),
        ("{open|closed}", "{open|closed|all}"),
        ("ttl = \"15m\"", "ttl = \"5m\""),
    ]);
    assert!(diff.changes.first().unwrap().risks.contains(&Risk::Writes), "{}", diff.render());
    assert_eq!(diff.changes.last().unwrap().direction, Direction::Narrower);
    insta::assert_snapshot!("text", diff.render());
    insta::assert_snapshot!("markdown", diff.render_markdown());
    insta::assert_snapshot!("json", serde_json::to_string_pretty(&diff).unwrap());
}

#[test]
fn text_of_a_pull_request_stays_text_in_its_comment() {
    let diff = compare(&[("\"bot\"]", "\"bot\", \"[x](https://evil.test)|@team<img>`\"]")]);
    let markdown = diff.render_markdown();
    for escaped in [r"\[x\](https", r"\<img\>", r"\|\@team", r"\`"] {
        assert!(markdown.contains(escaped), "{escaped} in\n{markdown}");
    }
}
