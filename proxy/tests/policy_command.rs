//! `freeboard policy` as people run it: output and exit codes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::{Command, Output};

const GOOD: &str = r#"
[api.a]
origins = ["https://a.test"]

[grant.g]
callers = ["x"]
floor = "container"

[[grant.g.allow]]
api = "a"
routes = ["GET /v1/items/{int}"]
"#;

fn freeboard(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_freeboard"))
        .arg("policy")
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap()
}

fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn check_ends_with_0_for_a_good_policy_and_prints_its_digest() {
    let folder = folder(&[("a.toml", GOOD)]);
    let output = freeboard(folder.path(), &["check", "."]);
    assert_eq!(output.status.code(), Some(0));
    let shown = text(&output.stdout);
    let digest = shown.strip_prefix("ok: 1 file, 1 grant, 0 errors, 0 warnings\ndigest ").map(str::trim_end);
    assert!(digest.is_some_and(|digest| digest.len() == 64), "{shown}");
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn g15_check_ends_with_1_for_problems_and_shows_every_one_on_stderr() {
    let bad = GOOD.replace("callers", "caller").replace("https://a.test", "http://a.test");
    let folder = folder(&[("a.toml", &bad), ("empty.toml", "")]);
    let output = freeboard(folder.path(), &["check", "."]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stdout), "");
    let shown = text(&output.stderr);
    for wanted in [
        "freeboard::policy::E0106",
        "did you mean `callers`?",
        "freeboard::policy::E0107",
        "freeboard::policy::E0301",
        "freeboard::policy::E0101",
        "4 errors",
    ] {
        assert!(shown.contains(wanted), "{wanted}:\n{shown}");
    }
    let json = freeboard(folder.path(), &["check", ".", "--format", "json"]);
    assert_eq!(json.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(report.get("ok"), Some(&serde_json::Value::Bool(false)));
    assert_eq!(report.pointer("/problems").and_then(|p| p.as_array()).map(Vec::len), Some(4));
    assert!(report.pointer("/problems/0/place/line").is_some());
    let codes =
        report["problems"].as_array().unwrap().iter().map(|problem| (&problem["code"], &problem["name"]));
    let codes: Vec<_> = codes.map(|(code, name)| (code.as_str().unwrap(), name.as_str().unwrap())).collect();
    assert!(codes.contains(&("freeboard::policy::E0106", "policy::unknown-field")), "{codes:?}");
}

#[test]
fn check_ends_with_2_for_what_cannot_be_read_or_is_no_command() {
    let folder = folder(&[]);
    assert_eq!(freeboard(folder.path(), &["check", "nowhere"]).status.code(), Some(2));
    assert_eq!(freeboard(folder.path(), &["check"]).status.code(), Some(2));
    assert_eq!(freeboard(folder.path(), &["chekc", "."]).status.code(), Some(2));
    assert_eq!(
        freeboard(folder.path(), &["check", "."]).status.code(),
        Some(1),
        "an empty folder is a problem"
    );
}

#[test]
fn deny_warnings_turns_warnings_into_problems() {
    let folder = folder(&[("a.toml", &GOOD.replace("\"x\"", "\"*\""))]);
    assert_eq!(freeboard(folder.path(), &["check", "."]).status.code(), Some(0));
    assert_eq!(freeboard(folder.path(), &["check", ".", "--deny-warnings"]).status.code(), Some(1));
}

#[test]
fn explain_says_which_rule_decides_and_what_would_allow_the_rest() {
    let folder = folder(&[("a.toml", GOOD)]);
    let allowed =
        freeboard(folder.path(), &["explain", ".", "GET", "https://a.test/v1/items/7", "--caller", "x"]);
    assert_eq!(allowed.status.code(), Some(0));
    insta::assert_snapshot!(text(&allowed.stdout), @r"
    verdict      allow
    because      grant `g` allows it
    rule         g.allow[0].routes[0] at a.toml:11: GET /v1/items/{int}
    api          a
    grants       g
    target       /v1/items/7
    ");
    let refused =
        freeboard(folder.path(), &["explain", ".", "GET", "https://a.test/v1/items/x", "--caller", "x"]);
    assert_eq!(refused.status.code(), Some(1));
    insta::assert_snapshot!(text(&refused.stdout), @r#"
    verdict      refuse (no_rule)
    because      no allow rule matches
    grants       g
    target       /v1/items/x
    closest      g.allow[0].routes[0] at a.toml:11: GET /v1/items/{int}
    but          segment 3 `x` is not `{int}`
    would allow
      "GET /v1/items/x",
    "#);
    let weak = ["explain", ".", "GET", "https://a.test/v1/items/7", "--caller", "x", "--tier", "process"];
    assert!(
        text(&freeboard(folder.path(), &weak).stdout)
            .contains("grant `g` needs tier `container`; the run is at `process`")
    );
    let nonsense = ["explain", ".", "GET", "https://a.test/", "--caller", "x", "--tier", "castle"];
    assert_eq!(freeboard(folder.path(), &nonsense).status.code(), Some(2));
}

#[test]
fn test_runs_the_cases_and_shows_what_differs() {
    let good = "[defaults]\ncaller = \"x\"\n[[case]]\nrequest = \"GET https://a.test/v1/items/7\"\nexpect = \"allow\"\n";
    let bad = good.replace("expect = \"allow\"", "expect = \"refuse\"\nreason = \"no_rule\"");
    let passing = folder(&[("a.toml", GOOD), ("a.test.toml", good)]);
    let output = freeboard(passing.path(), &["test", "."]);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(0), "1 passed, 0 failed\n"));
    let failing = folder(&[("a.toml", GOOD), ("a.test.toml", &bad)]);
    let output = freeboard(failing.path(), &["test", "."]);
    assert_eq!(output.status.code(), Some(1));
    let shown = text(&output.stdout);
    assert!(
        shown.contains("FAILED a.test.toml:3") && shown.contains("verdict: expected refuse, found allow"),
        "{shown}"
    );
    assert!(shown.ends_with("0 passed, 1 failed\n"), "{shown}");
    let without = folder(&[("a.toml", GOOD)]);
    assert_eq!(freeboard(without.path(), &["test", "."]).status.code(), Some(2));
    let typo = folder(&[("a.toml", GOOD), ("a.test.toml", &good.replace("expect", "expects"))]);
    let output = freeboard(typo.path(), &["test", "."]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("freeboard::policy::E0601"), "{}", text(&output.stderr));
}

#[test]
fn schema_prints_a_json_schema() {
    let folder = folder(&[]);
    for arguments in [vec!["schema"], vec!["schema", "--cases"]] {
        let output = freeboard(folder.path(), &arguments);
        assert_eq!(output.status.code(), Some(0));
        let schema: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(schema.get("$schema").is_some());
    }
}
