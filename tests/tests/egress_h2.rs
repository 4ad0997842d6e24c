//! P2, P3 on HTTP/2: each stream is decided by itself, and frames that HTTP/1.1 cannot carry faithfully are refused.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failing test panics")]

use freeboard_tests::h2::{CONTINUATION, DATA, END_HEADERS, END_STREAM, Ended, H2, HEADERS, block};
use freeboard_tests::lab::{C1, Lab, Run, WAYS, Way};

fn on_every_door(grants: &[&str], body: impl Fn(&Run<'_>, Way)) {
    let Some(lab) = Lab::start() else { return };
    let run = lab.run(grants);
    for way in WAYS {
        body(&run, way);
    }
}

fn h2(run: &Run<'_>, way: Way, host: &str) -> H2 {
    let wire = run.tls_with(way, host, 443, host, &[b"h2", b"http/1.1"]).unwrap();
    assert_eq!(wire.protocol().as_deref(), Some(&b"h2"[..]), "H13: h2 is offered");
    H2::start(wire).unwrap()
}

fn request<'a>(method: &'a str, authority: &'a str, path: &'a str) -> Vec<(&'a str, &'a str)> {
    vec![(":method", method), (":scheme", "https"), (":authority", authority), (":path", path)]
}

/// The request must be refused and nothing may reach an upstream, and there is exactly one record of it, also where the h2
/// crate refuses by itself.
fn refused(run: &Run<'_>, way: Way, fields: &[(&str, &str)], body: Option<&[u8]>, statuses: &[u16]) {
    let before = run.lab.upstream.bytes();
    let refusals = run.refusals(0).len();
    let ended = h2(run, way, "api.test").ask(fields, body);
    assert!(ended.is_refusal(statuses), "{ended:?} to {fields:?}");
    assert_eq!(run.lab.upstream.bytes(), before, "an upstream got bytes of {fields:?}");
    let new = run.refusals(refusals + 1).split_off(refusals);
    assert_eq!(new.len(), 1, "records {new:#?} of {fields:?}");
    assert_eq!(new[0]["verdict"], "denied", "{new:#?} of {fields:?}");
}

#[test]
fn streams_of_one_connection_are_decided_one_by_one() {
    on_every_door(&["items"], |run, way| {
        let mut connection = h2(run, way, "api.test");
        run.lab.upstream.take();
        for turn in 0..10 {
            let path = format!("/v1/items/{turn}");
            match connection.ask(&request("GET", "api.test", &path), None) {
                Ended::Answer { body, .. } => assert!(String::from_utf8_lossy(&body).contains(&path)),
                other => panic!("{other:?}"),
            }
            match connection.ask(&request("GET", "api.test", "/v1/admin"), None) {
                Ended::Answer { body, .. } => assert!(String::from_utf8_lossy(&body).contains("no_rule")),
                other => panic!("{other:?}"),
            }
        }
        let recorded = run.lab.upstream.take();
        assert_eq!(recorded.len(), 10);
        for request in recorded {
            assert_eq!(request.all("authorization"), [format!("Bearer {C1}")]);
            assert_eq!(request.all("host"), ["api.test"]);
        }
    });
}

#[test]
fn h16_a_body_and_cookie_crumbs_cross_to_http11() {
    on_every_door(&["items"], |run, way| {
        run.lab.upstream.take();
        let mut fields = request("POST", "api.test", "/v1/items");
        fields.extend([("cookie", "a=b"), ("cookie", "c=d"), ("content-type", "text/plain")]);
        let ended = h2(run, way, "api.test").ask(&fields, Some(b"hello"));
        assert_eq!(ended.status(), Some(200), "{ended:?}");
        let recorded = run.lab.upstream.take();
        assert_eq!(recorded[0].body, b"hello");
        assert_eq!(recorded[0].all("cookie").join("; "), "a=b; c=d");
        assert_eq!(recorded[0].all("host"), ["api.test"]);
    });
}

#[test]
fn a_path_cases_are_refused_on_http2_too() {
    on_every_door(&["items"], |run, way| {
        for path in [
            "/v1/items/../admin",
            "/v1/items/%2e%2e/admin",
            "/v1/items\\..\\admin",
            "//v1/items/1",
            "/v1/items/1/secret",
            "/V1/ITEMS/1",
            "/v1/items/1;x",
            "/v1/admin#/v1/items/1",
            "/v1/items/x%00",
            "",
            "*",
            "v1/items/1",
            "https://api.test/v1/items/1",
            "/v1/items/ x",
            "/v1/items/1?x=1",
        ] {
            refused(run, way, &request("GET", "api.test", path), None, &[400, 403]);
        }
    });
}

#[test]
fn a27_authority_and_host_are_one_name() {
    on_every_door(&["items", "pub"], |run, way| {
        let mut both = request("GET", "api.test", "/v1/items/1");
        both.push(("host", "evil.test"));
        refused(run, way, &both, None, &[400, 421]);
        let two = [
            (":method", "GET"),
            (":scheme", "https"),
            (":authority", "api.test"),
            (":authority", "evil.test"),
            (":path", "/v1/items/1"),
        ];
        refused(run, way, &two, None, &[400]);
        refused(run, way, &request("GET", "pub.test", "/x"), None, &[400, 421]);
        refused(run, way, &request("GET", "evil.test", "/x"), None, &[400, 403, 421]);
        refused(run, way, &request("GET", "", "/v1/items/1"), None, &[400]);
        refused(run, way, &request("GET", "x@api.test", "/v1/items/1"), None, &[400, 421]);
        refused(
            run,
            way,
            &[(":method", "GET"), (":scheme", "https"), (":path", "/v1/items/1")],
            None,
            &[400],
        );
        refused(
            run,
            way,
            &[(":method", "GET"), (":scheme", "http"), (":authority", "api.test"), (":path", "/v1/items/1")],
            None,
            &[400, 403],
        );
    });
}

#[test]
fn a30_connect_streams_are_refused() {
    on_every_door(&["items", "pub"], |run, way| {
        refused(
            run,
            way,
            &[(":method", "CONNECT"), (":authority", "evil.test:443")],
            None,
            &[400, 403, 405, 421],
        );
        refused(run, way, &[(":method", "CONNECT"), (":authority", "api.test:443")], None, &[400, 403, 405]);
        let mut extended = request("CONNECT", "api.test", "/v1/items/1");
        extended.push((":protocol", "websocket"));
        refused(run, way, &extended, None, &[400, 403, 405, 501]);
    });
}

#[test]
fn b22_lengths_must_be_what_is_sent() {
    on_every_door(&["items"], |run, way| {
        let post = |length: &'static str| {
            let mut fields = request("POST", "api.test", "/v1/items");
            fields.push(("content-length", length));
            fields
        };
        for (length, body) in [
            ("0", &b"GET /v1/items/2 HTTP/1.1\r\nHost: api.test\r\n\r\n"[..]),
            ("100", b"short"),
            ("4", b"hello"),
            ("+5", b"hello"),
            ("5, 5", b"hello"),
        ] {
            let before = run.lab.upstream.requests().len();
            let refusals = run.refusals(0).len();
            let ended = h2(run, way, "api.test").ask(&post(length), Some(body));
            assert!(ended.is_refusal(&[400, 413, 502]), "{ended:?} to a length of {length}");
            assert_eq!(
                run.lab.upstream.requests().len(),
                before,
                "a whole request arrived for a length of {length}"
            );
            assert_eq!(run.refusals(refusals + 1).len(), refusals + 1, "one record for a length of {length}");
        }
        let mut twice = post("5");
        twice.push(("content-length", "6"));
        refused(run, way, &twice, Some(b"hello"), &[400]);
    });
}

#[test]
fn b23_connection_fields_are_refused() {
    on_every_door(&["items"], |run, way| {
        for field in [
            ("transfer-encoding", "chunked"),
            ("connection", "x"),
            ("connection", "close"),
            ("upgrade", "websocket"),
            ("keep-alive", "1"),
            ("proxy-connection", "x"),
            ("te", "gzip"),
            ("te", "trailers, gzip"),
        ] {
            let mut fields = request("GET", "api.test", "/v1/items/1");
            fields.push(field);
            refused(run, way, &fields, None, &[400]);
        }
        for field in [
            ("X-Upper", "x"),
            ("x y", "z"),
            ("x", "a\r\nb: c"),
            ("x", "a\0b"),
            ("", "x"),
            (":path", "/late"),
            (":unknown", "x"),
            ("x:y", "z"),
            ("x", " lead"),
        ] {
            let mut fields = request("GET", "api.test", "/v1/items/1");
            fields.push(field);
            if field == ("x", " lead") {
                continue; // RFC 9113 8.2.1 lets a recipient trim or refuse
            }
            refused(run, way, &fields, None, &[400]);
        }
        let mut trailers = request("GET", "api.test", "/v1/items/1");
        trailers.push(("te", "trailers"));
        assert_eq!(h2(run, way, "api.test").ask(&trailers, None).status(), Some(200));
    });
}

#[test]
fn b26_trailing_pseudo_fields_are_refused_and_trailers_never_become_fields() {
    on_every_door(&["items"], |run, way| {
        for trailer in [
            (":path", "/v1/admin"),
            ("authorization", "Bearer mine"),
            ("host", "evil.test"),
            ("content-length", "9"),
        ] {
            run.lab.upstream.take();
            let mut connection = h2(run, way, "api.test");
            let stream = connection.new_stream();
            connection
                .frame(HEADERS, END_HEADERS, stream, &block(&request("POST", "api.test", "/v1/items")))
                .unwrap();
            connection.frame(DATA, 0, stream, b"hello").unwrap();
            let _ = connection.frame(HEADERS, END_HEADERS | END_STREAM, stream, &block(&[trailer]));
            let ended = connection.outcome(stream);
            for request in run.lab.upstream.take() {
                assert_eq!(request.all("authorization"), [format!("Bearer {C1}")], "{ended:?}");
                assert_eq!((request.all("host"), request.target.as_str()), (vec!["api.test"], "/v1/items"));
                assert!(
                    !String::from_utf8_lossy(&request.raw_body).contains(trailer.1),
                    "{trailer:?} went on"
                );
            }
        }
    });
}

#[test]
fn e05_e09_header_floods_end_the_connection() {
    on_every_door(&["items"], |run, way| {
        let mut connection = h2(run, way, "api.test");
        let stream = connection.new_stream();
        connection.frame(HEADERS, 0, stream, &block(&request("GET", "api.test", "/v1/items/1"))).unwrap();
        let piece = block(&[("x-fill", &"x".repeat(8000))]);
        for _ in 0..2000 {
            if connection.frame(CONTINUATION, 0, stream, &piece).is_err() {
                break;
            }
        }
        let ended = connection.outcome(stream);
        assert!(ended.is_refusal(&[431]), "{ended:?}");
        // One large field in the dynamic table, referenced again and again.
        let mut connection = h2(run, way, "api.test");
        let stream = connection.new_stream();
        let mut bomb = block(&request("GET", "api.test", "/v1/items/1"));
        bomb.extend_from_slice(&[0x40, 1, b'x', 127, 0xa1, 0x1e]);
        bomb.extend_from_slice(&[b'y'; 4000]);
        bomb.extend(std::iter::repeat_n(0xbe, 8000));
        connection.frame(HEADERS, END_HEADERS | END_STREAM, stream, &bomb).unwrap();
        let ended = connection.outcome(stream);
        assert!(ended.is_refusal(&[400, 431]), "{ended:?}");
        assert!(run.lab.upstream.requests().iter().all(|request| request.head.len() < 100_000));
        // The broker serves on.
        assert_eq!(
            h2(run, way, "api.test").ask(&request("GET", "api.test", "/v1/items/1"), None).status(),
            Some(200)
        );
    });
}

#[test]
fn b22_a_body_that_looks_like_chunks_is_never_framing() {
    on_every_door(&["items"], |run, way| {
        // In one frame, so that the body is there whole when the head is decided; and in two.
        let smuggling = b"0\r\n\r\nGET /v1/admin HTTP/1.1\r\nHost: api.test\r\n\r\n";
        for pieces in [1, 2] {
            run.lab.upstream.take();
            let mut connection = h2(run, way, "api.test");
            let stream = connection.new_stream();
            let fields = block(&request("POST", "api.test", "/v1/items"));
            connection.frame(HEADERS, END_HEADERS, stream, &fields).unwrap();
            for piece in smuggling.chunks(smuggling.len().div_ceil(pieces)) {
                connection.frame(DATA, 0, stream, piece).unwrap();
            }
            connection.frame(DATA, END_STREAM, stream, b"").unwrap();
            let ended = connection.outcome(stream);
            assert_eq!(ended.status(), Some(200), "{ended:?}");
            let ended = connection.ask(&request("GET", "api.test", "/v1/items/2"), None);
            assert!(matches!(ended.status(), Some(200 | 1)), "{ended:?}");
            let recorded = run.lab.upstream.take();
            let targets: Vec<&str> = recorded.iter().map(|request| request.target.as_str()).collect();
            assert_eq!(targets, ["/v1/items", "/v1/items/2"], "a body became a request");
            assert_eq!(recorded[0].body, smuggling);
        }
    });
}
