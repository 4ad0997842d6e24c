//! Requests through the gate's door, which is the only way out.

use std::io::{Read as _, Write as _};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::gate::{json, reply, serve};
use crate::harness::{Ran, plan, plan_with_gate, provider, run_plan, run_with, wait_until};

/// Runs `code`; every request is answered with `answer` of its text.
async fn run_answered(
    code: &str,
    answer: impl Fn(&str) -> String + Send + Sync + 'static,
) -> (Ran, Vec<String>) {
    let log = Mutex::default();
    let ran = run_with(&provider(), plan_with_gate(code), |door| {
        *log.lock().unwrap() = Some(serve(door, move |stream, request| reply(stream, &answer(request))));
    })
    .await;
    let log = log.into_inner().unwrap().unwrap();
    let requests = log.lock().unwrap().clone();
    (ran, requests)
}

async fn prints(code: &str, answer: &'static str, expected: &str) -> Vec<String> {
    let (ran, requests) = run_answered(code, move |_| answer.to_owned()).await;
    assert_eq!((ran.stdout().as_str(), ran.stderr().as_str()), (expected, ""), "{code}");
    requests
}

#[tokio::test]
async fn sends_one_request_in_absolute_form_and_hands_back_the_response() {
    let requests = prints(
        "const r = await fetch('https://api.test/v1/things?a=1#no', { method: 'post', body: JSON.stringify({x: 'ü'}), headers: { 'X-Mine': 'yes' } });
         console.log(r.status, r.ok, r.statusText, r.headers.get('X-Kind'), r.url, await r.json(), r.bodyUsed)",
        "HTTP/1.1 201 Created\r\nx-kind: a\r\nx-kind: b\r\ncontent-length: 9\r\n\r\n{\"id\": 7}",
        "201 true Created a, b https://api.test/v1/things?a=1 { id: 7 } true\n",
    )
    .await;
    let [request] = requests.as_slice() else { panic!("one request: {requests:?}") };
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let mut lines = head.split("\r\n");
    assert_eq!(lines.next(), Some("POST https://api.test/v1/things?a=1 HTTP/1.1"));
    let fields: Vec<_> = lines.collect();
    for field in [
        "host: api.test",
        "connection: close",
        "x-mine: yes",
        "content-length: 10",
        "accept-encoding: identity",
    ] {
        assert!(fields.contains(&field), "{field} in {fields:?}");
    }
    assert_eq!(body, "{\"x\":\"ü\"}");
}

#[tokio::test]
async fn reads_chunked_closed_and_empty_bodies() {
    prints(
        "console.log(await (await fetch('https://api.test/')).text())",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
        "abcde\n",
    )
    .await;
    prints(
        "console.log((await (await fetch('https://api.test/')).arrayBuffer()).byteLength)",
        "HTTP/1.1 200 OK\r\n\r\nuntil the end",
        "13\n",
    )
    .await;
    prints("const r = await fetch('https://api.test/', {method: 'DELETE'}); console.log(r.status, await r.text() === '')", "HTTP/1.1 204 No Content\r\n\r\n", "204 true\n").await;
    prints(
        "console.log((await fetch('https://api.test/', {method: 'HEAD'})).headers.get('content-length'))",
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n",
        "5\n",
    )
    .await;
}

#[tokio::test]
async fn a_refusal_is_an_ordinary_response_with_its_reason() {
    let body = r#"{"error":"refused","reason":"no_rule","request":"r-1"}"#;
    let (ran, _) = run_answered(
        "const r = await fetch('https://api.test/secret'); console.log(r.status, r.ok, (await r.json()).reason);
         try { await host.get('/secret') } catch (e) { console.log(e instanceof Error, e.status, e.message) }",
        move |_| json("403 Forbidden", body),
    )
    .await;
    assert_eq!(ran.stdout(), format!("403 false no_rule\ntrue 403 GET /secret answered 403: {body}\n"));
}

#[tokio::test]
async fn redirects_are_handed_back() {
    let requests = prints(
        "const r = await fetch('https://api.test/a'); console.log(r.status, r.headers.get('location'))",
        "HTTP/1.1 302 Found\r\nlocation: https://evil.test/\r\ncontent-length: 0\r\n\r\n",
        "302 https://evil.test/\n",
    )
    .await;
    assert_eq!(requests.len(), 1);
}

#[tokio::test]
async fn host_calls_the_first_api_by_path_and_others_by_url() {
    let (ran, requests) = run_answered(
        "console.log(await host.get('/a?x=1'), await host.post('b', {n: 1}), await host.put('/c', [1]), await host.patch('/d', null));
         console.log(await host.del('/e'), await host.call('get', 'https://other.test/f'), host.apis[0].api)",
        |request| match request.split(' ').nth(1).unwrap() {
            "https://api.test/e" => "HTTP/1.1 204 No Content\r\n\r\n".to_owned(),
            "https://other.test/f" => json("200 OK", "plain text"),
            url => json("200 OK", &format!("{{\"url\":\"{url}\"}}")),
        },
    )
    .await;
    assert_eq!(
        ran.stdout(),
        "{ url: 'https://api.test/a?x=1' } { url: 'https://api.test/b' } { url: 'https://api.test/c' } { url: 'https://api.test/d' }\n\
         null plain text things\n",
        "{}",
        ran.stderr()
    );
    let methods: Vec<_> = requests.iter().map(|request| request.split(' ').next().unwrap()).collect();
    assert_eq!(methods, ["GET", "POST", "PUT", "PATCH", "DELETE", "GET"]);
    assert!(
        requests[1].ends_with("\r\n\r\n{\"n\":1}")
            && requests[1].contains("content-type: application/json\r\n")
    );
}

#[tokio::test]
async fn many_requests_are_open_at_once_and_more_wait_their_turn() {
    static OPEN: AtomicUsize = AtomicUsize::new(0);
    static MOST: AtomicUsize = AtomicUsize::new(0);
    let (ran, requests) = run_answered(
        "const all = await Promise.all(Array.from({length: 40}, (_, i) => fetch(`https://api.test/${i}`).then(r => r.text())));
         console.log(all.every((text, i) => text === `https://api.test/${i}`))",
        |request| {
            MOST.fetch_max(OPEN.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(30));
            OPEN.fetch_sub(1, Ordering::SeqCst);
            json("200 OK", request.split(' ').nth(1).unwrap())
        },
    )
    .await;
    assert_eq!((ran.stdout().as_str(), requests.len()), ("true\n", 40), "{}", ran.stderr());
    let most = MOST.load(Ordering::SeqCst);
    assert!((2..=16).contains(&most), "{most} at once");
}

#[tokio::test]
async fn a_broken_answer_is_a_rejected_fetch_and_nothing_worse() {
    for (answer, why) in [
        ("", "ended before"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhi", "ended before"),
        ("nonsense\r\n\r\n", "not valid HTTP"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n", "not valid HTTP"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 999999999\r\n\r\n", "larger than"),
    ] {
        let (ran, _) = run_answered(
            "try { await fetch('https://api.test/') } catch (e) { console.log(e.name, e.message) }",
            move |_| answer.to_owned(),
        )
        .await;
        let out = ran.stdout();
        assert!(out.starts_with("TypeError fetch failed: ") && out.contains(why), "{answer:?}: {out:?}");
    }
}

#[tokio::test]
async fn requests_that_are_none_never_reach_the_gate() {
    let (ran, requests) = run_answered(
        "const bad = [['ftp://api.test/'], ['/relative'], ['https://u:p@api.test/'], ['https://api.test/', {method: 'CONNECT'}],
            ['https://api.test/', {method: 'GET x'}], ['https://api.test/', {headers: {'a\\r\\nb': 'c'}}],
            ['https://api.test/', {headers: {a: 'b\\r\\nc: d'}}], ['https://api.test/', {body: 'x'}], ['https://exämple.test/'],
            ['https://api.test/', {method: 'POST', body: 'x'.repeat(5 << 20)}]];
         let refused = 0;
         for (const [url, init] of bad) try { await fetch(url, init); console.log(url) } catch (e) { refused++ }
         console.log(refused === bad.length)",
        |_| json("200 OK", "{}"),
    )
    .await;
    assert_eq!((ran.stdout().as_str(), requests.len()), ("true\n", 0), "{}", ran.stderr());
}

#[tokio::test]
async fn without_a_gate_every_request_fails_and_says_why() {
    let code = "try { await fetch('https://api.test/') } catch (e) { console.log(e.message) }
                try { await host.get('/x') } catch (e) { console.log(e.message) }";
    let ran = run_plan(&provider(), plan(code)).await;
    let expected = "fetch failed: this run has no way to any network\nthis run has no grants, so there is no API to call\n";
    assert_eq!(ran.stdout(), expected);
    // The gate's end is dropped: its broker is gone.
    let gone = run_plan(
        &provider(),
        plan_with_gate("try { await fetch('https://api.test/') } catch (e) { console.log(e.message) }"),
    )
    .await;
    assert_eq!(gone.stdout(), "fetch failed: this run has no way to any network\n");
}

#[tokio::test]
async fn f30_a_request_that_is_never_answered_ends_with_the_run_and_the_gate_sees_it() {
    let closed = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&closed);
    let mut plan = plan_with_gate(
        "console.log('sent'); await Promise.all([1, 2, 3].map(i => fetch(`https://api.test/${i}`)))",
    );
    plan.job.timeout = Duration::from_millis(300);
    let begun = Instant::now();
    let ran = run_with(&provider(), plan, |door| {
        serve(door, move |mut stream, _| {
            let mut byte = [0];
            if matches!(stream.read(&mut byte), Ok(0)) {
                seen.fetch_add(1, Ordering::SeqCst);
            }
        });
    })
    .await;
    assert_eq!((ran.step().exit_code, ran.step().timed_out, ran.stdout().as_str()), (124, true, "sent\n"));
    assert!(begun.elapsed() < Duration::from_secs(4));
    wait_until("the end of all three streams", || closed.load(Ordering::SeqCst) == 3).await;
}

#[tokio::test]
async fn f30_a_program_can_cancel_its_request() {
    let closed = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&closed);
    let code = "
        const stop = new AbortController(); setTimeout(() => stop.abort(), 30);
        try { await fetch('https://api.test/1', {signal: stop.signal}) } catch (e) { console.log(e.name) }
        try { await fetch('https://api.test/2', {signal: AbortSignal.timeout(30)}) } catch (e) { console.log(e.name) }
        try { await fetch('https://api.test/3', {signal: AbortSignal.abort()}) } catch (e) { console.log(e.name) }";
    let ran = run_with(&provider(), plan_with_gate(code), |door| {
        serve(door, move |mut stream, _| {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n");
            let mut byte = [0];
            if matches!(stream.read(&mut byte), Ok(0)) {
                seen.fetch_add(1, Ordering::SeqCst);
            }
        });
    })
    .await;
    assert_eq!(
        (ran.step().exit_code, ran.stdout().as_str()),
        (0, "AbortError\nTimeoutError\nAbortError\n"),
        "{}",
        ran.stderr()
    );
    wait_until("the end of both streams", || closed.load(Ordering::SeqCst) == 2).await;
}
