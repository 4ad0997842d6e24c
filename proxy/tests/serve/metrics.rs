//! Numbers for operators, liveness and readiness, as an operator's tools ask for them.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

use freeboard_proxy::metrics::families;

use crate::broker::{Lab, gate, wait_until};

/// A broker with numbers at a port that was free a moment ago.
fn lab() -> (Lab, SocketAddr) {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let lab = Lab::new();
    let text = std::fs::read_to_string(lab.at("freeboard.toml")).unwrap();
    let text = text.replace("metrics_listen = \"off\"", &format!("metrics_listen = \"{address}\""));
    std::fs::write(lab.at("freeboard.toml"), text).unwrap();
    (lab, address)
}

fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn get(address: SocketAddr, path: &str) -> String {
    ask(address, &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n"))
}

/// The value of a sample, as it is written.
fn value(page: &str, sample: &str) -> String {
    let found = page.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    found.unwrap_or_else(|| panic!("`{sample}` is not in: {page}")).to_owned()
}

#[test]
fn readiness_proves_an_allowed_and_a_refused_request_and_their_records() {
    let (lab, address) = lab();
    let broker = lab.start();
    assert!(get(address, "/livez").starts_with("HTTP/1.1 200 OK\r\n"));
    let ready = get(address, "/readyz");
    assert!(ready.starts_with("HTTP/1.1 200 OK\r\n") && ready.contains("\r\n\r\nready: "), "{ready}");
    let of_probe = |lab: &Lab| {
        let records = lab.records().into_iter().filter(|record| record["caller"] == "freeboard-readiness");
        records.map(|record| (record["verdict"].clone(), record["reason"].clone())).collect::<Vec<_>>()
    };
    // They are in the file when the answer is there.
    let seen = of_probe(&lab);
    assert_eq!(seen, [("allowed".into(), serde_json::Value::Null), ("denied".into(), "no_rule".into())]);
    assert!(get(address, "/readyz").starts_with("HTTP/1.1 200 OK\r\n"));
    assert_eq!(of_probe(&lab).len(), 2, "asked again at once, it remembers");
    let page = get(address, "/metrics");
    assert_eq!(value(&page, "freeboard_probes_total{outcome=\"ready\"}"), "1");
    assert_eq!(
        value(&page, "freeboard_verdicts_total{verdict=\"allowed\"}"),
        "0",
        "the probe does not count"
    );
    let doctor = String::from_utf8(lab.freeboard(&["doctor"]).stdout).unwrap();
    assert!(doctor.contains(&format!("ok       readiness: {address}: ready")), "{doctor}");
    assert!(broker.stop().success());
    assert!(lab.verify().status.success());
    let doctor = String::from_utf8(lab.freeboard(&["doctor"]).stdout).unwrap();
    assert!(doctor.contains("nobody serves it now"), "{doctor}");
}

#[test]
fn is_not_ready_without_an_audit_log_and_says_so() {
    let (lab, address) = lab();
    let mut command = std::process::Command::new("sh");
    command.args([
        "-c",
        "trap '' XFSZ; ulimit -S -f 32; exec \"$0\" serve --config \"$1\"",
        env!("CARGO_BIN_EXE_freeboard"),
    ]);
    command.arg(lab.at("freeboard.toml"));
    let broker = lab.start_with(command);
    wait_until("the log is full", || {
        // Each is a record.
        broker.signal(rustix::process::Signal::HUP);
        (value(&get(address, "/metrics"), "freeboard_audit_writable") == "0").then_some(())
    });
    let ready = get(address, "/readyz");
    assert!(
        ready.starts_with("HTTP/1.1 503 ") && ready.contains("the audit log cannot be written"),
        "{ready}"
    );
    let page = get(address, "/metrics");
    assert_eq!(value(&page, "freeboard_audit_failures_total"), "1");
    assert_ne!(value(&page, "freeboard_audit_unwritten_records"), "0");
    let doctor = lab.freeboard(&["doctor"]);
    let text = String::from_utf8(doctor.stdout).unwrap();
    assert!(text.contains("problem  readiness:") && text.contains("audit log cannot be written"), "{text}");
    assert_eq!(doctor.status.code(), Some(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counts_runs_and_reloads_and_names_apis_of_the_policy() {
    let (lab, address) = lab();
    let broker = lab.start();
    let client = broker.client().await;
    client.open(gate(1, &["g"]), Vec::new()).await.unwrap();
    let page = get(address, "/metrics");
    assert!(page.contains("\r\nContent-Type: text/plain; version=0.0.4"), "{page}");
    assert_eq!(value(&page, "freeboard_runs_open"), "1");
    assert_eq!(value(&page, "freeboard_breaker_open{api=\"one\"}"), "0");
    assert_eq!(value(&page, "freeboard_policy_loads_total{outcome=\"loaded\"}"), "1");
    assert_eq!(value(&page, "freeboard_policy_loads_total{outcome=\"refused\"}"), "0");
    lab.write_policy("[grant.g]\ncallers = [");
    broker.signal(rustix::process::Signal::HUP);
    wait_until("the refused reload is counted", || {
        let page = get(address, "/metrics");
        (value(&page, "freeboard_policy_loads_total{outcome=\"refused\"}") == "1").then_some(())
    });
    let ends: u64 = value(&page, "freeboard_ca_expiry_timestamp_seconds").parse().unwrap();
    assert!(ends > 1_800_000_000);
    assert!(value(&page, "process_resident_memory_bytes").parse::<u64>().unwrap() > 1 << 20);
    assert!(value(&page, "process_open_fds").parse::<u64>().unwrap() > 10);
    // Every family is there, with its type, and nothing else.
    let told: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    let known: Vec<String> =
        families::ALL.iter().map(|family| format!("{} {}", family.name, family.kind.word())).collect();
    assert_eq!(told, known);
}

#[test]
fn answers_nothing_else_and_breaks_on_nothing() {
    let (lab, address) = lab();
    let _broker = lab.start();
    for (request, status) in [
        ("GET / HTTP/1.1\r\nHost: x\r\n\r\n", "404"),
        ("GET /metrics/../readyz HTTP/1.1\r\nHost: x\r\n\r\n", "400"),
        ("POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", "405"),
        ("GET /metrics HTTP/1.1\r\n\r\n", "400"),
        ("GET /metrics HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", "400"),
        ("\0\0\0\0\r\n\r\n", "400"),
    ] {
        let answer = ask(address, request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}: {answer}");
    }
    assert!(get(address, "/livez").starts_with("HTTP/1.1 200 "));
}

#[test]
fn an_address_that_was_asked_for_and_is_taken_ends_the_start() {
    let (lab, address) = lab();
    let _other = TcpListener::bind(address).unwrap();
    let output = lab.freeboard(&["serve"]);
    assert_eq!(output.status.code(), Some(7));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains(&format!("cannot listen on `{address}`")), "{said}");
}
