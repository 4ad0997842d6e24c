//! Decisions as spans, for an OpenTelemetry collector on this host.
//!
//! In: what is recorded. Out: OTLP over HTTP in its JSON form, in batches. Nobody waits for the collector: what a slow or absent one
//! does not take is counted and dropped. The audit log is the record; this is for timelines beside those of other programs. No query,
//! no header, no body and no secret is in a span.

use std::net::SocketAddr;
use std::sync::Arc;

use freeboard_policy::Reason;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::http1::{Input, Patience, Socket, Stream, write};
use crate::limits::{TRACES_BATCH, TRACES_PAUSE, TRACES_QUEUE, TRACES_TIMEOUT};
use crate::metrics::Counter;
use crate::record::{Outcome, Verdict};
use crate::upstream::send::{Connection, ReadHead};

/// Path of traces at a collector (OTLP specification, "OTLP/HTTP Request").
const PATH: &str = "/v1/traces";
/// `SPAN_KIND_SERVER` and `STATUS_CODE_ERROR` of OTLP.
const KIND_SERVER: u32 = 2;
const STATUS_ERROR: u32 = 2;

/// Where spans are put.
#[derive(Debug)]
pub struct Traces {
    queue: mpsc::Sender<Value>,
    counts: Arc<Counts>,
}

/// Spans that the collector took, and that were dropped.
#[derive(Debug, Default)]
pub struct Counts {
    pub sent: Counter,
    pub lost: Counter,
}

/// Takes them to the collector.
#[derive(Debug)]
pub struct Exporter {
    collector: SocketAddr,
    queue: mpsc::Receiver<Value>,
    counts: Arc<Counts>,
}

impl Traces {
    pub fn to(collector: SocketAddr) -> (Self, Exporter) {
        let (sender, queue) = mpsc::channel(TRACES_QUEUE);
        let counts = Arc::<Counts>::default();
        let exporter = Exporter { collector, queue, counts: Arc::clone(&counts) };
        (Self { queue: sender, counts }, exporter)
    }

    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Called by `Broker::record`, once for each outcome. Never waits.
    pub fn note(&self, outcome: &Outcome) {
        match self.queue.try_reserve() {
            Ok(room) => room.send(span(outcome)),
            Err(_) => self.counts.lost.one_more(),
        }
    }
}

impl Exporter {
    /// Sends batch after batch until `stop`, and then what is left, once.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut works = true;
        loop {
            let first = tokio::select! {
                biased;
                first = self.queue.recv() => first,
                () = stop.cancelled() => return,
            };
            let Some(first) = first else { return };
            let mut spans = vec![first];
            let until = Instant::now() + TRACES_PAUSE;
            while spans.len() < TRACES_BATCH {
                tokio::select! {
                    biased;
                    more = timeout_at(until, self.queue.recv()) => match more {
                        Ok(Some(span)) => spans.push(span),
                        Ok(None) | Err(_) => break,
                    },
                    () = stop.cancelled() => break,
                }
            }
            let count = spans.len() as u64;
            match timeout(TRACES_TIMEOUT, self.send(&document(spans))).await {
                Ok(Ok(())) => {
                    self.counts.sent.add(count);
                    works = true;
                }
                Ok(Err(why)) => self.failed(count, &why, &mut works),
                Err(_) => self.failed(count, "no answer in time", &mut works),
            }
        }
    }

    /// Said once until it works again.
    fn failed(&self, count: u64, why: &str, works: &mut bool) {
        self.counts.lost.add(count);
        if std::mem::replace(works, false) {
            tracing::warn!(collector = %self.collector, why, "spans are dropped until the collector takes them");
        }
    }

    async fn send(&self, document: &Value) -> Result<(), String> {
        let body = document.to_string();
        let mut bytes = format!("POST {PATH} HTTP/1.1\r\nHost: {}\r\n", self.collector).into_bytes();
        bytes.extend_from_slice(
            b"Content-Type: application/json\r\nUser-Agent: freeboard\r\nConnection: close\r\n",
        );
        write::number_field(&mut bytes, "Content-Length", body.len() as u64);
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(body.as_bytes());
        let stream = TcpStream::connect(self.collector).await.map_err(|error| error.to_string())?;
        let stream = Stream::from(Socket::from(stream));
        stream.write_all(&bytes, TRACES_TIMEOUT).await.map_err(|error| error.to_string())?;
        let mut input = Input::default();
        let patience = Patience::For(TRACES_TIMEOUT);
        match Connection::read_head(&stream, &mut input, false, patience).await {
            Ok(ReadHead::Head(head)) if (200..300).contains(&head.status) => Ok(()),
            Ok(ReadHead::Head(head)) => Err(format!("it answers {}", head.status)),
            Ok(ReadHead::ClosedSilently) => Err("it closes without an answer".to_owned()),
            Err(stop) => Err(stop.to_string()),
        }
    }
}

/// An `ExportTraceServiceRequest`.
fn document(spans: Vec<Value>) -> Value {
    let resource = [text("service.name", "freeboard"), text("service.version", env!("CARGO_PKG_VERSION"))];
    json!({ "resourceSpans": [{
        "resource": { "attributes": resource },
        "scopeSpans": [{ "scope": { "name": "freeboard" }, "spans": spans }],
    }] })
}

fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

/// 64-bit numbers are text in the JSON form of Protocol Buffers.
fn number(key: &str, value: u64) -> Value {
    json!({ "key": key, "value": { "intValue": value.to_string() } })
}

/// The span of one decision, with the names of OpenTelemetry's semantic conventions where there are any.
fn span(outcome: &Outcome) -> Value {
    let run = outcome.run.as_deref();
    let identity = run.map(|run| &run.identity);
    let id = outcome.request_id.to_string();
    let path = outcome.path.split('?').next().unwrap_or_default();
    let optional = |key: &str, value: Option<&str>| value.map(|value| text(key, value));
    let mut attributes = vec![
        text("server.address", &outcome.host),
        number("server.port", u64::from(outcome.port)),
        text("freeboard.verdict", outcome.verdict.word()),
        text("freeboard.kind", outcome.kind.word()),
        text("freeboard.protocol", outcome.protocol),
        text("freeboard.door", outcome.door),
        text("freeboard.request_id", &id),
        text("freeboard.policy", &outcome.policy.digest),
        number("http.request.body.size", outcome.request_bytes),
        number("http.response.body.size", outcome.response_bytes),
    ];
    let more = [
        optional("http.request.method", Some(&*outcome.method).filter(|method| !method.is_empty())),
        optional("url.path", Some(path).filter(|path| !path.is_empty())),
        optional("freeboard.reason", outcome.reason.map(Reason::code)),
        optional("freeboard.grant", outcome.grant.as_deref()),
        optional("freeboard.api", outcome.api.as_deref()),
        optional("freeboard.credential", outcome.credential.as_deref()),
        optional("freeboard.run", run.map(|run| &*run.id)),
        optional("freeboard.caller", run.and_then(|run| run.caller.as_deref())),
        optional("freeboard.tier", run.map(|run| run.tier.word())),
        optional("freeboard.session", identity.and_then(|identity| identity.session.as_deref())),
        outcome.rule.as_ref().map(|rule| text("freeboard.rule", &rule.to_string())),
        outcome.upstream_address.map(|address| text("network.peer.address", &address.ip().to_string())),
        (outcome.status > 0).then(|| number("http.response.status_code", u64::from(outcome.status))),
    ];
    attributes.extend(more.into_iter().flatten());
    let start_ns = u128::from(outcome.started_unix_ms) * 1_000_000;
    let end_ns = start_ns + u128::from(outcome.duration_us) * 1000;
    let name = if outcome.method.is_empty() { outcome.kind.word() } else { &outcome.method };
    let mut span = json!({
        "traceId": trace_id(identity.and_then(|identity| identity.trace_id.as_deref()), run.map(|run| &*run.id), &id),
        "spanId": id.get(..16).unwrap_or_default(),
        "name": format!("{name} {}", outcome.host),
        "kind": KIND_SERVER,
        "startTimeUnixNano": start_ns.to_string(),
        "endTimeUnixNano": end_ns.to_string(),
        "attributes": attributes,
    });
    if outcome.verdict != Verdict::Allowed
        && let Some(fields) = span.as_object_mut()
    {
        let message = outcome.reason.map_or("", Reason::code);
        fields.insert("status".to_owned(), json!({ "code": STATUS_ERROR, "message": message }));
    }
    span
}

/// The caller's trace where it names one in the form of W3C Trace Context; else one for each run.
fn trace_id(callers: Option<&str>, run: Option<&str>, request: &str) -> String {
    let fits = |id: &&str| {
        let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        id.len() == 32 && id.bytes().all(hex) && id.bytes().any(|byte| byte != b'0')
    };
    let known = [callers, run].into_iter().flatten().find(fits);
    if let Some(known) = known {
        return known.to_owned();
    }
    match run {
        // An explicit run has a name of the configuration.
        Some(run) => {
            Sha256::digest(run.as_bytes()).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
        }
        None => request.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn a_run_is_one_trace_the_callers_where_it_names_one() {
        let (callers, run, request) = ("4bf92f3577b34da6a3ce929d0e0e4736", "a".repeat(32), "b".repeat(32));
        assert_eq!(trace_id(Some(callers), Some(&run), &request), callers);
        for other in ["ticket-7", "4BF92F3577B34DA6A3CE929D0E0E4736", &"0".repeat(32)] {
            assert_eq!(trace_id(Some(other), Some(&run), &request), run);
        }
        let named = trace_id(None, Some("ci"), &request);
        assert!(named.len() == 32 && named == trace_id(None, Some("ci"), &run));
        assert_eq!(trace_id(None, None, &request), request);
    }

    /// A collector that takes one request and answers it like this; gives what it got.
    async fn collected(answer: &'static str, spans: u64) -> (Vec<u8>, u64, u64) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (traces, exporter) = Traces::to(listener.local_addr().unwrap());
        let stop = CancellationToken::new();
        let running = tokio::spawn(exporter.run(stop.clone()));
        for number in 0..spans {
            traces.queue.send(json!({ "spanId": number.to_string() })).await.unwrap();
        }
        stop.cancel();
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut got = Vec::new();
        while !got.ends_with(b"]}]}]}") {
            assert_ne!(stream.read_buf(&mut got).await.unwrap(), 0);
        }
        stream.write_all(answer.as_bytes()).await.unwrap();
        running.await.unwrap();
        (got, traces.counts().sent.read(), traces.counts().lost.read())
    }

    #[tokio::test]
    async fn what_waits_goes_out_in_one_request_and_is_counted() {
        let (got, sent, lost) = collected("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", 3).await;
        let text = String::from_utf8(got).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
        assert!(head.contains("\r\nContent-Type: application/json\r\n"), "{head}");
        let body: Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().len(), 3);
        assert_eq!((sent, lost), (3, 0));
        let (_, sent, lost) = collected("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", 2).await;
        assert_eq!((sent, lost), (0, 2));
    }

    #[tokio::test]
    async fn a_collector_that_is_not_there_costs_spans_and_no_time() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let (traces, exporter) = Traces::to(address);
        let stop = CancellationToken::new();
        traces.queue.send(json!({})).await.unwrap();
        stop.cancel();
        exporter.run(stop).await;
        assert_eq!((traces.counts().sent.read(), traces.counts().lost.read()), (0, 1));
    }
}
