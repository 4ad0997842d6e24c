//! What is counted while requests pass.

use tokio::io::AsyncWriteExt as _;
use tokio_rustls::TlsConnector;

use super::lab::{Lab, ok, read_all, read_until};
use crate::metrics::page::{Process, page};

fn has(lab: &Lab, sample: &str) -> bool {
    page(&lab.client.broker, &Process::default()).lines().any(|line| line == sample)
}

#[tokio::test]
async fn requests_count_by_verdict_and_reason_and_what_a_guest_sends_names_no_series() {
    let lab = Lab::start(ok).await;
    let before = page(&lab.client.broker, &Process::default()).lines().count();
    for number in 0..50 {
        lab.api(&format!("GET /v1/x{number}y HTTP/1.1\nHost: api.test:PORT\nConnection: close\n\n")).await;
    }
    lab.api("GET /v1/items/1 HTTP/1.1\nHost: api.test:PORT\nConnection: close\n\n").await;
    lab.wait_for_records(51).await;
    for sample in [
        "freeboard_decisions_total{kind=\"request\",verdict=\"denied\",reason=\"no_rule\"} 50",
        "freeboard_decisions_total{kind=\"request\",verdict=\"allowed\",reason=\"none\"} 1",
        "freeboard_verdicts_total{verdict=\"denied\"} 50",
        "freeboard_request_seconds_count{verdict=\"denied\"} 50",
        "freeboard_request_seconds_bucket{verdict=\"allowed\",le=\"60\"} 1",
        "freeboard_upstream_head_seconds_count 1",
        "freeboard_body_bytes_total{direction=\"to_guest\"} 2",
        "freeboard_guest_handshakes_total{outcome=\"completed\"} 51",
        "freeboard_leaf_mints_total{outcome=\"made\"} 1",
    ] {
        assert!(has(&lab, sample), "{sample}: {}", page(&lab.client.broker, &Process::default()));
    }
    let text = page(&lab.client.broker, &Process::default());
    assert_eq!(text.lines().count(), before + 2, "one line for each new combination");
    assert!(!text.contains("x7y"));
}

/// A client that knows no CA of ours.
async fn distrusting(lab: &Lab) -> std::io::Error {
    let mut stream = lab.clear();
    let connect = lab.raw("CONNECT api.test:PORT HTTP/1.1\nHost: api.test:PORT\n\n");
    stream.write_all(&connect).await.unwrap();
    assert!(read_until(&mut stream, b"\r\n\r\n").await.starts_with(b"HTTP/1.1 200"));
    let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let connector = TlsConnector::from(std::sync::Arc::new(config));
    connector.connect("api.test".try_into().unwrap(), stream).await.unwrap_err()
}

#[tokio::test]
async fn a_guest_that_rejects_the_certificate_is_told_from_other_failures() {
    let lab = Lab::start(ok).await;
    distrusting(&lab).await;
    assert_eq!(lab.wait_for_records(1).await, ["denied leaf_rejected"]);
    assert!(has(&lab, "freeboard_guest_aborts_after_leaf_total{how=\"alert\"} 1"));
    assert!(has(&lab, "freeboard_guest_handshakes_total{outcome=\"failed\"} 1"));
    // One that checks its pins after the handshake goes away without a word.
    let mut stream = lab.tunnel("api.test", "api.test").await;
    stream.shutdown().await.unwrap();
    read_all(&mut stream).await;
    drop(stream);
    let wait = async {
        while !has(&lab, "freeboard_guest_aborts_after_leaf_total{how=\"silent\"} 1") {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(super::lab::PATIENCE, wait).await.unwrap();
    assert!(has(&lab, "freeboard_guest_aborts_after_leaf_total{how=\"closed\"} 0"));
}
