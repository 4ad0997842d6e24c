//! What was recorded, under another policy (`replay`) and as a proposal (`learn`).

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::sync::LazyLock;

use freeboard_policy::explain::{Request, Verdict};
use freeboard_policy::import::{ImportError, Imported};
use freeboard_policy::learn::{Learner, Options};
use freeboard_policy::replay::{Outcome, Record, Replay, Replayer, Unknown};
use freeboard_policy::{Policy, Reason, SourceFile, Tier, Traffic, format, render_all};
use proptest::prelude::*;

const POLICY: &str = r#"
[api.code]
origins = ["https://code.test"]

[grant.g]
callers = ["bot"]
expires = 2027-01-31

[[grant.g.allow]]
api = "code"
routes = ["GET /repos/{repo}/issues/{int}", "GET /search?q={slug}&token&key={int}"]

[[grant.g.allow]]
api = "code"
routes = ["POST /graphql", "POST /notes"]
json = { "/id" = "integer" }

[[grant.g.allow]]
api = "code"
routes = ["PUT /notes/{int}"]
headers = { x-mode = "safe" }

[[grant.g.allow]]
api = "code"
routes = ["DELETE /notes/{int}"]
approve = "human"

[[grant.g.deny]]
api = "code"
routes = ["GET /repos/secret/**"]

[[grant.g.deny]]
api = "code"
routes = ["GET /repos/careful/**"]
headers = { x-mode = "wild" }
"#;

/// Before the last day of the grant.
const NOW: i64 = 1_800_000_000;

fn load(text: &str) -> Policy {
    let files = [SourceFile::new("policy.toml", text)];
    Policy::load(&files).unwrap_or_else(|problems| panic!("{}", render_all(&problems))).policy
}

fn record(request: &str, reason: Option<Reason>) -> Record {
    let (method, target) = request.split_once(' ').unwrap();
    Record {
        caller: Some("bot".to_owned()),
        tier: Some(Tier::Container),
        grants: Some(vec!["g".to_owned()]),
        run: Some(format!("run-{}", target.len() % 3)),
        method: method.to_owned(),
        host: "code.test".to_owned(),
        port: 443,
        target: target.to_owned(),
        permitted: reason.is_none(),
        reason,
        api: reason.is_none().then(|| "code".to_owned()),
        ..Record::default()
    }
}

fn replayed(policy: &Policy, records: &[Record]) -> Replay {
    let mut replayer = Replayer::new(policy, NOW);
    for record in records {
        replayer.add(record);
    }
    replayer.finish()
}

#[test]
fn each_record_is_decided_again_or_said_to_be_undecidable() {
    use Reason::{BudgetExhausted, DeniedByRule, MethodNotGranted, NoRule};
    let policy = load(POLICY);
    let refused = |reason| Some((Outcome::NowRefused, Some(reason), None));
    let unknown = |unknown| Some((Outcome::Unknown, None, Some(unknown)));
    for (request, then, expected) in [
        ("GET /repos/site/issues/7", None, None),
        ("GET /repos/site/issues/seven", Some(NoRule), None),
        ("DELETE /repos/site/issues/7", None, refused(MethodNotGranted)),
        ("GET /other", None, refused(NoRule)),
        ("GET /repos/secret/issues/7", None, refused(DeniedByRule)),
        ("GET /repos/site/issues/7", Some(NoRule), Some((Outcome::NowAllowed, Some(NoRule), None))),
        ("DELETE /notes/3", None, Some((Outcome::NeedsApproval, None, None))),
        ("GET /repos/careful/issues/7", None, unknown(Unknown::Fields)),
        ("PUT /notes/3", None, unknown(Unknown::Fields)),
        ("PUT /notes/x", None, refused(NoRule)),
        ("POST /graphql", None, unknown(Unknown::Body)),
        ("GET /search?q=a&token=[redacted]", None, None),
        ("GET /search?q=a&key=[redacted]", None, unknown(Unknown::RedactedValue)),
        ("GET /search?q=a&other=[redacted]", None, refused(Reason::QueryNotGranted)),
        ("GET /other?token=[redacted]", None, refused(NoRule)),
        ("GET /repos/site/issues/7[cut]", None, unknown(Unknown::Cut)),
        ("GET /repos/site/issues/7", Some(BudgetExhausted), None),
    ] {
        let replay = replayed(&policy, &[record(request, then)]);
        let found = replay.groups.first().map(|group| (group.outcome, group.reason, group.unknown));
        assert_eq!(found, expected, "{request} {then:?}");
    }
}

#[test]
fn what_somebody_approved_needs_approval_as_before() {
    let approved = Record { approved: true, ..record("DELETE /notes/3", None) };
    let replay = replayed(&load(POLICY), &[approved]);
    assert_eq!((replay.same, replay.needs_approval), (1, 0));
}

#[test]
fn a_grant_that_is_over_or_another_callers_refuses() {
    let policy = load(POLICY);
    let call = record("GET /repos/site/issues/7", None);
    for (now, caller, reason) in
        [(NOW + 100_000_000, "bot", Reason::GrantExpired), (NOW, "other", Reason::GrantNotAvailable)]
    {
        let mut replayer = Replayer::new(&policy, now);
        replayer.add(&Record { caller: Some(caller.to_owned()), ..call.clone() });
        let replay = replayer.finish();
        assert_eq!(replay.groups.first().and_then(|group| group.reason), Some(reason));
    }
}

#[test]
fn a_schedule_is_asked_about_the_time_of_the_call() {
    let policy = load(&POLICY.replace("expires = 2027-01-31", "schedule = [\"Mon-Fri 08:00-18:00\"]"));
    // A Thursday, 1970-01-01, at noon and at 20:00.
    for (time, now_refused) in [(12 * 3600, 0), (20 * 3600, 1)] {
        let call = Record { time_unix: Some(time), ..record("GET /repos/site/issues/7", None) };
        assert_eq!(replayed(&policy, &[call]).now_refused, now_refused);
    }
}

#[test]
fn a_run_whose_beginning_is_not_in_the_log_is_decided_by_every_grant_of_its_caller() {
    let call = Record { grants: None, ..record("GET /repos/site/issues/7", None) };
    let replay = replayed(&load(POLICY), &[call]);
    assert_eq!((replay.same, replay.grants_assumed), (1, 1));
}

#[test]
fn calls_of_one_kind_are_counted_together() {
    let mut records: Vec<Record> =
        (1..=40).map(|id| record(&format!("PUT /repos/site/issues/{id}"), None)).collect();
    records.push(record("GET /repos/site/issues/7", None));
    records.push(record("GET /repos/site/issues/8", Some(Reason::NoRule)));
    records.push(record("GET /search?q=a&key=[redacted]", None));
    records.push(record("DELETE /notes/3", None));
    records.push(record("GET /x", Some(Reason::BudgetExhausted)));
    records.push(Record { grants: None, ..record("GET /\u{1b}[2J", None) });
    insta::assert_snapshot!(replayed(&load(POLICY), &records).render());
}

const METHODS: [&str; 4] = ["GET", "PUT", "POST", "DELETE"];
const PATHS: [&str; 8] = [
    "/repos/site/issues/7",
    "/repos/secret/issues/7",
    "/repos/careful/issues/7",
    "/notes",
    "/notes/3",
    "/graphql",
    "/search",
    "/other",
];
const QUERIES: [&str; 6] = ["", "?q=a", "?q=a&token=t1", "?q=a&key=7", "?q=a&key=k", "?other=1"];

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever the request had that its record does not: where the replay gives an answer, the evaluator gives the same.
    #[test]
    fn an_answer_is_the_evaluators(
        method in prop::sample::select(&METHODS[..]),
        path in prop::sample::select(&PATHS[..]),
        query in prop::sample::select(&QUERIES[..]),
        mode in prop::sample::select(&["", "safe", "wild"][..]),
        body in prop::sample::select(&["", "{\"id\":1}", "{\"id\":\"x\"}"][..]),
    ) {
        static LOADED: LazyLock<Policy> = LazyLock::new(|| load(POLICY));
        let policy = &*LOADED;
        let mut headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        if !mode.is_empty() {
            headers.push(("x-mode".to_owned(), mode.to_owned()));
        }
        let grants = ["g".to_owned()];
        let truth = policy.explain(&Request {
            caller: Some("bot"),
            grants: Some(&grants),
            tier: None,
            method,
            url: &format!("https://code.test{path}{query}"),
            headers: &headers,
            body: (!body.is_empty()).then_some(body.as_bytes()),
            websocket: false,
            now_unix: NOW,
        });
        let allowed = truth.verdict == Verdict::Allow;
        // As the audit log writes it.
        let hidden = query.split_inclusive(['?', '&']).map(|pair| match pair.split_once('=') {
            Some((name @ ("token" | "key"), rest)) => {
                format!("{name}=[redacted]{}", if rest.ends_with('&') { "&" } else { "" })
            }
            _ => pair.to_owned(),
        });
        let target = format!("{path}{}", hidden.collect::<String>());
        let then = (!allowed).then_some(truth.reason).flatten();
        let was = record(&format!("{method} {target}"), None);
        let replay = replayed(policy, &[Record { permitted: allowed, reason: then, ..was }]);
        let now = replay.groups.first();
        let approval = truth.approval.is_some();
        match now.map(|group| group.outcome) {
            Some(Outcome::Unknown) => {}
            Some(Outcome::NeedsApproval) => prop_assert!(allowed && approval),
            Some(other) => prop_assert!(false, "{other:?} of {method} {target}: {truth:?}"),
            None => prop_assert!(!allowed || !approval),
        }
    }
}

fn seen() -> Vec<Record> {
    let mut records = Vec::new();
    for id in [3, 14, 159, 265] {
        records.push(record(&format!("GET /repos/site/issues/{id}?page={}&state=open", id % 2 + 1), None));
        records.push(record(&format!("GET /repos/site/issues/{id}/comments"), None));
    }
    records.push(record("POST /repos/site/issues/3/comments", None));
    records.push(record("GET /me", None));
    for name in ["ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen", "ibis", "jay"] {
        records.push(record(&format!("GET /people/{name}"), None));
    }
    records.push(record("GET /search?q=a+b&token=[redacted]", None));
    records.push(record("DELETE /repos/site/issues/3", Some(Reason::MethodNotGranted)));
    records.push(Record { approved: true, ..record("DELETE /notes/3", None) });
    records.push(Record { caller: Some("other".to_owned()), ..record("GET /not-mine", None) });
    records
}

fn options(include_refused: bool) -> Options {
    Options {
        callers: vec!["bot".to_owned()],
        grant: "learnt".to_owned(),
        include_refused,
        beside: Vec::new(),
    }
}

fn learn(records: &[Record], options: Options) -> Result<Imported, ImportError> {
    let mut learner = Learner::new(options);
    for record in records {
        learner.add(record);
    }
    learner.finish()
}

/// The requests again, as if their runs had named the grant that was learnt.
fn under(policy: &Policy, records: &[Record]) -> Replay {
    let named = |record: &Record| Record { grants: Some(vec!["learnt".to_owned()]), ..record.clone() };
    replayed(policy, &records.iter().map(named).collect::<Vec<_>>())
}

#[test]
fn what_is_learnt_stands_with_its_evidence() {
    let learnt = learn(&seen(), options(false)).unwrap();
    insta::assert_snapshot!(learnt.policy);
    assert!(!learnt.policy.contains("PATCH") && !learnt.policy.contains("not-mine"));
    let file = SourceFile::new("learnt.toml", learnt.policy.as_str());
    assert_eq!(format::format(&file).unwrap(), learnt.policy, "it is in the one layout");
}

#[test]
fn refusals_are_taken_only_as_asked_and_are_marked() {
    assert!(!learn(&seen(), options(false)).unwrap().policy.contains("DELETE /repos"));
    let learnt = learn(&seen(), options(true)).unwrap().policy;
    assert!(learnt.contains("DELETE /repos/site/issues/3\", # 1 request, in 1 run, 1 refused"), "{learnt}");
}

#[test]
fn it_allows_all_that_was_seen_and_little_else() {
    let learnt = learn(&seen(), options(false)).unwrap().policy;
    let policy = load(&learnt);
    let wanted = |record: &Record| record.permitted && record.caller.as_deref() == Some("bot");
    let mine: Vec<Record> = seen().into_iter().filter(wanted).collect();
    let replay = under(&policy, &mine);
    assert_eq!(replay.same, replay.requests, "{}\n{learnt}", replay.render());
    for unseen in [
        "GET /repos/other/issues/3",
        "PUT /repos/site/issues/3",
        "GET /repos/site/issues/x/comments",
        "GET /me/keys",
        "GET /repos/site/issues/3?page=1&state=closed",
        "GET /people/a.b",
    ] {
        assert_eq!(under(&policy, &[record(unseen, None)]).now_refused, 1, "{unseen}\n{learnt}");
    }
}

#[test]
fn beside_a_folder_its_apis_are_used_and_names_must_be_new() {
    let beside = vec![SourceFile::new("policy.toml", POLICY)];
    let learnt = learn(&seen(), Options { beside: beside.clone(), ..options(false) }).unwrap();
    assert!(!learnt.policy.contains("[api."), "{}", learnt.policy);
    let files = [beside.clone(), vec![SourceFile::new("learnt.toml", learnt.policy)]].concat();
    assert!(Policy::load(&files).is_ok());
    let taken = learn(&seen(), Options { beside, grant: "g".to_owned(), ..options(false) });
    let Err(ImportError::Refused(problems)) = taken else { panic!("{taken:?}") };
    assert!(
        problems.iter().any(|problem| problem.message.contains("defined twice")),
        "{}",
        render_all(&problems)
    );
}

#[test]
fn g29_a_suggestion_is_narrow_and_opens_no_address() {
    let raw = Record { host: "10.0.0.5".to_owned(), port: 80, ..record("GET /", Some(Reason::RawAddress)) };
    let evil = |request: &str, reason| Record { host: "evil.test".to_owned(), ..record(request, reason) };
    let records = [raw.clone(), evil("GET /x", Some(Reason::HostNotGranted))];
    let learnt = learn(&records, options(true)).unwrap().policy;
    assert!(
        !learnt.contains("10.0.0.5") && !learnt.contains("addresses") && !learnt.contains('*'),
        "{learnt}"
    );
    let policy = load(&learnt);
    assert_eq!(under(&policy, &[evil("GET /x", None)]).now_refused, 0, "{learnt}");
    for unseen in ["GET /", "GET /x/y", "POST /x", "GET /x?y=1"] {
        assert_eq!(under(&policy, &[evil(unseen, None)]).now_refused, 1, "{unseen}\n{learnt}");
    }
    assert!(matches!(learn(&[raw], options(true)), Err(ImportError::Nothing(_))));
}

#[test]
fn nothing_seen_is_no_grant() {
    let none = learn(&[record("GET /x", Some(Reason::NoRule))], options(false));
    assert!(matches!(none, Err(ImportError::Nothing(_))), "{none:?}");
}

fn segment() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(&["repos", "site", "issues", "a%20b", "*", "int", "{x}", "v1.2"][..])
            .prop_map(|text| text.replace('{', "%7B").replace('}', "%7D")),
        (0..30_u32).prop_map(|number| number.to_string()),
        "[a-z]{1,3}",
        "[0-9a-f]{8}",
    ]
}

fn query() -> impl Strategy<Value = String> {
    let value = prop_oneof![
        Just("[redacted]".to_owned()),
        Just(String::new()),
        (0..20_u32).prop_map(|number| number.to_string()),
        "[a-z+%2]{0,3}".prop_map(|text| text.replace('%', "%2C")),
    ];
    let pair = (prop::sample::select(&["a", "b", "token", "x%5B%5D"][..]), value);
    prop::collection::vec(pair.prop_map(|(name, value)| format!("{name}={value}")), 0..4)
        .prop_map(|pairs| if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) })
}

fn records() -> impl Strategy<Value = Vec<Record>> {
    let path = prop::collection::vec(segment(), 0..4);
    let one = (prop::sample::select(&METHODS[..]), path, any::<bool>(), query(), 0..12_u8);
    let one = one.prop_map(|(method, path, slash, query, kind)| {
        let slash = if slash && !path.is_empty() { "/" } else { "" };
        let reason = (kind == 0).then_some(Reason::NoRule);
        let record = record(&format!("{method} /{}{slash}{query}", path.join("/")), reason);
        Record { approved: kind == 1, websocket: kind == 2, tier: (kind != 3).then_some(Tier::Vm), ..record }
    });
    prop::collection::vec(one, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// What is learnt passes the checks, and under it all that was seen is allowed.
    #[test]
    fn what_is_learnt_covers_what_was_seen(records in records(), include_refused in any::<bool>()) {
        let taken: Vec<Record> =
            records.iter().filter(|record| record.permitted || include_refused).cloned().collect();
        prop_assume!(!taken.is_empty());
        let learnt = learn(&records, options(include_refused)).unwrap();
        let loaded = Policy::load(&[SourceFile::new("learnt.toml", learnt.policy.as_str())]);
        let loaded = loaded.map_err(|problems| TestCaseError::fail(render_all(&problems)))?;
        for record in &taken {
            let replay = under(&loaded.policy, &[Record { approved: true, ..record.clone() }]);
            let allowed = replay.same + replay.now_allowed == 1;
            prop_assert!(allowed, "{} {}\n{}\n{}", record.method, record.target, replay.render(), learnt.policy);
        }
        // Nothing that somebody approved is allowed without being asked for again.
        let approved: Vec<Record> = taken.into_iter().filter(|record| record.approved && record.permitted).collect();
        let unasked: Vec<Record> = approved.iter().map(|record| Record { approved: false, ..record.clone() }).collect();
        prop_assert_eq!(under(&loaded.policy, &unasked).needs_approval, approved.len() as u64, "{}", learnt.policy);
        let origins: BTreeSet<&str> = learnt.policy.lines().filter(|line| line.starts_with("origins")).collect();
        prop_assert_eq!(origins.len(), 1);
    }
}

/// APIs whose connections are passed on unread, and one that is not.
const UNREAD: &str = r#"
[api.db]
tcp = ["db.test:5432"]
[api.pinned]
origins = ["https://pinned.test"]
tls = "passthrough"
[api.code]
origins = ["https://code.test"]
[grant.g]
callers = ["bot"]
[[grant.g.allow]]
api = "db"
[[grant.g.allow]]
api = "pinned"
approve = "human"
[[grant.g.allow]]
api = "code"
routes = ["GET /a"]
"#;

fn connection(traffic: Traffic, host: &str, port: u16, reason: Option<Reason>) -> Record {
    Record { traffic, host: host.to_owned(), port, api: None, ..record("CONNECT ", reason) }
}

#[test]
fn connections_that_were_passed_on_are_decided_again() {
    use Traffic::{Requests, Tcp, TlsPassthrough};
    let policy = load(UNREAD);
    let unread = Some((Outcome::Unknown, None, Some(Unknown::Unread)));
    let refused = |reason| Some((Outcome::NowRefused, Some(reason), None));
    for (was, expected) in [
        (connection(Tcp, "db.test", 5432, None), None),
        (connection(TlsPassthrough, "db.test", 5432, None), None),
        (connection(Tcp, "db.test", 5433, None), refused(Reason::PortNotGranted)),
        (connection(Tcp, "other.test", 5432, None), refused(Reason::HostNotGranted)),
        (
            connection(Tcp, "db.test", 5432, Some(Reason::HostNotGranted)),
            Some((Outcome::NowAllowed, Some(Reason::HostNotGranted), None)),
        ),
        (connection(Tcp, "db.test", 5432, Some(Reason::BudgetExhausted)), None),
        (connection(TlsPassthrough, "pinned.test", 443, None), Some((Outcome::NeedsApproval, None, None))),
        (Record { approved: true, ..connection(TlsPassthrough, "pinned.test", 443, None) }, None),
        (connection(Tcp, "pinned.test", 443, None), unread),
        (connection(TlsPassthrough, "code.test", 443, None), unread),
        // Requests that were read, to places where nothing would be read any more.
        (connection(Requests, "pinned.test", 443, None), Some((Outcome::NeedsApproval, None, None))),
        (connection(Requests, "db.test", 5432, None), None),
    ] {
        let replay = replayed(&policy, std::slice::from_ref(&was));
        let found = replay.groups.first().map(|group| (group.outcome, group.reason, group.unknown));
        assert_eq!(found, expected, "{was:?}");
        assert_eq!(replay.connections, u64::from(was.traffic != Requests));
    }
    let many = [connection(Tcp, "db.test", 1, None), connection(TlsPassthrough, "code.test", 443, None)];
    insta::assert_snapshot!(replayed(&policy, &many).render());
}

#[test]
fn connections_are_learnt_as_rules_without_routes() {
    let seen = [
        connection(Traffic::Tcp, "db.test", 5432, None),
        connection(Traffic::Tcp, "db.test", 5432, None),
        Record { api: Some("old".to_owned()), ..connection(Traffic::Tcp, "old.test", 22, None) },
        Record { approved: true, ..connection(Traffic::TlsPassthrough, "pinned.test", 443, None) },
        connection(Traffic::TlsPassthrough, "refused.test", 8443, Some(Reason::HostNotGranted)),
        record("GET /a", None),
    ];
    let learnt = learn(&seen, options(false)).unwrap().policy;
    insta::assert_snapshot!(learnt);
    let policy = load(&learnt);
    let wanted: Vec<Record> = seen.iter().filter(|record| record.permitted).cloned().collect();
    let replay = under(&policy, &wanted);
    assert_eq!(replay.same, replay.requests, "{}\n{learnt}", replay.render());
    let wide = learn(&seen, options(true)).unwrap().policy;
    assert!(wide.contains("\"https://refused.test:8443\"") && wide.contains("1 refused"), "{wide}");
    let beside = vec![SourceFile::new("policy.toml", UNREAD)];
    let learnt = learn(&seen[..2], Options { beside, ..options(false) }).unwrap().policy;
    assert!(!learnt.contains("[api.") && learnt.contains("api = \"db\""), "{learnt}");
}
