//! freeboard.v1: runs that outlive their exchange, keys, waiting, cancelling, and what is known after a crash.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic like the tests themselves")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use freeboard_sandboxd::admission::Limits;
use freeboard_sandboxd::api::tell;
use freeboard_sandboxd::job::{NoSink, Payload};
use freeboard_sandboxd::launch::{InSession, Order, Refusal, RunError, Witness, new_run_id};
use freeboard_sandboxd::runs::Runs;
use freeboard_wire::digest::sha256_hex;
use freeboard_wire::runs::{
    Ending, Executed, LimitsResponse, ListResponse, Run, RunResult, State, Taken, WatchResponse,
    WriteResponse, record_digest, result_digest,
};
use futures_util::future::BoxFuture;
use support::{Act, Daemon, FakeBroker, ID, Reply, Setup, answered, until};

const ONE: &str = r#"{"program":{"javascript":"1"}}"#;

fn run(reply: &Reply) -> Run {
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.header("freeboard-request-id"), Some(ID));
    serde_json::from_slice(&reply.body).unwrap()
}

/// Code, and what the header says of nothing having run.
fn refusal(reply: &Reply) -> (String, Option<&str>) {
    (reply.refusal().0, reply.header("freeboard-not-dispatched"))
}

const WAIT: &str = "Prefer: wait=20\r\n";

/// Starts a run and waits for its end.
async fn ended(daemon: &Daemon, body: &str) -> Run {
    run(&daemon.own(&daemon.alice, "Start", WAIT, body).await)
}

async fn start(daemon: &Daemon, body: &str) -> Run {
    run(&daemon.own(&daemon.alice, "Start", "", body).await)
}

async fn get(daemon: &Daemon, id: &str) -> Run {
    run(&daemon.own(&daemon.alice, "Get", "", &format!(r#"{{"run":"{id}"}}"#)).await)
}

/// One place, held by a run that hangs.
async fn full() -> (Daemon, Run) {
    let limits = Limits { concurrent: 1, concurrent_per_caller: 1, rate_per_minute: 0 };
    let daemon = Setup { limits, ..Setup::new(Act::Hang) }.start().await;
    let first = start(&daemon, ONE).await;
    until("it runs", || daemon.counts.all().1 == 1).await;
    (daemon, first)
}

#[tokio::test]
async fn a_run_is_answered_with_a_record_that_verifies() {
    let daemon = Setup::new(answered("42\n", 3)).start().await;
    let body = r#"{"program":{"command":["python3","x.py"]},"files":[{"path":"x.py","content":"AP8="}],"artifacts":["o"],
        "environment":[{"name":"A","value":"b"}],"minimumIsolation":"container","timeoutMs":1500,"traceId":"t-1"}"#;
    let run = ended(&daemon, body).await;
    assert_eq!((run.state, run.ending, run.executed), (State::Ended, Some(Ending::Completed), Executed::Yes));
    let (result, record) = (run.result.unwrap(), run.record.unwrap());
    assert_eq!((result.steps[0].stdout.as_slice(), result.steps[0].exit_code), (b"42\n".as_slice(), 3));
    assert_eq!(
        (record.run.as_str(), record.provider.as_str(), record.isolation.as_str()),
        (run.run.as_str(), "fake", "container")
    );
    assert_eq!(record.request_sha256, sha256_hex(body.as_bytes()));
    assert_eq!(record.result_sha256, result_digest(record.version, Ending::Completed, &result));
    assert_eq!(record.record_sha256, record_digest(&record));
    assert_eq!((result.evidence[0].name.as_str(), result.evidence[0].met), ("seccomp_mode", true));
    let plan = daemon.plans.lock().unwrap()[0].clone();
    assert_eq!(plan.job.payload, Payload::Command { argv: vec!["python3".into(), "x.py".into()] });
    assert_eq!(
        (plan.job.files[0].content.as_slice(), plan.job.timeout.as_millis()),
        (b"\0\xff".as_slice(), 1500)
    );
    assert_eq!(plan.job.environment, [("A".to_owned(), "b".to_owned())]);
    assert_eq!((plan.job.artifacts, plan.job.trace_id.as_deref()), (vec!["o".to_owned()], Some("t-1")));
}

#[tokio::test]
async fn several_grants_reach_one_run_and_its_requests_are_counted() {
    let broker = FakeBroker::start(None);
    let daemon = Setup::new(answered("", 0)).broker(&broker).start().await;
    let body = r#"{"program":{"javascript":"1"},"grants":["triage"]}"#;
    let ended = ended(&daemon, body).await;
    assert_eq!(ended.result.unwrap().requests.unwrap().allowed, 2);
    assert_eq!(broker.words(), ["prepare", "open", "close"]);
    assert_eq!(ended.record.unwrap().policy, format!("policy:sha256:{}", "d".repeat(64)));
    let refused = r#"{"program":{"javascript":"1"},"grants":["triage","other"]}"#;
    let refused = run(&daemon.own(&daemon.alice, "Start", WAIT, refused).await);
    assert_eq!((refused.ending, refused.executed), (Some(Ending::Refused), Executed::No));
    assert_eq!(refused.refusal.unwrap().reason, "permission");
    assert_eq!(daemon.counts.all().1, 1);
}

#[tokio::test]
async fn the_same_start_under_one_key_is_one_run() {
    let daemon = Setup::new(answered("", 0)).start().await;
    let key = "Prefer: wait=20\r\nIdempotency-Key: order-17\r\n";
    let first = run(&daemon.own(&daemon.alice, "Start", key, ONE).await);
    let again = run(&daemon.own(&daemon.alice, "Start", key, ONE).await);
    assert_eq!(first, again);
    let by_key = daemon.own(&daemon.alice, "Get", "", r#"{"idempotencyKey":"order-17"}"#).await;
    assert_eq!(run(&by_key), first);
    let two = r#"{"program":{"javascript":"2"}}"#;
    let other = daemon.own(&daemon.alice, "Start", key, two).await;
    assert_eq!(refusal(&other), ("already_exists".to_owned(), Some("request")));
    let bobs = run(&daemon.own(&daemon.bob, "Start", key, ONE).await);
    assert_ne!(bobs.run, first.run, "a key is its caller's own");
    assert_eq!(daemon.counts.all().1, 2);
}

#[tokio::test]
async fn ten_at_once_under_one_key_are_one_run() {
    let daemon = Arc::new(Setup::new(answered("", 0)).start().await);
    let mut starts = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let daemon = Arc::clone(&daemon);
        starts.spawn(async move {
            run(&daemon.own(&daemon.alice, "Start", "Prefer: wait=20\r\nIdempotency-Key: k\r\n", ONE).await)
                .run
        });
    }
    let mut ids = starts.join_all().await;
    ids.dedup();
    assert_eq!((ids.len(), daemon.counts.all().1), (1, 1));
}

#[tokio::test]
async fn output_is_told_from_where_the_last_answer_ended() {
    let daemon = Setup::new(answered("hello", 0)).start().await;
    let id = ended(&daemon, ONE).await.run;
    let watch = async |after: u64| -> WatchResponse {
        let body = format!(r#"{{"run":"{id}","after":{after},"waitMs":20000}}"#);
        serde_json::from_slice(&daemon.own(&daemon.alice, "Watch", "", &body).await.body).unwrap()
    };
    let first = watch(0).await;
    assert_eq!(
        (first.output[0].data.as_slice(), first.next, first.state),
        (b"hello".as_slice(), 1, State::Ended)
    );
    let rest = watch(first.next).await;
    assert_eq!((rest.output.len(), rest.next, rest.truncated), (0, 1, false));
    assert_eq!(watch(u64::MAX).await.output, []);
}

#[tokio::test]
async fn a_cancelled_run_is_killed_and_says_that_it_was_released() {
    let (daemon, first) = full().await;
    assert_eq!(get(&daemon, &first.run).await.executed, Executed::Yes);
    let body = format!(r#"{{"run":"{}"}}"#, first.run);
    let ended = run(&daemon.own(&daemon.alice, "Cancel", "", &body).await);
    assert_eq!(
        (ended.state, ended.ending, ended.executed),
        (State::Ended, Some(Ending::Cancelled), Executed::Yes)
    );
    assert_eq!(daemon.counts.all(), (1, 1, 1), "its boundary is gone when the answer comes");
    assert_eq!(
        run(&daemon.own(&daemon.alice, "Cancel", "", &body).await),
        ended,
        "once more changes nothing"
    );
}

#[tokio::test]
async fn a_run_waits_for_a_place_when_it_asked_to() {
    let (daemon, first) = full().await;
    let refused = ended(&daemon, ONE).await;
    assert_eq!((refused.executed, refused.refusal.unwrap().reason.as_str()), (Executed::No, "capacity"));
    let waiting = start(&daemon, r#"{"program":{"javascript":"2"},"queueMs":60000}"#).await;
    let short = ended(&daemon, r#"{"program":{"javascript":"2"},"queueMs":1}"#).await;
    assert_eq!((short.executed, short.refusal.unwrap().reason.as_str()), (Executed::No, "capacity"));
    let queued = get(&daemon, &waiting.run).await;
    assert_eq!((queued.state, queued.executed), (State::Queued, Executed::No));
    daemon.own(&daemon.alice, "Cancel", "", &format!(r#"{{"run":"{}"}}"#, first.run)).await;
    until("the next one runs", || daemon.counts.all().1 == 2).await;
    assert_eq!(get(&daemon, &waiting.run).await.state, State::Running);
}

#[tokio::test]
async fn a_callers_runs_do_not_exist_for_another() {
    let (daemon, first) = full().await;
    let body = format!(r#"{{"run":"{}"}}"#, first.run);
    for procedure in ["Get", "Watch", "Cancel"] {
        let reply = daemon.own(&daemon.bob, procedure, "", &body).await;
        assert_eq!(refusal(&reply), ("not_found".to_owned(), Some("request")), "{procedure}");
    }
    let list = async |token: &str, body: &str| -> ListResponse {
        serde_json::from_slice(&daemon.own(token, "List", "", body).await.body).unwrap()
    };
    assert_eq!(list(&daemon.bob, "{}").await.runs, []);
    assert_eq!(list(&daemon.alice, r#"{"state":"ended"}"#).await.runs, []);
    assert_eq!(list(&daemon.alice, r#"{"state":"running"}"#).await.runs[0].run, first.run);
    assert_eq!(daemon.counts.all().2, 0, "nobody else ended it");
}

#[tokio::test]
async fn what_is_not_a_start_is_refused_before_anything_runs() {
    let daemon = Setup::new(answered("", 0)).start().await;
    for body in
        ["", "{}", "[]", r#"{"program":{"javascript":"1"},"unknown":1}"#, r#"{"program":{"javascript":""}}"#]
    {
        let reply = daemon.own(&daemon.alice, "Start", "", body).await;
        assert_eq!(refusal(&reply), ("invalid_argument".to_owned(), Some("request")), "{body}");
    }
    for keys in
        ["Idempotency-Key: \r\n", "Idempotency-Key: a\r\nIdempotency-Key: a\r\n", "Idempotency-Key: a b\r\n"]
    {
        let reply = daemon.own(&daemon.alice, "Start", keys, ONE).await;
        assert_eq!(refusal(&reply), ("invalid_argument".to_owned(), Some("request")), "{keys}");
    }
    assert_eq!(daemon.own("wrong", "Start", "", ONE).await.refusal().0, "unauthenticated");
    let both = daemon.own(&daemon.alice, "Get", "", r#"{"run":"a","idempotencyKey":"b"}"#).await;
    assert_eq!(refusal(&both), ("invalid_argument".to_owned(), Some("request")));
    assert_eq!(
        daemon.own(&daemon.alice, "Start", "Content-Type: application/proto\r\n", ONE).await.status,
        415
    );
    assert_eq!(daemon.counts.all().0, 0);
}

#[tokio::test]
async fn a_run_gets_the_limits_it_asks_for_and_more_than_the_daemons_is_refused() {
    let daemon = Setup::new(answered("0123456789", 0)).start().await;
    let less = r#"{"program":{"shell":"x"},"timeoutMs":9000,
        "limits":{"timeMs":8000,"memoryMib":64,"pids":16,"outputBytes":4}}"#;
    let id = ended(&daemon, less).await.run;
    let job = daemon.plans.lock().unwrap()[0].job.clone();
    assert_eq!((job.timeout.as_secs(), job.less.memory_mib, job.less.pids), (8, Some(64), Some(16)));
    assert_eq!(job.output_limit, 4);
    let watch = format!(r#"{{"run":"{id}"}}"#);
    let watch = daemon.own(&daemon.alice, "Watch", "", &watch).await;
    let watched: WatchResponse = serde_json::from_slice(&watch.body).unwrap();
    assert_eq!((watched.output[0].data.as_slice(), watched.truncated), (b"0123".as_slice(), true));
    for (more, word) in [
        (r#""timeMs":30001"#, "timeMs"),
        (r#""memoryMib":257"#, "memoryMib"),
        (r#""pids":65"#, "pids"),
        (r#""outputBytes":65537"#, "outputBytes"),
    ] {
        let body = format!(r#"{{"program":{{"shell":"x"}},"limits":{{{more}}}}}"#);
        let reply = daemon.own(&daemon.alice, "Start", WAIT, &body).await;
        let (code, reason, message) = if reply.status == 200 {
            let refusal = run(&reply).refusal.unwrap();
            (refusal.code, refusal.reason, refusal.message)
        } else {
            let mark = reply.header("freeboard-not-dispatched").unwrap().to_owned();
            (reply.refusal().0, mark, reply.text())
        };
        assert_eq!((code.as_str(), reason.as_str()), ("out_of_range", "unsupported"), "{more}");
        assert!(message.contains(word), "{message}");
    }
    assert_eq!(daemon.counts.all().0, 1, "nothing ran of what was refused");
}

#[tokio::test]
async fn what_is_written_is_taken_once_and_stands_in_the_record() {
    let daemon = Setup::new(Act::Hang).start().await;
    let id = start(&daemon, r#"{"program":{"shell":"cat"},"stdin":{"data":"AAE=","open":true}}"#).await.run;
    let write = async |offset: u64, data: &str, more: &str| {
        let body = format!(r#"{{"run":"{id}","offset":{offset},"data":"{data}"{more}}}"#);
        daemon.own(&daemon.alice, "Write", "", &body).await
    };
    let taken = |reply: &Reply| {
        let written: WriteResponse = serde_json::from_slice(&reply.body).unwrap();
        (written.taken, written.ended)
    };
    assert_eq!(taken(&write(2, "Av8=", "").await), (4, false));
    assert_eq!(taken(&write(2, "Av8=", "").await), (4, false), "sent again");
    let gap = write(5, "Av8=", "").await;
    assert_eq!(refusal(&gap), ("out_of_range".to_owned(), Some("request")));
    assert_eq!(taken(&write(4, "", r#","end":true"#).await), (4, true));
    let large = "A".repeat(1_500_000);
    assert_eq!(refusal(&write(4, &large, "").await), ("resource_exhausted".to_owned(), Some("request")));
    let bobs = daemon.own(&daemon.bob, "Write", "", &format!(r#"{{"run":"{id}"}}"#)).await;
    assert_eq!(refusal(&bobs), ("not_found".to_owned(), Some("request")));
    let without = start(&daemon, ONE).await.run;
    let none = daemon.own(&daemon.alice, "Write", "", &format!(r#"{{"run":"{without}"}}"#)).await;
    assert_eq!(refusal(&none), ("failed_precondition".to_owned(), Some("request")));

    let daemon = Setup::new(answered("", 0)).start().await;
    let fed = ended(&daemon, r#"{"program":{"shell":"cat"},"stdin":{"data":"AAE="}}"#).await;
    let (result, record) = (fed.result.unwrap(), fed.record.unwrap());
    assert_eq!(result.stdin, Some(Taken { bytes: 2, sha256: sha256_hex(&[0, 1]) }));
    assert_eq!(record.version, 2);
    assert_eq!(record.result_sha256, result_digest(2, Ending::Completed, &result));
    let without = RunResult { stdin: None, ..result.clone() };
    assert_ne!(record.result_sha256, result_digest(2, Ending::Completed, &without));
    assert_eq!(
        result_digest(1, Ending::Completed, &result),
        result_digest(1, Ending::Completed, &without),
        "version 1 did not cover it"
    );
}

#[tokio::test]
async fn who_administers_callers_sees_and_cancels_the_runs_of_all_but_not_what_they_did() {
    let daemon = Setup::new(Act::Hang).start().await;
    let admin = daemon.admit("admin", &["code:admin"]);
    let id = start(&daemon, ONE).await.run;
    until("it runs", || daemon.counts.all().1 == 1).await;
    let list = async |token: &str, body: &str| daemon.own(token, "List", "", body).await;
    let runs = |reply: &Reply| serde_json::from_slice::<ListResponse>(&reply.body).unwrap().runs;
    let all = runs(&list(&admin, r#"{"everybody":true}"#).await);
    assert_eq!((all[0].run.as_str(), all[0].caller.as_deref()), (id.as_str(), Some("alice")));
    assert_eq!(runs(&list(&admin, "{}").await), []);
    assert_eq!(runs(&list(&daemon.alice, "{}").await)[0].caller, None);
    let one = format!(r#"{{"run":"{id}"}}"#);
    for (token, procedure, body) in [
        (&daemon.alice, "List", r#"{"everybody":true}"#),
        (&daemon.alice, "Limits", r#"{"everybody":true}"#),
        (&admin, "Start", ONE),
        (&admin, "Get", &one),
        (&admin, "Watch", &one),
        (&admin, "Write", &one),
    ] {
        let reply = daemon.own(token, procedure, "", body).await;
        assert_eq!(refusal(&reply), ("permission_denied".to_owned(), Some("permission")), "{procedure}");
    }
    let limits = async |token: &str, body: &str| -> LimitsResponse {
        serde_json::from_slice(&daemon.own(token, "Limits", "", body).await.body).unwrap()
    };
    let all = limits(&admin, r#"{"everybody":true}"#).await;
    assert_eq!((all.daemon.unwrap().running, all.callers.len()), (1, 3));
    let own = limits(&daemon.alice, "{}").await;
    assert_eq!((own.daemon, own.callers.len()), (None, 1));
    assert_eq!((own.callers[0].caller.as_str(), own.callers[0].standing.running), ("alice", 1));
    let bobs = daemon.own(&daemon.bob, "Cancel", "", &one).await;
    assert_eq!(refusal(&bobs), ("not_found".to_owned(), Some("request")));
    let cancelled = run(&daemon.own(&admin, "Cancel", "", &one).await);
    assert_eq!((cancelled.state, cancelled.caller.as_deref()), (State::Ended, Some("alice")));
    assert!(cancelled.result.is_none() && cancelled.record.is_none());
    assert_eq!(get(&daemon, &id).await.ending, Some(Ending::Cancelled));
}

#[tokio::test]
async fn answers_and_keys_survive_a_restart() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("state");
    let key = "Prefer: wait=20\r\nIdempotency-Key: k\r\n";
    let runs = Some(Runs::in_folder(&folder, tell).unwrap());
    let daemon = Setup { runs, ..Setup::new(answered("42", 0)) }.start().await;
    let first = run(&daemon.own(&daemon.alice, "Start", key, ONE).await);
    assert!(first.result.is_some());
    daemon.app.runs.shut_down(Duration::ZERO).await;
    drop(daemon);
    // The token is the same caller's, the file of callers is not.
    let runs = support::reopened(&folder).await;
    let daemon = Setup { runs: Some(runs), ..Setup::new(answered("other", 0)) }.start().await;
    let again = run(&daemon.own(&daemon.alice, "Start", key, ONE).await);
    assert_eq!(again, first);
    assert_eq!(daemon.counts.all().0, 0, "nothing ran again");
}

#[tokio::test]
async fn after_a_crash_what_may_have_run_is_unknown_and_what_waited_did_not_run() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("state");
    let limits = Limits { concurrent: 1, concurrent_per_caller: 1, rate_per_minute: 0 };
    let runs = Some(Runs::in_folder(&folder, tell).unwrap());
    let daemon = Setup { limits, runs, ..Setup::new(Act::Hang) }.start().await;
    let running = start(&daemon, ONE).await;
    until("it runs", || daemon.counts.all().1 == 1).await;
    let waiting = start(&daemon, r#"{"program":{"javascript":"2"},"queueMs":60000}"#).await;
    // What is on disk at this moment is what a killed daemon leaves.
    let left = parent.path().join("left");
    support::copy_private(&folder, &left);
    drop(daemon);
    let runs = Some(Runs::in_folder(&left, tell).unwrap());
    let daemon = Setup { runs, ..Setup::new(answered("", 0)) }.start().await;
    let running = get(&daemon, &running.run).await;
    assert_eq!(
        (running.state, running.ending, running.executed),
        (State::Ended, Some(Ending::Lost), Executed::Unknown)
    );
    let waiting = get(&daemon, &waiting.run).await;
    assert_eq!((waiting.ending, waiting.executed), (Some(Ending::Lost), Executed::No));
    assert_eq!(daemon.counts.all().0, 0);
}

#[tokio::test]
async fn stopping_ends_what_runs_within_the_grace() {
    let (daemon, first) = full().await;
    daemon.app.runs.shut_down(Duration::from_millis(10)).await;
    let ended = get(&daemon, &first.run).await;
    assert_eq!((ended.ending, ended.executed), (Some(Ending::Cancelled), Executed::Yes));
    assert_eq!(daemon.counts.all().2, 1);
}

#[derive(Debug)]
struct NoJournal;

impl Witness for NoJournal {
    fn admitted(&self) {}
    fn before_release(&self) -> BoxFuture<'_, std::io::Result<()>> {
        Box::pin(async { Err(std::io::ErrorKind::StorageFull.into()) })
    }
}

#[tokio::test]
async fn a_run_that_cannot_be_noted_down_is_not_released() {
    let daemon = Setup::new(answered("", 0)).start().await;
    let order = Order {
        run: new_run_id().unwrap(),
        caller: None,
        trace_id: None,
        grants: Vec::new(),
        floor: None,
        timeout: None,
        software: Vec::new(),
        payload: Payload::JavaScript { code: "1".into() },
        files: Vec::new(),
        artifacts: Vec::new(),
        environment: Vec::new(),
        output_limit: 1,
        less: freeboard_sandboxd::job::Less::default(),
        input: None,
        artifact_limit: 1,
        released: Arc::default(),
        wait: None,
        witness: Some(Arc::new(NoJournal)),
        session: InSession::No,
    };
    let refused = daemon.app.launcher.run(order, Arc::new(NoSink)).await.unwrap_err();
    assert!(matches!(refused, RunError::Refused(Refusal::Journal(_))), "{refused:?}");
    assert_eq!(daemon.counts.all(), (1, 0, 1));
}
