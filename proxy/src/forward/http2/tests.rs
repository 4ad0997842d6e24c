//! Upstreams on HTTP/2: gRPC in all its shapes, origins that speak nothing else, and what they do to a request.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use h2::server::SendResponse;
use http::{HeaderMap, Request, Response};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::accept::{http1, http2};
use crate::error::Stop;
use crate::http1::{Socket, Stream};
use crate::pipeline::exchange;
use crate::request::{Answered, Body, Fields};
use crate::testing::{Collected, Lab, Received, SECRET, lab_with};

const PATIENCE: Duration = Duration::from_secs(20);

type Incoming = Request<h2::RecvStream>;

/// An upstream that speaks h2 and hands each request to `answer`.
async fn h2_lab<F, A>(answer: F) -> Lab
where
    F: Fn(Incoming, SendResponse<Bytes>) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = ()> + Send + 'static,
{
    lab_with(&["h2"], move |stream, received| {
        let answer = answer.clone();
        Box::pin(async move {
            let Ok(mut connection) = h2::server::handshake(stream).await else { return };
            while let Some(Ok((request, respond))) = connection.accept().await {
                note(&request, &received);
                tokio::spawn(answer(request, respond));
            }
        })
    })
    .await
}

fn note(request: &Incoming, received: &Mutex<Vec<Received>>) {
    let mut head = format!("{} {}\n", request.method(), request.uri());
    for (name, value) in request.headers() {
        head.push_str(name.as_str());
        head.push_str(": ");
        head.push_str(&String::from_utf8_lossy(value.as_bytes()));
        head.push('\n');
    }
    received.lock().unwrap().push(Received { head, body: Vec::new() });
}

async fn open(lab: &Lab, host: &str) -> SendRequest<Bytes> {
    let (guest, ours) = duplex(1 << 20);
    let (client, lead) = (lab.client.clone(), lab.lead(host));
    tokio::spawn(async move { http2::serve(&client, lead, ours).await });
    let (sender, connection) = h2::client::handshake(guest).await.unwrap();
    tokio::spawn(connection);
    sender
}

fn grpc(lab: &Lab, path: &str) -> Request<()> {
    Request::post(format!("https://api.test:{}{path}", lab.port))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("grpc-accept-encoding", "gzip")
        .body(())
        .unwrap()
}

fn message(text: &str) -> Bytes {
    let length = u32::try_from(text.len()).unwrap().to_be_bytes();
    [&[0][..], &length, text.as_bytes()].concat().into()
}

fn trailers(status: &str) -> HeaderMap {
    let mut map = HeaderMap::new();
    map.insert("grpc-status", status.parse().unwrap());
    map.insert("grpc-message", "said so".parse().unwrap());
    map
}

fn grpc_head() -> Response<()> {
    Response::builder().header("content-type", "application/grpc").body(()).unwrap()
}

/// The gRPC service of these tests, by path.
async fn service(request: Incoming, mut respond: SendResponse<Bytes>) {
    let path = request.uri().path().to_owned();
    let authorization = request.headers().get("authorization").cloned();
    let mut incoming = request.into_body();
    match path.as_str() {
        "/grpc.Service/TrailersOnly" => {
            let mut head = grpc_head();
            head.headers_mut().extend(trailers("5"));
            respond.send_response(head, true).unwrap();
        }
        "/grpc.Service/Fails" => {
            let mut send = respond.send_response(grpc_head(), false).unwrap();
            send.send_trailers(trailers("13")).unwrap();
        }
        "/grpc.Service/ServerStream" => {
            let mut send = respond.send_response(grpc_head(), false).unwrap();
            for index in 0..5 {
                send.send_data(message(&format!("event {index}")), false).unwrap();
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            send.send_trailers(trailers("0")).unwrap();
        }
        "/grpc.Service/Echo" => {
            // Bidirectional: each message is answered at once.
            let mut send = respond.send_response(grpc_head(), false).unwrap();
            while let Some(Ok(piece)) = incoming.data().await {
                incoming.flow_control().release_capacity(piece.len()).unwrap();
                send.send_data(piece, false).unwrap();
            }
            send.send_trailers(trailers("0")).unwrap();
        }
        _ => {
            let mut send = respond.send_response(grpc_head(), false).unwrap();
            let seen = authorization.map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default();
            send.send_data(message(&seen), false).unwrap();
            send.send_trailers(trailers("0")).unwrap();
        }
    }
}

struct Call {
    head: HeaderMap,
    body: Vec<u8>,
    trailers: Option<HeaderMap>,
}

async fn call(lab: &Lab, path: &str) -> Call {
    let mut sender = open(lab, "api.test").await.ready().await.unwrap();
    let (response, mut upload) = sender.send_request(grpc(lab, path), false).unwrap();
    upload.send_data(message("ask"), true).unwrap();
    let (parts, mut stream) = timeout(PATIENCE, response).await.unwrap().unwrap().into_parts();
    let mut body = Vec::new();
    while let Some(piece) = timeout(PATIENCE, stream.data()).await.unwrap() {
        body.extend_from_slice(&piece.unwrap());
    }
    Call { head: parts.headers, body, trailers: stream.trailers().await.unwrap() }
}

/// H13, H14: unary with its credential attached and scrubbed, error status, trailers only, server stream.
#[tokio::test]
async fn h14_grpc_keeps_its_trailers() {
    let lab = h2_lab(service).await;
    let unary = call(&lab, "/grpc.Service/Unary").await;
    assert_eq!(unary.trailers.unwrap()["grpc-status"], "0");
    assert_eq!(unary.body, message(&format!("Bearer {}", "*".repeat(SECRET.len()))));
    let head = lab.received()[0].head.clone();
    assert!(head.contains(&format!("authorization: Bearer {SECRET}\n")), "{head}");
    assert!(head.contains("te: trailers\n") && !head.contains("gzip"), "{head}");

    let fails = call(&lab, "/grpc.Service/Fails").await;
    let trailers = fails.trailers.unwrap();
    assert_eq!(
        (&trailers["grpc-status"], &trailers["grpc-message"]),
        (&"13".parse().unwrap(), &"said so".parse().unwrap())
    );

    let only = call(&lab, "/grpc.Service/TrailersOnly").await;
    assert_eq!(only.head["grpc-status"], "5");
    assert!(only.trailers.is_none() && only.body.is_empty());

    let stream = call(&lab, "/grpc.Service/ServerStream").await;
    assert_eq!(stream.trailers.unwrap()["grpc-status"], "0");
    let expected: Vec<u8> = (0..5).flat_map(|index| message(&format!("event {index}"))).collect();
    assert_eq!(stream.body, expected);
}

/// H14: both directions at once; each message is answered before the next one is sent, and half-close is kept.
#[tokio::test]
async fn h14_grpc_streams_both_ways() {
    let lab = h2_lab(service).await;
    let mut sender = open(&lab, "api.test").await.ready().await.unwrap();
    let (response, mut upload) = sender.send_request(grpc(&lab, "/grpc.Service/Echo"), false).unwrap();
    upload.send_data(message("one"), false).unwrap();
    let mut stream = timeout(PATIENCE, response).await.unwrap().unwrap().into_body();
    for text in ["one", "two", "three"] {
        if text != "one" {
            upload.send_data(message(text), false).unwrap();
        }
        let piece = timeout(PATIENCE, stream.data()).await.unwrap().unwrap().unwrap();
        assert_eq!(piece, message(text));
    }
    upload.send_data(Bytes::new(), true).unwrap();
    assert!(timeout(PATIENCE, stream.data()).await.unwrap().is_none());
    assert_eq!(stream.trailers().await.unwrap().unwrap()["grpc-status"], "0");
    lab.wait_for_records("\"verdict\":\"allowed\"", 1).await;
}

/// Another guest's body, which goes on only when it has heard that its answer has begun.
#[derive(Debug, Default)]
struct Conversation {
    answered: Answered,
    said: usize,
}

impl Body for Conversation {
    async fn next(&mut self) -> Result<Option<&[u8]>, Stop> {
        self.said += 1;
        while self.said > 1 && !self.answered.has_begun() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok((self.said <= 2).then_some(b"\0\0\0\0\x03one".as_slice()))
    }

    fn whole(&mut self) -> Option<&[u8]> {
        None
    }

    fn is_done(&self) -> bool {
        self.said > 2
    }

    fn trailers(&mut self) -> Option<Fields> {
        None
    }

    fn answered(&self) -> Option<&Answered> {
        Some(&self.answered)
    }
}

/// Sends such a body and answers with what came back.
async fn converse(lab: &Lab, kind: &str) -> Collected {
    let head = format!(
        "POST /grpc.Service/Echo HTTP/1.1\r\nHost: api.test:{}\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n",
        lab.port
    );
    let head = Box::new(crate::http1::head::request(head.as_bytes()).unwrap());
    let (mut body, mut guest) = (Conversation::default(), Collected::default());
    let (lead, started) = (lab.lead("api.test"), lab.client.broker.clock.now());
    let exchange = exchange(&lab.client, &lead, started, head, &mut body, &mut guest);
    timeout(PATIENCE, exchange).await.unwrap();
    guest
}

/// H14: a body hears that its answer has begun, by either protocol: neither side of such an exchange has to speak from then on.
#[tokio::test]
async fn h14_a_body_hears_that_its_answer_has_begun() {
    let guest = converse(&h2_lab(service).await, "application/grpc").await;
    assert_eq!(guest.pieces.concat(), message("one").repeat(2));
    let lab = lab_with(&["http/1.1"], |mut stream, _| {
        Box::pin(async move {
            let mut received = Vec::new();
            let mut until = async |stream: &mut crate::testing::Stream, end: &[u8]| {
                while !received.ends_with(end) {
                    assert_ne!(stream.read_buf(&mut received).await.unwrap(), 0);
                }
            };
            until(&mut stream, b"\0\0\0\0\x03one\r\n").await;
            let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
            stream.write_all(head.as_bytes()).await.unwrap();
            until(&mut stream, b"0\r\n\r\n").await;
            stream.write_all(b"3\r\nend\r\n0\r\n\r\n").await.unwrap();
        })
    })
    .await;
    assert_eq!(converse(&lab, "text/plain").await.pieces.concat(), b"end");
}

async fn hello(_request: Incoming, mut respond: SendResponse<Bytes>) {
    let head = Response::builder().header("x-from", "h2").body(()).unwrap();
    let mut send = respond.send_response(head, false).unwrap();
    send.send_data(Bytes::from_static(b"hello"), true).unwrap();
}

/// An HTTP/1.1 guest; returns what it reads until the connection is quiet.
async fn http1_get(lab: &Lab, host: &str, requests: &str) -> String {
    let (mut guest, ours) = UnixStream::pair().unwrap();
    let (client, lead) = (lab.client.clone(), lab.lead(host));
    let ours = http1::Guest::from(Stream::from(Socket::from(ours)));
    tokio::spawn(async move { http1::serve(&client, &lead, ours).await });
    guest.write_all(requests.as_bytes()).await.unwrap();
    let mut text = Vec::new();
    let mut piece = [0; 4096];
    while let Ok(Ok(read @ 1..)) = timeout(Duration::from_millis(700), guest.read(&mut piece)).await {
        text.extend_from_slice(&piece[..read]);
    }
    String::from_utf8(text).unwrap()
}

/// H16: an HTTP/1.1 guest and an origin that speaks only h2; the connection is kept and used again.
#[tokio::test]
async fn h16_http1_guests_reach_origins_that_speak_only_http2() {
    let lab = h2_lab(hello).await;
    let one = format!("GET /v1/items/1 HTTP/1.1\r\nHost: api.test:{}\r\nCookie: a=1; b=2\r\n\r\n", lab.port);
    let text = http1_get(&lab, "api.test", &one.repeat(2)).await;
    assert_eq!(text.matches("HTTP/1.1 200 OK\r\n").count(), 2, "{text}");
    assert_eq!(text.matches("hello").count(), 2);
    assert!(text.contains("x-from: h2"));
    let received = lab.received();
    assert_eq!(received.len(), 2);
    assert!(received[0].head.contains(&format!("Bearer {SECRET}")));
    assert!(!received[0].head.contains("host:"), "{}", received[0].head);
}

/// H34: a stream that the upstream did not look at is sent again, and the guest sees nothing of it.
#[tokio::test]
async fn h34_sends_refused_streams_again() {
    let count = Arc::new(AtomicUsize::new(0));
    let lab = h2_lab(move |request, mut respond| {
        let count = Arc::clone(&count);
        async move {
            if count.fetch_add(1, Ordering::SeqCst).is_multiple_of(2) {
                respond.send_reset(h2::Reason::REFUSED_STREAM);
            } else {
                hello(request, respond).await;
            }
        }
    })
    .await;
    for _ in 0..3 {
        let get = format!("GET /v1/items/1 HTTP/1.1\r\nHost: api.test:{}\r\n\r\n", lab.port);
        let text = http1_get(&lab, "api.test", &get).await;
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    }
    assert_eq!(lab.received().len(), 6);
    lab.wait_for_records("\"verdict\":\"allowed\"", 3).await;
}

/// H34: an upstream that ends its connection after each request.
#[tokio::test]
async fn h34_survives_goaway_after_each_request() {
    let lab = lab_with(&["h2"], |stream, received| {
        Box::pin(async move {
            let Ok(mut connection) = h2::server::handshake(stream).await else { return };
            if let Some(Ok((request, respond))) = connection.accept().await {
                note(&request, &received);
                tokio::spawn(hello(request, respond));
            }
            connection.graceful_shutdown();
            while connection.accept().await.is_some() {}
        })
    })
    .await;
    let sender = open(&lab, "api.test").await;
    for _ in 0..5 {
        let mut sender = sender.clone().ready().await.unwrap();
        let uri = format!("https://api.test:{}/v1/items/1", lab.port);
        let (response, _) = sender.send_request(Request::get(uri).body(()).unwrap(), true).unwrap();
        assert_eq!(timeout(PATIENCE, response).await.unwrap().unwrap().status(), 200);
    }
    assert!(lab.received().len() >= 5);
}
