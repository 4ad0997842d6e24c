//! `audit tail|query|verify`, `ca`, `doctor`, `grants`, and the explicit proxy for runs without a gate.

use std::process::Stdio;

use freeboard_control::RunNote;
use freeboard_policy::Reason;

use crate::broker::{Lab, run_id, wait_until};

fn text(output: &std::process::Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e21_tail_shows_escapes_and_query_finds_by_field() {
    let lab = Lab::new();
    let broker = lab.start();
    let note = RunNote {
        run: run_id(7),
        caller: Some("bot\u{1b}[2J\u{202e}".into()),
        grants: Vec::new(),
        floor: None,
        tier: None,
        reason: Reason::InsufficientIsolation,
        session: None,
        detail: "12:00\r\n#1 allowed\u{2028}".into(),
    };
    broker.client().await.note(note).await.unwrap();
    lab.wait_record("run_refused", 1);
    let tail = text(&lab.freeboard(&["audit", "tail", "-n", "2"]));
    assert_eq!(tail.lines().count(), 2);
    assert!(tail.bytes().all(|byte| byte == b'\n' || (0x20..0x7f).contains(&byte)), "{tail:?}");
    assert!(tail.contains("run refused insufficient_isolation") && tail.contains("\\u{1b}[2J"), "{tail}");
    let run = format!("run={}", run_id(7));
    let found = text(&lab.freeboard(&["audit", "query", &run, "kind=run_refused", "--json"]));
    assert_eq!(found.lines().count(), 1);
    assert!(serde_json::from_str::<serde_json::Value>(&found).is_ok());
    assert_eq!(text(&lab.freeboard(&["audit", "query", "kind~gate"])), "");
    assert_eq!(lab.freeboard(&["audit", "query", "kind"]).status.code(), Some(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tail_follows_over_a_rotation() {
    let lab = Lab::with("audit.file_size = \"64KiB\"");
    let broker = lab.start();
    let followed = lab.at("followed");
    let output = std::fs::File::create(&followed).unwrap();
    let mut tail = lab
        .command(&["audit", "tail", "--follow", "-n", "1"])
        .stdout(output)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("tail begins", || std::fs::read_to_string(&followed).ok().filter(|text| !text.is_empty()));
    let client = broker.client().await;
    for number in 0..200 {
        let note = RunNote {
            run: run_id(1),
            caller: None,
            grants: Vec::new(),
            floor: None,
            tier: None,
            reason: Reason::InsufficientIsolation,
            session: None,
            detail: format!("note-{number}. {}", "x".repeat(900)),
        };
        client.note(note).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    let text = wait_until("all notes", || {
        std::fs::read_to_string(&followed).ok().filter(|text| text.contains("note-199."))
    });
    let _ = tail.kill();
    let _ = tail.wait();
    for number in 0..200 {
        assert_eq!(text.matches(&format!("note-{number}.")).count(), 1, "note {number}");
    }
}

#[test]
fn verify_compares_with_a_head_that_was_noted() {
    let lab = Lab::new();
    assert!(lab.start().stop().success());
    let text_before = text(&lab.verify());
    let head = text_before.lines().find_map(|line| line.strip_prefix("head ")).unwrap().to_owned();
    assert!(lab.start().stop().success());
    assert!(lab.freeboard(&["audit", "verify", "--anchor", &head]).status.success());
    let (seq, hash) = head.split_once(':').unwrap();
    let other = format!("{seq}:{}", hash.replace(&hash[..2], "00"));
    assert_eq!(lab.freeboard(&["audit", "verify", "--anchor", &other]).status.code(), Some(1));
    assert_eq!(lab.freeboard(&["audit", "verify", "--anchor", "x"]).status.code(), Some(2));
}

#[test]
fn reading_a_log_that_is_not_there_ends_with_6() {
    let lab = Lab::new();
    for words in [["audit", "verify"], ["audit", "tail"]] {
        let output = lab.freeboard(&words);
        assert_eq!(output.status.code(), Some(6));
        assert!(String::from_utf8(output.stderr).unwrap().contains("cannot read the audit folder"));
    }
}

#[test]
fn ca_init_never_overwrites_and_show_gives_the_certificate_only() {
    let lab = Lab::new();
    let before = std::fs::read(lab.at("ca-key.pem")).unwrap();
    let again = lab.freeboard(&["ca", "init"]);
    assert_eq!(again.status.code(), Some(5));
    assert_eq!(std::fs::read(lab.at("ca-key.pem")).unwrap(), before);
    let shown = lab.freeboard(&["ca", "show"]);
    assert!(shown.status.success());
    assert!(text(&shown).contains("BEGIN CERTIFICATE") && !text(&shown).contains("PRIVATE"));
}

#[test]
fn ca_rotate_goes_step_by_step_and_says_which_is_next() {
    let lab = Lab::new();
    let step = |step: &str| {
        let output = lab.freeboard(&["ca", "rotate", step]);
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, said) = step("switch");
    assert!(code == Some(1) && said.contains("`prepare` begins one"), "{said}");
    let before = text(&lab.freeboard(&["ca", "show"]));
    let (code, said) = step("prepare");
    assert!(code == Some(0) && said.contains("ca rotate switch"), "{said}");
    assert_eq!(text(&lab.freeboard(&["ca", "show"])), before, "the old one signs until the switch");
    assert_eq!(step("finish").0, Some(1));
    assert_eq!(step("switch").0, Some(0));
    assert_ne!(text(&lab.freeboard(&["ca", "show"])), before);
    assert_eq!(step("finish").0, Some(0));
    assert_eq!(step("finish").0, Some(1));
}

#[test]
fn doctor_and_grants_tell_what_is_there() {
    let lab = Lab::new();
    let doctor = text(&lab.freeboard(&["doctor"]));
    assert!(doctor.contains("ok       CA:") && doctor.contains("ok       policy:"), "{doctor}");
    std::fs::remove_file(lab.at("ca.pem")).unwrap();
    let doctor = lab.freeboard(&["doctor"]);
    assert_eq!(doctor.status.code(), Some(1));
    assert!(text(&doctor).contains("problem  CA:") && text(&doctor).contains("help: "));
    let grants = text(&lab.freeboard(&["grants", "list"]));
    assert!(grants.contains("g floor=none") && grants.contains("strong floor=vm"), "{grants}");
}

#[test]
fn c32_h37_h38_the_explicit_proxy_serves_only_who_proves_to_be_a_configured_run() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let lab = Lab::new();
    let token = "canary-token-5d21";
    let hash: String = freeboard_audit::Digest::of(token.as_bytes()).to_string();
    std::fs::write(lab.at("ci.sha256"), format!("{hash}  -\n")).unwrap();
    lab.configure(&format!(
        "explicit_listen = \"127.0.0.1:{port}\"\n[[broker.explicit_run]]\nid = \"ci-1\"\ncaller = \"bot\"\ngrants = [\"g\"]\ntoken_sha256_file = {:?}",
        lab.at("ci.sha256").display().to_string()
    ));
    // C20: at the loudest level, too.
    let mut command = lab.command(&["serve"]);
    command.env("FREEBOARD_LOG", "trace");
    let broker = lab.start_with(command);
    let curl = |proxy: &str| {
        let output = std::process::Command::new("curl")
            .args([
                "-s",
                "-o",
                "/dev/null",
                "-w",
                "%{http_connect}",
                "--noproxy",
                "",
                "-x",
                proxy,
                "https://evil.test/x",
            ])
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(curl(&format!("http://127.0.0.1:{port}")), "407");
    asks_for_a_password_and_takes_it_on_the_same_connection(port, token);
    assert_eq!(curl(&format!("http://ci-1:wrong@127.0.0.1:{port}")), "407");
    assert_eq!(curl(&format!("http://nobody:{token}@127.0.0.1:{port}")), "407");
    // Known, but the host is not granted: its own answer, its own record.
    let known = curl(&format!("http://ci-1:{token}@127.0.0.1:{port}"));
    assert!(known == "403" || known == "200", "{known}");
    let record = wait_until("the refusal's record", || {
        lab.records().into_iter().find(|record| record["run"] == "ci-1" && record["verdict"] == "denied")
    });
    assert_eq!(
        (record["tier"].as_str(), record["reason"].as_str()),
        (Some("process"), Some("host_not_granted"))
    );
    assert!(broker.stop().success());
    let everything =
        format!("{}{}", lab.output(), std::fs::read_to_string(lab.at("audit/audit.jsonl")).unwrap());
    assert!(!everything.contains(token), "the token is nowhere written");
}

fn asks_for_a_password_and_takes_it_on_the_same_connection(port: u16, token: &str) {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(crate::broker::PATIENCE)).unwrap();
    let head = |stream: &mut std::net::TcpStream, fields: &str| {
        write!(stream, "CONNECT api.test:443 HTTP/1.1\r\nHost: api.test:443\r\n{fields}\r\n").unwrap();
        let (mut answer, mut byte) = (Vec::new(), [0]);
        while !answer.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte).unwrap();
            answer.push(byte[0]);
        }
        let answer = String::from_utf8(answer).unwrap().to_ascii_lowercase();
        let length = answer.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
        let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
        stream.read_exact(&mut body).unwrap();
        answer
    };
    let refused = head(&mut stream, "");
    assert!(
        refused.starts_with("http/1.1 407 ") && refused.contains("proxy-authenticate: basic"),
        "{refused}"
    );
    let pair = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, format!("ci-1:{token}"));
    let taken = head(&mut stream, &format!("Proxy-Authorization: Basic {pair}\r\n"));
    assert!(taken.starts_with("http/1.1 200 "), "{taken}");
}

#[test]
fn an_explicit_run_whose_grant_is_not_there_ends_with_3() {
    let lab = Lab::new();
    std::fs::write(lab.at("ci.sha256"), "00".repeat(32)).unwrap();
    lab.configure(&format!(
        "[[broker.explicit_run]]\nid = \"ci-1\"\ncaller = \"bot\"\ngrants = [\"strong\"]\ntoken_sha256_file = {:?}",
        lab.at("ci.sha256").display().to_string()
    ));
    let serve = lab.freeboard(&["serve"]);
    assert_eq!(serve.status.code(), Some(3));
    assert!(String::from_utf8(serve.stderr).unwrap().contains("floor_not_met"));
}
