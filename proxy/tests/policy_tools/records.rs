//! `freeboard policy replay` and `learn` on a small log. A log that a broker wrote is in the tests of the whole system.

use crate::{folder, policy, seen, text};

/// Two runs of `bot` and one of `other`; a torn line; equal refusals that were counted.
const LOG: &str = r#"{"seq":1,"time":"2026-11-30T10:00:00.000Z","kind":"gate_opened","run":"r1","caller":"bot","tier":"container","grants":["g"]}
{"seq":2,"time":"2026-11-30T10:00:01.000Z","kind":"request","run":"r1","caller":"bot","tier":"container","verdict":"allowed","method":"GET","host":"a.test","port":443,"path":"/items/1","protocol":"h2","api":"a"}
{"seq":3,"time":"2026-11-30T10:00:02.000Z","kind":"request","run":"r1","caller":"bot","tier":"container","verdict":"allowed","method":"GET","host":"a.test","port":443,"path":"/items/2","protocol":"h2","api":"a"}
{"seq":4,"time":"2026-11-30T10:00:03.000Z","kind":"request","run":"r2","caller":"bot","tier":"vm","verdict":"failed","method":"GET","host":"a.test","port":443,"path":"/items/3","protocol":"h2","api":"a"}
{"seq":5,"time":"2026-11-30T10:00:04.000Z","kind":"request","run":"r1","caller":"bot","tier":"container","verdict":"denied","reason":"method_not_granted","method":"DELETE","host":"a.test","port":443,"path":"/items/1","protocol":"h2"}
{"seq":6,"time":"2026-11-30T10:00:05.000Z","kind":"requ
{"seq":7,"time":"2026-11-30T10:00:06.000Z","kind":"suppressed","of":"request","reason":"no_rule","count":17}
{"seq":8,"time":"2026-11-30T10:00:07.000Z","kind":"request","run":"r3","caller":"other","tier":"vm","verdict":"allowed","method":"GET","host":"a.test","port":443,"path":"/mine","protocol":"h2","api":"a"}
"#;

const POLICY: &str = "[api.a]\norigins = [\"https://a.test\"]\n\n[grant.g]\ncallers = [\"bot\"]\n\n[[grant.g.allow]]\napi = \"a\"\nroutes = [\"GET /items/{int}\"]\n";

#[test]
fn replay_groups_what_would_be_different() {
    let here = folder(&[("audit.jsonl", LOG), ("p.toml", POLICY)]);
    insta::assert_snapshot!(seen(&policy(here.path(), &["replay", ".", "--policy", "p.toml"])));
    let json = policy(here.path(), &["replay", "audit.jsonl", "--policy", "p.toml", "--format", "json"]);
    let report: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(report.pointer("/now_refused"), Some(&serde_json::json!(1)), "{report}");
    assert_eq!(report.pointer("/groups/0/outcome"), Some(&serde_json::json!("now_refused")));
}

#[test]
fn replay_ends_with_1_for_what_stops_and_with_0_for_what_opens() {
    let wider = POLICY.replace("callers = [\"bot\"]", "callers = [\"bot\", \"other\"]");
    let wider = wider.replace("\"GET /items/{int}\"", "\"GET|DELETE /items/{int}\", \"GET /mine\"");
    let here = folder(&[("audit.jsonl", LOG), ("p.toml", &wider)]);
    let output = policy(here.path(), &["replay", ".", "--policy", "p.toml"]);
    assert_eq!(output.status.code(), Some(0), "{}", seen(&output));
    assert!(text(&output.stdout).contains("1 now allowed"), "{}", seen(&output));
    // Held for a person, programs wait that did not wait before.
    let asking = wider.replace("api = \"a\"\n", "api = \"a\"\napprove = \"human\"\n");
    let here = folder(&[("audit.jsonl", LOG), ("p.toml", &asking)]);
    let output = policy(here.path(), &["replay", ".", "--policy", "p.toml"]);
    assert_eq!(output.status.code(), Some(1), "{}", seen(&output));
}

#[test]
fn learn_writes_a_file_and_says_what_it_is_made_of() {
    let here = folder(&[("audit.jsonl", LOG)]);
    let output =
        policy(here.path(), &["learn", ".", "--caller", "bot", "--include-refused", "--grant", "items"]);
    insta::assert_snapshot!(seen(&output));
    // It is written nowhere.
    let files: Vec<_> =
        std::fs::read_dir(here.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(files, ["audit.jsonl"]);
}

#[test]
fn nothing_seen_ends_with_1_and_no_log_with_6() {
    let here = folder(&[("log/audit.jsonl", LOG), ("empty/x", ""), ("p.toml", POLICY)]);
    insta::assert_snapshot!(seen(&policy(here.path(), &["learn", "log", "--caller", "nobody"])));
    for words in [&["learn", "empty", "--caller", "bot"][..], &["replay", "empty", "--policy", "p.toml"]] {
        let output = policy(here.path(), words);
        assert_eq!(output.status.code(), Some(6), "{}", seen(&output));
        assert!(text(&output.stderr).contains("there is no audit log in `empty`"), "{}", seen(&output));
    }
    let absent = policy(here.path(), &["replay", "log", "--policy", "absent"]);
    assert_eq!(absent.status.code(), Some(2), "{}", seen(&absent));
}
