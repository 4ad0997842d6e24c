//! `freeboard policy lint --risk`, `test --coverage`, and warnings that a file allows.

use crate::{folder, policy, seen, text};

const POLICY: &str = r#"
[credential.c]
kind = "bearer"
token = { file = "/c" }

[api.a]
origins = ["https://a.test"]
credential = "c"

[grant.g]
callers = ["x", "y"]
expires = 2026-12-24

[[grant.g.allow]]
api = "a"
routes = ["GET /items/{int}", "DELETE /items/{int}", "GET /files/**"]

[[grant.g.deny]]
api = "a"
routes = ["GET /files/secret/**"]
"#;

const CASES: &str = r#"
[defaults]
caller = "x"
on = 2026-12-01

[[case]]
request = "GET https://a.test/items/1"
expect = "allow"

[[case]]
request = "GET https://a.test/files/secret/a"
expect = "refuse"
"#;

#[test]
fn the_risk_report_says_what_the_policy_opens() {
    let here = folder(&[("p.toml", POLICY)]);
    let words = ["lint", "--risk", ".", "--today", "2026-12-01"];
    insta::assert_snapshot!(seen(&policy(here.path(), &words)));
    let json = policy(here.path(), &[&words[..], &["--format", "json"]].concat());
    let report: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(report.pointer("/expiring/0/days_left"), Some(&serde_json::json!(24)), "{report}");
    let far = policy(here.path(), &[&words[..], &["--soon", "7"]].concat());
    assert!(text(&far.stdout).contains("grants that end soon:\n  none"), "{}", seen(&far));
    for wrong in [&["lint", "."][..], &["lint", "--risk", ".", "--today", "tomorrow"]] {
        assert_eq!(policy(here.path(), wrong).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn coverage_lists_the_rules_that_no_case_exercises() {
    let here = folder(&[("p.toml", POLICY), ("p.test.toml", CASES)]);
    assert_eq!(policy(here.path(), &["test", "."]).status.code(), Some(0));
    insta::assert_snapshot!(seen(&policy(here.path(), &["test", ".", "--coverage"])), @r"
    status 1
    --- stdout
    NO CASE g.allow[0].routes[1] at p.toml:16: DELETE /items/{int}
    NO CASE g.allow[0].routes[2] at p.toml:16: GET /files/**
    2 of 4 rules exercised
    2 passed, 0 failed
    --- stderr
    ");
    let json = policy(here.path(), &["test", ".", "--coverage", "--format", "json"]);
    let report: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(report.pointer("/coverage/rules"), Some(&serde_json::json!(4)), "{report}");
    let more = ["DELETE https://a.test/items/1", "GET https://a.test/files/a"];
    let more = more.map(|request| format!("\n[[case]]\nrequest = \"{request}\"\nexpect = \"allow\"\n"));
    let here = folder(&[("p.toml", POLICY), ("p.test.toml", &format!("{CASES}{}", more.concat()))]);
    let whole = policy(here.path(), &["test", ".", "--coverage"]);
    assert_eq!(whole.status.code(), Some(0), "{}", seen(&whole));
    assert!(text(&whole.stdout).starts_with("4 of 4 rules exercised\n"), "{}", seen(&whole));
}

#[test]
fn allowed_warnings_are_counted_and_named_in_json() {
    let everybody = POLICY.replace("[\"x\", \"y\"]", "[\"*\"]");
    let allowance = "[[allow_warning]]\ncode = \"E0508\"\nat = \"grant.g\"\nreason = \"it is public\"\n";
    let here = folder(&[("p.toml", &format!("{allowance}{everybody}"))]);
    let output = policy(here.path(), &["check", ".", "--deny-warnings"]);
    assert_eq!(output.status.code(), Some(0), "{}", seen(&output));
    assert!(text(&output.stdout).contains("0 errors, 0 warnings, 1 allowed\n"), "{}", seen(&output));
    let json = policy(here.path(), &["check", ".", "--format", "json"]);
    let report: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(report.pointer("/allowed/0/reason"), Some(&serde_json::json!("it is public")), "{report}");
    // Without a warning to allow, the allowance is one.
    let here = folder(&[("p.toml", &format!("{allowance}{POLICY}"))]);
    let output = policy(here.path(), &["check", ".", "--deny-warnings"]);
    assert_eq!(output.status.code(), Some(1), "{}", seen(&output));
    assert!(text(&output.stderr).contains("remove the allowance"), "{}", seen(&output));
}
