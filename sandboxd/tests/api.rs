//! The wire: every refusal with its code, mark and echo; what runs and what does not.

mod support;

use freeboard_policy::Tier;
use freeboard_sandboxd::admission::Limits;
use freeboard_sandboxd::api::operate;
use freeboard_sandboxd::job::{Ending, JobFile, Outcome, StepOutcome};
use freeboard_wire::digest::{record_digest, request_digest, result_digest};
use freeboard_wire::json::from_json;
use freeboard_wire::{DescribeResponse, RunRequest, RunResponse};
use support::{Act, FakeBroker, ID, Setup, answered, until};
use tokio::io::AsyncWriteExt;

const JSON: &str = "Content-Type: application/json\r\n";
const ONE: &str = r#"{"protocol":4,"javascript":{"code":"1"}}"#;

fn refusal(code: &str, mark: &str) -> (String, Option<String>) {
    (code.to_owned(), Some(mark.to_owned()))
}

#[tokio::test]
async fn a_snippet_is_answered_with_a_record_that_verifies() {
    let daemon = Setup::new(answered("42\n", 0)).start().await;
    let request = r#"{"protocol":4,"minimumIsolation":"container","timeoutMs":999999999,"traceId":"t-1","javascript":{"code":"console.log(6*7)"}}"#;
    let reply = daemon.post("Run", request).await;
    assert_eq!(
        (reply.status, reply.header("content-type")),
        (200, Some("application/json")),
        "{}",
        reply.text()
    );
    let answer: RunResponse = from_json(&reply.body).unwrap();
    let result = answer.javascript.as_ref().unwrap();
    assert_eq!(
        (result.stdout.as_slice(), result.exit_code, result.timed_out),
        (b"42\n".as_slice(), 0, false)
    );
    let record = answer.record.as_ref().unwrap();
    let sent: RunRequest = from_json(request.as_bytes()).unwrap();
    assert_eq!(record.version, 4);
    assert_eq!(record.request_sha256, request_digest(&sent));
    assert_eq!(record.result_sha256, result_digest(&answer));
    assert_eq!(record.record_sha256, record_digest(record).unwrap());
    assert_eq!((&record.provider, &record.isolation), (&answer.sandbox, &answer.isolation));
    assert_eq!((&record.environment, &record.instance), (&answer.environment, &answer.instance));
    assert_eq!((record.session.as_str(), record.sequence), ("", 0));
    assert!(record.started_unix_ms <= record.ended_unix_ms);
    let plan = daemon.plans.lock().unwrap()[0].clone();
    assert_eq!(plan.job.timeout.as_secs(), 30, "a longer wish is clamped, not refused");
    assert_eq!(plan.job.trace_id.as_deref(), Some("t-1"));
    assert_eq!(daemon.counts.all(), (1, 1, 1));
}

#[tokio::test]
async fn an_empty_result_is_still_an_answer() {
    let daemon = Setup::new(answered("", 0)).start().await;
    let reply = daemon.post("Run", ONE).await;
    assert!(reply.text().contains(r#""javascript":{}"#), "{}", reply.text());
}

#[tokio::test]
async fn a_project_is_answered_step_by_step_with_its_artifacts() {
    let step = |command: &str, exit_code| StepOutcome {
        command: command.into(),
        stdout: b"hi\n".to_vec(),
        exit_code,
        ..StepOutcome::default()
    };
    let outcome = Outcome {
        steps: vec![step("cat a.txt", 0), step("exit 4", 4)],
        ending: Ending::Completed,
        detail: String::new(),
        artifacts: vec![JobFile { path: "o.bin".into(), content: vec![0xff] }],
        artifacts_truncated: true,
    };
    let daemon = Setup::new(Act::Answer(outcome)).start().await;
    let request = r#"{"protocol":4,"project":{"files":[{"path":"a.txt","content":"hi\n"}],"steps":["cat a.txt","exit 4","echo no"],"artifacts":["o.bin","none"]}}"#;
    let answer: RunResponse = from_json(&daemon.post("Run", request).await.body).unwrap();
    let project = answer.project.unwrap();
    assert_eq!((project.outcome, project.artifacts_truncated), (1, true));
    assert_eq!(project.steps.iter().map(|step| step.exit_code).collect::<Vec<_>>(), [0, 4]);
    assert_eq!(project.artifacts[0].content, [0xff]);
}

#[tokio::test]
async fn the_deadline_of_a_run_is_a_result() {
    let daemon = Setup::new(Act::Hang).start().await;
    let request = r#"{"protocol":4,"timeoutMs":20,"javascript":{"code":"for(;;);"}}"#;
    let answer: RunResponse = from_json(&daemon.post("Run", request).await.body).unwrap();
    let result = answer.javascript.unwrap();
    assert_eq!((result.exit_code, result.timed_out), (124, true));
}

#[tokio::test]
async fn every_refusal_has_its_code_and_mark_and_echo_and_runs_nothing() {
    let daemon = Setup::new(answered("", 0)).start().await;
    let table: &[(&str, &str, &str, &str, u16)] = &[
        ("Run", r#"{"javascript":{"code":"1"}}"#, "invalid_argument", "protocol", 400),
        ("Run", r#"{"protocol":0,"javascript":{"code":"1"}}"#, "invalid_argument", "protocol", 400),
        ("Run", r#"{"protocol":3,"javascript":{"code":"1"}}"#, "unimplemented", "protocol", 501),
        ("Run", r#"{"protocol":5}"#, "unimplemented", "protocol", 501),
        ("Run", r#"{"protocol":"x"}"#, "invalid_argument", "request", 400),
        ("Run", r#"{"protocol":4,"protocol":4}"#, "invalid_argument", "request", 400),
        ("Run", "not json", "invalid_argument", "request", 400),
        ("Run", "", "invalid_argument", "request", 400),
        ("Run", r#"{"protocol":4}"#, "invalid_argument", "request", 400),
        (
            "Run",
            r#"{"protocol":4,"cell":{"language":"python","code":"1"}}"#,
            "invalid_argument",
            "request",
            400,
        ),
        ("Run", r#"{"protocol":4,"javascript":{"code":""}}"#, "invalid_argument", "request", 400),
        (
            "Run",
            r#"{"protocol":4,"javascript":{"code":"1"},"project":{"steps":["1"]}}"#,
            "invalid_argument",
            "request",
            400,
        ),
        (
            "Run",
            r#"{"protocol":4,"minimumIsolation":"none","javascript":{"code":"1"}}"#,
            "invalid_argument",
            "request",
            400,
        ),
        (
            "Run",
            r#"{"protocol":4,"minimumIsolation":"Kernel","javascript":{"code":"1"}}"#,
            "invalid_argument",
            "request",
            400,
        ),
        (
            "Run",
            r#"{"protocol":4,"minimumIsolation":"kernel","javascript":{"code":"1"}}"#,
            "failed_precondition",
            "isolation",
            400,
        ),
        (
            "Run",
            r#"{"protocol":4,"minimumIsolation":"vm","javascript":{"code":"1"}}"#,
            "failed_precondition",
            "isolation",
            400,
        ),
        (
            "Run",
            r#"{"protocol":4,"softwareRule":{"mode":"exact","identities":["none:0"]},"javascript":{"code":"1"}}"#,
            "failed_precondition",
            "environment",
            400,
        ),
        (
            "Run",
            r#"{"protocol":4,"softwareRule":{"mode":"exact"},"javascript":{"code":"1"}}"#,
            "invalid_argument",
            "request",
            400,
        ),
        (
            "Run",
            r#"{"protocol":4,"project":{"steps":["a"],"files":[{"path":"../x"}]}}"#,
            "invalid_argument",
            "request",
            400,
        ),
        (
            "Run",
            r#"{"protocol":4,"javascript":{"code":"1","grantProfile":",,"}}"#,
            "invalid_argument",
            "request",
            400,
        ),
        (
            "Run",
            r#"{"protocol":4,"javascript":{"code":"1","grantProfile":"triage"}}"#,
            "unimplemented",
            "unsupported",
            501,
        ),
        (
            "Run",
            r#"{"protocol":4,"module":{"model":"m","rows":[{"values":[1]}],"endTime":1,"step":1}}"#,
            "unimplemented",
            "unsupported",
            501,
        ),
        ("OpenSession", r#"{"protocol":4}"#, "unimplemented", "unsupported", 501),
        ("OpenSession", r#"{"protocol":3}"#, "unimplemented", "protocol", 501),
        ("SessionRun", r#"{"protocol":4,"sessionId":"x"}"#, "not_found", "request", 404),
        ("CloseSession", r#"{"protocol":4,"sessionId":"x"}"#, "not_found", "request", 404),
        ("CloseSession", "{}", "invalid_argument", "protocol", 400),
    ];
    for (procedure, body, code, mark, status) in table {
        let reply = daemon.post(procedure, body).await;
        assert_eq!(reply.refusal(), refusal(code, mark), "{body}: {}", reply.text());
        assert_eq!(reply.status, *status, "{body}");
        assert_eq!((reply.header("plimsoll-request-id"), reply.count("plimsoll-request-id")), (Some(ID), 1));
    }
    let long = format!(r#"{{"protocol":4,"javascript":{{"code":"{}"}}}}"#, "x".repeat(262_145));
    assert_eq!(daemon.post("Run", &long).await.refusal(), refusal("resource_exhausted", "request"));
    assert_eq!(daemon.counts.all(), (0, 0, 0), "nothing ran");
}

#[tokio::test]
async fn answers_before_a_procedure_is_reached_are_marked_in_the_header() {
    let daemon = Setup::new(answered("", 0)).start().await;
    let token = &daemon.alice;
    let with = |method: &str, path: &str, extra: &str| {
        format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nPlimsoll-Request-Id: {ID}\r\n\
             Authorization: Bearer {token}\r\nContent-Length: 2\r\n{extra}\r\n"
        )
    };
    let run = "/plimsoll.v1.SandboxService/Run";
    let table = [
        (with("POST", "/plimsoll.v1.SandboxService/Other", JSON), 404, "unsupported"),
        (with("POST", "/", JSON), 404, "unsupported"),
        (with("POST", "/plimsoll.v1.SandboxService/Run/", JSON), 404, "unsupported"),
        (with("GET", run, JSON), 405, "request"),
        (with("PUT", run, JSON), 405, "request"),
        (with("POST", run, ""), 415, "request"),
        (with("POST", run, "Content-Type: application/connect+json\r\n"), 415, "request"),
        (with("POST", run, "Content-Type: text/plain\r\n"), 415, "request"),
    ];
    for (head, status, mark) in table {
        let reply = daemon.raw(&head, b"{}").await;
        assert_eq!(reply.status, status, "{head}");
        assert_eq!(reply.header("plimsoll-not-dispatched"), Some(mark), "{head}");
        assert_eq!((reply.header("plimsoll-request-id"), reply.count("plimsoll-request-id")), (Some(ID), 1));
        if status == 405 {
            assert_eq!(reply.header("allow"), Some("POST"));
        }
    }
    for path in ["/healthz", "/readyz"] {
        let reply = daemon.raw(&with("GET", path, ""), b"{}").await;
        assert_eq!((reply.status, reply.header("plimsoll-request-id")), (200, Some(ID)));
    }
}

#[tokio::test]
async fn connect_headers_are_checked() {
    let daemon = Setup::new(answered("", 0)).start().await;
    let table = [
        ("Connect-Protocol-Version: 1\r\n", None),
        ("Connect-Protocol-Version: 2\r\n", Some(refusal("invalid_argument", "request"))),
        ("Connect-Timeout-Ms: 10000\r\n", None),
        ("Connect-Timeout-Ms: 12345678901\r\n", Some(refusal("invalid_argument", "request"))),
        ("Connect-Timeout-Ms: -1\r\n", Some(refusal("invalid_argument", "request"))),
        ("Connect-Timeout-Ms: \r\n", Some(refusal("invalid_argument", "request"))),
        ("Content-Encoding: br\r\n", Some(refusal("unimplemented", "unsupported"))),
        ("Content-Encoding: identity\r\n", None),
    ];
    for (extra, expected) in table {
        let reply = daemon.post_as(&daemon.alice, "Run", &format!("{JSON}{extra}"), ONE.as_bytes()).await;
        match expected {
            None => assert_eq!(reply.status, 200, "{extra}: {}", reply.text()),
            Some(expected) => assert_eq!(reply.refusal(), expected, "{extra}"),
        }
    }
    let reply = daemon.post_as(
        &daemon.alice,
        "Run",
        "content-type: Application/JSON; charset=utf-8\r\n",
        ONE.as_bytes(),
    );
    assert_eq!(reply.await.status, 200);
}

#[tokio::test]
async fn tokens_are_checked_before_the_body_is_read() {
    let daemon = Setup::new(answered("", 0)).start().await;
    let head = |authorization: &str| {
        // The body never comes: whoever waits for it would not answer.
        format!(
            "POST /plimsoll.v1.SandboxService/Run HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{JSON}\
             Plimsoll-Request-Id: {ID}\r\nContent-Length: 10\r\nExpect: 100-continue\r\n{authorization}\r\n"
        )
    };
    let alice = daemon.alice.clone();
    for authorization in [
        String::new(),
        "Authorization: Bearer wrong\r\n".into(),
        "Authorization: Bearer \r\n".into(),
        format!("Authorization: Basic {alice}\r\n"),
        format!("Authorization: {alice}\r\n"),
        format!("Authorization: Bearer {alice}\r\nAuthorization: Bearer {alice}\r\n"),
    ] {
        let reply = daemon.raw(&head(&authorization), b"").await;
        assert_eq!((reply.status, reply.refusal()), (401, refusal("unauthenticated", "permission")));
        assert_eq!(reply.header("plimsoll-request-id"), Some(ID));
    }
    let reply = daemon.post_as(&alice, "Describe", &format!("{JSON}X: 1\r\n"), b"{}").await;
    assert_eq!(reply.status, 200, "positive control");
}

#[tokio::test]
async fn a_reload_of_callers_ends_a_revoked_token() {
    let daemon = Setup::new(answered("", 0)).start().await;
    assert_eq!(daemon.post("Run", ONE).await.status, 200);
    freeboard_sandboxd::callers::revoke(&daemon.callers_file, "alice").unwrap();
    daemon.app.replace_callers(freeboard_sandboxd::callers::Callers::load(&daemon.callers_file).unwrap());
    assert_eq!(daemon.post("Run", ONE).await.status, 401);
    assert_eq!(daemon.post_as(&daemon.bob, "Run", JSON, ONE.as_bytes()).await.status, 200);
}

#[tokio::test]
async fn a_rotated_token_counts_beside_the_new_one_for_its_time() {
    use freeboard_sandboxd::callers::{Callers, rotate};
    let daemon = Setup::new(answered("", 0)).start().await;
    let now = freeboard_sandboxd::launch::unix_ms(std::time::SystemTime::now()) / 1000;
    let new = rotate(&daemon.callers_file, "alice", Some(now + 600)).unwrap();
    daemon.app.replace_callers(Callers::load(&daemon.callers_file).unwrap());
    assert_eq!(daemon.post("Run", ONE).await.status, 200);
    assert_eq!(daemon.post_as(new.reveal(), "Run", JSON, ONE.as_bytes()).await.status, 200);
    let newer = rotate(&daemon.callers_file, "alice", None).unwrap();
    daemon.app.replace_callers(Callers::load(&daemon.callers_file).unwrap());
    for old in [&daemon.alice, new.reveal()] {
        assert_eq!(daemon.post_as(old, "Run", JSON, ONE.as_bytes()).await.status, 401);
    }
    assert_eq!(daemon.post_as(newer.reveal(), "Run", JSON, ONE.as_bytes()).await.status, 200);
}

#[tokio::test]
async fn a_caller_has_its_own_scopes_and_limits() {
    use freeboard_sandboxd::admission::Own;
    use freeboard_sandboxd::callers::{Callers, Grants, SCOPE_RUN, Token, add};
    let daemon = Setup::new(answered("", 0)).start().await;
    let token = Token::import("0123456789-0123456789-0123456789-0123456789").unwrap();
    let own = Own { rate_per_minute: Some(1), ..Own::default() };
    let grants = Grants { scopes: vec![SCOPE_RUN.into()], own };
    add(&daemon.callers_file, "narrow", &token, &grants).unwrap();
    daemon.app.replace_callers(Callers::load(&daemon.callers_file).unwrap());
    let post = async |procedure: &str, body: &str| {
        daemon.post_as(token.reveal(), procedure, JSON, body.as_bytes()).await.refusal()
    };
    for procedure in ["OpenSession", "SessionRun", "CloseSession"] {
        assert_eq!(post(procedure, r#"{"protocol":4}"#).await, refusal("permission_denied", "permission"));
    }
    assert_eq!(daemon.post_as(token.reveal(), "Run", JSON, ONE.as_bytes()).await.status, 200);
    assert_eq!(post("Run", ONE).await, refusal("resource_exhausted", "capacity"));
    assert_eq!(daemon.post("Run", ONE).await.status, 200, "another caller has the daemon's limits");
}

#[tokio::test]
async fn oversized_bodies_are_refused_whether_they_say_so_or_not() {
    let daemon = Setup::new(answered("", 0)).start().await;
    let big = vec![b' '; (8 << 20) + 1];
    let reply = daemon.post_as(&daemon.alice, "Run", JSON, &big).await;
    assert_eq!((reply.status, reply.refusal()), (429, refusal("resource_exhausted", "request")));
    let mut chunked = format!("{:x}\r\n", big.len()).into_bytes();
    chunked.extend_from_slice(&big);
    chunked.extend_from_slice(b"\r\n0\r\n\r\n");
    let head = format!(
        "POST /plimsoll.v1.SandboxService/Run HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{JSON}\
         Authorization: Bearer {}\r\nTransfer-Encoding: chunked\r\n\r\n",
        daemon.alice
    );
    let reply = daemon.raw(&head, &chunked).await;
    assert_eq!(reply.refusal(), refusal("resource_exhausted", "request"));
    assert_eq!(reply.header("plimsoll-not-dispatched"), Some("request"));
}

#[tokio::test]
async fn gzip_bodies_are_read() {
    use std::io::Write;
    let daemon = Setup::new(answered("ok", 0)).start().await;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(ONE.as_bytes()).unwrap();
    let body = encoder.finish().unwrap();
    let extra = format!("{JSON}Content-Encoding: gzip\r\n");
    assert_eq!(daemon.post_as(&daemon.alice, "Run", &extra, &body).await.status, 200);
    let reply = daemon.post_as(&daemon.alice, "Run", &extra, ONE.as_bytes()).await;
    assert_eq!(reply.refusal(), refusal("invalid_argument", "request"));
}

#[tokio::test]
async fn binary_messages_are_served_and_errors_stay_json() {
    use prost::Message;
    let daemon = Setup::new(answered("42\n", 0)).start().await;
    let request: RunRequest = from_json(ONE.as_bytes()).unwrap();
    let proto = "Content-Type: application/proto\r\n";
    let reply = daemon.post_as(&daemon.alice, "Run", proto, &request.encode_to_vec()).await;
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/proto")));
    let answer = RunResponse::decode(reply.body.as_slice()).unwrap();
    assert_eq!(answer.record.unwrap().request_sha256, request_digest(&request));
    let reply = daemon.post_as(&daemon.alice, "Run", proto, b"").await;
    assert_eq!(reply.header("content-type"), Some("application/json"));
    assert_eq!(reply.refusal(), refusal("invalid_argument", "protocol"));
    let reply = daemon.post_as(&daemon.alice, "Run", proto, b"\xff\xff").await;
    assert_eq!(reply.refusal(), refusal("invalid_argument", "request"));
}

#[tokio::test]
async fn cleartext_http2_is_served_with_prior_knowledge() {
    use http_body_util::{BodyExt, Full};
    use hyper_util::rt::{TokioExecutor, TokioIo};
    let daemon = Setup::new(answered("42\n", 0)).start().await;
    let io = TokioIo::new(daemon.connect().await);
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    let send = |path: &str| {
        http::Request::post(format!("http://x{path}"))
            .header("content-type", "application/json")
            .header("plimsoll-request-id", ID)
            .header("authorization", format!("Bearer {}", daemon.alice))
            .body(Full::new(bytes::Bytes::from(ONE)))
            .unwrap()
    };
    let reply = sender.send_request(send("/plimsoll.v1.SandboxService/Run")).await.unwrap();
    assert_eq!(
        (reply.status().as_u16(), reply.headers()["plimsoll-request-id"].to_str().unwrap()),
        (200, ID)
    );
    let body = reply.into_body().collect().await.unwrap().to_bytes();
    assert!(from_json::<RunResponse>(&body).unwrap().javascript.is_some());
    let reply = sender.send_request(send("/nothing")).await.unwrap();
    assert_eq!(
        (reply.status().as_u16(), reply.headers()["plimsoll-not-dispatched"].to_str().unwrap()),
        (404, "unsupported")
    );
}

#[tokio::test]
async fn a_panic_is_answered_unmarked_and_bound() {
    let daemon = Setup::new(Act::Panic).start().await;
    let reply = daemon.post("Run", ONE).await;
    assert_eq!((reply.status, reply.refusal()), (500, ("internal".to_owned(), None)));
    assert_eq!((reply.header("plimsoll-request-id"), reply.count("plimsoll-request-id")), (Some(ID), 1));
    assert_eq!(daemon.counts.all(), (1, 1, 1), "the sandbox is gone");
}

#[tokio::test]
async fn a_lost_sandbox_is_unmarked_and_tells_no_inner_reason() {
    let daemon = Setup::new(Act::Lose).start().await;
    let reply = daemon.post("Run", ONE).await;
    assert_eq!(reply.refusal(), ("internal".to_owned(), None));
    assert!(!reply.text().contains("secret"), "{}", reply.text());
}

#[tokio::test]
async fn a_boundary_that_cannot_be_built_is_marked() {
    let daemon = Setup::new(Act::NoHost).start().await;
    let reply = daemon.post("Run", ONE).await;
    assert_eq!(reply.refusal(), refusal("unavailable", "environment"));
    assert!(!reply.text().contains("no such thing"), "details are for the log");
}

#[tokio::test]
async fn nothing_runs_without_a_provider() {
    let daemon = Setup { fake: None, ..Setup::new(answered("", 0)) }.start().await;
    assert_eq!(daemon.post("Run", ONE).await.refusal(), refusal("failed_precondition", "unsupported"));
    let info: DescribeResponse = from_json(&daemon.post("Describe", "{}").await.body).unwrap();
    assert_eq!((info.sandbox.as_str(), info.isolation.as_str(), info.protocol), ("none", "none", 4));
}

#[tokio::test]
async fn a_boundary_measured_below_the_floor_never_runs() {
    let broker = FakeBroker::start(None);
    let mut setup = Setup::new(answered("", 0)).broker(&broker);
    // It says container, and the live boundary turns out to be less.
    setup.fake.as_mut().unwrap().measured = Tier::Process;
    let daemon = setup.start().await;
    let request = r#"{"protocol":4,"minimumIsolation":"container","javascript":{"code":"1"}}"#;
    let reply = daemon.post("Run", request).await;
    assert_eq!(reply.refusal(), refusal("failed_precondition", "isolation"));
    assert_eq!(daemon.counts.all(), (1, 0, 1), "built, measured, destroyed, never released");
    assert_eq!(broker.words(), ["prepare", "note"]);
    let note = broker.notes().remove(0);
    assert_eq!((note.floor, note.tier), (Some(Tier::Container), Some(Tier::Process)));
    assert_eq!(note.reason, freeboard_policy::Reason::InsufficientIsolation);
    assert_eq!(daemon.post("Run", ONE).await.status, 200, "positive control: without the floor it runs");
}

#[tokio::test]
async fn the_operators_floor_holds_without_being_asked_for() {
    let setup = Setup { operator_floor: Some(Tier::Kernel), ..Setup::new(answered("", 0)) };
    let daemon = setup.start().await;
    assert_eq!(daemon.post("Run", ONE).await.refusal(), refusal("failed_precondition", "isolation"));
    assert_eq!(daemon.counts.all(), (0, 0, 0));
}

#[tokio::test]
async fn a_grants_floor_above_the_tier_refuses_the_run() {
    let broker = FakeBroker::start(Some(Tier::Vm));
    let daemon = Setup::new(answered("", 0)).broker(&broker).start().await;
    let request = r#"{"protocol":4,"javascript":{"code":"1","grantProfile":"triage"}}"#;
    assert_eq!(daemon.post("Run", request).await.refusal(), refusal("failed_precondition", "isolation"));
    assert_eq!(broker.words(), ["prepare", "note"]);
    assert_eq!(daemon.counts.all(), (0, 0, 0));
}

#[tokio::test]
async fn a_run_with_a_grant_opens_and_closes_its_gate() {
    let broker = FakeBroker::start(Some(Tier::Container));
    let daemon = Setup::new(answered("ok", 0)).broker(&broker).start().await;
    let request = r#"{"protocol":4,"javascript":{"code":"1","grantProfile":"triage"}}"#;
    let reply = daemon.post("Run", request).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(broker.words(), ["prepare", "open", "close"]);
    let answer: RunResponse = from_json(&reply.body).unwrap();
    assert_eq!(answer.record.unwrap().policy, format!("policy:sha256:{}", "d".repeat(64)));
    let plan = daemon.plans.lock().unwrap()[0].clone();
    assert_eq!(plan.prepared.unwrap().ports, [8443]);
    assert_eq!(answer.instance, format!("freeboard-run:{}", plan.job.run));
    let asked = broker.asked.lock().unwrap();
    let freeboard_control::RequestBody::Open(gate) = &asked[1] else { panic!("open") };
    assert_eq!((gate.caller.as_deref(), gate.run.as_str()), (Some("alice"), plan.job.run.as_str()));
    assert_eq!(gate.evidence.tier, Tier::Container);
}

#[tokio::test]
async fn a_run_without_a_grant_has_a_gate_too_where_there_is_a_broker() {
    let broker = FakeBroker::start(None);
    let daemon = Setup::new(answered("ok", 0)).broker(&broker).start().await;
    assert_eq!(daemon.post("Run", ONE).await.status, 200);
    assert_eq!(broker.words(), ["prepare", "open", "close"]);
}

#[tokio::test]
async fn unknown_and_foreign_grants_are_refused_in_the_same_words() {
    let broker = FakeBroker::start(None);
    let daemon = Setup::new(answered("", 0)).broker(&broker).start().await;
    let with =
        |grant: &str| format!(r#"{{"protocol":4,"javascript":{{"code":"1","grantProfile":"{grant}"}}}}"#);
    let unknown = daemon.post("Run", &with("nothing")).await;
    let foreign = daemon.post_as(&daemon.bob, "Run", JSON, with("triage").as_bytes()).await;
    let both = daemon.post("Run", &with("triage,nothing")).await;
    for reply in [&unknown, &foreign, &both] {
        assert_eq!((reply.status, reply.refusal()), (403, refusal("permission_denied", "permission")));
        assert_eq!(reply.body, unknown.body, "same words");
    }
    assert_eq!(daemon.counts.all(), (0, 0, 0));
    assert_eq!(daemon.post("Run", &with("triage")).await.status, 200, "positive control");
}

#[tokio::test]
async fn anonymous_callers_never_get_a_grant() {
    let broker = FakeBroker::start(None);
    let setup = Setup { anybody: true, ..Setup::new(answered("", 0)) }.broker(&broker);
    let daemon = setup.start().await;
    let request = r#"{"protocol":4,"javascript":{"code":"1","grantProfile":"triage"}}"#;
    assert_eq!(daemon.post("Run", request).await.refusal(), refusal("permission_denied", "permission"));
    assert_eq!(daemon.post("Run", ONE).await.status, 200);
}

#[tokio::test]
async fn a_broker_that_cannot_be_reached_refuses_every_run() {
    let broker = FakeBroker::start(None);
    let daemon = Setup::new(answered("", 0)).broker(&broker).start().await;
    assert_eq!(daemon.post("Run", ONE).await.status, 200, "positive control");
    broker.stop();
    until("the broker's end is noticed", || true).await;
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
    loop {
        let reply = daemon.post("Run", ONE).await;
        if reply.status != 200 {
            assert_eq!(reply.refusal(), refusal("unavailable", "environment"));
            break;
        }
        assert!(std::time::Instant::now() < deadline, "runs go on without a broker");
    }
    let released = daemon.counts.all().1;
    daemon.post("Run", ONE).await;
    assert_eq!(daemon.counts.all().1, released, "nothing ran");
}

#[tokio::test]
async fn capacity_refuses_instead_of_queueing() {
    let setup = Setup {
        limits: Limits { concurrent: 1, concurrent_per_caller: 1, rate_per_minute: 0 },
        ..Setup::new(Act::Hang)
    };
    let daemon = std::sync::Arc::new(setup.start().await);
    let first = tokio::spawn({
        let daemon = std::sync::Arc::clone(&daemon);
        async move { daemon.post("Run", r#"{"protocol":4,"timeoutMs":2000,"javascript":{"code":"1"}}"#).await }
    });
    until("the first run is released", || daemon.counts.all().1 == 1).await;
    assert_eq!(daemon.post("Run", ONE).await.refusal(), refusal("resource_exhausted", "capacity"));
    assert_eq!(first.await.unwrap().status, 200);
}

#[tokio::test]
async fn a_client_that_goes_away_ends_its_run() {
    let broker = FakeBroker::start(None);
    let daemon = Setup::new(Act::Hang).broker(&broker).start().await;
    let body = r#"{"protocol":4,"timeoutMs":30000,"javascript":{"code":"1"}}"#;
    let mut stream = daemon.connect().await;
    let head = format!(
        "POST /plimsoll.v1.SandboxService/Run HTTP/1.1\r\nHost: x\r\n{JSON}Authorization: Bearer {}\r\n\
         Content-Length: {}\r\n\r\n{body}",
        daemon.alice,
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    until("the run is released", || daemon.counts.all().1 == 1).await;
    assert_eq!(daemon.counts.all().2, 0);
    drop(stream);
    until("the sandbox is destroyed", || daemon.counts.all().2 == 1).await;
    until("the gate is closed", || broker.words().contains(&"close")).await;
}

#[tokio::test]
async fn the_callers_deadline_is_unmarked_once_code_was_released() {
    let daemon = Setup::new(Act::Hang).start().await;
    let extra = format!("{JSON}Connect-Timeout-Ms: 100\r\n");
    let reply = daemon.post_as(&daemon.alice, "Run", &extra, ONE.as_bytes()).await;
    assert_eq!((reply.status, reply.refusal()), (504, ("deadline_exceeded".to_owned(), None)));
    assert_eq!(daemon.counts.all(), (1, 1, 1), "and the run was killed");
}

#[tokio::test]
async fn describe_states_what_is_here() {
    let broker = FakeBroker::start(None);
    let daemon = Setup::new(answered("", 0)).broker(&broker).start().await;
    let info: DescribeResponse = from_json(&daemon.post("Describe", "{}").await.body).unwrap();
    assert_eq!((info.sandbox.as_str(), info.isolation.as_str(), info.protocol), ("fake", "container", 4));
    assert!(info.supports_project && info.supports_javascript_grants && info.supports_project_grants);
    assert!(!info.supports_sessions && !info.supports_module);
    assert_eq!(info.project_environment.unwrap().languages, ["javascript", "python"]);
    assert_eq!(info.javascript_environment.unwrap().max_timeout_ms, 30_000);
    assert_eq!(info.policy, format!("policy:sha256:{}", "d".repeat(64)));
    assert_eq!(daemon.counts.all(), (0, 0, 0));
}

#[tokio::test]
async fn metrics_count_runs_and_refusals_and_name_nobody() {
    let daemon = Setup::new(answered("", 0)).start().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(operate(std::sync::Arc::clone(&daemon.app), listener));
    let get = async |path: &str| {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    };
    daemon.post("Run", r#"{"protocol":4,"javascript":{"code":"1"}}"#).await;
    daemon.post("Run", r#"{"protocol":4,"minimumIsolation":"vm","javascript":{"code":"1"}}"#).await;
    daemon.post_as("wrong", "Describe", "Content-Type: application/json\r\n", b"{}").await;
    daemon.own(&daemon.alice, "Start", "Prefer: wait=20\r\n", r#"{"program":{"shell":"x"}}"#).await;
    let text = get("/metrics").await;
    for line in [
        "sandboxd_runs_total{provider=\"fake\",ending=\"completed\"} 2",
        "sandboxd_refusals_total{reason=\"isolation\"} 1",
        "sandboxd_refusals_total{reason=\"permission\"} 1",
        "sandboxd_running 0",
        "sandboxd_started_runs{state=\"ended\"} 1",
    ] {
        assert!(text.lines().any(|one| one == line), "{line}:\n{text}");
    }
    assert!(!text.contains("alice"), "{text}");
    assert!(get("/").await.starts_with("HTTP/1.1 404 "));
    serving.abort();
}
