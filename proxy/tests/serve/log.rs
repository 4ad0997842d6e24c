//! The log under trouble: crashes, tampering, a full disk.

use std::io::Write as _;

use freeboard_control::{Client, ClientError, RunNote};
use freeboard_policy::Reason;

use crate::broker::{Lab, run_id};

pub(crate) fn note(detail: &str) -> RunNote {
    RunNote {
        run: run_id(1),
        caller: None,
        grants: Vec::new(),
        floor: None,
        tier: None,
        reason: Reason::InsufficientIsolation,
        session: None,
        detail: detail.to_owned(),
    }
}

fn append(lab: &Lab, bytes: &[u8]) {
    let path = lab.at("audit/audit.jsonl");
    std::fs::File::options().append(true).open(path).unwrap().write_all(bytes).unwrap();
}

#[test]
fn the_chain_goes_on_after_a_crash_in_the_middle_of_a_line() {
    let lab = Lab::new();
    let broker = lab.start();
    lab.wait_record("policy_loaded", 1);
    broker.kill();
    append(&lab, br#"{"seq":3,"prev":"00"#);
    let torn = lab.verify();
    let text = String::from_utf8(torn.stdout).unwrap();
    assert!(
        torn.status.success() && text.contains("verified up to record 2") && text.contains("torn"),
        "{text}"
    );
    assert!(lab.start().stop().success());
    let text = String::from_utf8(lab.verify().stdout).unwrap();
    assert!(text.contains("1 torn lines, each accounted for"), "{text}");
    assert_eq!(lab.wait_record("recovered", 1)[0]["torn_bytes"], 19);
}

#[test]
fn a_log_whose_end_was_changed_is_not_continued() {
    let lab = Lab::new();
    assert!(lab.start().stop().success());
    let path = lab.at("audit/audit.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replacen("\"cause\":\"start\"", "\"cause\":\"stars\"", 1)).unwrap();
    let serve = lab.freeboard(&["serve"]);
    assert_eq!(serve.status.code(), Some(6));
    let said = String::from_utf8(serve.stderr).unwrap();
    assert!(said.contains("does not verify") && said.contains("line 3"), "{said}");
    let verify = lab.verify();
    assert_eq!(verify.status.code(), Some(1));
    assert!(String::from_utf8(verify.stderr).unwrap().contains("record 3 does not follow"));
}

#[test]
fn the_log_is_readable_for_its_owner_only() {
    use std::os::unix::fs::MetadataExt as _;
    let lab = Lab::new();
    let _broker = lab.start();
    assert_eq!(std::fs::metadata(lab.at("audit/audit.jsonl")).unwrap().mode() & 0o777, 0o600);
}

async fn noted_until_refused(client: &Client) -> usize {
    for count in 0..20_000 {
        match client.note(note(&"x".repeat(1000))).await {
            Ok(()) => {}
            Err(ClientError::Refused { reason, .. }) => {
                assert_eq!(reason, Reason::AuditUnavailable);
                return count;
            }
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the log never was full");
}

/// A file size limit stands for the full disk: like that, it refuses writes, and unlike a small mount it needs no root.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e19_a_full_disk_refuses_and_recovers_without_losing_a_record() {
    let lab = Lab::new();
    let mut command = std::process::Command::new("sh");
    // Without the signal, a write over the limit fails with an error, as it does on a full disk. Blocks of 512 bytes.
    command.args([
        "-c",
        "trap '' XFSZ; ulimit -S -f 128; exec \"$0\" serve --config \"$1\"",
        env!("CARGO_BIN_EXE_freeboard"),
    ]);
    command.arg(lab.at("freeboard.toml"));
    let broker = lab.start_with(command);
    let client = broker.client().await;
    let before = noted_until_refused(&client).await;
    assert!(before > 10, "{before} notes");
    assert!(lab.output().contains("the audit log cannot be written: requests are refused"));
    let refused = client.open(crate::broker::gate(1, &["g"]), Vec::new()).await;
    assert!(
        matches!(refused, Err(ClientError::Refused { reason: Reason::AuditUnavailable, .. })),
        "{refused:?}"
    );
    let pid = broker.child.id().to_string();
    let as_broker = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let mut words = if crate::broker::is_root() { as_broker.to_vec() } else { vec!["env"] };
    words.extend(["prlimit", "--pid", &pid, "--fsize=unlimited:"]);
    let raised = std::process::Command::new(words[0]).args(&words[1..]).status().unwrap();
    assert!(raised.success());
    let mut accepted = false;
    for _ in 0..500 {
        if client.note(note("after")).await.is_ok() {
            accepted = true;
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert!(accepted, "it did not recover");
    assert!(broker.stop().success());
    let records = lab.records();
    let count = |kind: &str| records.iter().filter(|record| record["kind"] == kind).count();
    assert_eq!(count("run_refused"), before + 1, "every note that was accepted is there, once");
    assert_eq!(count("gate_opened"), 0);
    assert!(records.iter().any(|record| record["code"] == "audit_was_unavailable"));
    let verified = lab.verify();
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rotation_keeps_the_chain_over_files_and_restarts() {
    let lab = Lab::with("audit.file_size = \"64KiB\"");
    let mut broker = lab.start();
    for round in 0..3 {
        let client = broker.client().await;
        for number in 0..120 {
            client.note(note(&format!("{round} {number} {}", "x".repeat(900)))).await.unwrap();
        }
        drop(client);
        assert!(broker.stop().success());
        broker = lab.start();
    }
    assert!(broker.stop().success());
    let files = std::fs::read_dir(lab.at("audit")).unwrap().count();
    assert!(files >= 4, "{files} files");
    let text = String::from_utf8(lab.verify().stdout).unwrap();
    let records = lab.records();
    assert!(text.contains(&format!("verified up to record {0}: {0} records", records.len())), "{text}");
    assert_eq!(records.iter().filter(|record| record["kind"] == "run_refused").count(), 360);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_any_moment_the_log_verifies_and_goes_on() {
    let lab = Lab::new();
    for round in 0..8_u64 {
        let broker = lab.start();
        let client = broker.client().await;
        let flood = async {
            loop {
                if client.note(note("flood")).await.is_err() {
                    break;
                }
            }
        };
        let _ = tokio::time::timeout(std::time::Duration::from_millis(20 + round * 7), flood).await;
        broker.kill();
        assert!(lab.verify().status.success(), "round {round}");
    }
    assert!(lab.start().stop().success());
    assert!(lab.verify().status.success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_does_not_keep_the_broker_from_ending() {
    let lab = Lab::new();
    let mut command = std::process::Command::new("sh");
    command.args([
        "-c",
        "trap '' XFSZ; ulimit -S -f 128; exec \"$0\" serve --config \"$1\"",
        env!("CARGO_BIN_EXE_freeboard"),
    ]);
    command.arg(lab.at("freeboard.toml"));
    let broker = lab.start_with(command);
    noted_until_refused(&broker.client().await).await;
    assert!(broker.stop().success());
    assert!(lab.output().contains("its last records are lost"), "and it says so");
    let verified = lab.verify();
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
}
