//! Streams through the whole pipeline: event streams and websockets, to guests on both protocols.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use http::Request;
use sha1::{Digest as _, Sha1};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
use tokio::net::UnixStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::accept::{http1, http2};
use crate::http1::{Socket, Stream};
use crate::testing::{Lab, SECRET, lab_with, read_request};

const PATIENCE: Duration = Duration::from_secs(20);

/// An HTTP/1.1 guest's end of a connection.
fn guest(lab: &Lab, host: &str) -> UnixStream {
    let (guest, ours) = UnixStream::pair().unwrap();
    let (client, lead) = (lab.client.clone(), lab.lead(host));
    let ours = http1::Guest::from(Stream::from(Socket::from(ours)));
    tokio::spawn(async move { http1::serve(&client, &lead, ours).await });
    guest
}

/// Reads until `text` has come.
async fn read_until(guest: &mut UnixStream, bytes: &mut Vec<u8>, text: &[u8]) {
    let mut piece = [0; 4096];
    while !bytes.windows(text.len()).any(|window| window == text) {
        let read = timeout(PATIENCE, guest.read(&mut piece)).await.unwrap().unwrap();
        assert!(read > 0, "closed after {}", String::from_utf8_lossy(bytes));
        bytes.extend_from_slice(&piece[..read]);
    }
}

/// An upstream that sends one event for each permit that a test gives.
async fn event_stream(permits: Arc<Semaphore>) -> Lab {
    lab_with(&["http/1.1"], move |mut stream, _| {
        let permits = Arc::clone(&permits);
        Box::pin(async move {
            let mut bytes = Vec::new();
            let Some(_) = read_request(&mut stream, &mut bytes).await else { return };
            let head =
                "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
            stream.write_all(head.as_bytes()).await.unwrap();
            for index in 0.. {
                permits.acquire().await.unwrap().forget();
                let event = format!("data: {index} for {SECRET}\n\n");
                let chunk = format!("{:x}\r\n{event}\r\n", event.len());
                if stream.write_all(chunk.as_bytes()).await.is_err() || stream.flush().await.is_err() {
                    return;
                }
            }
        })
    })
    .await
}

/// H22: each event is there before the next one is sent, also while the secret is searched for; to HTTP/1.1 guests.
#[tokio::test]
async fn h22_passes_each_event_at_once_to_http1() {
    for (host, masked) in [("api.test", true), ("pub.test", false)] {
        let permits = Arc::new(Semaphore::new(0));
        let lab = event_stream(Arc::clone(&permits)).await;
        let mut guest = guest(&lab, host);
        let request = format!("GET /echo/events HTTP/1.1\r\nHost: {host}:{}\r\n\r\n", lab.port);
        guest.write_all(request.as_bytes()).await.unwrap();
        let mut bytes = Vec::new();
        // The head comes before the first event.
        read_until(&mut guest, &mut bytes, b"\r\n\r\n").await;
        for index in 0..5 {
            permits.add_permits(1);
            read_until(&mut guest, &mut bytes, format!("data: {index} for ").as_bytes()).await;
            read_until(&mut guest, &mut bytes, b"\n\n\r\n").await;
        }
        assert_eq!(!String::from_utf8(bytes).unwrap().contains(SECRET), masked, "{host}");
    }
}

/// H22 for HTTP/2 guests.
#[tokio::test]
async fn h22_passes_each_event_at_once_to_http2() {
    let permits = Arc::new(Semaphore::new(0));
    let lab = event_stream(Arc::clone(&permits)).await;
    let (guest, ours) = duplex(1 << 20);
    let (client, lead) = (lab.client.clone(), lab.lead("api.test"));
    tokio::spawn(async move { http2::serve(&client, lead, ours).await });
    let (sender, connection) = h2::client::handshake(guest).await.unwrap();
    tokio::spawn(connection);
    let mut sender = sender.ready().await.unwrap();
    let uri = format!("https://api.test:{}/echo/events", lab.port);
    let (response, _) = sender.send_request(Request::get(uri).body(()).unwrap(), true).unwrap();
    let mut events = timeout(PATIENCE, response).await.unwrap().unwrap().into_body();
    for index in 0..5 {
        permits.add_permits(1);
        let mut event = Vec::new();
        while !event.ends_with(b"\n\n") {
            let piece = timeout(PATIENCE, events.data()).await.unwrap().unwrap().unwrap();
            events.flow_control().release_capacity(piece.len()).unwrap();
            event.extend_from_slice(&piece);
        }
        assert_eq!(
            String::from_utf8(event).unwrap(),
            format!("data: {index} for {}\n\n", "*".repeat(SECRET.len()))
        );
    }
    // H56: the guest goes; the record says so.
    drop(events);
    permits.add_permits(3);
    lab.wait_for_records("client_closed", 1).await;
}

/// B36: an upstream that ends its body by closing, in order or not, after more than one piece of it.
#[tokio::test]
async fn b36_a_large_body_that_is_cut_does_not_pass_for_whole() {
    for (in_order, host) in [(true, "api.test"), (false, "api.test"), (true, "pub.test"), (false, "pub.test")]
    {
        let body = 300_000;
        let lab = lab_with(&["http/1.1"], move |mut stream, _| {
            Box::pin(async move {
                let Some(_) = read_request(&mut stream, &mut Vec::new()).await else { return };
                stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
                stream.write_all(&vec![b'~'; body]).await.unwrap();
                stream.flush().await.unwrap();
                if in_order {
                    stream.shutdown().await.unwrap();
                }
            })
        })
        .await;
        let mut guest = guest(&lab, host);
        let request = format!("GET /echo/all HTTP/1.1\r\nHost: {host}:{}\r\n\r\n", lab.port);
        guest.write_all(request.as_bytes()).await.unwrap();
        guest.shutdown().await.unwrap();
        let mut bytes = Vec::new();
        timeout(PATIENCE, guest.read_to_end(&mut bytes)).await.unwrap().unwrap();
        assert_eq!(bytes.ends_with(b"\r\n0\r\n\r\n"), in_order, "{host}");
        let came = memchr::memchr_iter(b'~', &bytes).count();
        assert!(if in_order { came == body } else { came <= body }, "{host}: {came} of {body}");
    }
}

/// A websocket server: answers each frame with an unmasked one that repeats its payload and the credential it was
/// given, and a close frame with the same code.
async fn websocket_lab() -> Lab {
    lab_with(&["http/1.1"], |mut stream, received| {
        Box::pin(async move {
            let mut bytes = Vec::new();
            let Some(request) = read_request(&mut stream, &mut bytes).await else { return };
            received.lock().unwrap().push(request.clone());
            let field = |name: &str| {
                let line = request.head.lines().find(|line| line.to_lowercase().starts_with(name));
                line.and_then(|line| line.split_once(": ")).map(|(_, value)| value.to_owned())
            };
            let key = field("sec-websocket-key").unwrap();
            let mut digest = Sha1::new();
            digest.update(key.as_bytes());
            digest.update(b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
            let accept = base64::engine::general_purpose::STANDARD.encode(digest.finalize());
            let head = format!(
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
            );
            stream.write_all(head.as_bytes()).await.unwrap();
            let credential = field("authorization").unwrap_or_default();
            loop {
                let mut header = [0; 6];
                if stream.read_exact(&mut header).await.is_err() {
                    return;
                }
                let mut payload = vec![0; usize::from(header[1] & 0x7f)];
                stream.read_exact(&mut payload).await.unwrap();
                for (index, byte) in payload.iter_mut().enumerate() {
                    *byte ^= header[2 + index % 4];
                }
                if header[0] != 0x88 {
                    payload.extend_from_slice(credential.as_bytes());
                }
                let answer = [&[header[0], u8::try_from(payload.len()).unwrap()], payload.as_slice()].concat();
                stream.write_all(&answer).await.unwrap();
                stream.flush().await.unwrap();
            }
        })
    })
    .await
}

fn masked_frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mask = [1, 2, 3, 4];
    let masked = payload.iter().enumerate().map(|(index, byte)| byte ^ mask[index % 4]);
    let header = [opcode, 0x80 | u8::try_from(payload.len()).unwrap()];
    header.into_iter().chain(mask).chain(masked).collect()
}

/// H17: text, binary and the close code pass both ways; C01: a secret in a frame is masked, and the framing stays.
#[tokio::test]
async fn h17_websocket_frames_pass_both_ways_without_the_secret() {
    let lab = websocket_lab().await;
    let mut guest = guest(&lab, "api.test");
    let request = format!(
        "GET /ws HTTP/1.1\r\nHost: api.test:{}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n",
        lab.port
    );
    guest.write_all(request.as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    read_until(&mut guest, &mut bytes, b"\r\n\r\n").await;
    let head = String::from_utf8(std::mem::take(&mut bytes)).unwrap();
    // The rule form for websockets is policy's; without it an upgrade is refused.
    assert!(!head.starts_with("HTTP/1.1 403"), "the policy of this test must allow the upgrade: {head}");
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    for (opcode, payload) in [(0x81, &b"hello"[..]), (0x82, b"\x00\xff")] {
        guest.write_all(&masked_frame(opcode, payload)).await.unwrap();
        let credential = format!("Bearer {}", "*".repeat(SECRET.len()));
        let whole = [payload, credential.as_bytes()].concat();
        let expected = [&[opcode, u8::try_from(whole.len()).unwrap()], whole.as_slice()].concat();
        bytes.clear();
        read_until(&mut guest, &mut bytes, &expected).await;
    }
    // 1001 and a reason.
    guest.write_all(&masked_frame(0x88, b"\x03\xe9bye")).await.unwrap();
    bytes.clear();
    read_until(&mut guest, &mut bytes, b"\x88\x05\x03\xe9bye").await;
    drop(guest);
    let head = lab.received()[0].head.clone();
    assert!(head.contains(SECRET) && !head.contains("permessage-deflate"), "{head}");
    lab.wait_for_records("websocket", 1).await;
}
