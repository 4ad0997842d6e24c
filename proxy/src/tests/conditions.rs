//! Rules that look at more than method and target: the body is held, judged, and goes on as it came.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use tokio::io::AsyncWriteExt as _;

use super::lab::{Lab, Reaction, SECRET, ok, read_all, read_until};

const RULES: &str = r#"
[[grant.g.allow]]
api = "api"
routes = ["POST /v1/issues"]
inspect_bytes = "64KiB"
json = { "/state" = ["open", "closed"] }

[[grant.g.allow]]
api = "api"
routes = ["GET /v1/typed"]
response_content_type = "application/json"
headers = { x-mode = "safe" }
calls = 2
"#;

fn post(fields: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST /v1/issues HTTP/1.1\r\nHost: api.test:PORT\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{fields}\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// Sends bytes to `api.test` and reads to the end.
async fn ask(lab: &Lab, bytes: &[u8]) -> String {
    let mut stream = lab.tunnel("api.test", "api.test").await;
    let text = bytes.to_vec();
    let port = lab.port().to_string();
    let at = text.windows(4).position(|window| window == b"PORT").unwrap();
    let bytes = [&text[..at], port.as_bytes(), &text[at + 4..]].concat();
    stream.write_all(&bytes).await.unwrap();
    stream.shutdown().await.unwrap();
    read_all(&mut stream).await
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn a_body_that_its_rule_takes_goes_on_byte_for_byte() {
    let lab = Lab::with_rules(ok, "", RULES).await;
    let body = br#"{ "state" : "open",   "text":"caf\u00e9" }"#;
    let answer = ask(&lab, &post("", body)).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let upstream = lab.upstream_text();
    assert!(upstream.ends_with(std::str::from_utf8(body).unwrap()), "{upstream}");
    assert!(upstream.contains(&format!("authorization: Bearer {SECRET}")), "{upstream}");
    assert_eq!(lab.wait_for_records(1).await, ["allowed"]);
}

#[tokio::test]
async fn an_encoded_body_is_looked_through_and_goes_on_encoded() {
    let lab = Lab::with_rules(ok, "", RULES).await;
    let good = gzip(br#"{"state":"closed"}"#);
    let answer = ask(&lab, &post("Content-Encoding: gzip\r\n", &good)).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let seen = lab.seen.lock().unwrap()[0].clone();
    assert!(seen.ends_with(&good), "the encoded bytes are forwarded");
    drop(seen);
    let bomb = gzip(&vec![b' '; 10 << 20]);
    assert!(bomb.len() < 64 << 10);
    let bad = gzip(br#"{"state":"merged"}"#);
    for (fields, body, reason) in [
        ("Content-Encoding: gzip\r\n", &bad, "body_not_granted"),
        ("Content-Encoding: gzip\r\n", &bomb, "inspection_too_large"),
        ("Content-Encoding: gzip\r\n", &good[..good.len() - 4].to_vec(), "inspection_truncated"),
        ("Content-Encoding: gzip\r\n", &b"{\"state\":\"open\"}".to_vec(), "inspection_encoding"),
        ("Content-Encoding: br\r\n", &good, "inspection_encoding"),
        ("Content-Encoding: gzip, gzip\r\n", &good, "inspection_nested_encoding"),
        ("", &good, "inspection_malformed"),
    ] {
        let answer = ask(&lab, &post(fields, body)).await;
        assert!(answer.contains(&format!("\"error\":\"{reason}\"")), "{fields} {reason}: {answer}");
    }
    assert_eq!(lab.upstream_connections(), 1, "nothing of the others reached the upstream");
}

#[tokio::test]
async fn a_body_that_comes_slowly_and_chunked_is_held_until_it_is_whole() {
    let lab = Lab::with_rules(ok, "", RULES).await;
    let mut stream = lab.tunnel("api.test", "api.test").await;
    let head = lab.raw(
        "POST /v1/issues HTTP/1.1\nHost: api.test:PORT\nContent-Type: application/json\nTransfer-Encoding: chunked\nExpect: 100-continue\n\n",
    );
    stream.write_all(&head).await.unwrap();
    assert!(read_until(&mut stream, b"\r\n\r\n").await.starts_with(b"HTTP/1.1 100"));
    stream.write_all(b"9\r\n{\"state\":\r\n").await.unwrap();
    stream.flush().await.unwrap();
    tokio::task::yield_now().await;
    assert_eq!(lab.upstream_connections(), 0, "nothing goes on before the whole was judged");
    stream.write_all(b"7\r\n\"open\"}\r\n0\r\n\r\n").await.unwrap();
    let answer = read_until(&mut stream, b"ok").await;
    assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", answer.escape_ascii());
    assert!(lab.upstream_text().ends_with("{\"state\":\"open\"}"), "{}", lab.upstream_text());
    // The connection is kept: the next request on it is judged by itself.
    let body = "{\"state\":\"x\"}";
    let next = format!(
        "POST /v1/issues HTTP/1.1\nHost: api.test:PORT\nContent-Type: application/json\nContent-Length: {}\nConnection: close\n\n",
        body.len()
    );
    stream.write_all(&[lab.raw(&next), body.as_bytes().to_vec()].concat()).await.unwrap();
    let answer = read_all(&mut stream).await;
    assert!(answer.contains("body_not_granted"), "{answer}");
    assert_eq!(lab.wait_for_records(2).await, ["allowed", "denied body_not_granted"]);
}

#[tokio::test]
async fn a_body_above_the_limit_is_refused_without_being_read() {
    let lab = Lab::with_rules(ok, "", RULES).await;
    let head = "POST /v1/issues HTTP/1.1\nHost: api.test:PORT\nContent-Type: application/json\nContent-Length: 65537\n\n{";
    let answer = lab.api(head).await;
    assert!(answer.starts_with("HTTP/1.1 413") && answer.contains("inspection_too_large"), "{answer}");
    let chunk = format!("10001\r\n{}\r\n", "x".repeat(0x10001));
    let head = lab.raw("POST /v1/issues HTTP/1.1\nHost: api.test:PORT\nContent-Type: application/json\nTransfer-Encoding: chunked\n\n");
    let mut stream = lab.tunnel("api.test", "api.test").await;
    stream.write_all(&[head, chunk.into_bytes()].concat()).await.unwrap();
    stream.shutdown().await.unwrap();
    let answer = read_all(&mut stream).await;
    assert!(answer.contains("inspection_too_large"), "{answer}");
    assert_eq!(lab.upstream_connections(), 0);
}

#[tokio::test]
async fn an_answer_of_another_type_is_not_passed_on_and_calls_are_counted_by_route() {
    let answers = |seen: &[u8]| {
        let kind =
            if seen.windows(9).any(|text| text == b"want=html") { "text/html" } else { "application/json" };
        Reaction::Send(
            format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: 2\r\n\r\n{{}}").into_bytes(),
        )
    };
    let lab = Lab::with_rules(answers, "", RULES).await;
    let get =
        |fields: &str| format!("GET /v1/typed HTTP/1.1\nHost: api.test:PORT\nConnection: close\n{fields}\n");
    let refused = lab.api(&get("")).await;
    assert!(refused.contains("header_not_granted"), "{refused}");
    let refused = lab.api(&get("x-mode: safe\nX-MODE: unsafe\n")).await;
    assert!(refused.contains("header_not_granted"), "{refused}");
    assert_eq!(lab.upstream_connections(), 0);
    assert!(lab.api(&get("X-Mode: safe\n")).await.ends_with("{}"));
    let html = lab.api(&get("X-Mode: safe\nX-Other: want=html\n")).await;
    assert!(html.starts_with("HTTP/1.1 502") && html.contains("response_type_not_granted"), "{html}");
    let third = lab.api(&get("X-Mode: safe\n")).await;
    assert!(third.starts_with("HTTP/1.1 429") && third.contains("budget_exhausted"), "{third}");
    assert_eq!(lab.upstream_text().matches("GET /v1/typed").count(), 2, "{}", lab.upstream_text());
}
