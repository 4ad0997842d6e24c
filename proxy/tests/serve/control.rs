//! The control socket: who may use it, what opens, what is refused, and what ends a gate.

use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;

use freeboard_control::{
    ClientError, Door, Fact, OpenGate, PrepareRun, Revocation, Revoked, RunNote, SessionOfCall,
};
use freeboard_policy::{Reason, Tier};

use crate::broker::{Lab, gate, is_root, prepare, run_id, wait_until};

fn reason<T: std::fmt::Debug>(result: Result<T, ClientError>) -> Reason {
    match result {
        Err(ClientError::Refused { reason, .. }) => reason,
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prepare_tells_floor_ports_surface_and_ca_and_refuses_what_is_not_the_callers() {
    let lab = Lab::new();
    let broker = lab.start();
    let client = broker.client().await;
    let prepared = client.prepare(prepare("bot", &["strong"])).await.unwrap();
    assert_eq!(prepared.floor, Some(Tier::Vm));
    assert_eq!(prepared.ports, [443]);
    assert!(prepared.ca_pem.contains("BEGIN CERTIFICATE"));
    assert_eq!(prepared.surface[0].base_url, "https://api.test");
    let none = client.prepare(prepare("bot", &[])).await.unwrap();
    assert_eq!((none.floor, none.ports.len(), none.surface.len()), (None, 0, 0));
    assert_eq!(reason(client.prepare(prepare("other", &["g"])).await), Reason::GrantNotAvailable);
    assert_eq!(reason(client.prepare(prepare("bot", &["nothing"])).await), Reason::GrantNotAvailable);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_a_session_share_what_a_person_takes_away() {
    let lab = Lab::new();
    lab.write_policy(&crate::broker::POLICY.replace("[grant.g]\n", "[grant.g]\nsessions = true\n"));
    let broker = lab.start();
    let client = broker.client().await;
    let session =
        |digit: &str| Some(SessionOfCall { fingerprint: digit.repeat(64), expires_unix_ms: u64::MAX });
    let call =
        |run: u8, grants: &[&str], digit: &str| OpenGate { session: session(digit), ..gate(run, grants) };
    let prepare = |grants: &[&str]| PrepareRun { session: true, ..prepare("bot", grants) };
    assert_eq!(client.prepare(prepare(&[])).await.unwrap().ports, [443], "what a later call may need");
    client.prepare(prepare(&["g"])).await.unwrap();
    assert_eq!(reason(client.prepare(prepare(&["strong"])).await), Reason::GrantNotAvailable);
    assert_eq!(reason(client.open(call(1, &["strong"], "a"), Vec::new()).await), Reason::GrantNotAvailable);
    client.open(call(1, &["g"], "a"), Vec::new()).await.unwrap();
    let record = lab.wait_record("gate_opened", 1);
    assert_eq!(record[0]["session"], "a".repeat(64));
    let of = Revoked::Run;
    client.revoke(Revocation { of, name: run_id(1), by: "sam".into() }).await.unwrap();
    client.close(&run_id(1)).await.unwrap();
    assert_eq!(reason(client.open(call(2, &["g"], "a"), Vec::new()).await), Reason::GrantRevoked);
    client.open(call(3, &[], "a"), Vec::new()).await.unwrap();
    client.open(call(4, &["g"], "b"), Vec::new()).await.unwrap();
    client.open(gate(5, &["g"]), Vec::new()).await.unwrap();
    let of = Revoked::Session;
    let revoke = |name: String| client.revoke(Revocation { of, name, by: "sam".into() });
    assert_eq!(revoke("b".repeat(64)).await.unwrap(), 1, "run 4");
    assert_eq!(reason(client.open(call(7, &["g"], "b"), Vec::new()).await), Reason::GrantRevoked);
    assert_eq!(reason(revoke("c".repeat(64)).await), Reason::RunEnded);
    let unnamed = OpenGate { session: session("A"), ..gate(6, &["g"]) };
    assert_eq!(reason(client.open(unnamed, Vec::new()).await), Reason::Malformed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gate_is_recorded_with_its_evidence_and_closed_with_its_trace() {
    let lab = Lab::new();
    let broker = lab.start();
    let client = broker.client().await;
    let mut open = gate(1, &["g"]);
    open.evidence.facts = vec![Fact { name: "seccomp_mode".into(), value: "2".into(), met: true }];
    client.open(open, Vec::new()).await.unwrap();
    let trace = client.close(&run_id(1)).await.unwrap();
    assert_eq!((trace.allowed, trace.denied), (0, 0));
    let opened = lab.wait_record("gate_opened", 1).remove(0);
    assert_eq!(
        (opened["run"].as_str(), opened["tier"].as_str()),
        (Some(run_id(1).as_str()), Some("container"))
    );
    assert_eq!(opened["measured"][0]["name"], "seccomp_mode");
    assert_eq!(opened["evidence"].as_str().unwrap().len(), 64);
    assert_eq!(lab.wait_record("gate_closed", 1)[0]["cause"], "closed");
    assert_eq!(reason(client.close(&run_id(1)).await), Reason::RunEnded);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gate_that_must_not_open_does_not() {
    let lab = Lab::new();
    let broker = lab.start();
    let client = broker.client().await;
    assert_eq!(reason(client.open(gate(1, &["strong"]), Vec::new()).await), Reason::FloorNotMet);
    assert_eq!(reason(client.open(gate(1, &["nothing"]), Vec::new()).await), Reason::GrantNotAvailable);
    let mut named = gate(1, &["g"]);
    named.run = "../../x".into();
    assert_eq!(reason(client.open(named, Vec::new()).await), Reason::Malformed);
    let mut doors = gate(1, &["g"]);
    doors.doors = vec![Door::DnsUdp];
    assert_eq!(reason(client.open(doors, Vec::new()).await), Reason::Malformed);
    let mut unmet = gate(1, &["g"]);
    unmet.evidence.facts = vec![Fact { name: "no_new_privs".into(), value: "0".into(), met: false }];
    assert_eq!(reason(client.open(unmet, Vec::new()).await), Reason::InsufficientIsolation);
    let mut over = gate(1, &["g"]);
    over.expires_unix_ms = 1;
    assert_eq!(reason(client.open(over, Vec::new()).await), Reason::RunEnded);
    client.open(gate(1, &["g"]), Vec::new()).await.unwrap();
    assert_eq!(
        reason(client.open(gate(1, &["g"]), Vec::new()).await),
        Reason::Malformed,
        "the same run twice"
    );
    // Another connection can neither open it again nor close it.
    let other = broker.client().await;
    assert_eq!(reason(other.open(gate(1, &["g"]), Vec::new()).await), Reason::Malformed);
    assert_eq!(reason(other.close(&run_id(1)).await), Reason::RunEnded);
    assert_eq!(lab.wait_record("gate_opened", 1).len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gates_end_with_the_connection_that_opened_them() {
    let lab = Lab::new();
    let broker = lab.start();
    let client = broker.client().await;
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut open = gate(1, &["g"]);
    open.doors = vec![Door::Streams];
    client.open(open, vec![OwnedFd::from(theirs)]).await.unwrap();
    client.open(gate(2, &["g"]), Vec::new()).await.unwrap();
    drop(client);
    let closed = lab.wait_record("gate_closed", 2);
    assert!(closed.iter().all(|record| record["cause"] == "connection_lost"), "{closed:?}");
    // The door's descriptor is closed: our end sees the end.
    ours.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
    assert_eq!(std::io::Read::read(&mut &ours, &mut [0; 8]).unwrap(), 0);
    // Its run may be opened anew.
    let client = broker.client().await;
    client.open(gate(1, &["g"]), Vec::new()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gate_ends_when_its_time_is_over() {
    let lab = Lab::new();
    let broker = lab.start();
    let client = broker.client().await;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    let mut open = gate(1, &["g"]);
    open.expires_unix_ms = u64::try_from(now).unwrap() + 500;
    client.open(open, Vec::new()).await.unwrap();
    assert_eq!(lab.wait_record("gate_closed", 1)[0]["cause"], "expired");
    client.close(&run_id(1)).await.unwrap();
    assert_eq!(lab.records().iter().filter(|record| record["kind"] == "gate_closed").count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_gates_than_configured_are_refused_until_one_is_closed() {
    let lab = Lab::with("max_gates = 2");
    let broker = lab.start();
    let client = broker.client().await;
    client.open(gate(1, &["g"]), Vec::new()).await.unwrap();
    client.open(gate(2, &["g"]), Vec::new()).await.unwrap();
    assert_eq!(reason(client.open(gate(3, &["g"]), Vec::new()).await), Reason::RunLimit);
    client.close(&run_id(1)).await.unwrap();
    lab.wait_record("gate_closed", 1);
    let mut opened = client.open(gate(3, &["g"]), Vec::new()).await;
    for _ in 0..100 {
        if opened.is_ok() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        opened = client.open(gate(3, &["g"]), Vec::new()).await;
    }
    opened.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_run_is_in_the_log() {
    let lab = Lab::new();
    let broker = lab.start();
    let note = RunNote {
        run: run_id(9),
        caller: Some("bot".into()),
        grants: vec!["strong".into()],
        floor: Some(Tier::Vm),
        tier: Some(Tier::Container),
        reason: Reason::InsufficientIsolation,
        session: None,
        detail: "no provider reaches vm\n{\"forged\":1}".into(),
    };
    broker.client().await.note(note).await.unwrap();
    let record = lab.wait_record("run_refused", 1).remove(0);
    assert_eq!(
        (record["reason"].as_str(), record["floor"].as_str()),
        (Some("insufficient_isolation"), Some("vm"))
    );
    assert!(lab.verify().status.success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_ends_its_connection_and_nothing_else() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let lab = Lab::new();
    let broker = lab.start();
    let client = broker.client().await;
    client.open(gate(1, &["g"]), Vec::new()).await.unwrap();
    for garbage in [&b"\0\0\0\x02{}"[..], b"\xff\xff\xff\xff", b"GET / HTTP/1.1\r\n\r\n"] {
        let mut raw = tokio::net::UnixStream::connect(lab.at("run/control.sock")).await.unwrap();
        raw.write_all(garbage).await.unwrap();
        let mut end = Vec::new();
        let read = tokio::time::timeout(std::time::Duration::from_secs(10), raw.read_to_end(&mut end)).await;
        // A reset is an end as well.
        let _ = read.expect("the broker hangs up");
        assert!(end.is_empty());
    }
    client.close(&run_id(1)).await.unwrap();
}

#[test]
fn refuses_a_peer_of_another_user() {
    if !is_root() {
        return eprintln!("skipped: only root can be somebody else");
    }
    let lab = Lab::new();
    let _broker = lab.start();
    let socket = lab.at("run/control.sock");
    assert_eq!(std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o660);
    // Even where the file mode would let anybody in.
    std::fs::set_permissions(&socket, PermissionsExt::from_mode(0o666)).unwrap();
    let script = "import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.settimeout(10); print(len(s.recv(1)))";
    let output = std::process::Command::new("setpriv")
        .args(["--reuid=12345", "--regid=12345", "--clear-groups", "/usr/bin/python3", "-c", script])
        .arg(&socket)
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "0", "{output:?}");
    wait_until("it is told", || lab.output().contains("uid=12345").then_some(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutting_down_closes_gates_and_says_so() {
    let lab = Lab::new();
    let broker = lab.start();
    let client = broker.client().await;
    client.open(gate(1, &["g"]), Vec::new()).await.unwrap();
    assert!(broker.stop().success());
    let records = lab.records();
    let kinds: Vec<&str> =
        records.iter().rev().take(2).filter_map(|record| record["kind"].as_str()).collect();
    assert_eq!(kinds, ["stopped", "gate_closed"]);
    assert_eq!(records[records.len() - 2]["cause"], "shutdown");
    client.lost().await;
}

/// More connections than descriptors: what cannot be accepted waits, and once there is room everything works again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e15_survives_running_out_of_descriptors() {
    let lab = Lab::new();
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "ulimit -n 48; exec \"$0\" serve --config \"$1\"", env!("CARGO_BIN_EXE_freeboard")]);
    command.arg(lab.at("freeboard.toml"));
    let broker = lab.start_with(command);
    let socket = lab.at("run/control.sock");
    let mut held = Vec::new();
    for _ in 0..100 {
        let Ok(stream) = std::os::unix::net::UnixStream::connect(&socket) else { break };
        held.push(stream);
    }
    wait_until("it is told", || {
        lab.output().contains("no control connection could be accepted").then_some(())
    });
    drop(held);
    let client = broker.client().await;
    client.open(gate(1, &["g"]), Vec::new()).await.unwrap();
    client.close(&run_id(1)).await.unwrap();
    assert!(broker.stop().success());
    assert!(lab.verify().status.success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_are_closed_and_prepared_side_by_side_on_one_connection() {
    use tokio::net::{TcpListener, TcpStream};
    let lab = Lab::new();
    let broker = lab.start();
    let client = broker.client().await;
    let mut closing = Vec::new();
    for number in 1..=3 {
        // A guest that has connected and says nothing: there is something to cut.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let guest = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let mut open = gate(number, &["g"]);
        open.doors = vec![Door::Tcp { port: 443 }];
        client.open(open, vec![listener.into_std().unwrap().into()]).await.unwrap();
        closing.push((run_id(number), guest));
    }
    let close_all = async {
        for (id, _guest) in &closing {
            client.close(id).await.unwrap();
        }
    };
    let prepare_many = async {
        for _ in 0..50 {
            client.prepare(prepare("bot", &["g"])).await.unwrap();
        }
    };
    tokio::join!(close_all, prepare_many);
    assert_eq!(lab.wait_record("gate_closed", 3).len(), 3);
}
