//! Requests through the proxy door, allowed and refused.

use tokio::io::AsyncWriteExt as _;

use super::lab::{Lab, Reaction, SECRET, ok, read_all, read_until, whole};

const ITEM: &str = "GET /v1/items/1 HTTP/1.1\nHost: api.test:PORT\n\n";

#[tokio::test]
async fn an_allowed_request_reaches_the_upstream_with_the_credential_and_only_it() {
    let lab = Lab::start(ok).await;
    let answer = lab
        .api("GET /v1/items/1 HTTP/1.1\nHost: api.test:PORT\nAuthorization: Bearer mine\nX-Kept: Yes\nConnection: close, Authorization\n\n")
        .await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
    let upstream = lab.upstream_text();
    let port = lab.port();
    assert_eq!(
        upstream,
        format!(
            "GET /v1/items/1 HTTP/1.1\r\nHost: api.test:{port}\r\nX-Kept: Yes\r\naccept-encoding: identity\r\nauthorization: Bearer {SECRET}\r\n\r\n"
        )
    );
    assert_eq!(lab.wait_for_records(1).await, ["allowed"]);
}

#[tokio::test]
async fn an_api_without_a_credential_keeps_the_guests_own() {
    let lab = Lab::start(ok).await;
    let mut stream = lab.tunnel("pub.test", "pub.test").await;
    stream
        .write_all(
            &lab.raw(
                "GET /x HTTP/1.1\nHost: pub.test:PORT\nAuthorization: Bearer mine\nConnection: close\n\n",
            ),
        )
        .await
        .unwrap();
    assert!(read_all(&mut stream).await.starts_with("HTTP/1.1 200"));
    let upstream = lab.upstream_text();
    assert!(upstream.contains("Authorization: Bearer mine") && !upstream.contains(SECRET), "{upstream}");
}

#[tokio::test]
async fn b33_pipelined_requests_are_judged_one_by_one_in_order() {
    let lab = Lab::start(ok).await;
    let denied = "GET /v1/admin HTTP/1.1\nHost: api.test:PORT\n\n";
    let answer = lab.api(&format!("{ITEM}{denied}{ITEM}")).await;
    let statuses: Vec<_> =
        answer.match_indices("HTTP/1.1 ").map(|(at, _)| &answer[at + 9..at + 12]).collect();
    assert_eq!(statuses, ["200", "403", "200"], "{answer}");
    assert!(answer.contains("\"error\":\"no_rule\""), "{answer}");
    assert!(!lab.upstream_text().contains("admin"));
    assert_eq!(lab.wait_for_records(3).await, ["allowed", "denied no_rule", "allowed"]);
    assert_eq!(lab.upstream_connections(), 1, "the upstream connection is kept");
}

#[tokio::test]
async fn a24_connect_sni_and_host_must_be_one_name() {
    let lab = Lab::start(ok).await;
    let request = lab.raw("GET /v1/items/1 HTTP/1.1\nHost: api.test:PORT\nConnection: close\n\n");
    for (connect, sni) in [("pub.test", "api.test"), ("pub.test", "pub.test"), ("api.test", "pub.test")] {
        let mut stream = lab.tunnel(connect, sni).await;
        stream.write_all(&request).await.unwrap();
        let answer = read_all(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 421"), "{answer}");
    }
    assert_eq!(lab.upstream_connections(), 0);
    assert_eq!(lab.wait_for_records(3).await, ["denied name_mismatch"; 3]);
}

#[tokio::test]
async fn h53_a_refused_connect_says_why_and_keeps_the_connection() {
    let lab = Lab::start(ok).await;
    let mut stream = lab.clear();
    for (place, code) in [
        ("evil.test:443", "host_not_granted"),
        ("api.test:1", "port_not_granted"),
        ("1.1.1.1:443", "raw_address"),
    ] {
        let request = format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let answer = String::from_utf8(read_until(&mut stream, b"}\n").await).unwrap();
        assert!(answer.starts_with("HTTP/1.1 403") && answer.contains(code), "{answer}");
    }
    assert_eq!(
        lab.wait_for_records(3).await,
        ["denied host_not_granted", "denied port_not_granted", "denied raw_address"]
    );
}

#[tokio::test]
async fn c29_a19_a47_clear_text_targets_get_the_same_answers() {
    let lab = Lab::start(ok).await;
    for (request, status) in [
        ("GET https://api.test:PORT/v1/items/1 HTTP/1.1\nHost: api.test:PORT\nConnection: close\n\n", "200"),
        ("GET https://api.test:PORT/v1/admin HTTP/1.1\nHost: api.test:PORT\nConnection: close\n\n", "403"),
        ("GET http://api.test/v1/items/1 HTTP/1.1\nHost: api.test\nConnection: close\n\n", "403"),
        ("GET http://pub.test/ HTTP/1.1\nHost: api.test\n\n", "400"),
        ("GET /v1/items/1 HTTP/1.1\nHost: api.test:PORT\n\n", "400"),
        ("GET https://1.1.1.1/ HTTP/1.1\nHost: 1.1.1.1\nConnection: close\n\n", "403"),
    ] {
        let mut stream = lab.clear_at("streams");
        stream.write_all(&lab.raw(request)).await.unwrap();
        let answer = read_all(&mut stream).await;
        assert_eq!(answer.get(9..12), Some(status), "{request}: {answer}");
    }
    assert_eq!(lab.upstream_connections(), 1);
}

#[tokio::test]
async fn a30_connect_inside_a_tunnel_is_refused() {
    let lab = Lab::start(ok).await;
    let answer = lab.api("CONNECT evil.test:443 HTTP/1.1\nHost: evil.test:443\n\n").await;
    assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("method_forbidden"), "{answer}");
}

#[tokio::test]
async fn bodies_pass_both_ways_in_framing_of_our_own() {
    let lab = Lab::start(|seen| {
        if whole(seen) {
            let body = "4;ext=1\r\nwiki\r\n5\r\npedia\r\n0\r\nX-End: 1\r\nContent-Length: 3\r\n\r\n";
            Reaction::Send(format!("HTTP/1.1 200 Fine\r\nTransfer-Encoding: chunked\r\nAlt-Svc: h3\r\nSet-Cookie: a=b\r\n\r\n{body}").into())
        } else {
            Reaction::ReadOn
        }
    })
    .await;
    let answer = lab
        .api("POST /v1/items HTTP/1.1\nHost: api.test:PORT\nTransfer-Encoding: chunked\n\n3;x=y\nabc\n2\nde\n0\nAuthorization: x\nX-Ok: 1\n\n")
        .await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("wiki") && answer.contains("pedia"), "{answer}");
    assert!(
        !answer.contains("ext=1") && !answer.contains("Alt-Svc") && !answer.contains("Set-Cookie"),
        "{answer}"
    );
    assert!(answer.ends_with("0\r\nX-End: 1\r\n\r\n"), "{answer}");
    let upstream = lab.upstream_text();
    assert!(upstream.contains("abc") && upstream.ends_with("0\r\nX-Ok: 1\r\n\r\n"), "{upstream}");
    assert_eq!(upstream.matches("uthorization").count(), 1, "{upstream}");
}

#[tokio::test]
async fn h25_head_204_and_304_have_no_body() {
    let lab = Lab::start(|seen| {
        let status = match seen {
            _ if seen.starts_with(b"HEAD") => "200 OK",
            _ if seen.starts_with(b"GET /v1/items/204") => "204 No Content",
            _ => "304 Not Modified",
        };
        Reaction::Send(format!("HTTP/1.1 {status}\r\nContent-Length: 5\r\n\r\n").into())
    })
    .await;
    let request = |line: &str| format!("{line} HTTP/1.1\nHost: api.test:PORT\n\n");
    let all = ["HEAD /v1/items/1", "GET /v1/items/204", "GET /v1/items/304"].map(request).concat();
    let answer = lab.api(&all).await;
    let heads: Vec<_> = answer.split("\r\n\r\n").collect();
    assert!(heads[0].starts_with("HTTP/1.1 200") && heads[0].contains("content-length: 5"), "{answer}");
    assert!(heads[1].starts_with("HTTP/1.1 204") && !heads[1].contains("content-length"), "{answer}");
    assert!(heads[2].starts_with("HTTP/1.1 304"), "{answer}");
    assert_eq!(lab.upstream_connections(), 1);
}

#[tokio::test]
async fn b27_an_expectation_is_answered_first_and_a_refused_one_closes() {
    let lab = Lab::start(ok).await;
    let head = "POST /v1/items HTTP/1.1\nHost: api.test:PORT\nExpect: 100-continue\nContent-Length: 3\n\n";
    let mut stream = lab.tunnel("api.test", "api.test").await;
    stream.write_all(&lab.raw(head)).await.unwrap();
    assert_eq!(read_until(&mut stream, b"\r\n\r\n").await, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"abc").await.unwrap();
    assert!(read_until(&mut stream, b"\r\n\r\nok").await.starts_with(b"HTTP/1.1 200"));
    let denied = "POST /v1/admin HTTP/1.1\nHost: api.test:PORT\nExpect: 100-continue\nContent-Length: 47\n\n";
    let answer = lab.api(&format!("{denied}GET /v1/items/1 HTTP/1.1\nHost: api.test:PORT\n\n")).await;
    assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("connection: close"), "{answer}");
    assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{answer}");
}

#[tokio::test]
async fn budgets_of_the_grant_hold() {
    let lab = Lab::with_budget(ok, "budget = { calls = 2, request_bytes = \"4B\" }").await;
    let large = "POST /v1/items HTTP/1.1\nHost: api.test:PORT\nContent-Length: 5\n\nabcde";
    let answer = lab.api(&format!("{ITEM}{large}{ITEM}{ITEM}")).await;
    let statuses: Vec<_> =
        answer.match_indices("HTTP/1.1 ").map(|(at, _)| &answer[at + 9..at + 12]).collect();
    assert_eq!(statuses, ["200", "413", "200", "429"], "{answer}");
}

#[tokio::test]
async fn a_kept_upstream_connection_that_was_closed_is_replaced_once() {
    let lab = Lab::start(|seen| {
        if whole(seen) {
            Reaction::SendAndClose(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_vec())
        } else {
            Reaction::ReadOn
        }
    })
    .await;
    let answer = lab.api(&ITEM.repeat(3)).await;
    assert_eq!(answer.matches("HTTP/1.1 200").count(), 3, "{answer}");
    assert_eq!(lab.upstream_connections(), 3);
}

#[tokio::test]
async fn ending_the_run_cuts_its_requests_and_records_them() {
    let lab = Lab::start(|_| Reaction::ReadOn).await;
    let mut stream = lab.tunnel("api.test", "api.test").await;
    stream.write_all(&lab.raw(ITEM)).await.unwrap();
    while lab.upstream_text().is_empty() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    lab.client.broker.runs.end(&lab.client.run.id).unwrap();
    // The door's task, which cuts, is not part of this lab: the next request is refused.
    drop(stream);
    let answer = {
        let mut stream = lab.clear();
        stream.write_all(b"CONNECT api.test:443 HTTP/1.1\r\nHost: api.test:443\r\n\r\n").await.unwrap();
        read_until(&mut stream, b"}\n").await
    };
    assert!(String::from_utf8_lossy(&answer).contains("run_ended"));
}

#[tokio::test]
async fn a_worker_hands_streams_over_and_speaks_clear_text_on_them() {
    use rustix::net::{
        AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
        sendmsg, socketpair,
    };
    use std::os::fd::AsFd as _;

    let lab = Lab::start(ok).await;
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    let client = &lab.client;
    let door = crate::accept::serve_door(
        freeboard_control::Door::Streams,
        theirs,
        std::sync::Arc::clone(&client.run),
        std::sync::Arc::clone(&client.broker),
    );
    let door = tokio::spawn(door);
    for _ in 0..3 {
        let (mut near, far) = tokio::net::UnixStream::pair().unwrap();
        let far = far.into_std().unwrap();
        let descriptors = [far.as_fd()];
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)));
        sendmsg(&ours, &[std::io::IoSlice::new(b"s")], &mut ancillary, SendFlags::empty()).unwrap();
        drop(far);
        let request = "POST https://api.test:PORT/v1/items HTTP/1.1\nHost: api.test:PORT\nContent-Length: 3\nConnection: close\n\nabc";
        near.write_all(&lab.raw(request)).await.unwrap();
        assert!(read_all(&mut near).await.ends_with("ok"));
    }
    drop(ours);
    door.await.unwrap();
    assert_eq!(lab.wait_for_records(3).await, ["allowed"; 3]);
}

#[tokio::test]
async fn a_permission_that_is_taken_away_cuts_what_it_allowed() {
    let lab = Lab::start(|_| {
        Reaction::Send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n".to_vec())
    })
    .await;
    let mut stream = lab.tunnel("api.test", "api.test").await;
    stream.write_all(&lab.raw(ITEM)).await.unwrap();
    read_until(&mut stream, b"first\r\n").await;
    lab.replace_policy(freeboard_policy::Policy::deny_all());
    assert!(!read_all(&mut stream).await.ends_with("0\r\n\r\n"), "the body must not look complete");
    assert_eq!(lab.wait_for_records(1).await[0].split(' ').next(), Some("failed"));
}

#[tokio::test]
async fn h22_an_event_arrives_while_the_stream_goes_on() {
    let lab = Lab::start(|_| {
        Reaction::Send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n".to_vec())
    })
    .await;
    let mut stream = lab.tunnel("pub.test", "pub.test").await;
    stream.write_all(&lab.raw("GET /sse HTTP/1.1\nHost: pub.test:PORT\n\n")).await.unwrap();
    let begun = std::time::Instant::now();
    let answer = read_until(&mut stream, b"data: 1\n\n\r\n").await;
    assert!(answer.ends_with(b"data: 1\n\n\r\n"), "{}", answer.escape_ascii());
    assert!(begun.elapsed() < std::time::Duration::from_secs(5));
}
