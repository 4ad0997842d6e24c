//! `freeboard policy import`, `export` and `explain-code` as people run them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const SPEC: &str = "
openapi: 3.0.3
info: { title: Items, version: '1' }
servers: [{ url: https://items.test/v1 }]
paths:
  /items/{id}:
    parameters: [{ name: id, in: path, required: true, schema: { type: integer, minimum: 0 } }]
    get: { operationId: getItem }
    put: { operationId: putItem }
";

fn freeboard(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_freeboard"))
        .arg("policy")
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn an_imported_description_passes_the_check_and_decides() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("spec.yaml"), SPEC).unwrap();
    let output =
        freeboard(folder.path(), &["import", "openapi", "spec.yaml", "--caller", "bot", "--grant", "read"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("PUT /items/{id} (putItem)"), "{}", text(&output.stderr));
    let policy = folder.path().join("policy");
    std::fs::create_dir(&policy).unwrap();
    std::fs::write(policy.join("items.toml"), &output.stdout).unwrap();

    assert_eq!(freeboard(&policy, &["check", ".", "--deny-warnings"]).status.code(), Some(0));
    let explain = |method: &str, url: &str| {
        let output = freeboard(&policy, &["explain", ".", method, url, "--caller", "bot", "--grant", "read"]);
        output.status.code()
    };
    assert_eq!(explain("GET", "https://items.test/v1/items/7"), Some(0));
    assert_eq!(explain("GET", "https://items.test/v1/items/x"), Some(1));
    assert_eq!(explain("PUT", "https://items.test/v1/items/7"), Some(1));
}

#[test]
fn a_description_comes_from_stdin_and_the_report_as_json() {
    let arguments = [
        "policy",
        "import",
        "openapi",
        "-",
        "--caller",
        "bot",
        "--write",
        "--operation",
        "putItem",
        "--format",
        "json",
    ];
    let mut child = Command::new(env!("CARGO_BIN_EXE_freeboard"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(SPEC.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(answer["policy"].as_str().unwrap().contains("PUT /v1/items/{int}"));
    assert_eq!(answer["report"]["routes"], 1);
    assert_eq!(answer["report"]["findings"][0]["kind"], "left_out");
}

#[test]
fn what_cannot_be_imported_ends_with_1_and_what_cannot_be_read_with_2() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("old.json"), "{\"swagger\": \"2.0\"}").unwrap();
    let output = freeboard(folder.path(), &["import", "openapi", "old.json", "--caller", "bot"]);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(1), ""));
    assert!(text(&output.stderr).contains("Swagger 2.0"));
    let output = freeboard(folder.path(), &["import", "openapi", "missing.json", "--caller", "bot"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("cannot read `missing.json`"));
}

#[test]
fn logs_and_grants_files_are_imported_too() {
    let folder = tempfile::tempdir().unwrap();
    let log = r#"{"log": {"entries": [{"request": {"method": "GET", "url": "https://seen.test/a/1"}, "response": {"status": 200}}]}}"#;
    let grants = r#"{"profiles": {"p": {"base_url": "https://p.test", "allow": ["GET /x"], "allowed_callers": ["bot"]}}}"#;
    for (name, arguments, source, route) in [
        ("log.har", ["import", "har", "log.har", "--caller=bot"], log, "GET /a/{int}"),
        ("grants.json", ["import", "plimsoll", "grants.json", "--format=text"], grants, "GET /x"),
    ] {
        std::fs::write(folder.path().join(name), source).unwrap();
        let output = freeboard(folder.path(), &arguments);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        std::fs::write(folder.path().join("out.toml"), &output.stdout).unwrap();
        assert!(text(&output.stdout).contains(route), "{}", text(&output.stdout));
        assert_eq!(
            freeboard(folder.path(), &["check", "out.toml", "--deny-warnings"]).status.code(),
            Some(0)
        );
    }
}

#[test]
fn a_grant_is_exported_as_tools() {
    let folder = tempfile::tempdir().unwrap();
    let policy = "[api.a]\norigins = [\"https://a.test\"]\n[grant.g]\ncallers = [\"x\"]\n[[grant.g.allow]]\napi = \"a\"\nroutes = [\"GET /items/{int}\"]\n";
    std::fs::write(folder.path().join("p.toml"), policy).unwrap();
    let output = freeboard(folder.path(), &["export", "tools", ".", "--grant", "g"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let tools: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(tools["tools"][0]["inputSchema"]["properties"]["items_id"]["type"], "integer");
    let output = freeboard(folder.path(), &["export", "tools", ".", "--grant", "h"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("grants are g"), "{}", text(&output.stderr));
}

#[test]
fn every_code_is_explained_and_a_misspelt_one_is_met_with_the_one_that_was_meant() {
    let folder = tempfile::tempdir().unwrap();
    for code in ["E0106", "freeboard::policy::E0106", "unknown-field"] {
        let output = freeboard(folder.path(), &["explain-code", code]);
        assert_eq!(output.status.code(), Some(0));
        let shown = text(&output.stdout);
        assert!(shown.starts_with("# E0106: unknown-field") && shown.contains("How to mend it"), "{shown}");
    }
    let output = freeboard(folder.path(), &["explain-code", "E016"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("did you mean `E0"), "{}", text(&output.stderr));
}
