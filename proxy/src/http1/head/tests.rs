//! Raw request heads, each with the answer that it must get. The ids are those of the attack cases.

use super::*;

fn refused(head: &str) -> Reason {
    let head = head.replace("\r\n", "\n").replace('\n', "\r\n");
    match request(head.as_bytes()) {
        Ok(head) => panic!("taken: {head:?}"),
        Err(stop) => stop.reason,
    }
}

fn taken(head: &str) -> RequestHead {
    let head = head.replace('\n', "\r\n");
    request(head.as_bytes()).unwrap_or_else(|stop| panic!("{head:?} refused: {stop}"))
}

/// A request with these extra lines.
fn with(lines: &str) -> String {
    format!("POST /v1/items HTTP/1.1\nHost: api.test\n{lines}\n\n")
}

#[test]
fn takes_an_ordinary_request() {
    let head = taken("GET /v1/items/1?a=b HTTP/1.1\nHost: api.test\nX-One: 1\nAccept: a\nAccept: b\n\n");
    assert_eq!(head.method, "GET");
    assert_eq!(head.target.unwrap().wire(), "/v1/items/1?a=b");
    assert_eq!(head.place.name.to_string(), "api.test");
    assert_eq!(head.fields.len(), 3);
    assert_eq!(head.length, crate::request::Length::None);
    assert!(!head.close);
}

#[test]
fn b18_finds_the_end_of_a_head_and_refuses_bare_line_feeds() {
    let mut scanned = 0;
    assert_eq!(find_end(b"GET / HTTP/1.1\r\nHost: a\r\n", &mut scanned), Ok(None));
    assert_eq!(find_end(b"GET / HTTP/1.1\r\nHost: a\r\n\r\nrest", &mut scanned), Ok(Some(27)));
    for head in [
        &b"GET / HTTP/1.1\nHost: a\n\n"[..],
        b"GET / HTTP/1.1\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n\n",
        b"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        assert!(find_end(head, &mut 0).is_err(), "{}", head.escape_ascii());
    }
}

#[test]
fn b18_finds_the_end_wherever_the_reads_are_cut() {
    let head = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    for cut in 0..head.len() {
        let mut scanned = 0;
        assert_eq!(find_end(&head[..cut], &mut scanned), Ok(None));
        assert_eq!(find_end(head, &mut scanned), Ok(Some(head.len())));
    }
}

#[test]
fn b01_b02_refuses_a_length_beside_a_coding_in_either_order() {
    assert_eq!(refused(&with("Content-Length: 6\nTransfer-Encoding: chunked")), Reason::Malformed);
    assert_eq!(refused(&with("Transfer-Encoding: chunked\nContent-Length: 6")), Reason::Malformed);
}

#[test]
fn b03_b06_refuses_every_other_spelling_of_a_coding() {
    for value in [
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: chunked;q=1",
        "Transfer-Encoding:  chunked",
        "Transfer-Encoding: chunked ",
        "Transfer-Encoding:\tchunked",
        "Transfer-Encoding: \u{a0}chunked",
        "Transfer-Encoding: \"chunked\"",
        "Transfer-Encoding: chu\n nked",
        "Transfer-Encoding:",
        "Transfer-Encoding: identity",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: chunked\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\ntransfer-encoding: identity",
    ] {
        assert_eq!(refused(&with(value)), Reason::Malformed, "{value:?}");
    }
    assert_eq!(
        request(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \x0bchunked\r\n\r\n").unwrap_err().reason,
        Reason::Malformed
    );
    assert_eq!(taken(&with("transfer-encoding: CHUNKED")).length, crate::request::Length::Unknown);
}

#[test]
fn b07_refuses_a_coding_in_http_1_0() {
    let head = "POST / HTTP/1.0\nHost: a\nTransfer-Encoding: chunked\n\n";
    assert_eq!(refused(head), Reason::Malformed);
}

#[test]
fn b08_b09_refuses_repeated_and_odd_lengths() {
    for value in [
        "+5",
        "-1",
        "0x5",
        "1_0",
        "5 5",
        "010",
        "",
        "5;",
        "18446744073709551621",
        "5\t",
        "5, 5",
        " 5",
        "5 ",
        "00",
    ] {
        assert_eq!(refused(&with(&format!("Content-Length: {value}"))), Reason::Malformed, "{value:?}");
    }
    assert_eq!(refused(&with("Content-Length: 5\nContent-Length: 5")), Reason::Malformed);
    assert_eq!(refused(&with("Content-Length: 5\nContent-Length: 0")), Reason::Malformed);
    assert_eq!(refused(&with("Content-Length:\nContent-Length: 5")), Reason::Malformed);
    assert_eq!(taken(&with("Content-Length: 0")).length, crate::request::Length::Sized(0));
}

#[test]
fn b19_refuses_control_characters_in_values() {
    for bytes in [&b"a\rY: b"[..], b"a\0b", b"a\x7fb", b"a\x01b"] {
        let mut head = b"GET / HTTP/1.1\r\nHost: a\r\nX: ".to_vec();
        head.extend_from_slice(bytes);
        head.extend_from_slice(b"\r\n\r\n");
        assert_eq!(request(&head).unwrap_err().reason, Reason::Malformed, "{}", bytes.escape_ascii());
    }
}

#[test]
fn b21_refuses_odd_names_and_drops_lookalikes() {
    for line in
        ["Content-Length : 5", ": x", "no colon", "Content-Length\u{85}: 5", "X Y: 1", "X\t: 1", "(x): 1"]
    {
        assert_eq!(refused(&with(line)), Reason::Malformed, "{line:?}");
    }
    let first_line_folded = "GET / HTTP/1.1\n Content-Length: 5\nHost: a\n\n";
    assert_eq!(refused(first_line_folded), Reason::Malformed);
    let folded = "GET / HTTP/1.1\nHost: a\nX: a\n b\n\n";
    assert_eq!(refused(folded), Reason::Malformed);
    let head = taken(&with("Content_Length: 5"));
    assert_eq!((head.length, head.fields.len()), (crate::request::Length::None, 0));
    assert_eq!(head.stripped.as_slice(), ["lookalike"]);
}

#[test]
fn a19_a22_a23_refuses_anything_but_one_host() {
    for head in [
        "GET / HTTP/1.1\n\n",
        "GET / HTTP/1.0\n\n",
        "GET / HTTP/1.1\nHost:\n\n",
        "GET / HTTP/1.1\nHost: api.test\nHost: evil.test\n\n",
        "GET / HTTP/1.1\nHost: api.test\nHost: api.test\n\n",
        "GET / HTTP/1.1\nHost: api.test, evil.test\n\n",
        "GET / HTTP/1.1\nhost :api.test\n\n",
        "GET / HTTP/1.1\nHost: api.test@evil.test\n\n",
        "GET / HTTP/1.1\nHost: api.test/v1\n\n",
        "GET / HTTP/1.1\nHost: [api.test]\n\n",
        "GET http://pub.test/ HTTP/1.1\nHost: api.test\n\n",
        "GET https://pub.test/ HTTP/1.1\nHost: pub.test:8443\n\n",
        "GET https://pub.test/ HTTP/1.1\n\n",
        "GET https://api.test@evil.test/ HTTP/1.1\nHost: evil.test\n\n",
        "CONNECT pub.test:443 HTTP/1.1\nHost: api.test:443\n\n",
        "CONNECT pub.test:443 HTTP/1.0\nHost: api.test:443\n\n",
        "CONNECT pub.test:443 HTTP/1.1\n\n",
        "GET https://pub.test/ HTTP/1.0\n\n",
    ] {
        assert_eq!(refused(head), Reason::Malformed, "{head:?}");
    }
    assert!(taken("GET https://Pub.Test:443 HTTP/1.1\nHost: pub.test\n\n").target.is_some());
}

#[test]
fn takes_the_connect_of_pythons_older_clients() {
    let head = taken("CONNECT pub.test:443 HTTP/1.0\nProxy-Authorization: Basic eA==\n\n");
    assert_eq!((head.place.port, &*head.method), (Some(443), "CONNECT"));
}

#[test]
fn a41_a49_refuses_odd_request_lines() {
    for head in [
        "GET * HTTP/1.1\nHost: a\n\n",
        "OPTIONS * HTTP/1.1\nHost: a\n\n",
        "GET api.test:443 HTTP/1.1\nHost: a\n\n",
        "GET  HTTP/1.1\nHost: a\n\n",
        "GET  / HTTP/1.1\nHost: a\n\n",
        "GET / HTTP/1.1 \nHost: a\n\n",
        "GET\t/ HTTP/1.1\nHost: a\n\n",
        "GET / HTTP/2.0\nHost: a\n\n",
        "GET / HTTP/1.2\nHost: a\n\n",
        "GET / http/1.1\nHost: a\n\n",
        "GET /\nHost: a\n\n",
        "G=\":<>(e),[T];?\" / HTTP/1.1\nHost: a\n\n",
        "GET ftp://a/ HTTP/1.1\nHost: a\n\n",
        "CONNECT a HTTP/1.1\nHost: a\n\n",
        "CONNECT a:65979 HTTP/1.1\nHost: a\n\n",
        "CONNECT a:443 HTTP/1.1\nHost: a\nContent-Length: 3\n\n",
    ] {
        let reason = refused(head);
        assert!(matches!(reason, Reason::Malformed | Reason::TargetNotCanonical), "{head:?}: {reason}");
    }
    let long = format!("{} / HTTP/1.1\nHost: a\n\n", "G".repeat(4096));
    assert_eq!(refused(&long), Reason::Malformed);
}

#[test]
fn a01_a17_refuses_targets_with_two_readings() {
    for target in
        ["/v1/../admin", "/v1/%2e%2e/admin", "/v1//items", "/v1\\items", "/v1/a;b", "/v1/admin#/v1/items/1"]
    {
        assert_eq!(
            refused(&format!("GET {target} HTTP/1.1\nHost: a\n\n")),
            Reason::TargetNotCanonical,
            "{target}"
        );
    }
}

#[test]
fn b27_answers_unknown_expectations_with_417() {
    assert_eq!(refused(&with("Expect: x")), Reason::ExpectationFailed);
    assert_eq!(refused(&with("Expect: 100-continue\nExpect: 100-continue")), Reason::ExpectationFailed);
    assert!(taken(&with("Expect: 100-Continue\nContent-Length: 3")).expects_continue);
}

#[test]
fn c17_refuses_methods_that_echo() {
    for method in ["TRACE", "TRACK", "trace"] {
        assert_eq!(refused(&format!("{method} / HTTP/1.1\nHost: a\n\n")), Reason::MethodForbidden);
    }
    assert_eq!(refused("OPTIONS / HTTP/1.1\nHost: a\nMax-Forwards: 0\n\n"), Reason::MethodForbidden);
}

#[test]
fn a31_b31_refuses_every_upgrade_but_a_websocket_handshake() {
    let upgrade = |lines: &str| format!("GET / HTTP/1.1\nHost: a\n{lines}\n\n");
    let key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\nSec-WebSocket-Version: 13";
    for lines in [
        "Connection: Upgrade, HTTP2-Settings\nUpgrade: h2c\nHTTP2-Settings: AAMAAABkAAQAAP__",
        "Connection: upgrade\nUpgrade: foo",
        "Connection: upgrade\nUpgrade: websocket, foo",
        "Connection: upgrade\nUpgrade: websocket\nUpgrade: foo",
    ] {
        assert_eq!(refused(&upgrade(lines)), Reason::UpgradeRefused, "{lines:?}");
    }
    for lines in [
        "Connection: upgrade\nUpgrade: websocket",
        "Connection: upgrade\nUpgrade: websocket\nSec-WebSocket-Key: x\nSec-WebSocket-Version: 13",
        &format!("Connection: upgrade\nUpgrade: websocket\nContent-Length: 3\n{key}"),
        &format!("Connection: upgrade\nUpgrade: websocket\n{key}\n{key}"),
    ] {
        assert_eq!(refused(&upgrade(lines)), Reason::Malformed, "{lines:?}");
    }
    let head = taken(&upgrade(&format!("Connection: keep-alive, Upgrade\nUpgrade: WebSocket\n{key}")));
    assert_eq!(&*head.websocket.unwrap().key, "dGhlIHNhbXBsZSBub25jZQ==");
    assert!(taken(&upgrade("Upgrade: h2c")).websocket.is_none());
}

#[test]
fn b32_takes_out_what_connection_names_and_every_hop_field() {
    let head = taken(&with(
        "Connection: close, X-Secret, Host\nX-Secret: 1\nKeep-Alive: 5\nProxy-Connection: x\nProxy-Authorization: Basic x\nTE: gzip\nTrailer: x\nX-Kept: 1",
    ));
    let names: Vec<_> = head.fields.iter().map(|(name, _)| name.to_owned()).collect();
    assert_eq!(names, ["X-Kept"]);
    assert!(head.close);
    assert_eq!(head.place.name.to_string(), "api.test");
    assert_eq!(head.stripped.as_slice(), ["connection_named"]);
}

#[test]
fn a40_strips_method_and_target_overrides_and_claims_of_origin() {
    let head = taken(&with(
        "X-HTTP-Method-Override: DELETE\nX-HTTP-Method: DELETE\nX-Method-Override: DELETE\nX_HTTP_METHOD_OVERRIDE: DELETE\nX-Original-URL: /admin\nX-Forwarded-For: 1.1.1.1\nForwarded: for=1.1.1.1\nVia: x",
    ));
    assert!(head.fields.is_empty(), "{:?}", head.fields);
}

#[test]
fn c09_drops_the_guests_own_credentials_in_every_spelling() {
    let mut head = taken(&with(
        "Authorization: Bearer mine\nAUTHORIZATION: x\nX-Api-Key: k\nX-Custom-Token: t\nX_Custom_Token: t\nX-Kept: 1",
    ));
    head.drop_guest_credentials(Some("x-custom-token"));
    let names: Vec<_> = head.fields.iter().map(|(name, _)| name.to_owned()).collect();
    assert_eq!(names, ["X-Kept"]);
    assert!(!head.has_guest_credential_left());
}

#[test]
fn refuses_a_head_with_too_many_fields() {
    assert_eq!(refused(&with("X: 1\n".repeat(200).trim_end())), Reason::HeadTooLarge);
}
