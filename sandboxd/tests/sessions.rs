//! Sessions on the wire: who may do what, what is counted, what time does. The sandboxes are fakes.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic like the tests themselves")]

mod support;

use std::sync::atomic::Ordering;
use std::time::Duration;

use freeboard_control::RequestBody;
use freeboard_policy::Tier;
use freeboard_sandboxd::admission::Limits;
use freeboard_sandboxd::provider::ReadBack;
use freeboard_sandboxd::session::Settings;
use freeboard_wire::digest::{record_digest, request_digest, result_digest, session_fingerprint};
use freeboard_wire::json::from_json;
use freeboard_wire::{
    CloseSessionResponse, DescribeResponse, OpenSessionResponse, SessionRunRequest, SessionRunResponse,
};
use support::{Act, Daemon, FakeBroker, ID, Reply, Setup, answered, until};

fn settings() -> Settings {
    Settings { most: 4, per_caller: 0, ..Settings::default() }
}

fn refusal(code: &str, mark: &str) -> (String, Option<String>) {
    (code.to_owned(), Some(mark.to_owned()))
}

const JSON: &str = "Content-Type: application/json\r\n";

async fn open_with(daemon: &Daemon, more: &str) -> OpenSessionResponse {
    let reply = daemon.post("OpenSession", &format!(r#"{{"protocol":4{more}}}"#)).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    from_json(&reply.body).unwrap()
}

async fn open(daemon: &Daemon) -> String {
    open_with(daemon, "").await.session_id
}

fn cell(id: &str) -> String {
    format!(r#"{{"protocol":4,"sessionId":"{id}","cell":{{"language":"python","code":"1"}}}}"#)
}

async fn call(daemon: &Daemon, id: &str) -> Reply {
    daemon.post("SessionRun", &cell(id)).await
}

async fn close(daemon: &Daemon, id: &str) -> Reply {
    daemon.post("CloseSession", &format!(r#"{{"protocol":4,"sessionId":"{id}"}}"#)).await
}

/// The first detail of this type.
fn detail<M: prost::Message + Default>(reply: &Reply, name: &str) -> Option<M> {
    use base64::Engine as _;
    let body: serde_json::Value = serde_json::from_slice(&reply.body).ok()?;
    let details = body.get("details")?.as_array()?;
    let detail = details.iter().find(|detail| detail.get("type").is_some_and(|text| text == name))?;
    let value =
        base64::engine::general_purpose::STANDARD_NO_PAD.decode(detail.get("value")?.as_str()?).ok()?;
    M::decode(value.as_slice()).ok()
}

/// Why the session is over.
fn ended(reply: &Reply) -> Option<i32> {
    Some(detail::<freeboard_wire::SessionEnded>(reply, "plimsoll.v1.SessionEnded")?.reason)
}

fn unanswered(reply: &Reply) -> Option<freeboard_wire::RunRecord> {
    detail::<freeboard_wire::UnansweredCall>(reply, "plimsoll.v1.UnansweredCall")?.record
}

#[tokio::test]
async fn calls_are_chained_and_the_close_counts_them() {
    let daemon = Setup::new(answered("42\n", 0)).sessions(settings()).start().await;
    let described: DescribeResponse = from_json(&daemon.post("Describe", "{}").await.body).unwrap();
    assert!(described.supports_sessions);
    assert_eq!((described.session_lifetime_ms, described.session_idle_timeout_ms), (1_800_000, 300_000));
    assert_eq!(described.session_environment.unwrap().languages, ["javascript", "python"]);

    let opened = open_with(&daemon, r#","lifetimeMs":60000,"idleTimeoutMs":999999999"#).await;
    assert_eq!(opened.session, session_fingerprint(&opened.session_id));
    assert_eq!((opened.sandbox.as_str(), opened.isolation.as_str()), ("fake", "container"));
    assert_eq!((opened.session_id.len(), opened.idle_timeout_ms), (32, 300_000));
    let mut previous = String::new();
    for sequence in 1..=3 {
        let reply = call(&daemon, &opened.session_id).await;
        assert_eq!(reply.header("plimsoll-request-id"), Some(ID));
        let answer: SessionRunResponse = from_json(&reply.body).unwrap();
        let sent: SessionRunRequest = from_json(cell(&opened.session_id).as_bytes()).unwrap();
        let run = answer.run.unwrap();
        let record = run.record.clone().unwrap();
        assert_eq!((answer.ended, record.version), (0, 4));
        assert_eq!((&record.session, record.sequence), (&opened.session, sequence));
        assert_eq!(record.previous_sha256, previous);
        assert_eq!(record.request_sha256, request_digest(&sent));
        assert_eq!(record.result_sha256, result_digest(&run));
        assert_eq!(record.record_sha256, record_digest(&record).unwrap());
        assert!(run.cell.unwrap().interpreter_started);
        previous = record.record_sha256;
    }
    for _ in 0..2 {
        let summary: CloseSessionResponse =
            from_json(&close(&daemon, &opened.session_id).await.body).unwrap();
        assert_eq!((summary.calls, &summary.last_record_sha256, summary.ended), (3, &previous, 1));
        assert_eq!(summary.session, opened.session);
    }
    let reply = call(&daemon, &opened.session_id).await;
    assert_eq!((reply.refusal(), ended(&reply)), (refusal("failed_precondition", "request"), Some(1)));
    assert_eq!(daemon.counts.all(), (1, 3, 1));
}

fn with_grant(id: &str, grant: &str) -> String {
    format!(r#"{{"protocol":4,"sessionId":"{id}","javascript":{{"code":"1","grantProfile":"{grant}"}}}}"#)
}

#[tokio::test]
async fn a_call_with_a_grant_has_a_gate_that_knows_its_session() {
    let broker = FakeBroker::start(Some(Tier::Container));
    let setup = Setup::new(answered("ok", 0)).sessions(settings()).broker(&broker);
    let daemon = setup.start().await;
    let opened = open_with(&daemon, "").await;
    let reply = daemon.post("SessionRun", &with_grant(&opened.session_id, "triage")).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(call(&daemon, &opened.session_id).await.status, 200);
    assert_eq!(broker.words(), ["prepare", "prepare", "open", "close", "prepare", "open", "close"]);
    let asked = broker.asked.lock().unwrap();
    for request in asked.iter() {
        match request {
            RequestBody::Prepare(run) => assert!(run.session, "{run:?}"),
            RequestBody::Open(gate) => {
                let session = gate.session.as_ref().expect("a call of a session");
                assert_eq!(session.fingerprint, opened.session);
                let left = session.expires_unix_ms.abs_diff(u64::try_from(opened.expires_unix_ms).unwrap());
                assert!(left < 1_000, "{left} ms off");
            }
            _ => {}
        }
    }
    let RequestBody::Open(gate) = &asked[2] else { panic!("{:?}", asked[2]) };
    assert_eq!(gate.grants, ["triage"]);
    let RequestBody::Open(gate) = &asked[5] else { panic!("{:?}", asked[5]) };
    assert!(gate.grants.is_empty(), "the next call has what it names itself: nothing");
}

#[tokio::test]
async fn a_call_whose_grant_has_a_stronger_floor_is_refused() {
    let broker = FakeBroker::start(Some(Tier::Vm));
    let setup = Setup::new(answered("ok", 0)).sessions(settings()).broker(&broker);
    let daemon = setup.start().await;
    let opened = open_with(&daemon, "").await;
    let reply = daemon.post("SessionRun", &with_grant(&opened.session_id, "triage")).await;
    assert_eq!(reply.refusal(), refusal("failed_precondition", "isolation"), "{}", reply.text());
    let notes = broker.notes();
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert_eq!((notes[0].floor, notes[0].tier), (Some(Tier::Vm), Some(Tier::Container)));
    assert_eq!(notes[0].session.as_deref(), Some(&*opened.session));
    assert!(!broker.words().contains(&"open"));
    assert_eq!(call(&daemon, &opened.session_id).await.status, 200, "the session goes on");
}

#[tokio::test]
async fn a_call_whose_grant_needs_a_door_that_the_sandbox_does_not_have_is_refused() {
    let broker = FakeBroker::start(None);
    let setup = Setup::new(answered("ok", 0)).sessions(settings()).broker(&broker);
    let daemon = setup.start().await;
    let id = open(&daemon).await;
    let reply = daemon.post("SessionRun", &with_grant(&id, "elsewhere")).await;
    assert_eq!(reply.refusal(), refusal("unimplemented", "unsupported"), "{}", reply.text());
    assert!(reply.text().contains("port 9443"), "{}", reply.text());
    for unknown in ["nothing", "triage,nothing"] {
        let reply = daemon.post("SessionRun", &with_grant(&id, unknown)).await;
        assert_eq!(reply.refusal(), refusal("permission_denied", "permission"), "{}", reply.text());
    }
    assert!(!broker.words().contains(&"open"));
    assert_eq!(daemon.post("SessionRun", &with_grant(&id, "triage")).await.status, 200, "positive control");
    broker.changed.store(true, Ordering::SeqCst);
    assert_eq!(
        call(&daemon, &id).await.status,
        200,
        "what others could need is nothing to a call without a grant"
    );
}

#[tokio::test]
async fn every_refusal_of_a_call_has_its_mark_and_counts_nothing() {
    let daemon = Setup::new(answered("", 0)).sessions(settings()).start().await;
    let id = open(&daemon).await;
    let with = |rest: &str| format!(r#"{{"protocol":4,"sessionId":"{id}",{rest}}}"#);
    let python = r#""cell":{"language":"python","code":"1"}"#;
    let table = [
        (format!(r#"{{"sessionId":"{id}",{python}}}"#), "invalid_argument", "protocol"),
        (format!(r#"{{"protocol":3,"sessionId":"{id}",{python}}}"#), "unimplemented", "protocol"),
        (with(&format!(r#""minimumIsolation":"Kernel",{python}"#)), "invalid_argument", "request"),
        (with(&format!(r#""minimumIsolation":"kernel",{python}"#)), "failed_precondition", "isolation"),
        (
            with(&format!(r#""softwareRule":{{"mode":"exact","identities":["a:1"]}},{python}"#)),
            "failed_precondition",
            "environment",
        ),
        (with(&format!(r#""softwareRule":{{"mode":"other"}},{python}"#)), "invalid_argument", "request"),
        (with(r#""timeoutMs":1"#), "invalid_argument", "request"),
        (with(r#""cell":{"language":"ruby","code":"1"}"#), "invalid_argument", "request"),
        (with(r#""cell":{"language":"python","code":""}"#), "invalid_argument", "request"),
        (
            with(r#""cell":{"language":"python","code":"1","files":[{"path":"../x"}]}"#),
            "invalid_argument",
            "request",
        ),
        // There is no broker.
        (with(r#""javascript":{"code":"1","grantProfile":"triage"}"#), "unimplemented", "unsupported"),
        (with(r#""javascript":{"code":"1"},"project":{"steps":["a"]}"#), "invalid_argument", "request"),
        (with(r#""project":{"steps":[]}"#), "invalid_argument", "request"),
    ];
    for (body, code, mark) in table {
        let reply = daemon.post("SessionRun", &body).await;
        assert_eq!(reply.refusal(), refusal(code, mark), "{body}: {}", reply.text());
        assert_eq!(reply.count("plimsoll-request-id"), 1);
    }
    for (body, code, mark) in [
        (r#"{"protocol":4,"minimumIsolation":"none"}"#, "invalid_argument", "request"),
        (r#"{"protocol":4,"minimumIsolation":"vm"}"#, "failed_precondition", "isolation"),
        (r#"{"protocol":4,"languages":["python","ruby"]}"#, "invalid_argument", "request"),
        (r#"{"protocol":4,"owner":"a b"}"#, "invalid_argument", "request"),
        (
            r#"{"protocol":4,"softwareRule":{"mode":"exact","identities":["a:1"]}}"#,
            "failed_precondition",
            "environment",
        ),
        (r#"{"protocol":4,"lifetimeMs":-1}"#, "invalid_argument", "request"),
    ] {
        let reply = daemon.post("OpenSession", body).await;
        assert_eq!(reply.refusal(), refusal(code, mark), "{body}: {}", reply.text());
    }
    let summary: CloseSessionResponse = from_json(&close(&daemon, &id).await.body).unwrap();
    assert_eq!((summary.calls, summary.last_record_sha256.as_str()), (0, ""));
    assert_eq!(daemon.counts.all(), (1, 0, 1));
}

#[tokio::test]
async fn a_foreign_session_is_answered_like_one_that_does_not_exist() {
    let daemon = Setup::new(answered("", 0)).sessions(settings()).start().await;
    let id = open(&daemon).await;
    let unknown = "f".repeat(32);
    let foreign = daemon.post_as(&daemon.bob, "SessionRun", JSON, cell(&id).as_bytes()).await;
    let missing = daemon.post_as(&daemon.bob, "SessionRun", JSON, cell(&unknown).as_bytes()).await;
    assert_eq!(foreign.refusal(), refusal("not_found", "request"));
    assert_eq!((foreign.text(), ended(&foreign)), (missing.text(), Some(9)));
    let body = format!(r#"{{"protocol":4,"sessionId":"{id}"}}"#);
    let foreign = daemon.post_as(&daemon.bob, "CloseSession", JSON, body.as_bytes()).await;
    assert_eq!((foreign.refusal(), ended(&foreign)), (refusal("not_found", "request"), Some(9)));
    assert_eq!(call(&daemon, &id).await.status, 200);
}

#[tokio::test]
async fn a_call_that_may_have_run_is_counted_and_carries_its_record() {
    let daemon = Setup::new(Act::Lose).sessions(settings()).start().await;
    let id = open(&daemon).await;
    let reply = call(&daemon, &id).await;
    assert_eq!(reply.refusal(), ("internal".to_owned(), None), "{}", reply.text());
    assert!(!reply.text().contains("secret inner reason"));
    let record = unanswered(&reply).unwrap();
    let sent: SessionRunRequest = from_json(cell(&id).as_bytes()).unwrap();
    assert_eq!((record.unanswered.as_str(), record.result_sha256.as_str()), ("internal", ""));
    assert_eq!((record.sequence, record.request_sha256.clone()), (1, request_digest(&sent)));
    assert_eq!(record.record_sha256, record_digest(&record).unwrap());
    let over = call(&daemon, &id).await;
    assert_eq!((over.refusal(), ended(&over)), (refusal("failed_precondition", "request"), Some(4)));
    let summary: CloseSessionResponse = from_json(&close(&daemon, &id).await.body).unwrap();
    assert_eq!((summary.calls, summary.last_record_sha256, summary.ended), (1, record.record_sha256, 4));
}

#[tokio::test]
async fn a_panic_in_a_call_is_unmarked_and_ends_the_session() {
    let daemon = Setup::new(Act::Panic).sessions(settings()).start().await;
    let id = open(&daemon).await;
    let reply = call(&daemon, &id).await;
    assert_eq!(reply.refusal(), ("internal".to_owned(), None));
    let over = call(&daemon, &id).await;
    assert_eq!(ended(&over), Some(5), "{}", over.text());
    assert_eq!(daemon.counts.all(), (1, 1, 1));
}

#[tokio::test]
async fn a_sandbox_that_is_not_as_it_was_serves_no_call() {
    let daemon = Setup::new(answered("", 0)).sessions(settings()).start().await;
    let id = open(&daemon).await;
    let next = |refusal| *daemon.counts.read_back.lock().unwrap() = Some(refusal);
    next(ReadBack::Unreadable(std::io::Error::other("no answer")));
    assert_eq!(call(&daemon, &id).await.refusal(), refusal("unavailable", "environment"));
    assert_eq!(call(&daemon, &id).await.status, 200, "the session goes on");
    next(ReadBack::Changed("seccomp_mode is `0`".into()));
    let reply = call(&daemon, &id).await;
    assert_eq!((reply.refusal(), ended(&reply)), (refusal("failed_precondition", "request"), Some(6)));
    assert_eq!(daemon.counts.all(), (1, 1, 1), "and the changed one is gone");
    let other = open(&daemon).await;
    next(ReadBack::Gone);
    assert_eq!(ended(&call(&daemon, &other).await), Some(4));
}

#[tokio::test]
async fn one_call_runs_one_waits_and_a_third_is_refused() {
    let daemon = std::sync::Arc::new(Setup::new(Act::Hang).sessions(settings()).start().await);
    let id = open(&daemon).await;
    let body = format!(
        r#"{{"protocol":4,"sessionId":"{id}","timeoutMs":1500,"cell":{{"language":"python","code":"1"}}}}"#
    );
    let calls: Vec<_> = (0..3)
        .map(|_| {
            let (daemon, body) = (std::sync::Arc::clone(&daemon), body.clone());
            tokio::spawn(async move { daemon.post("SessionRun", &body).await })
        })
        .collect();
    let mut refused = 0;
    for call in calls {
        let reply = call.await.unwrap();
        if reply.status != 200 {
            assert_eq!(reply.refusal(), refusal("resource_exhausted", "capacity"), "{}", reply.text());
            refused += 1;
        }
    }
    assert_eq!((refused, daemon.counts.released.load(Ordering::SeqCst)), (1, 2));
}

#[tokio::test]
async fn a_client_that_goes_away_ends_its_call_and_not_the_session() {
    let daemon = Setup::new(Act::Hang).sessions(settings()).start().await;
    let id = open(&daemon).await;
    let body = cell(&id);
    let head = format!(
        "POST /plimsoll.v1.SandboxService/SessionRun HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n\
         Content-Length: {}\r\n{JSON}\r\n",
        daemon.alice,
        body.len()
    );
    let mut stream = daemon.connect().await;
    tokio::io::AsyncWriteExt::write_all(&mut stream, format!("{head}{body}").as_bytes()).await.unwrap();
    until("the call runs", || daemon.counts.released.load(Ordering::SeqCst) == 1).await;
    drop(stream);
    until("the call is cancelled", || daemon.counts.cancelled.load(Ordering::SeqCst) == 1).await;
    let summary: CloseSessionResponse = from_json(&close(&daemon, &id).await.body).unwrap();
    assert_eq!((summary.calls, summary.ended), (1, 1), "it is counted, and the session was open");
}

#[tokio::test]
async fn caps_hold_before_a_sandbox_is_made_and_a_failed_open_gives_its_place_back() {
    let limits = Settings { most: 2, per_caller: 1, ..Settings::default() };
    let daemon = Setup::new(answered("", 0)).sessions(limits).start().await;
    let first = open(&daemon).await;
    let full = daemon.post("OpenSession", r#"{"protocol":4}"#).await;
    assert_eq!(full.refusal(), refusal("resource_exhausted", "capacity"));
    let weak =
        daemon.post_as(&daemon.bob, "OpenSession", JSON, br#"{"protocol":4,"minimumIsolation":"vm"}"#).await;
    assert_eq!(weak.refusal(), refusal("failed_precondition", "isolation"));
    let bobs = daemon.post_as(&daemon.bob, "OpenSession", JSON, br#"{"protocol":4}"#).await;
    assert_eq!(bobs.status, 200, "another caller has a place, also after a failed open: {}", bobs.text());
    assert_eq!(daemon.counts.all(), (2, 0, 0));
    close(&daemon, &first).await;
    open(&daemon).await;
    let off = Setup::new(answered("", 0)).sessions(Settings { most: 0, ..Settings::default() }).start().await;
    assert_eq!(
        off.post("OpenSession", r#"{"protocol":4}"#).await.refusal(),
        refusal("unimplemented", "unsupported")
    );
}

#[tokio::test]
async fn an_owner_at_its_cap_replaces_the_session_that_was_idle_for_longest() {
    let limits = Settings { most: 8, per_caller: 0, per_owner: 2, ..Settings::default() };
    let daemon = Setup::new(answered("", 0)).sessions(limits).start().await;
    let owner = r#","owner":"o-1""#;
    let first = open_with(&daemon, owner).await.session_id;
    let second = open_with(&daemon, owner).await.session_id;
    let other = open_with(&daemon, r#","owner":"o-2""#).await.session_id;
    call(&daemon, &first).await;
    let refused = daemon.post("OpenSession", r#"{"protocol":4,"owner":"o-1","minimumIsolation":"vm"}"#).await;
    assert_eq!(refused.refusal(), refusal("failed_precondition", "isolation"));
    assert_eq!(call(&daemon, &second).await.status, 200, "a refused open closes nothing");
    let third = open_with(&daemon, owner).await.session_id;
    assert_eq!(ended(&call(&daemon, &first).await), Some(8), "the second was used later");
    for id in [&second, &third, &other] {
        assert_eq!(call(&daemon, id).await.status, 200);
    }
}

#[tokio::test]
async fn an_owner_whose_sessions_are_all_busy_gets_no_further_one() {
    let limits = Settings { most: 8, per_caller: 0, per_owner: 1, ..Settings::default() };
    let daemon = std::sync::Arc::new(Setup::new(Act::Hang).sessions(limits).start().await);
    let id = open_with(&daemon, r#","owner":"o-1""#).await.session_id;
    let busy = std::sync::Arc::clone(&daemon);
    let body = cell(&id);
    let calling = tokio::spawn(async move { busy.post("SessionRun", &body).await });
    until("the call runs", || daemon.counts.released.load(Ordering::SeqCst) == 1).await;
    let refused = daemon.post("OpenSession", r#"{"protocol":4,"owner":"o-1"}"#).await;
    assert_eq!(refused.refusal(), refusal("resource_exhausted", "capacity"));
    assert_eq!(calling.await.unwrap().status, 200, "none was closed");
}

#[tokio::test]
async fn time_ends_what_is_unclaimed_or_old() {
    let daemon = Setup::new(answered("", 0)).sessions(settings()).start().await;
    let unclaimed = open_with(&daemon, r#","idleTimeoutMs":1000"#).await.session_id;
    let old = open_with(&daemon, r#","lifetimeMs":1500"#).await.session_id;
    assert_eq!(call(&daemon, &old).await.status, 200);
    until("both are destroyed", || daemon.counts.destroyed.load(Ordering::SeqCst) == 2).await;
    assert_eq!(ended(&call(&daemon, &unclaimed).await), Some(10));
    assert_eq!(ended(&call(&daemon, &old).await), Some(2));
    let summary: CloseSessionResponse = from_json(&close(&daemon, &old).await.body).unwrap();
    assert_eq!((summary.calls, summary.ended), (1, 2), "its count is kept for a while");
}

#[tokio::test]
async fn an_idle_session_gives_its_place_back_and_takes_one_again() {
    let mut setup = Setup::new(answered("", 0)).sessions(settings());
    setup.limits = Limits { concurrent: 1, concurrent_per_caller: 1, rate_per_minute: 0 };
    let daemon = setup.start().await;
    let id = open_with(&daemon, r#","idleTimeoutMs":1000"#).await.session_id;
    assert_eq!(call(&daemon, &id).await.status, 200);
    const ONE: &str = r#"{"protocol":4,"javascript":{"code":"1"}}"#;
    assert_eq!(daemon.post("Run", ONE).await.refusal(), refusal("resource_exhausted", "capacity"));
    until("it is suspended", || daemon.counts.suspended.load(Ordering::SeqCst) == 1).await;
    let mut status = 0;
    for _ in 0..100 {
        status = daemon.post("Run", ONE).await.status;
        if status == 200 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(status, 200, "the place is free");
    assert_eq!(call(&daemon, &id).await.status, 200, "and taken again");
    assert_eq!(daemon.post("Run", ONE).await.refusal(), refusal("resource_exhausted", "capacity"));
}

#[tokio::test]
async fn every_call_is_charged_to_the_callers_rate() {
    let mut setup = Setup::new(answered("", 0)).sessions(settings());
    setup.limits = Limits { concurrent: 8, concurrent_per_caller: 8, rate_per_minute: 3 };
    let daemon = setup.start().await;
    let id = open(&daemon).await;
    assert_eq!(call(&daemon, &id).await.status, 200);
    assert_eq!(call(&daemon, &id).await.status, 200);
    assert_eq!(call(&daemon, &id).await.refusal(), refusal("resource_exhausted", "capacity"));
}

#[tokio::test]
async fn each_call_has_a_gate_of_its_own_that_is_closed_after_it() {
    let broker = FakeBroker::start(None);
    let daemon = Setup::new(answered("", 0)).sessions(settings()).broker(&broker).start().await;
    let id = open(&daemon).await;
    assert_eq!(broker.words(), ["prepare"]);
    call(&daemon, &id).await;
    call(&daemon, &id).await;
    let expected = ["prepare", "prepare", "open", "close", "prepare", "open", "close"];
    assert_eq!(broker.words(), expected);
    broker.stop();
    // The connection that is there still lives; what matters is that a lost broker refuses.
    assert_eq!(close(&daemon, &id).await.status, 200);
}

#[tokio::test]
async fn the_callers_deadline_shortens_the_call() {
    let daemon = Setup::new(Act::Hang).sessions(settings()).start().await;
    let id = open(&daemon).await;
    let extra = format!("{JSON}Connect-Timeout-Ms: 400\r\n");
    let reply = daemon.post_as(&daemon.alice, "SessionRun", &extra, cell(&id).as_bytes()).await;
    let answer: SessionRunResponse = from_json(&reply.body).unwrap();
    assert!(answer.run.unwrap().cell.unwrap().timed_out, "answered, not lost");
}
