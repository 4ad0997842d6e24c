//! P3: one reading of the byte stream. Whatever two parsers could read differently is refused. Attack class B.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failing test panics")]

use freeboard_tests::answer::Answer;
use freeboard_tests::expect::{allowed, allowed_on, bare, broken_body, get, refused, with_body};
use freeboard_tests::lab::{C1, Lab, Run, WAYS, Way};

fn on_every_door(grants: &[&str], body: impl Fn(&Run<'_>, Way)) {
    let Some(lab) = Lab::start() else { return };
    let run = lab.run(grants);
    for way in WAYS {
        body(&run, way);
    }
}

/// A POST to the granted route with these raw field lines and raw body.
fn post(fields: &str, body: &str) -> String {
    format!("POST /v1/items HTTP/1.1\r\nHost: api.test\r\n{fields}\r\n\r\n{body}")
}

/// Each request is refused with one of `statuses`, and the connection is closed: its framing is in doubt.
fn refuses_and_closes(requests: &[String], statuses: &[u16]) {
    on_every_door(&["items"], |run, way| {
        for request in requests {
            let mut wire = run.tls(way, "api.test");
            freeboard_tests::expect::refused_on(run, &mut wire, request, statuses);
            assert!(wire.is_closed(), "still open after:\n{request}");
        }
    });
}

/// Each request has a body with two readings: the upstream never gets it whole, and the connection is closed.
fn breaks_off(requests: &[String], statuses: &[u16]) {
    on_every_door(&["items"], |run, way| {
        for request in requests {
            broken_body(run, way, "api.test", request, statuses);
        }
    });
}

#[test]
fn b01_length_and_chunks_together_are_refused() {
    refuses_and_closes(
        &[
            post("Content-Length: 6\r\nTransfer-Encoding: chunked", "0\r\n\r\nG"),
            post("Transfer-Encoding: chunked\r\nContent-Length: 6", "0\r\n\r\nG"),
            post("Content-Length: 0\r\nTransfer-Encoding: chunked", "0\r\n\r\n"),
        ],
        &[400],
    );
}

#[test]
fn b03_transfer_encoding_is_spelt_one_way() {
    let values = [
        "xchunked",
        "chunked;q=1",
        "\x0bchunked",
        "\"chunked\"",
        "",
        "identity",
        "gzip, chunked",
        "chunked, chunked",
        "chunked, identity",
        "chunked,",
        ", chunked",
        "Chunked x",
    ];
    let mut requests: Vec<String> =
        values.iter().map(|value| post(&format!("Transfer-Encoding: {value}"), "0\r\n\r\n")).collect();
    requests.push(post("Transfer-Encoding:\r\n chunked", "0\r\n\r\n"));
    requests.push(post("Transfer-Encoding: chu\nnked", "0\r\n\r\n"));
    requests.push(post("Transfer-Encoding : chunked", "0\r\n\r\n"));
    requests.push(post("Transfer_Encoding: chunked\r\nTransfer-Encoding: x", "0\r\n\r\n"));
    refuses_and_closes(&requests, &[400, 501]);
    on_every_door(&["items"], |run, way| {
        let mut odd =
            b"POST /v1/items HTTP/1.1\r\nHost: api.test\r\nTransfer-Encoding: \xa0chunked\r\n\r\n0\r\n\r\n"
                .to_vec();
        refused(run, way, "api.test", &odd, &[400, 501]);
        odd.clear();
    });
}

#[test]
fn b06_several_transfer_encodings_are_refused() {
    refuses_and_closes(
        &[
            post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", "0\r\n\r\n"),
            post("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", "0\r\n\r\n"),
            post("Transfer-Encoding: identity\r\ntransfer-encoding: chunked", "0\r\n\r\n"),
        ],
        &[400, 501],
    );
}

#[test]
fn b07_http_1_0_has_no_chunks_and_no_bodies_without_length() {
    refuses_and_closes(
        &[
            "POST /v1/items HTTP/1.0\r\nHost: api.test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
                .to_owned(),
            "POST /v1/items HTTP/1.0\r\nHost: api.test\r\n\r\nbody".to_owned(),
        ],
        &[400, 505],
    );
}

#[test]
fn b08_repeated_lengths_are_refused() {
    refuses_and_closes(
        &[
            post("Content-Length: 5\r\nContent-Length: 0", "hello"),
            post("Content-Length: 5, 5", "hello"),
            post("Content-Length: 5\r\nContent-Length: 5", "hello"),
            post("Content-Length:\r\nContent-Length: 5", "hello"),
            post("content-length: 5\r\nCONTENT-LENGTH: 6", "hello!"),
        ],
        &[400],
    );
}

#[test]
fn b09_lengths_are_plain_decimal_digits() {
    let values = [
        "+5",
        "-1",
        "0x5",
        "1_0",
        "5 5",
        "010",
        "",
        "5;",
        "18446744073709551621",
        "5\t5",
        "5.0",
        "\u{665}",
        "5,",
        "1e1",
        "00",
    ];
    let requests: Vec<String> =
        values.iter().map(|value| post(&format!("Content-Length: {value}"), "hello")).collect();
    refuses_and_closes(&requests, &[400, 413]);
}

#[test]
fn b11_a_body_on_get_is_framed_exactly_or_refused() {
    on_every_door(&["items"], |run, way| {
        let smuggled = get("api.test", "/v1/admin");
        for method in ["GET", "HEAD"] {
            let mut wire = run.tls(way, "api.test");
            let request = with_body(method, "api.test", "/v1/items/1", &[], &smuggled);
            let before = run.lab.upstream.requests().len();
            let reply = wire.ask(request).answer();
            match &run.lab.upstream.requests()[before..] {
                [] => assert_eq!(reply.status, 400),
                [one] => assert_eq!(one.body, smuggled.as_bytes()),
                more => panic!("the body became a request: {more:#?}"),
            }
        }
    });
}

#[test]
fn b12_b14_chunk_extensions_do_not_hide_line_ends() {
    breaks_off(
        &[
            post("Transfer-Encoding: chunked", "5;\nhello\r\n0\r\n\r\n"),
            post("Transfer-Encoding: chunked", "2;\nxx\r\n50\r\nxx\r\n0\r\n\r\n"),
            post("Transfer-Encoding: chunked", "5;a=\"\r\n0\r\n\r\nGET /x\"\r\nhello\r\n0\r\n\r\n"),
            post("Transfer-Encoding: chunked", "5\nhello\n0\n\n"),
            post("Transfer-Encoding: chunked", "5\r\nhello0\r\n\r\n"),
            post("Transfer-Encoding: chunked", "5\r\nhelloXX0\r\n\r\n"),
            post("Transfer-Encoding: chunked", "5;a\rb\r\nhello\r\n0\r\n\r\n"),
        ],
        &[400],
    );
}

#[test]
fn b12_chunk_extensions_are_never_forwarded() {
    on_every_door(&["items"], |run, way| {
        let mut wire = run.tls(way, "api.test");
        let before = run.lab.upstream.requests().len();
        let reply =
            wire.ask(post("Transfer-Encoding: chunked", "5;name=value\r\nhello\r\n0\r\n\r\n")).answer();
        match &run.lab.upstream.requests()[before..] {
            [] => assert_eq!(reply.status, 400),
            [one] => {
                assert_eq!(one.body, b"hello");
                assert!(!one.raw_body.contains(&b';'), "{one:?}");
            }
            more => panic!("{more:?}"),
        }
    });
}

#[test]
fn b16_chunk_sizes_are_plain_hex() {
    let sizes = [
        "0x5",
        "+5",
        "-0",
        "5 ",
        " 5",
        "0_2e",
        "",
        "00000000000000005",
        "FFFFFFFFFFFFFFFFF",
        "ffffffffffffffff",
        "5\t",
        "g",
    ];
    let mut requests: Vec<String> = sizes
        .iter()
        .map(|size| post("Transfer-Encoding: chunked", &format!("{size}\r\nhello\r\n0\r\n\r\n")))
        .collect();
    requests
        .push(post("Transfer-Encoding: chunked", &format!("{}5\r\nhello\r\n0\r\n\r\n", "0".repeat(65536))));
    breaks_off(&requests, &[400, 413]);
}

#[test]
fn b17_chunk_extensions_are_bounded() {
    breaks_off(
        &[post("Transfer-Encoding: chunked", &format!("5;{}\r\nhello\r\n0\r\n\r\n", "x".repeat(65536)))],
        &[400, 413],
    );
    on_every_door(&["items"], |run, way| {
        let many = format!("1;{}\r\nx\r\n", "e".repeat(100)).repeat(20_000);
        broken_body(
            run,
            way,
            "api.test",
            post("Transfer-Encoding: chunked", &format!("{many}0\r\n\r\n")),
            &[400, 413],
        );
    });
}

#[test]
fn b18_bare_line_feeds_are_refused() {
    refuses_and_closes(
        &[
            "GET /v1/items/1 HTTP/1.1\nHost: api.test\n\n".to_owned(),
            "GET /v1/items/1 HTTP/1.1\nHost: api.test\r\n\r\n".to_owned(),
            "GET /v1/items/1 HTTP/1.1\r\nHost: api.test\nX: y\r\n\r\n".to_owned(),
            "GET /v1/items/1 HTTP/1.1\r\nHost: api.test\r\nX: y\n\r\n".to_owned(),
            "GET /v1/items/1 HTTP/1.1\r\nHost: api.test\r\n\nGET /v1/admin HTTP/1.1\r\n\r\n".to_owned(),
        ],
        &[400],
    );
}

#[test]
fn b19_bare_cr_and_nul_in_values_are_refused() {
    let values = ["a\rY: b", "a\0b", "a\x7fb", "a\x01b", "\x1b[2J", "a\r", "\x0c"];
    let requests: Vec<String> = values
        .iter()
        .map(|value| bare("GET", "api.test", "/v1/items/1", &[&format!("X: {value}")]))
        .collect();
    refuses_and_closes(&requests, &[400]);
}

#[test]
fn b21_header_names_are_tokens_and_lines_are_not_folded() {
    let lines = [
        "Content-Length : 5",
        ": x",
        "no colon at all",
        "X Y: z",
        "X\ty: z",
        "(x): z",
        "X: a\r\n b",
        "X: a\r\n\tb",
        "\u{e9}: x",
        "Host\0: x",
        "Transfer-Encoding\x0b: chunked",
    ];
    let mut requests: Vec<String> = lines
        .iter()
        .map(|line| format!("POST /v1/items HTTP/1.1\r\nHost: api.test\r\n{line}\r\n\r\nhello"))
        .collect();
    requests.push("POST /v1/items HTTP/1.1\r\n Content-Length: 5\r\nHost: api.test\r\n\r\nhello".to_owned());
    requests.push("\r\n\r\n\r\n\r\nGET /v1/items/1 HTTP/1.1\r\n Host: api.test\r\n\r\n".to_owned());
    refuses_and_closes(&requests, &[400]);
    on_every_door(&["items"], |run, way| {
        let raw = b"POST /v1/items HTTP/1.1\r\nHost: api.test\r\nContent-Length\x85: 5\r\n\r\nhello";
        refused(run, way, "api.test", raw, &[400]);
        // A name with an underscore is never the name with a dash.
        let before = run.lab.upstream.requests().len();
        let request = post("Content_Length: 99\r\nContent-Length: 5", "hello");
        let reply = run.tls(way, "api.test").ask(request).answer();
        match &run.lab.upstream.requests()[before..] {
            [] => assert_eq!(reply.status, 400),
            [one] => {
                assert_eq!(
                    (one.body.as_slice(), one.all("content-length").len() <= 1),
                    (&b"hello"[..], true)
                );
            }
            more => panic!("{more:?}"),
        }
    });
}

#[test]
fn b26_trailers_never_become_fields() {
    on_every_door(&["items"], |run, way| {
        for trailer in [
            "Authorization: Bearer mine",
            "Host: evil.test",
            "Content-Length: 5",
            "X-HTTP-Method-Override: DELETE",
            "Transfer-Encoding: chunked",
            "Cookie: a=b",
        ] {
            let before = run.lab.upstream.requests().len();
            let body = format!("5\r\nhello\r\n0\r\n{trailer}\r\n\r\n");
            let reply = run.tls(way, "api.test").ask(post("Transfer-Encoding: chunked", &body));
            match &run.lab.upstream.requests()[before..] {
                [] => assert!(matches!(reply.status(), Some(400) | None), "{reply:?}"),
                [one] => {
                    assert_eq!(one.all("authorization"), [format!("Bearer {C1}")]);
                    assert_eq!(one.all("host"), ["api.test"]);
                    let raw = String::from_utf8_lossy(&one.raw_body).to_lowercase();
                    assert!(!raw.contains(&trailer.to_lowercase()), "{trailer} went on: {raw}");
                }
                more => panic!("{more:?}"),
            }
        }
        let bad = post("Transfer-Encoding: chunked", "5\r\nhello\r\n0\r\nno colon\r\n\r\n");
        let before = run.lab.upstream.requests().len();
        let reply = run.tls(way, "api.test").ask(bad);
        assert!(run.lab.upstream.requests().len() == before && reply.status() != Some(200), "{reply:?}");
    });
}

#[test]
fn b27_expectations_end_in_one_answer() {
    on_every_door(&["items"], |run, way| {
        // A denied route with the body sent anyway: the body is not the next request.
        let mut wire = run.tls(way, "api.test");
        let smuggled = get("api.test", "/v1/items/1");
        let denied = with_body("POST", "api.test", "/v1/admin", &["Expect: 100-continue"], &smuggled);
        freeboard_tests::expect::refused_on(run, &mut wire, denied, &[403]);
        let before = run.lab.upstream.requests().len();
        let _ = wire.rest();
        assert_eq!(
            run.lab.upstream.requests().len(),
            before,
            "the body of a refused request was read as a request"
        );
        // Unknown expectation.
        refused(run, way, "api.test", bare("GET", "api.test", "/v1/items/1", &["Expect: x"]), &[417]);
        // An allowed one gets its answer although the upstream never says 100.
        let (response, recorded) = allowed(
            run,
            way,
            "api.test",
            with_body("POST", "api.test", "/v1/items", &["Expect: 100-continue"], "hello"),
        );
        assert_eq!((response.status, recorded.body.as_slice()), (200, &b"hello"[..]));
    });
}

#[test]
fn b27_a_final_answer_before_the_body_does_not_shift_replies() {
    let Some(lab) = Lab::start() else { return };
    lab.upstream.take_over("api.test", "/v1/items", |_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno");
        let _ = stream.flush();
    });
    let run = lab.run(&["items"]);
    for way in WAYS {
        let mut wire = run.tls(way, "api.test");
        let reply =
            wire.ask(with_body("POST", "api.test", "/v1/items", &["Expect: 100-continue"], "hello")).answer();
        assert_eq!(reply.status, 401);
        if let freeboard_tests::wire::Reply::Answer(next) = wire.ask(get("api.test", "/v1/items/2")) {
            assert_eq!(next.status, 200);
            assert!(next.text().contains("/v1/items/2"), "{next:?}");
        }
    }
}

#[test]
fn b29_b33_a_pipelined_request_is_judged_by_itself() {
    on_every_door(&["items"], |shared, way| {
        let run = &shared.lab.run(&["items"]);
        let before = run.lab.audit.decisions(&run.id).len();
        run.lab.upstream.take();
        let mut wire = run.tls(way, "api.test");
        let three =
            [get("api.test", "/v1/items/1"), get("api.test", "/v1/admin"), get("api.test", "/v1/items/3")]
                .concat();
        wire.send(three).unwrap();
        let statuses: Vec<_> = (0..3).map(|_| wire.read_answer("GET").answer().status).collect();
        assert_eq!(statuses, [200, 403, 200]);
        let targets: Vec<_> = run.lab.upstream.take().into_iter().map(|request| request.target).collect();
        assert_eq!(targets, ["/v1/items/1", "/v1/items/3"]);
        let verdicts: Vec<_> =
            run.decisions(before + 3)[before..].iter().map(|record| record["verdict"].clone()).collect();
        assert_eq!(verdicts, ["allowed", "denied", "allowed"]);
        // An upgrade that is not granted, with a request behind it.
        let mut wire = run.tls(way, "api.test");
        let upgrade = bare(
            "GET",
            "api.test",
            "/v1/items/1",
            &[
                "Upgrade: websocket",
                "Connection: Upgrade",
                "Sec-WebSocket-Version: 13",
                "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
            ],
        );
        wire.send([upgrade, get("api.test", "/v1/admin")].concat()).unwrap();
        let _ = wire.rest();
        assert!(run.lab.upstream.take().iter().all(|request| request.target != "/v1/admin"));
    });
}

#[test]
fn b31_a_fake_upgrade_is_never_an_opaque_pipe() {
    let Some(lab) = Lab::start() else { return };
    lab.upstream.take_over("pub.test", "/foo", |_, stream| {
        let _ = stream.write_all(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: foo\r\nConnection: Upgrade\r\n\r\nraw bytes",
        );
        let _ = stream.flush();
        let mut byte = [0];
        let _ = std::io::Read::read(stream, &mut byte);
    });
    let run = lab.run(&["pub"]);
    for way in WAYS {
        for fields in [
            &["Upgrade: foo", "Connection: Upgrade"][..],
            &["Upgrade: websocket", "Connection: Upgrade"],
            &[],
        ] {
            let mut wire = run.tls(way, "pub.test");
            let reply = wire.ask(bare("GET", "pub.test", "/foo", fields));
            assert_ne!(reply.status(), Some(101), "{fields:?}");
            assert!(reply.status().is_none_or(|status| [400, 403, 502].contains(&status)), "{reply:?}");
            assert!(!String::from_utf8_lossy(&wire.rest()).contains("raw bytes"));
        }
    }
}

#[test]
fn b32_named_hop_headers_go_before_the_credential_comes() {
    on_every_door(&["items", "reg"], |run, way| {
        for named in [
            "close, Authorization",
            "X-Api-Key, Host",
            "cookie",
            "authorization",
            "keep-alive, AUTHORIZATION, content-length",
        ] {
            let field = format!("Connection: {named}");
            let fields = [field.as_str(), "Authorization: Bearer mine", "X-Secret-Hop: 1"];
            let (_, recorded) =
                allowed(run, way, "api.test", bare("GET", "api.test", "/v1/items/1", &fields));
            assert_eq!(recorded.all("authorization"), [format!("Bearer {C1}")], "{named}");
            assert_eq!(recorded.all("host"), ["api.test"], "{named}");
            assert!(
                recorded.field("connection").is_none_or(|value| !value.contains("uthorization")),
                "{recorded:?}"
            );
        }
        let (_, recorded) = allowed(
            run,
            way,
            "api.test",
            bare(
                "GET",
                "api.test",
                "/v1/items/1",
                &[
                    "Connection: X-Drop",
                    "X-Drop: 1",
                    "Keep-Alive: 1",
                    "Proxy-Connection: x",
                    "Proxy-Authorization: Basic eDp5",
                    "TE: trailers",
                    "Forwarded: for=1.1.1.1",
                    "X-Forwarded-For: 1.1.1.1",
                ],
            ),
        );
        for name in [
            "x-drop",
            "keep-alive",
            "proxy-connection",
            "proxy-authorization",
            "forwarded",
            "x-forwarded-for",
        ] {
            assert!(recorded.field(name).is_none(), "{name} reached the upstream");
        }
    });
}

#[test]
fn b36_bytes_after_an_answer_are_dropped_with_their_connection() {
    let Some(lab) = Lab::start() else { return };
    let stray = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nstray";
    lab.upstream.on("api.test", "/v1/items/two", move |_| {
        Answer::raw(format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok{stray}"))
    });
    lab.upstream.on("api.test", "/v1/items/none", move |_| {
        Answer::raw(format!("HTTP/1.1 204 No Content\r\n\r\n{stray}"))
    });
    lab.upstream.on("api.test", "/v1/items/same", move |_| {
        Answer::raw(format!("HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n{stray}"))
    });
    let run = lab.run(&["items"]);
    for way in WAYS {
        for path in ["two", "none", "same"] {
            let mut wire = run.tls(way, "api.test");
            let first = wire.ask(get("api.test", &format!("/v1/items/{path}"))).answer();
            assert!([200, 204, 304].contains(&first.status));
            assert_ne!(first.body, b"stray");
            for turn in 0..3 {
                let target = format!("/v1/items/after-{path}-{turn}");
                let next = match wire.ask(get("api.test", &target)) {
                    freeboard_tests::wire::Reply::Answer(next) => next,
                    freeboard_tests::wire::Reply::Closed(_) => {
                        run.tls(way, "api.test").ask(get("api.test", &target)).answer()
                    }
                };
                assert!(next.text().contains(&target), "an answer was shifted: {next:?}");
            }
        }
    }
}

#[test]
fn b37_c26_runs_do_not_share_upstream_connections() {
    let Some(lab) = Lab::start() else { return };
    let (one, two) = (lab.run(&["items"]), lab.run(&["items"]));
    for way in WAYS {
        let (_, first) = allowed(&one, way, "api.test", get("api.test", "/v1/items/1"));
        let (_, again) = allowed(&one, way, "api.test", get("api.test", "/v1/items/2"));
        assert_eq!(first.connection, again.connection, "one run reuses its connection");
        let (_, other) = allowed(&two, way, "api.test", get("api.test", "/v1/items/3"));
        assert_ne!(first.connection, other.connection);
    }
}

#[test]
fn b38_h32_h65_every_request_of_a_connection_gets_its_own_answer() {
    let Some(lab) = Lab::start() else { return };
    lab.upstream.on("pub.test", "/500", |_| Answer::new(500, &[], "broken"));
    lab.upstream.on("pub.test", "/cut", |_| {
        Answer::raw("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf").resetting()
    });
    let run = lab.run(&["items", "pub"]);
    for (turns, way) in WAYS.into_iter().enumerate() {
        // Answers come before their records: those of the door before are waited for.
        run.decisions(turns * (50 + 20 + 3));
        let mut wire = run.tls(way, "pub.test");
        for turn in 0..50 {
            let target = format!("/n{turn}");
            let (response, _) = allowed_on(&run, &mut wire, get("pub.test", &target));
            assert!(response.text().contains(&target));
        }
        let mut wire = run.tls(way, "api.test");
        for turn in 0..10 {
            assert_eq!(
                wire.ask(get("api.test", "/v1/admin")).answer().status,
                403,
                "a refusal keeps the connection"
            );
            let target = format!("/v1/items/{turn}");
            assert!(wire.ask(get("api.test", &target)).answer().text().contains(&target));
        }
        let mut wire = run.tls(way, "pub.test");
        assert_eq!(wire.ask(get("pub.test", "/500")).answer().status, 500);
        assert!(wire.ask(get("pub.test", "/a")).answer().text().contains("/a"));
        // A cut answer is never completed, and nothing comes after it.
        match wire.ask(get("pub.test", "/cut")) {
            freeboard_tests::wire::Reply::Answer(response) => assert_eq!(response.status, 502),
            freeboard_tests::wire::Reply::Closed(_) => assert!(wire.is_closed()),
        }
    }
}

#[test]
fn b35_hostile_answers_are_refused_where_their_framing_is_in_doubt() {
    const ANSWERS: [&str; 10] = [
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nab\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX Y: z\r\nContent-Length: 2\r\n\r\nab",
        "HTTP/1.1 20 OK\r\nContent-Length: 2\r\n\r\nab",
        "HTTP/1.1 2000 OK\r\nContent-Length: 2\r\n\r\nab",
        "nonsense\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA: b\0c\r\nContent-Length: 2\r\n\r\nab",
    ];
    let Some(lab) = Lab::start() else { return };
    for (number, answer) in ANSWERS.iter().enumerate() {
        lab.upstream.on("pub.test", &format!("/bad{number}"), move |_| Answer::raw(answer).closing());
    }
    let run = lab.run(&["pub"]);
    for way in WAYS {
        for (number, answer) in ANSWERS.iter().enumerate() {
            let reply = run.tls(way, "pub.test").ask(get("pub.test", &format!("/bad{number}")));
            assert!(reply.status().is_none_or(|status| status == 502), "{reply:?} to {answer:?}");
        }
        let (response, _) = allowed(&run, way, "pub.test", get("pub.test", "/fine"));
        assert_eq!(response.status, 200);
    }
}
