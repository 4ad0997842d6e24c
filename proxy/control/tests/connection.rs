//! Frames, descriptors and the client, over real sockets.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what it expects")]

use std::io::{Read, Seek, Write};
use std::os::fd::OwnedFd;

use freeboard_control::{
    Answer, AnswerBody, Client, ClientError, Connection, FrameError, MAX_DESCRIPTORS, MAX_FRAME_BYTES,
    PrepareRun, Prepared, Request, RequestBody, RunNote, Trace,
};
use freeboard_policy::Reason;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;

fn pair() -> (Connection, Connection) {
    let (one, other) = UnixStream::pair().unwrap();
    (Connection::new(one), Connection::new(other))
}

fn file(text: &str) -> OwnedFd {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file.rewind().unwrap();
    file.into()
}

fn content(descriptor: OwnedFd) -> String {
    let mut text = String::new();
    std::fs::File::from(descriptor).read_to_string(&mut text).unwrap();
    text
}

fn prepare(caller: &str) -> RequestBody {
    RequestBody::Prepare(PrepareRun {
        caller: Some(caller.to_owned()),
        grants: vec!["g".to_owned()],
        session: false,
    })
}

fn prepared(digest: &str) -> Prepared {
    Prepared {
        policy_digest: digest.to_owned(),
        floor: None,
        ttl_seconds: None,
        ports: vec![8443],
        ca_pem: String::new(),
        surface: Vec::new(),
        variables: Vec::new(),
    }
}

#[tokio::test]
async fn descriptors_arrive_with_the_message_that_names_them_and_in_order() {
    let (one, other) = pair();
    one.send(&"first", &[file("a"), file("b")]).await.unwrap();
    one.send(&"second", &[]).await.unwrap();
    one.send(&"third", &[file("c")]).await.unwrap();
    let (text, descriptors): (String, _) = other.receive().await.unwrap();
    assert_eq!(text, "first");
    assert_eq!(descriptors.into_iter().map(content).collect::<Vec<_>>(), ["a", "b"]);
    let (text, descriptors): (String, _) = other.receive().await.unwrap();
    assert_eq!((text.as_str(), descriptors.len()), ("second", 0));
    let (text, descriptors): (String, _) = other.receive().await.unwrap();
    assert_eq!(text, "third");
    assert_eq!(descriptors.into_iter().map(content).collect::<Vec<_>>(), ["c"]);
}

#[tokio::test]
async fn received_descriptors_are_closed_on_exec() {
    let (one, other) = pair();
    one.send(&"x", &[file("a")]).await.unwrap();
    let (_, descriptors): (String, _) = other.receive().await.unwrap();
    let flags = rustix::io::fcntl_getfd(&descriptors[0]).unwrap();
    assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
}

#[tokio::test]
async fn frames_larger_than_the_socket_buffer_go_both_ways_at_once() {
    let (one, other) = pair();
    let big = "x".repeat(3 << 20);
    let (mut one_out, mut one_in) = one.split();
    let (mut other_out, mut other_in) = other.split();
    let (sent, got, back, got_back) = tokio::join!(
        one_out.send(&big, &[]),
        other_in.receive::<String>(),
        other_out.send(&big, &[]),
        one_in.receive::<String>(),
    );
    sent.unwrap();
    back.unwrap();
    assert_eq!((got.unwrap().0.len(), got_back.unwrap().0.len()), (3 << 20, 3 << 20));
}

#[tokio::test]
async fn too_large_a_frame_is_refused_at_either_end() {
    let (one, _other) = pair();
    let error = one.send(&"x".repeat(MAX_FRAME_BYTES + 1), &[]).await.unwrap_err();
    assert!(matches!(error, FrameError::TooLarge(_)));
    let (mut raw, other) = UnixStream::pair().unwrap();
    raw.write_all(&u32::MAX.to_be_bytes()).await.unwrap();
    let error = Connection::new(other).receive::<String>().await.unwrap_err();
    assert!(matches!(error, FrameError::TooLarge(_)), "{error}");
}

#[tokio::test]
async fn too_many_descriptors_are_refused_at_either_end() {
    let (one, _other) = pair();
    let many: Vec<OwnedFd> = (0..=MAX_DESCRIPTORS).map(|_| file("")).collect();
    assert!(matches!(one.send(&"x", &many).await.unwrap_err(), FrameError::TooManyDescriptors(_)));
    // A peer that does not keep to it: the kernel cuts what does not fit, which must not go unnoticed.
    let (raw, other) = UnixStream::pair().unwrap();
    let borrowed: Vec<_> = many.iter().map(std::os::fd::AsFd::as_fd).collect();
    let mut space =
        vec![std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS + 1))];
    let mut ancillary = rustix::net::SendAncillaryBuffer::new(&mut space);
    assert!(ancillary.push(rustix::net::SendAncillaryMessage::ScmRights(&borrowed)));
    let frame = [&3_u32.to_be_bytes()[..], b"\"x\""].concat();
    raw.writable().await.unwrap();
    rustix::net::sendmsg(
        &raw,
        &[std::io::IoSlice::new(&frame)],
        &mut ancillary,
        rustix::net::SendFlags::empty(),
    )
    .unwrap();
    let error = Connection::new(other).receive::<String>().await.unwrap_err();
    assert!(matches!(error, FrameError::TooManyDescriptors(_)), "{error}");
}

#[tokio::test]
async fn malformed_and_unknown_messages_are_errors() {
    for body in [
        "{",
        "null",
        r#"{"id":1,"body":{"explode":{}}}"#,
        r#"{"id":1,"body":{"close":{"run":"x","more":1}}}"#,
    ] {
        let (mut raw, other) = UnixStream::pair().unwrap();
        raw.write_all(&u32::try_from(body.len()).unwrap().to_be_bytes()).await.unwrap();
        raw.write_all(body.as_bytes()).await.unwrap();
        let error = Connection::new(other).receive::<Request>().await.unwrap_err();
        assert!(matches!(error, FrameError::Malformed(_)), "{body}: {error}");
    }
}

#[tokio::test]
async fn a_peer_that_goes_away_is_an_end_also_in_the_middle_of_a_frame() {
    let (one, other) = pair();
    drop(one);
    assert!(matches!(other.receive::<String>().await.unwrap_err(), FrameError::Closed));
    assert!(other.send(&"x", &[]).await.is_err());
    let (mut raw, other) = UnixStream::pair().unwrap();
    raw.write_all(&[0, 0, 0, 9, b'"']).await.unwrap();
    drop(raw);
    assert!(matches!(Connection::new(other).receive::<String>().await.unwrap_err(), FrameError::Closed));
}

/// Answers in reverse order, three at a time.
async fn backwards(server: Connection) {
    loop {
        let mut requests = Vec::new();
        while requests.len() < 3 {
            let Ok((request, _)) = server.receive::<Request>().await else { return };
            requests.push(request);
        }
        for Request { id, body } in requests.into_iter().rev() {
            let RequestBody::Prepare(run) = body else { panic!("unexpected request") };
            let body = AnswerBody::Prepared(prepared(&run.caller.unwrap()));
            server.send(&Answer { id, body }, &[]).await.unwrap();
        }
    }
}

#[tokio::test]
async fn answers_reach_the_call_that_asked_whatever_their_order() {
    let (near, far) = UnixStream::pair().unwrap();
    let server = tokio::spawn(backwards(Connection::new(far)));
    let client = Client::over(near);
    let ask = async |name: &str| {
        let RequestBody::Prepare(run) = prepare(name) else { panic!() };
        client.prepare(run).await.unwrap().policy_digest
    };
    for _ in 0..20 {
        let (a, b, c) = tokio::join!(ask("a"), ask("b"), ask("c"));
        assert_eq!((a.as_str(), b.as_str(), c.as_str()), ("a", "b", "c"));
    }
    drop(client);
    server.await.unwrap();
}

#[tokio::test]
async fn a_refusal_and_an_answer_of_the_wrong_kind_are_told_apart() {
    let (near, far) = UnixStream::pair().unwrap();
    let client = Client::over(near);
    let server = Connection::new(far);
    let answer = async |body: AnswerBody| {
        let (Request { id, .. }, _) = server.receive().await.unwrap();
        server.send(&Answer { id, body }, &[]).await.unwrap();
    };
    let refused = AnswerBody::Refused { reason: Reason::GrantNotAvailable, message: "no".to_owned() };
    let (closed, ()) = tokio::join!(client.close("x"), answer(refused));
    assert!(matches!(closed, Err(ClientError::Refused { reason: Reason::GrantNotAvailable, .. })));
    let (closed, ()) = tokio::join!(client.close("x"), answer(AnswerBody::Noted));
    assert!(matches!(closed, Err(ClientError::WrongAnswer)));
    let (closed, ()) = tokio::join!(client.close("x"), answer(AnswerBody::Closed(Trace::default())));
    assert_eq!(closed.unwrap().allowed, 0);
}

#[tokio::test]
async fn a_lost_connection_ends_every_waiting_and_later_call() {
    let (near, far) = UnixStream::pair().unwrap();
    let client = Client::over(near);
    let server = Connection::new(far);
    let ((), closed) = tokio::join!(
        async {
            server.receive::<Request>().await.unwrap();
            drop(server);
        },
        client.close("x")
    );
    assert!(matches!(closed, Err(ClientError::Lost)));
    client.lost().await;
    assert!(client.is_lost());
    let note = RunNote {
        run: "x".to_owned(),
        caller: None,
        grants: Vec::new(),
        floor: None,
        tier: None,
        reason: Reason::InsufficientIsolation,
        session: None,
        detail: String::new(),
    };
    assert!(matches!(client.note(note).await, Err(ClientError::Lost)));
}

#[tokio::test]
async fn dropping_the_client_closes_the_connection() {
    let (near, far) = UnixStream::pair().unwrap();
    drop(Client::over(near));
    let server = Connection::new(far);
    let end = tokio::time::timeout(std::time::Duration::from_secs(5), server.receive::<Request>());
    assert!(matches!(end.await.unwrap(), Err(FrameError::Closed)));
}
