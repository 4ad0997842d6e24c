//! The log as a whole: lines, chain, verifier, schema, what people read.

#![allow(clippy::unwrap_used, reason = "a test says what it expects")]

use std::sync::Arc;

use freeboard_audit::{
    Chain, Decided, Digest, Entry, Event, FaultKind, PolicyIdentity, RawRecord, Recovered, RunIdentity,
    Verdict, Verifier, readable,
};
use freeboard_policy::{Reason, RuleId, Tier};

fn entry(path: &str) -> Entry {
    Entry {
        policy: Some(Arc::new(PolicyIdentity {
            digest: "ab".repeat(32).into(),
            commit: Some("c0ffee".into()),
        })),
        run: Some(Arc::new(RunIdentity {
            run: "0123456789abcdef0123456789abcdef".into(),
            caller: Some("triage-bot".into()),
            tier: Some(Tier::Container),
            provider: Some("native".into()),
            trace_id: None,
            session: None,
        })),
        event: Event::Request(Decided {
            request_id: "r-1".into(),
            verdict: Verdict::Denied,
            reason: Some(Reason::NoRule),
            grant: Some("triage".into()),
            rule: Some(RuleId("triage.deny[0].routes[0]".into())),
            api: Some("github".into()),
            approved_by: None,
            credential: None,
            door: "transparent",
            protocol: "http/1.1",
            method: "GET".into(),
            host: "api.test".into(),
            port: 443,
            path: path.into(),
            status: Some(403),
            request_bytes: 0,
            response_bytes: 120,
            duration_us: 321,
            upstream_us: None,
            upstream: None,
            upstream_status: None,
            uninspected: false,
            stripped: Box::default(),
            detail: None,
        }),
    }
}

fn log(count: u64) -> (Vec<u8>, Chain) {
    let (mut chain, mut out) = (Chain::default(), Vec::new());
    for n in 0..count {
        chain.append(1_796_048_951_123 + n, &entry(&format!("/v1/items/{n}")), &mut out).unwrap();
    }
    (out, chain)
}

#[test]
fn every_line_ends_with_its_own_run_and_policy() {
    let (mut chain, mut out) = (Chain::default(), Vec::new());
    let run = |name: &str| {
        Some(Arc::new(RunIdentity {
            run: name.into(),
            caller: None,
            tier: None,
            provider: None,
            trace_id: None,
            session: None,
        }))
    };
    let policy = |digest: &str| Some(Arc::new(PolicyIdentity { digest: digest.into(), commit: None }));
    let (a, b, p, q) = (run("a"), run("b"), policy("p"), policy("q"));
    let owners = [(&a, &p), (&a, &p), (&b, &p), (&b, &q), (&None, &q), (&None, &None), (&a, &None), (&a, &p)];
    for (run, policy) in owners {
        let entry = Entry { run: run.clone(), policy: policy.clone(), event: entry("/").event };
        chain.append(0, &entry, &mut out).unwrap();
    }
    let text = String::from_utf8(out).unwrap();
    for (line, (run, policy)) in text.lines().zip(owners) {
        let record: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(record["path"], "/");
        assert_eq!(record["run"].as_str(), run.as_ref().map(|run| &*run.run), "{line}");
        assert_eq!(record["policy"].as_str(), policy.as_ref().map(|policy| &*policy.digest), "{line}");
    }
    verify(text.as_bytes()).unwrap();
}

fn verify(bytes: &[u8]) -> Result<freeboard_audit::Report, freeboard_audit::Fault> {
    verify_with(Verifier::new(), bytes)
}

fn verify_with(
    mut verifier: Verifier,
    bytes: &[u8],
) -> Result<freeboard_audit::Report, freeboard_audit::Fault> {
    let mut lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    let rest = lines.pop().unwrap_or_default();
    for line in lines {
        verifier.line(line)?;
    }
    verifier.finish(rest)
}

fn lines(bytes: &[u8]) -> Vec<String> {
    String::from_utf8(bytes.to_vec()).unwrap().lines().map(|line| format!("{line}\n")).collect()
}

#[test]
fn a_record_is_one_line_with_every_fact() {
    let (bytes, _) = log(1);
    insta::assert_snapshot!(String::from_utf8(bytes).unwrap().trim_end(), @r#"{"seq":1,"prev":"0000000000000000000000000000000000000000000000000000000000000000","time":"2026-11-30T14:29:11.123Z","kind":"request","request_id":"r-1","verdict":"denied","reason":"no_rule","grant":"triage","rule":"triage.deny[0].routes[0]","api":"github","door":"transparent","protocol":"http/1.1","method":"GET","host":"api.test","port":443,"path":"/v1/items/0","status":403,"request_bytes":0,"response_bytes":120,"duration_us":321,"run":"0123456789abcdef0123456789abcdef","caller":"triage-bot","tier":"container","provider":"native","policy":"abababababababababababababababababababababababababababababababab","commit":"c0ffee"}"#);
}

#[test]
fn people_read_a_line_with_verdict_reason_and_who() {
    let (bytes, _) = log(1);
    let record = RawRecord::parse(bytes.trim_ascii_end()).unwrap();
    insta::assert_snapshot!(readable(&record), @"2026-11-30T14:29:11.123Z #1 denied no_rule GET api.test/v1/items/0 403 grant=triage rule=triage.deny[0].routes[0] request_id=r-1 321us up=0 down=120 run=0123456789abcdef0123456789abcdef caller=triage-bot tier=container provider=native");
}

#[test]
fn a_whole_log_verifies_and_says_its_head() {
    let (bytes, chain) = log(50);
    let report = verify(&bytes).unwrap();
    assert_eq!((report.first, report.last, report.records, report.torn_tail), (1, 50, 50, None));
    assert_eq!(report.head, chain.head());
}

#[test]
fn finds_a_changed_record() {
    let (bytes, _) = log(9);
    let changed = String::from_utf8(bytes).unwrap().replace("/v1/items/4", "/v1/items/7");
    assert_eq!(verify(changed.as_bytes()).unwrap_err().kind, FaultKind::Chain { seq: 6 });
}

#[test]
fn finds_a_missing_a_repeated_and_a_moved_record() {
    let (bytes, _) = log(9);
    let mut missing = lines(&bytes);
    missing.remove(4);
    assert_eq!(
        verify(missing.concat().as_bytes()).unwrap_err().kind,
        FaultKind::Order { expected: 5, found: 6 }
    );
    let mut repeated = lines(&bytes);
    repeated.insert(4, repeated[3].clone());
    assert_eq!(
        verify(repeated.concat().as_bytes()).unwrap_err().kind,
        FaultKind::Order { expected: 5, found: 4 }
    );
    let mut moved = lines(&bytes);
    moved.swap(3, 4);
    assert_eq!(
        verify(moved.concat().as_bytes()).unwrap_err().kind,
        FaultKind::Order { expected: 4, found: 5 }
    );
}

#[test]
fn finds_a_removed_beginning_that_claims_to_be_one() {
    let (bytes, _) = log(3);
    let cut = lines(&bytes)[1..].concat();
    // Rotated-away files are legal: the report says where the log begins.
    assert_eq!(verify(cut.as_bytes()).unwrap().first, 2);
    let forged = cut.replacen("\"seq\":2", "\"seq\":1", 1);
    assert_eq!(verify(forged.as_bytes()).unwrap_err().kind, FaultKind::Chain { seq: 1 });
}

#[test]
fn finds_a_line_that_is_no_record() {
    let (bytes, _) = log(3);
    let mut with = lines(&bytes);
    with.insert(1, "hello\n".to_owned());
    let fault = verify(with.concat().as_bytes()).unwrap_err();
    assert_eq!((fault.line, fault.kind), (2, FaultKind::NotARecord));
    // Also as the last line, where no record accounts for it.
    let last = [bytes.as_slice(), b"hello\n"].concat();
    assert_eq!(verify(&last).unwrap_err().kind, FaultKind::NotARecord);
}

#[test]
fn an_anchor_finds_a_log_that_was_rewritten_or_cut() {
    let (bytes, _) = log(9);
    let noted = Digest::of(lines(&bytes)[5].trim_end().as_bytes());
    assert!(verify_with(Verifier::with_anchor(6, noted), &bytes).is_ok());
    let cut = lines(&bytes)[..5].concat();
    assert!(verify(cut.as_bytes()).is_ok(), "a cut end alone cannot be seen");
    let fault = verify_with(Verifier::with_anchor(6, noted), cut.as_bytes()).unwrap_err();
    assert_eq!(fault.kind, FaultKind::AnchorMissing { expected: 6 });
    let (mut chain, mut rewritten) = (Chain::default(), Vec::new());
    for n in 0..9 {
        chain.append(1_796_048_951_123, &entry(&format!("/other/{n}")), &mut rewritten).unwrap();
    }
    assert!(verify(&rewritten).is_ok());
    let fault = verify_with(Verifier::with_anchor(6, noted), &rewritten).unwrap_err();
    assert_eq!(fault.kind, FaultKind::AnchorDiffers { seq: 6 });
}

#[test]
fn a_torn_last_line_verifies_up_to_the_record_before_it() {
    let (bytes, _) = log(4);
    let report = verify(&bytes[..bytes.len() - 30]).unwrap();
    assert_eq!(report.last, 3);
    assert!(report.torn_tail.is_some());
}

#[test]
fn a_torn_line_in_the_middle_needs_the_record_that_accounts_for_it() {
    let (bytes, _) = log(4);
    let complete = lines(&bytes)[..3].concat();
    let torn = &bytes[complete.len()..complete.len() + 40];
    let head = Digest::of(lines(&bytes)[2].trim_end().as_bytes());
    let recovered = |torn: &[u8]| {
        let (mut chain, mut out) = (Chain::after(3, head), Vec::new());
        let event = Event::Recovered(Recovered {
            torn_bytes: u64::try_from(torn.len()).unwrap(),
            torn_sha256: Digest::of(torn).to_string().into(),
        });
        chain.append(1_796_048_952_000, &Entry { policy: None, run: None, event }, &mut out).unwrap();
        out
    };
    let good = [complete.as_bytes(), torn, b"\n", &recovered(torn)].concat();
    let report = verify(&good).unwrap();
    assert_eq!((report.last, report.recovered), (4, 1));
    let hides_something_else = [complete.as_bytes(), b"{\"evil", b"\n", &recovered(torn)].concat();
    assert_eq!(verify(&hides_something_else).unwrap_err().kind, FaultKind::NotARecord);
}

#[test]
fn e21_escapes_what_could_forge_a_line() {
    let evil = "/x\n{\"seq\":2}\r\u{1b}[2J\u{7f}\u{85}\u{9b}12:00 allowed\u{2028}\u{202e}gpj\u{200f}\u{feff}\"\\\u{1f600}";
    let (mut chain, mut out) = (Chain::default(), Vec::new());
    chain.append(0, &entry(evil), &mut out).unwrap();
    assert_eq!(out.split(|byte| *byte == b'\n').count(), 2, "one line feed, at the end");
    assert!(out.trim_ascii_end().iter().all(|byte| (0x20..0x7f).contains(byte)));
    let record = RawRecord::parse(out.trim_ascii_end()).unwrap();
    assert_eq!(record.field("path").as_deref(), Some(evil), "nothing is lost");
    let line = readable(&record);
    assert!(line.bytes().all(|byte| (0x20..0x7f).contains(&byte)), "{line}");
    assert!(line.contains("\\u{1b}[2J"), "escapes are shown: {line}");
}

#[test]
fn a_long_field_is_cut_and_says_so() {
    let (mut chain, mut out) = (Chain::default(), Vec::new());
    chain.append(0, &entry(&format!("/{}", "\u{1}".repeat(100_000))), &mut out).unwrap();
    assert!(out.len() < 4096);
    let path = RawRecord::parse(out.trim_ascii_end()).unwrap().field("path").unwrap();
    assert!(path.ends_with("[cut]"));
    verify(&out).unwrap();
}

#[test]
fn the_stored_schema_is_the_one_of_the_code() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/schema/record.schema.json");
    let made = format!("{}\n", serde_json::to_string_pretty(&freeboard_audit::schema()).unwrap());
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(path, &made).unwrap();
    }
    let stored = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        stored == made,
        "schema/record.schema.json is stale: run with UPDATE_SCHEMA=1 and review the change"
    );
}

proptest::proptest! {
    #[test]
    fn any_text_survives_and_verifies(path in "\\PC*|[\\x00-\\x{ffff}]{0,80}", count in 1_u64..5) {
        let (mut chain, mut out) = (Chain::default(), Vec::new());
        for _ in 0..count {
            chain.append(1, &entry(&path), &mut out).unwrap();
        }
        proptest::prop_assert!(out.iter().all(|byte| *byte == b'\n' || (0x20..0x7f).contains(byte)));
        proptest::prop_assert_eq!(verify(&out).unwrap().last, count);
    }

    #[test]
    fn any_changed_byte_is_found(position in 0_usize..2000, flip in 1_u8..=255) {
        let (mut bytes, chain) = log(3);
        let position = position % bytes.len();
        bytes[position] ^= flip;
        match verify(&bytes) {
            Err(_) => {}
            // Only the last line can change without the chain showing it; the head then differs.
            Ok(report) => proptest::prop_assert_ne!((report.head, report.torn_tail), (chain.head(), None)),
        }
    }
}
