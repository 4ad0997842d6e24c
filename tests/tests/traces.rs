//! Decisions as spans, at a collector that the broker really sends them to.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failing test panics")]

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use freeboard_tests::expect::get;
use freeboard_tests::lab::{Lab, POLICY, Way};
use freeboard_tests::pressure::metric;
use freeboard_tests::wait;
use serde_json::Value;

/// A collector in the lab's network, which keeps the spans that it is sent.
fn collect(listener: TcpListener) -> Arc<Mutex<Vec<Value>>> {
    let spans = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&spans);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut bytes = Vec::new();
            let mut piece = [0; 4096];
            let body = loop {
                let count = stream.read(&mut piece).unwrap();
                bytes.extend_from_slice(&piece[..count]);
                let text = String::from_utf8_lossy(&bytes).into_owned();
                let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
                assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
                let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap();
                if body.len() == length.parse::<usize>().unwrap() {
                    break body.to_owned();
                }
            };
            let document: Value = serde_json::from_str(&body).unwrap();
            let sent = document["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone();
            kept.lock().unwrap().extend(sent);
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}").unwrap();
        }
    });
    spans
}

fn attribute<'a>(span: &'a Value, key: &str) -> Option<&'a str> {
    let found = span["attributes"].as_array().unwrap().iter().find(|attribute| attribute["key"] == key)?;
    found["value"]["stringValue"].as_str().or(found["value"]["intValue"].as_str())
}

#[test]
fn each_decision_is_a_span_without_query_or_secret() {
    let Some(mut lab) = Lab::start_configured(POLICY, &[], "") else { return };
    let listener = lab.world().enter(|| TcpListener::bind("127.0.0.1:0")).unwrap();
    let collector = listener.local_addr().unwrap();
    let spans = collect(listener);
    let config = std::fs::read_to_string(lab.broker.config_file()).unwrap();
    let with = config.replacen("[broker]\n", &format!("[broker]\notlp_collector = \"{collector}\"\n"), 1);
    assert_ne!(with, config);
    std::fs::write(lab.broker.config_file(), with).unwrap();
    lab.broker.kill();
    lab.restart();
    let run = lab.run(&["items"]);
    let mut wire = run.tls(Way::Transparent, "api.test");
    assert_eq!(wire.ask(get("api.test", "/v1/items/1")).status(), Some(200));
    assert_eq!(wire.ask(get("api.test", "/v1/admin?private=word")).status(), Some(403));
    let requests = || -> Vec<Value> {
        let spans = spans.lock().unwrap();
        spans.iter().filter(|span| attribute(span, "freeboard.kind") == Some("request")).cloned().collect()
    };
    wait::until_true("both spans are at the collector", || requests().len() == 2);
    let found = requests();
    let records = run.decisions(2);
    for (span, record) in found.iter().zip(&records) {
        let id = record["request_id"].as_str().unwrap();
        assert_eq!(span["traceId"], run.id.as_str(), "a run is one trace");
        assert_eq!(span["spanId"], id[..16], "{record:#}");
        assert_eq!(span["name"], "GET api.test");
        assert_eq!(attribute(span, "freeboard.request_id"), Some(id));
        assert_eq!(attribute(span, "freeboard.verdict"), record["verdict"].as_str());
        assert_eq!(attribute(span, "freeboard.tier"), Some("container"));
        let took = |key: &str| span[key].as_str().unwrap().parse::<u128>().unwrap();
        assert!(took("endTimeUnixNano") > took("startTimeUnixNano"));
    }
    assert_eq!(attribute(&found[0], "url.path"), Some("/v1/items/1"));
    assert_eq!(attribute(&found[0], "http.response.status_code"), Some("200"));
    assert_eq!(attribute(&found[1], "url.path"), Some("/v1/admin"));
    assert!(found[0]["status"].is_null());
    assert_eq!(found[1]["status"], serde_json::json!({ "code": 2, "message": "no_rule" }));
    let all = format!("{found:?}");
    assert!(!all.contains("private") && !all.contains("word"), "{all}");
    lab.assert_no_secret("spans", all.as_bytes());
    assert!(metric(&lab, "freeboard_spans_total{outcome=\"sent\"}") >= 2);
    assert_eq!(metric(&lab, "freeboard_spans_total{outcome=\"lost\"}"), 0);
}
