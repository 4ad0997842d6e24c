//! `freeboard policy explain --header … --body …`: requests that are decided by more than method and target.

use crate::{folder, policy, seen, text};

const POLICY: &str = r#"
[api.a]
origins = ["https://a.test"]

[grant.g]
callers = ["x"]

[[grant.g.allow]]
api = "a"
routes = ["POST /notes"]
headers = { x-mode = "safe" }
json = { "/title" = { type = "string", max_length = 5 } }
"#;

fn explain(here: &std::path::Path, more: &[&str]) -> std::process::Output {
    let request = ["explain", "p.toml", "POST", "https://a.test/notes", "--caller", "x"];
    policy(here, &[&request, more].concat())
}

const JSON: &str = "content-type: application/json";

#[test]
fn headers_and_body_decide() {
    let here = folder(&[("p.toml", POLICY), ("body.json", "{\"title\":\"abc\"}")]);
    let safe = ["--header", JSON, "--header", "X-Mode:safe"];
    for (more, status, said) in [
        (&["--body", "{\"title\":\"abc\"}"][..], 0, "grant `g` allows it"),
        (&["--body", "@body.json"], 0, "grant `g` allows it"),
        (&["--body", "{\"title\":\"abcdef\"}"], 1, "body_not_granted"),
        (&["--body", "{\"title\":1}"], 1, "body_not_granted"),
        (&["--body", "{\"title\":\"a\",\"title\":\"b\"}"], 1, "inspection_duplicate_key"),
        (&["--body", "title=abc"], 1, "inspection_malformed"),
        (&[], 1, "inspection_malformed"),
    ] {
        let output = explain(here.path(), &[&safe, more].concat());
        assert_eq!(output.status.code(), Some(status), "{more:?} {}", seen(&output));
        assert!(text(&output.stdout).contains(said), "{more:?} {said} {}", seen(&output));
    }
    let wild = ["--header", JSON, "--header", "x-mode: wild", "--body", "{\"title\":\"abc\"}"];
    insta::assert_snapshot!(seen(&explain(here.path(), &wild)));
    let plain = ["--header", "x-mode: safe", "--header", "content-type: text/plain", "--body", "{}"];
    insta::assert_snapshot!(seen(&explain(here.path(), &plain)));
}

#[test]
fn what_is_no_header_and_a_file_that_is_not_there_end_with_2() {
    let here = folder(&[("p.toml", POLICY)]);
    let header = explain(here.path(), &["--header", "x-mode"]);
    assert_eq!(header.status.code(), Some(2), "{}", seen(&header));
    assert!(text(&header.stderr).contains("a header is `NAME: VALUE`"), "{}", seen(&header));
    let absent = explain(here.path(), &["--body", "@absent.json"]);
    assert_eq!(absent.status.code(), Some(2), "{}", seen(&absent));
}
