//! HTTP/2 from a guest: ordinary clients through the h2 crate, hostile ones by hand-made frames.

use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use http::{Method, Request, Response};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::time::timeout;

use super::serve;
use crate::testing::{Lab, Received, SECRET, lab, ok};

const PATIENCE: Duration = Duration::from_secs(20);

/// A guest's connection to `host`, served by the broker.
fn connect(lab: &Lab, host: &str) -> DuplexStream {
    let (guest, ours) = duplex(1 << 20);
    let (client, lead) = (lab.client.clone(), lab.lead(host));
    tokio::spawn(async move { serve(&client, lead, ours).await });
    guest
}

async fn open(lab: &Lab, host: &str) -> SendRequest<Bytes> {
    let (sender, connection) = h2::client::handshake(connect(lab, host)).await.unwrap();
    tokio::spawn(connection);
    sender
}

fn request(lab: &Lab, method: Method, host: &str, path: &str) -> http::request::Builder {
    Request::builder().method(method).uri(format!("https://{host}:{}{path}", lab.port))
}

async fn body(response: Response<h2::RecvStream>) -> (u16, http::HeaderMap, String, Option<http::HeaderMap>) {
    let (parts, mut stream) = response.into_parts();
    let mut bytes = Vec::new();
    while let Some(piece) = timeout(PATIENCE, stream.data()).await.unwrap() {
        let piece = piece.unwrap();
        stream.flow_control().release_capacity(piece.len()).unwrap();
        bytes.extend_from_slice(&piece);
    }
    let trailers = stream.trailers().await.unwrap();
    (parts.status.as_u16(), parts.headers, String::from_utf8(bytes).unwrap(), trailers)
}

async fn get(
    lab: &Lab,
    sender: &SendRequest<Bytes>,
    host: &str,
    path: &str,
) -> (u16, http::HeaderMap, String) {
    let mut sender = sender.clone().ready().await.unwrap();
    let request = request(lab, Method::GET, host, path).body(()).unwrap();
    let (response, _) = sender.send_request(request, true).unwrap();
    let (status, headers, text, _) = body(timeout(PATIENCE, response).await.unwrap().unwrap()).await;
    (status, headers, text)
}

fn echo(request: &Received) -> Vec<u8> {
    ok("", &format!("{}{}", request.head, String::from_utf8_lossy(&request.body)))
}

/// One connection, several streams: each is decided and recorded by itself.
#[tokio::test]
async fn decides_each_stream_by_itself() {
    let lab = lab(|_| ok("X-From: upstream\r\n", "item")).await;
    let sender = open(&lab, "api.test").await;
    let (allowed, denied, again) = tokio::join!(
        get(&lab, &sender, "api.test", "/v1/items/1"),
        get(&lab, &sender, "api.test", "/v1/admin"),
        get(&lab, &sender, "api.test", "/v1/items/2"),
    );
    assert_eq!((allowed.0, allowed.2.as_str()), (200, "item"));
    assert_eq!(allowed.1["x-from"], "upstream");
    assert_eq!((denied.0, again.0), (403, 200));
    assert!(denied.2.contains("no_rule"), "{}", denied.2);
    let received = lab.received();
    assert_eq!(received.len(), 2);
    for request in received {
        assert!(request.head.contains(&format!("authorization: Bearer {SECRET}\r\n")), "{}", request.head);
        assert!(request.head.contains(&format!("Host: api.test:{}\r\n", lab.port)));
    }
    lab.wait_for_records("\"verdict\":\"allowed\"", 2).await;
    lab.wait_for_records("\"verdict\":\"denied\"", 1).await;
}

/// C09: what the guest brings is dropped; H16: cookie crumbs are one field again.
#[tokio::test]
async fn h16_joins_cookies_and_c09_drops_the_guests_credential() {
    let lab = lab(|_| ok("", "")).await;
    let mut sender = open(&lab, "api.test").await.ready().await.unwrap();
    let request = request(&lab, Method::GET, "api.test", "/v1/items/1")
        .header("cookie", "a=1")
        .header("cookie", "b=2")
        .header("authorization", "Bearer mine")
        .header("x-api-key", "mine")
        .header("range", "bytes=0-3")
        .header("accept-encoding", "gzip")
        .body(())
        .unwrap();
    let (response, _) = sender.send_request(request, true).unwrap();
    assert_eq!(response.await.unwrap().status(), 200);
    let head = lab.received()[0].head.clone();
    assert!(head.contains("cookie: a=1; b=2\r\n"), "{head}");
    assert!(!head.contains("mine") && !head.contains("range:") && !head.contains("gzip"), "{head}");
    assert!(head.contains("accept-encoding: identity\r\n"), "{head}");
    assert_eq!(head.matches("authorization:").count(), 1);
}

/// C01, C03, C05: the secret does not come back, in body or head; without a credential nothing is touched.
#[tokio::test]
async fn c01_masks_the_echoed_secret() {
    let lab = lab(|request| {
        let body = format!("{} and token {SECRET}", request.head);
        ok(&format!("Location: /next?key={SECRET}\r\n"), &body)
    })
    .await;
    let sender = open(&lab, "api.test").await;
    let (status, headers, text) = get(&lab, &sender, "api.test", "/echo/headers").await;
    assert_eq!(status, 200);
    assert!(text.contains(&"*".repeat(SECRET.len())) && !text.contains(SECRET), "{text}");
    assert_eq!(headers["location"], format!("/next?key={}", "*".repeat(SECRET.len())));
    assert!(lab.received()[0].head.contains(SECRET), "positive control: the upstream did get it");
    lab.wait_for_records("secret_in_answer", 1).await;
    let sender = open(&lab, "pub.test").await;
    assert!(get(&lab, &sender, "pub.test", "/x").await.2.contains(SECRET));
}

#[tokio::test]
async fn c03_refuses_an_encoded_answer_that_was_not_asked_for() {
    let lab = lab(|_| ok("Content-Encoding: gzip\r\n", "xxxx")).await;
    let sender = open(&lab, "api.test").await;
    let (status, _, text) = get(&lab, &sender, "api.test", "/v1/items/1").await;
    assert_eq!(status, 502);
    assert!(text.contains("response_uninspectable"));
    let sender = open(&lab, "pub.test").await;
    assert_eq!(get(&lab, &sender, "pub.test", "/x").await.0, 200);
}

#[tokio::test]
async fn sends_bodies_of_known_and_unknown_length() {
    let lab = lab(echo).await;
    for stated in [true, false] {
        let mut sender = open(&lab, "pub.test").await.ready().await.unwrap();
        let mut builder = request(&lab, Method::POST, "pub.test", "/upload");
        if stated {
            builder = builder.header("content-length", "10");
        }
        let (response, mut upload) = sender.send_request(builder.body(()).unwrap(), false).unwrap();
        upload.send_data(Bytes::from_static(b"01234"), false).unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
        upload.send_data(Bytes::from_static(b"56789"), true).unwrap();
        let (status, _, text, _) = body(timeout(PATIENCE, response).await.unwrap().unwrap()).await;
        assert_eq!(status, 200);
        if stated {
            assert!(text.contains("Content-Length: 10\r\n") && text.ends_with("0123456789"), "{text}");
        } else {
            assert!(text.contains("Transfer-Encoding: chunked\r\n"), "{text}");
            assert!(text.contains("01234") && text.contains("56789"), "{text}");
        }
    }
}

#[tokio::test]
async fn b26_request_trailers_cannot_reach_the_head() {
    let lab = lab(echo).await;
    let mut sender = open(&lab, "pub.test").await.ready().await.unwrap();
    let builder = request(&lab, Method::POST, "pub.test", "/upload");
    let (response, mut upload) = sender.send_request(builder.body(()).unwrap(), false).unwrap();
    upload.send_data(Bytes::from_static(b"body"), false).unwrap();
    let mut trailers = http::HeaderMap::new();
    trailers.insert("authorization", "Bearer mine".parse().unwrap());
    trailers.insert("content-length", "5".parse().unwrap());
    trailers.insert("x-checksum", "7".parse().unwrap());
    upload.send_trailers(trailers).unwrap();
    let (status, _, text, _) = body(timeout(PATIENCE, response).await.unwrap().unwrap()).await;
    assert_eq!(status, 200);
    assert!(text.contains("x-checksum: 7\r\n") && !text.contains("mine"), "{text}");
}

/// A large answer to a guest that reads slowly: nothing is lost, and not all of it waits in memory.
#[tokio::test]
async fn e32_a_large_answer_passes_through_small_windows() {
    let large = "x".repeat(3 << 20);
    let expected = large.clone();
    let lab = lab(move |_| ok("", &large)).await;
    let sender = open(&lab, "pub.test").await;
    let (status, headers, text) = get(&lab, &sender, "pub.test", "/large").await;
    assert_eq!((status, text.len()), (200, expected.len()));
    assert_eq!(headers["content-length"], expected.len().to_string());
}

/// H14: a refusal reaches a gRPC client as a gRPC status.
#[tokio::test]
async fn h14_refuses_grpc_in_its_own_words() {
    let lab = lab(echo).await;
    let mut sender = open(&lab, "api.test").await.ready().await.unwrap();
    let request = request(&lab, Method::POST, "api.test", "/other.Service/Call")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())
        .unwrap();
    let (response, _) = sender.send_request(request, true).unwrap();
    let response = timeout(PATIENCE, response).await.unwrap().unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["grpc-status"], "7");
    assert!(response.headers()["grpc-message"].to_str().unwrap().contains("no_rule"));
    assert!(lab.received().is_empty());
}

/// H56: a guest that cancels ends the upstream request, and the record says so.
#[tokio::test]
async fn h56_records_a_cancelled_stream_as_closed_by_the_client() {
    // An upstream that never answers.
    let lab = lab(|_| Vec::new()).await;
    let mut sender = open(&lab, "api.test").await.ready().await.unwrap();
    let request = request(&lab, Method::GET, "api.test", "/v1/items/1").body(()).unwrap();
    let (response, mut upload) = sender.send_request(request, true).unwrap();
    let deadline = std::time::Instant::now() + PATIENCE;
    while lab.received().is_empty() {
        assert!(std::time::Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    upload.send_reset(h2::Reason::CANCEL);
    drop(response);
    lab.wait_for_records("client_closed", 1).await;
}

// ---- hand-made frames ----

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Literal fields without indexing and without Huffman coding (RFC 7541 6.2.2).
fn fields(list: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in list {
        bytes.push(0);
        for text in [name, value] {
            if text.len() < 127 {
                bytes.push(u8::try_from(text.len()).unwrap());
            } else {
                bytes.push(127);
                let mut rest = text.len() - 127;
                while rest >= 128 {
                    bytes.push(u8::try_from(rest % 128).unwrap() | 128);
                    rest /= 128;
                }
                bytes.push(u8::try_from(rest).unwrap());
            }
            bytes.extend_from_slice(text.as_bytes());
        }
    }
    bytes
}

fn start() -> Vec<u8> {
    [PREFACE, &frame(4, 0, 0, &[])].concat()
}

/// Sends `bytes` and reads until the broker closes or is quiet. Returns the frames: kind, stream, payload.
async fn exchange(mut guest: DuplexStream, bytes: Vec<u8>) -> Vec<(u8, u32, Vec<u8>)> {
    let (mut reading, mut writing) = tokio::io::split(&mut guest);
    let mut answer = Vec::new();
    let write = async {
        // The broker may hang up before everything was written.
        let _ = writing.write_all(&bytes).await;
        std::future::pending::<()>().await;
    };
    let read = async {
        let mut piece = vec![0; 1 << 16];
        while let Ok(Ok(read @ 1..)) = timeout(Duration::from_millis(700), reading.read(&mut piece)).await {
            answer.extend_from_slice(&piece[..read]);
        }
    };
    tokio::select! { () = write => {}, () = read => {} }
    let mut frames = Vec::new();
    let mut rest = answer.as_slice();
    while rest.len() >= 9 {
        let length = usize::from(rest[0]) << 16 | usize::from(rest[1]) << 8 | usize::from(rest[2]);
        let stream = u32::from_be_bytes([rest[5], rest[6], rest[7], rest[8]]);
        frames.push((rest[3], stream, rest[9..9 + length].to_vec()));
        rest = &rest[9 + length..];
    }
    frames
}

fn pseudo(lab: &Lab) -> Vec<(&'static str, String)> {
    vec![
        (":method", "GET".into()),
        (":scheme", "https".into()),
        (":path", "/v1/items/1".into()),
        (":authority", format!("api.test:{}", lab.port)),
    ]
}

fn headers_of(list: &[(&'static str, String)]) -> Vec<u8> {
    fields(&list.iter().map(|(name, value)| (*name, value.as_str())).collect::<Vec<_>>())
}

/// True when stream 1 was answered with HEADERS whose status is one of the static table's 2xx.
fn succeeded(frames: &[(u8, u32, Vec<u8>)]) -> bool {
    frames.iter().any(|(kind, stream, payload)| *kind == 1 && *stream == 1 && payload.first() == Some(&0x88))
}

/// A27, B23, B22: two readings in the head or of the length never reach the upstream.
#[tokio::test]
async fn a27_b22_b23_malformed_heads_reach_nobody() {
    let lab = lab(|_| ok("", "item")).await;
    let with = |extra: &[(&'static str, &str)]| {
        let mut list = pseudo(&lab);
        list.extend(extra.iter().map(|(name, value)| (*name, (*value).to_owned())));
        list
    };
    let without = |name: &str, extra: &[(&'static str, &str)]| {
        with(extra).into_iter().filter(|(other, _)| *other != name).collect::<Vec<_>>()
    };
    let port = format!("api.test:{}", lab.port);
    let fine = exchange(connect(&lab, "api.test"), {
        let payload = headers_of(&with(&[("host", &port)]));
        [start(), frame(1, END_STREAM | END_HEADERS, 1, &payload)].concat()
    })
    .await;
    assert!(succeeded(&fine), "the positive control is answered: {fine:?}");
    let host_only = without(":authority", &[("host", &port)]);
    let host_only = [start(), frame(1, END_STREAM | END_HEADERS, 1, &headers_of(&host_only))].concat();
    assert!(succeeded(&exchange(connect(&lab, "api.test"), host_only).await), "Host alone is enough");
    let before = lab.received().len();
    for (what, list) in [
        ("authority and host differ", with(&[("host", "evil.test")])),
        ("two authorities", with(&[(":authority", "evil.test")])),
        ("two hosts", with(&[("host", &port), ("host", "evil.test")])),
        ("neither", without(":authority", &[])),
        ("another authority", without(":authority", &[(":authority", "evil.test")])),
        ("transfer-encoding", with(&[("transfer-encoding", "chunked")])),
        ("connection", with(&[("connection", "x")])),
        ("upgrade", with(&[("upgrade", "websocket")])),
        ("keep-alive", with(&[("keep-alive", "5")])),
        ("proxy-connection", with(&[("proxy-connection", "keep-alive")])),
        ("te", with(&[("te", "gzip")])),
        ("upper case", with(&[("X-Upper", "1")])),
        ("white space", with(&[("x-space", " 1")])),
        ("a control character", with(&[("x-control", "a\rb")])),
        ("a length without a body", with(&[("content-length", "5")])),
        ("two lengths", with(&[("content-length", "0"), ("content-length", "0")])),
        ("dot segments", without(":path", &[(":path", "/v1/items/../admin")])),
        ("plain http", without(":scheme", &[(":scheme", "http")])),
        ("connect", vec![(":method", "CONNECT".into()), (":authority", "evil.test:443".into())]),
    ] {
        let bytes = [start(), frame(1, END_STREAM | END_HEADERS, 1, &headers_of(&list))].concat();
        let frames = exchange(connect(&lab, "api.test"), bytes).await;
        assert!(!succeeded(&frames), "{what}: {frames:?}");
        assert_eq!(lab.received().len(), before, "{what}");
    }
}

/// B22: DATA that does not fit the stated length ends the stream; the upstream never gets a whole request of it.
#[tokio::test]
async fn b22_data_must_fit_the_stated_length() {
    let lab = lab(|_| ok("", "item")).await;
    for length in ["0", "3", "50"] {
        let mut list = pseudo(&lab);
        list[0].1 = "POST".into();
        list[2].1 = "/v1/items".into();
        list.push(("content-length", length.into()));
        let bytes = [
            start(),
            frame(1, END_HEADERS, 1, &headers_of(&list)),
            frame(0, END_STREAM, 1, b"GET /admin HTTP/1.1\r\n\r\n"),
        ];
        let frames = exchange(connect(&lab, "api.test"), bytes.concat()).await;
        assert!(!succeeded(&frames), "{length}: {frames:?}");
    }
    assert!(lab.received().is_empty());
}

fn goaway(frames: &[(u8, u32, Vec<u8>)]) -> Option<u32> {
    let (_, _, payload) = frames.iter().find(|(kind, ..)| *kind == 7)?;
    Some(u32::from_be_bytes(payload[4..8].try_into().unwrap()))
}

/// E04: streams that are opened and cancelled at once end the connection and cost the upstream little.
#[tokio::test]
async fn e04_rapid_resets_end_the_connection() {
    let lab = lab(|_| ok("", "item")).await;
    let payload = headers_of(&pseudo(&lab));
    let mut bytes = start();
    for index in 0..5_000_u32 {
        let stream = 2 * index + 1;
        bytes.extend(frame(1, END_STREAM | END_HEADERS, stream, &payload));
        bytes.extend(frame(3, 0, stream, &8_u32.to_be_bytes()));
    }
    let frames = exchange(connect(&lab, "api.test"), bytes).await;
    assert_eq!(goaway(&frames), Some(11), "ENHANCE_YOUR_CALM");
    assert!(lab.received().len() <= 600, "{}", lab.received().len());
}

/// E05: a head that never ends is cut by its size.
#[tokio::test]
async fn e05_an_endless_head_ends_the_connection() {
    let lab = lab(|_| ok("", "item")).await;
    let mut bytes = [start(), frame(1, 0, 1, &headers_of(&pseudo(&lab)))].concat();
    for _ in 0..200 {
        bytes.extend(frame(9, 0, 1, &fields(&[("x-more", &"y".repeat(8_000))])));
    }
    let frames = exchange(connect(&lab, "api.test"), bytes).await;
    assert!(goaway(&frames).is_some_and(|code| code != 0), "{frames:?}");
    assert!(lab.received().is_empty());
}

/// E08: frames that bring nothing about end the connection.
#[tokio::test]
async fn e08_control_floods_end_the_connection() {
    let lab = lab(|_| ok("", "item")).await;
    for (what, flood) in [
        ("ping", frame(6, 0, 0, &[7; 8])),
        ("settings", frame(4, 0, 0, &[])),
        ("window update", frame(8, 0, 0, &1_u32.to_be_bytes())),
        ("priority", frame(2, 0, 3, &[0, 0, 0, 0, 1])),
    ] {
        let mut guest = connect(&lab, "api.test");
        guest.write_all(&start()).await.unwrap();
        let burst = flood.repeat(10_000);
        let (mut reading, mut writing) = tokio::io::split(guest);
        let drain = tokio::spawn(async move {
            let mut piece = vec![0; 1 << 16];
            while let Ok(1..) = reading.read(&mut piece).await {}
        });
        let mut sent = 0;
        while writing.write_all(&burst).await.is_ok() {
            sent += burst.len();
            assert!(sent < 16 << 20, "{what}: still open after {sent} bytes");
        }
        timeout(PATIENCE, drain).await.unwrap().unwrap();
    }
}

/// E09: the size of a head counts after decompression.
#[tokio::test]
async fn e09_a_compressed_head_counts_as_what_it_becomes() {
    let lab = lab(|_| ok("", "item")).await;
    let mut payload = headers_of(&pseudo(&lab));
    // One literal field into the dynamic table (RFC 7541 6.2.1), then thousands of references to it (index 62).
    let field = fields(&[("x-bomb", &"z".repeat(3_000))]);
    payload.push(0x40);
    payload.extend_from_slice(&field[1..]);
    payload.extend(vec![0xbe; 10_000]);
    let bytes = [start(), frame(1, END_STREAM | END_HEADERS, 1, &payload)].concat();
    let frames = exchange(connect(&lab, "api.test"), bytes).await;
    assert!(!succeeded(&frames));
    assert!(lab.received().is_empty());
}
