//! What is allowed passes unharmed: fields, codings, bodiless answers, cancelled transfers; and what `explain` would say is
//! what happens. Attack classes G and H.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failing test panics")]

use std::io::Read as _;
use std::time::Duration;

use freeboard_policy::{
    Decision, DestinationQuestion, Host, NoFields, Policy, RequestQuestion, ScopeQuestion, SourceFile,
    Target, Tier,
};
use freeboard_tests::answer::Answer;
use freeboard_tests::expect::{allowed, bare, get};
use freeboard_tests::lab::{CALLER, Lab, POLICY, WAYS, Way};
use freeboard_tests::wait;

#[test]
fn h57_fields_keep_case_order_repetition_and_bytes() {
    let Some(lab) = Lab::start() else { return };
    lab.upstream.on("pub.test", "/odd", |_| {
        Answer::raw(b"HTTP/1.1 200 OK\r\nX-oDD: 1\r\nx-many: a\r\nX-Many: b\r\nX-8bit: \xe9\xff\r\nContent-Length: 0\r\n\r\n")
    });
    let run = lab.run(&["pub"]);
    for way in WAYS {
        let cookie = format!("Cookie: {}", "c".repeat(6 << 10));
        let fields = [
            "X-oDD-Case: 1",
            "x-many: a",
            "X-Many: b",
            "Accept: text/html, */*;q=0.1",
            "X-Empty:",
            cookie.as_str(),
        ];
        let (response, recorded) = allowed(&run, way, "pub.test", bare("GET", "pub.test", "/odd", &fields));
        let names: Vec<&str> = recorded.fields.iter().map(|(name, _)| name.as_str()).collect();
        assert!(names.contains(&"X-oDD-Case"), "{names:?}");
        assert_eq!(recorded.all("x-many"), ["a", "b"]);
        assert_eq!(recorded.field("accept"), Some("text/html, */*;q=0.1"));
        assert_eq!(recorded.field("x-empty"), Some(""));
        assert_eq!(recorded.field("cookie").map(str::len), Some(6 << 10));
        assert_eq!(response.all("x-many"), ["a", "b"]);
        assert!(response.fields.iter().any(|(name, _)| name == "X-oDD"), "{response:?}");
        assert!(response.head.windows(2).any(|pair| pair == b"\xe9\xff"), "8-bit values pass");
        let mut odd = bare("GET", "pub.test", "/odd", &["X-8bit: @"]).into_bytes();
        let at = odd.iter().position(|byte| *byte == b'@').unwrap();
        odd[at] = 0xe9;
        let (_, recorded) = allowed(&run, way, "pub.test", odd);
        assert!(recorded.head.contains(&0xe9));
    }
}

#[test]
fn h58_real_answers_are_tolerated_where_they_have_one_reading() {
    let Some(lab) = Lab::start() else { return };
    for (path, head) in [
        ("/space", "HTTP/1.1 200 OK\r\nX:   v \t \r\nContent-Length: 2\r\n\r\nok"),
        ("/reason", "HTTP/1.1 200 \r\nContent-Length: 2\r\n\r\nok"),
        ("/date", "HTTP/1.1 200 OK\r\nDate: a\r\nDate: b\r\nContent-Length: 2\r\n\r\nok"),
        ("/extension", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nok\r\n0\r\n\r\n"),
        (
            "/interim",
            "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        ),
    ] {
        lab.upstream.on("pub.test", path, move |_| Answer::raw(head));
    }
    lab.upstream.on("pub.test", "/close", |_| {
        Answer::raw("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nok").closing()
    });
    let run = lab.run(&["pub"]);
    for way in WAYS {
        for path in ["/space", "/reason", "/date", "/extension", "/interim", "/close"] {
            let (response, _) = allowed(&run, way, "pub.test", get("pub.test", path));
            assert_eq!((response.status, response.text().as_str()), (200, "ok"), "{path}");
        }
    }
}

#[test]
fn h25_answers_without_a_body_do_not_hang_and_keep_their_length() {
    let Some(lab) = Lab::start() else { return };
    lab.upstream.on("pub.test", "/long", |_| Answer::new(200, &[], "x".repeat(1234)));
    lab.upstream.on("pub.test", "/chunked", |_| {
        Answer::raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
    });
    lab.upstream.on("pub.test", "/none", |_| Answer::raw("HTTP/1.1 204 No Content\r\n\r\n"));
    lab.upstream.on("pub.test", "/same", |_| Answer::raw("HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n"));
    let run = lab.run(&["pub"]);
    for way in WAYS {
        let mut wire = run.tls(way, "pub.test");
        for turn in 0..3 {
            let head = wire.ask(bare("HEAD", "pub.test", "/long", &[])).answer();
            assert_eq!((head.status, head.field("content-length")), (200, Some("1234")), "turn {turn}");
            assert_eq!(wire.ask(bare("HEAD", "pub.test", "/chunked", &[])).answer().status, 200);
            let none = wire.ask(get("pub.test", "/none")).answer();
            assert_eq!(
                (none.status, none.field("content-length"), none.field("transfer-encoding")),
                (204, None, None)
            );
            let same = wire.ask(bare("GET", "pub.test", "/same", &["If-None-Match: \"a\""])).answer();
            assert_eq!((same.status, same.field("etag")), (304, Some("\"a\"")));
            assert_eq!(wire.ask(get("pub.test", "/long")).answer().body.len(), 1234);
        }
    }
}

#[test]
fn h24_no_coding_is_added_and_every_body_has_an_end() {
    let Some(lab) = Lab::start() else { return };
    let run = lab.run(&["pub"]);
    for way in WAYS {
        let (response, recorded) = allowed(&run, way, "pub.test", get("pub.test", "/x"));
        assert_eq!(recorded.field("accept-encoding"), None);
        assert_eq!(response.field("content-encoding"), None);
        assert!(response.field("content-length").is_some() || response.field("transfer-encoding").is_some());
        let (_, recorded) =
            allowed(&run, way, "pub.test", bare("GET", "pub.test", "/x", &["Accept-Encoding: gzip"]));
        assert_eq!(recorded.field("accept-encoding"), Some("gzip"));
    }
}

#[test]
fn h56_a_cancelled_download_ends_at_the_upstream_and_is_recorded_as_the_clients() {
    let Some(lab) = Lab::start() else { return };
    let (send, ended) = std::sync::mpsc::channel();
    let send = std::sync::Mutex::new(send);
    lab.upstream.take_over("pub.test", "/endless", move |_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        let chunk = format!("1000\r\n{}\r\n", "x".repeat(4096));
        while stream.write_all(chunk.as_bytes()).and_then(|()| stream.flush()).is_ok() {}
        let _ = send.lock().unwrap().send(());
    });
    let run = lab.run(&["pub"]);
    for way in WAYS {
        let before = lab.audit.decisions(&run.id).len();
        let mut wire = run.tls(way, "pub.test");
        wire.send(get("pub.test", "/endless")).unwrap();
        wire.read_exact(&mut vec![0; 100_000]).unwrap();
        drop(wire);
        ended.recv_timeout(Duration::from_secs(20)).expect("the upstream is told");
        let records = run.decisions(before + 1);
        assert_eq!(records[before]["reason"], "client_closed", "{:#?}", records[before]);
        assert!(records[before]["response_bytes"].as_u64().unwrap() >= 90_000);
    }
}

#[test]
fn h66_the_dialled_address_is_the_brokers_own_choice() {
    let Some(lab) = Lab::start() else { return };
    let run = lab.run(&["pub"]);
    // Guests know synthetic addresses only; what is dialled is the checked address of the verified name.
    let (_, recorded) = allowed(&run, Way::Transparent, "pub.test", get("pub.test", "/x"));
    assert_eq!((recorded.host, recorded.server_name.as_str()), ("pub.test", "pub.test"));
    let record = run.decisions(1).pop().unwrap();
    assert_eq!(record["upstream"], "10.77.0.3:443");
}

#[test]
fn e14_one_run_cannot_take_the_connections_of_another() {
    let Some(lab) = Lab::start() else { return };
    let (greedy, other) = (lab.run(&["pub"]), lab.run(&["pub"]));
    let mut held = Vec::new();
    for _ in 0..1500 {
        match greedy.gate.connect("10.1.1.1:3128".parse().unwrap()) {
            Ok(stream) => held.push(stream),
            Err(_) => break,
        }
    }
    for way in WAYS {
        allowed(&other, way, "pub.test", get("pub.test", "/x"));
    }
    drop(held);
    wait::until_true("the greedy run is served again", || {
        greedy.tls_with(Way::Connect, "pub.test", 443, "pub.test", &[b"http/1.1"]).is_ok()
    });
}

#[test]
fn g26_what_the_policy_says_is_what_happens() {
    let Some(lab) = Lab::start() else { return };
    let text = POLICY.replace("FOLDER", lab.folder().to_str().unwrap());
    let loaded = Policy::load(&[SourceFile::new("lab.toml", text)]).unwrap();
    let policy = loaded.policy;
    let grants = vec!["items".to_owned(), "git".to_owned()];
    let question = ScopeQuestion {
        caller: Some(CALLER),
        grants: &grants,
        tier: Some(Tier::Container),
        session: false,
        now_unix: 1_800_000_000,
    };
    let scope = policy.scope(&question).unwrap();
    let host = Host::parse("api.test").unwrap();
    let route = policy.destination(&DestinationQuestion { scope: &scope, host: &host, port: 443 }).unwrap();
    let run = lab.run(&["items", "git"]);
    let pieces = [
        "/v1",
        "/items",
        "/1",
        "/%31",
        "/..",
        "/%2e",
        "//",
        "/a%2Fb",
        "/search",
        "?scope=read",
        "?scope=write",
        "?",
        ";x",
        "#",
        "/V1",
        "\\",
    ];
    let mut wire = run.tls(Way::Connect, "api.test");
    // A fixed walk through the combinations: the same requests every time.
    let mut state = 0x9e37_79b9_u32;
    for turn in 0..400 {
        // Targets near the granted ones, and any.
        let mut target = ["/v1/items", "/v1", ""][turn % 3].to_owned();
        for _ in 0..=turn % 4 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            target.push_str(pieces[usize::try_from(state >> 16).unwrap() % pieces.len()]);
        }
        let said = match Target::parse(target.as_bytes()) {
            Err(_) => false,
            Ok(target) => {
                let question = RequestQuestion {
                    scope: &scope,
                    route: &route,
                    method: "GET",
                    target: &target,
                    fields: &NoFields,
                    websocket: false,
                    now_unix: 1_800_000_000,
                };
                matches!(policy.evaluate(&question), Decision::Allow(_))
            }
        };
        let answer = match wire.ask(get("api.test", &target)) {
            freeboard_tests::wire::Reply::Answer(answer) => answer,
            freeboard_tests::wire::Reply::Closed(_) => {
                wire = run.tls(Way::Connect, "api.test");
                wire.ask(get("api.test", &target)).answer()
            }
        };
        assert_eq!(
            answer.status == 200,
            said,
            "`{target}`: the policy says {said}, the answer is {answer:?}"
        );
        if wire_is_spent(&answer) {
            wire = run.tls(Way::Connect, "api.test");
        }
    }
    let recorded = lab.upstream.take();
    assert!(!recorded.is_empty() && recorded.len() < 400);
}

fn wire_is_spent(answer: &freeboard_tests::response::Response) -> bool {
    answer.field("connection") == Some("close")
}
