//! Bytes that other proxies read in two ways, on the wire: 400, closed, nothing upstream, one record.

use tokio::io::AsyncWriteExt as _;

use super::lab::{Lab, Reaction, ok, read_all, whole};

#[tokio::test]
async fn b01_to_b21_malformed_requests_are_answered_and_the_connection_closes() {
    let lab = Lab::start(ok).await;
    let follow = "GET /v1/items/2 HTTP/1.1\nHost: api.test:PORT\n\n";
    let post = "POST /v1/items HTTP/1.1\nHost: api.test:PORT";
    let cases = [
        format!("{post}\nContent-Length: 6\nTransfer-Encoding: chunked\n\n0\n\nG{follow}"),
        format!("{post}\nTransfer-Encoding: xchunked\n\n0\n\n{follow}"),
        format!("{post}\nContent-Length: 5\nContent-Length: 0\n\n{follow}"),
        format!("{post}\nContent-Length : 5\n\n{follow}"),
        format!("GET /v1/items/1 HTTP/1.1\n\n{follow}"),
        "GET /v1/items/../admin HTTP/1.1\nHost: api.test:PORT\nConnection: close\n\n".to_owned(),
    ];
    for (number, case) in cases.iter().enumerate() {
        let answer = lab.api(case).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{case}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{case}: {answer}");
        assert_eq!(lab.wait_for_records(number + 1).await.len(), number + 1);
    }
    assert_eq!(lab.upstream_connections(), 0);
}

#[tokio::test]
async fn b12_b16_a_broken_chunked_body_never_completes_upstream() {
    let lab = Lab::start(ok).await;
    for body in ["5;\n\nhello\n0\n\n", "0x5\nhello\n0\n\n", "5\nhelloX\n0\n\n"] {
        let answer = lab
            .api(&format!(
                "POST /v1/items HTTP/1.1\nHost: api.test:PORT\nTransfer-Encoding: chunked\n\n{body}"
            ))
            .await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{body:?}: {answer}");
    }
    assert!(!lab.upstream_text().contains("0\r\n\r\n"), "{}", lab.upstream_text());
}

#[tokio::test]
async fn b11_a_get_with_a_body_is_framed_and_its_body_is_no_request() {
    let lab = Lab::start(ok).await;
    let inner = "GET /v1/items/2 HTTP/1.1\r\nHost: x\r\n\r\n";
    let answer = lab
        .api(&format!(
            "GET /v1/items/1 HTTP/1.1\nHost: api.test:PORT\nContent-Length: {}\n\n{}",
            inner.len(),
            inner.replace("\r\n", "\n")
        ))
        .await;
    assert_eq!(answer.matches("HTTP/1.1 200").count(), 1, "{answer}");
    let upstream = lab.upstream_text();
    assert!(upstream.contains(&format!("Content-Length: {}\r\n\r\n{inner}", inner.len())), "{upstream}");
}

#[tokio::test]
async fn b36_bytes_after_a_response_go_away_with_the_connection() {
    let lab = Lab::start(|seen| {
        if whole(seen) {
            let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
            Reaction::Send(format!("{answer}HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil").into())
        } else {
            Reaction::ReadOn
        }
    })
    .await;
    let answer = lab.api(&"GET /v1/items/1 HTTP/1.1\nHost: api.test:PORT\n\n".repeat(3)).await;
    assert_eq!(answer.matches("HTTP/1.1 200").count(), 3, "{answer}");
    assert!(!answer.contains("evil"), "{answer}");
    assert_eq!(lab.upstream_connections(), 3);
}

#[tokio::test]
async fn responses_with_two_readings_become_502() {
    for head in [
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        "HTTP/1.1 200 OK\nContent-Length: 2\n\n",
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: foo\r\n\r\n",
        "nonsense\r\n\r\n",
    ] {
        let answer = head.to_owned() + "ok";
        let lab = Lab::start(move |_| Reaction::Send(answer.clone().into())).await;
        let seen = lab.api("GET /v1/items/1 HTTP/1.1\nHost: api.test:PORT\nConnection: close\n\n").await;
        assert!(seen.starts_with("HTTP/1.1 502"), "{head:?}: {seen}");
        assert_eq!(lab.wait_for_records(1).await, ["failed upstream_malformed"]);
    }
}

#[tokio::test]
async fn b31_a_websocket_switches_only_on_the_matching_answer_and_then_relays() {
    let lab = Lab::start(|seen| {
        if seen.starts_with(b"GET") && whole(seen) {
            Reaction::Send(
                b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\nhello".to_vec(),
            )
        } else {
            Reaction::SendAndClose([b"echo:", seen].concat())
        }
    })
    .await;
    let mut stream = lab.tunnel("pub.test", "pub.test").await;
    let handshake = "GET /ws HTTP/1.1\nHost: pub.test:PORT\nConnection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\nSec-WebSocket-Version: 13\n\n";
    stream.write_all(&lab.raw(handshake)).await.unwrap();
    let answer = String::from_utf8(super::lab::read_until(&mut stream, b"hello").await).unwrap();
    if answer.starts_with("HTTP/1.1 403") {
        // The rule must say `websocket = true`; this policy does not.
        assert_eq!(lab.wait_for_records(1).await.len(), 1);
        return;
    }
    assert!(answer.starts_with("HTTP/1.1 101"), "{answer}");
    stream.write_all(b"frame").await.unwrap();
    assert_eq!(read_all(&mut stream).await, "echo:frame");
    drop(stream);
    assert_eq!(lab.wait_for_records(1).await, ["allowed"]);
}
