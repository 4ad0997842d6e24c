//! Starting: what is missing is said, with an exit code of its own; what is there is served without privilege.

use crate::broker::{Lab, is_root, wait_until};
use std::os::unix::fs::PermissionsExt;
use std::process::Output;

/// Exit code and stderr of a `serve` that must not start.
fn refused(lab: &Lab, more: &[&str]) -> (i32, String) {
    let mut words = vec!["serve"];
    words.extend(more);
    let mut child = lab
        .command(&words)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    wait_until("serve gives up", || child.try_wait().unwrap());
    let Output { status, stderr, .. } = child.wait_with_output().unwrap();
    (status.code().unwrap(), String::from_utf8(stderr).unwrap())
}

#[test]
fn a_wrong_command_line_ends_with_2() {
    let lab = Lab::new();
    assert_eq!(refused(&lab, &["--no-such-flag"]).0, 2);
}

#[test]
fn a_wrong_configuration_ends_with_3_and_shows_every_mistake() {
    let lab = Lab::with("");
    lab.configure("wrokers = 2\ngrace = \"soon\"\naudit_log = \"/x\"");
    let (code, said) = refused(&lab, &[]);
    assert_eq!(code, 3);
    for part in [
        "unknown option `wrokers`",
        "did you mean `workers`?",
        "`grace` is not a time",
        "freeboard.toml:9:",
        "called `audit.folder`",
    ] {
        assert!(said.contains(part), "`{part}` is not in: {said}");
    }
    let missing = lab.at("none.toml");
    std::fs::rename(lab.at("freeboard.toml"), missing).unwrap();
    assert_eq!(refused(&lab, &[]).0, 3, "a file that was named must be there");
}

#[test]
fn g22_no_policy_ends_with_4() {
    let lab = Lab::new();
    for (text, part) in
        [("", "empty"), ("[grant.g]\ncallers = [", "a.toml"), ("[grant.g]\nfloor = \"steel\"", "steel")]
    {
        lab.write_policy(text);
        let (code, said) = refused(&lab, &[]);
        assert_eq!(code, 4, "{said}");
        assert!(said.contains(part), "`{part}` is not in: {said}");
    }
    std::fs::remove_dir_all(lab.at("policy")).unwrap();
    let (code, said) = refused(&lab, &[]);
    assert_eq!(code, 4);
    assert!(said.contains("cannot read policy") && said.contains("No such file"), "{said}");
}

#[test]
fn g22_no_ca_ends_with_5() {
    let lab = Lab::new();
    std::fs::set_permissions(lab.at("ca-key.pem"), PermissionsExt::from_mode(0o644)).unwrap();
    let (code, said) = refused(&lab, &[]);
    assert_eq!(code, 5);
    assert!(said.contains("mode 644"), "{said}");
    std::fs::remove_file(lab.at("ca.pem")).unwrap();
    let (code, said) = refused(&lab, &[]);
    assert_eq!(code, 5);
    assert!(said.contains("freeboard ca init"), "{said}");
}

#[test]
fn g22_no_audit_log_ends_with_6() {
    let lab = Lab::new();
    std::fs::write(lab.at("audit"), "a file where the folder should be").unwrap();
    let (code, said) = refused(&lab, &[]);
    assert_eq!(code, 6, "{said}");
    assert!(said.contains("no audit log"), "{said}");
}

#[test]
fn a_second_broker_on_the_same_socket_ends_with_7_and_on_the_same_log_with_6() {
    let lab = Lab::new();
    let _first = lab.start();
    assert_eq!(refused(&lab, &[]).0, 7);
    let other_socket = lab.at("run/other.sock").display().to_string();
    let (code, said) = refused(&lab, &["--control-socket", &other_socket]);
    assert_eq!(code, 6, "{said}");
    assert!(said.contains("another broker writes the audit log"), "{said}");
}

#[test]
fn a_user_that_does_not_exist_ends_with_8() {
    if !is_root() {
        return eprintln!("skipped: only root changes users");
    }
    let (code, said) = refused(&Lab::new(), &["--user", "no-such-user-here"]);
    assert_eq!(code, 8);
    assert!(said.contains("no-such-user-here"), "{said}");
}

#[test]
fn drops_to_its_own_user_when_started_as_root() {
    if !is_root() {
        return eprintln!("skipped: only root changes users");
    }
    let lab = Lab::new();
    let broker = lab.start();
    let status = broker.status();
    let field = |name: &str| status.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(!field("Uid:").split_whitespace().skip(1).any(|uid| uid == "0"), "{status}");
    assert!(!field("Gid:").split_whitespace().skip(1).any(|gid| gid == "0"), "{status}");
    assert_eq!(field("Groups:").trim(), "Groups:");
}

#[test]
fn keeps_no_capability_gains_none_and_leaves_no_core() {
    let lab = Lab::new();
    let broker = lab.start();
    let status = broker.status();
    for line in [
        "CapEff:\t0000000000000000",
        "CapPrm:\t0000000000000000",
        "CapAmb:\t0000000000000000",
        "NoNewPrivs:\t1",
    ] {
        assert!(status.contains(line), "`{line}` is not in {status}");
    }
    if is_root() {
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", broker.child.id())).unwrap();
        let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
        assert_eq!(core.split_whitespace().filter(|word| *word == "0").count(), 2, "{core}");
    }
}

#[test]
fn works_the_same_for_an_ordinary_user() {
    if !is_root() {
        return eprintln!("skipped: the other tests run as an ordinary user already");
    }
    let lab = Lab::new();
    // The key must be readable for whom the broker runs as.
    let owner = nix::unistd::Uid::from_raw(65534);
    nix::unistd::chown(&lab.at("ca-key.pem"), Some(owner), None).unwrap();
    let mut command = std::process::Command::new("setpriv");
    command.args([
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        env!("CARGO_BIN_EXE_freeboard"),
        "serve",
        "--config",
    ]);
    command.arg(lab.at("freeboard.toml"));
    let broker = lab.start_with(command);
    assert!(broker.status().contains("Uid:\t65534\t65534"));
    assert!(broker.stop().success());
    let started = &lab.records()[0];
    assert_eq!((started["kind"].as_str(), started["uid"].as_u64()), (Some("started"), Some(65534)));
}

#[test]
fn says_when_it_is_ready_on_stderr_and_on_a_descriptor() {
    let lab = Lab::new();
    let ready = lab.at("ready");
    let script = format!("exec \"$0\" serve --config \"$1\" --ready-fd 5 5>{}", ready.display());
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_freeboard")]).arg(lab.at("freeboard.toml"));
    let broker = lab.start_with(command);
    wait_until("ready", || std::fs::read_to_string(&ready).ok().filter(|text| text == "ready\n"));
    assert!(lab.output().contains("freeboard: ready"));
    assert!(broker.stop().success());
}

/// A service manager, or an API behind a login, passes on a pipe of its own user.
#[test]
fn is_ready_on_a_pipe_that_another_user_made() {
    if !is_root() {
        return eprintln!("skipped: only root starts programs as another user");
    }
    let lab = Lab::new();
    let owner = nix::unistd::Uid::from_raw(65534);
    nix::unistd::chown(&lab.at("ca-key.pem"), Some(owner), None).unwrap();
    let script = "exec setpriv --reuid=65534 --regid=65534 --clear-groups \"$0\" serve --config \"$1\" --ready-fd 5 5>&1 >&2";
    let mut command = std::process::Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_freeboard")]).arg(lab.at("freeboard.toml"));
    let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let read =
        std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!((read.unwrap(), line.as_str()), (6, "ready\n"));
}

#[test]
fn a_descriptor_that_is_not_open_is_a_wrong_command_line() {
    let lab = Lab::new();
    let (code, said) = refused(&lab, &["--ready-fd", "77"]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("--ready-fd 77 cannot be written"), "{said}");
}

#[test]
fn ends_in_order_when_standard_input_ends_and_was_asked_to() {
    let lab = Lab::new();
    let mut command = lab.command(&["serve", "--stop-with-stdin"]);
    command.stdin(std::process::Stdio::piped());
    let mut broker = lab.start_with(command);
    let mut lifeline = broker.child.stdin.take().unwrap();
    std::io::Write::write_all(&mut lifeline, b"what is written means nothing\n").unwrap();
    assert_eq!(broker.child.try_wait().unwrap(), None);
    drop(lifeline);
    assert_eq!(broker.wait_end().code(), Some(0));
    let last = lab.records().pop().unwrap();
    let cause = last["cause"].as_str();
    assert_eq!((last["kind"].as_str(), cause), (Some("stopped"), Some("standard input ended")));
    // Without a pipe nobody could say that it ends.
    let (code, said) = refused(&lab, &["--stop-with-stdin"]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("--stop-with-stdin needs a pipe"), "{said}");
}

#[test]
fn a_system_without_threads_ends_with_9() {
    if !is_root() {
        return eprintln!("skipped: the limit of threads is set for a user of this test's own");
    }
    let lab = Lab::new();
    // An account that runs nothing else, so that the count is ours: the main thread, the process
    // that runs helpers, the log's two threads, and no worker.
    let uid = 64_321;
    nix::unistd::chown(&lab.at("ca-key.pem"), Some(nix::unistd::Uid::from_raw(uid)), None).unwrap();
    let script = "exec prlimit --nproc=4 setpriv --reuid=64321 --regid=64321 --clear-groups \"$0\" serve --config \"$1\"";
    let mut command = std::process::Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_freeboard")]).arg(lab.at("freeboard.toml"));
    let output = command.stdin(std::process::Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(9), "{said}");
    assert!(said.contains("the system gives no threads or descriptors"), "{said}");
}

#[test]
fn sigterm_and_sigint_end_it_in_order_with_0() {
    use rustix::process::Signal;
    let lab = Lab::new();
    for (signal, name) in [(Signal::TERM, "SIGTERM"), (Signal::INT, "SIGINT")] {
        let mut broker = lab.start();
        broker.signal(signal);
        assert_eq!(broker.wait_end().code(), Some(0));
        let last = lab.records().pop().unwrap();
        assert_eq!((last["kind"].as_str(), last["cause"].as_str()), (Some("stopped"), Some(name)));
        assert!(!lab.at("run/control.sock").exists() || is_root(), "the socket is taken away");
    }
    assert!(lab.verify().status.success());
}

#[test]
fn a_socket_left_by_a_killed_broker_is_replaced() {
    let lab = Lab::new();
    lab.start().kill();
    assert!(lab.at("run/control.sock").exists());
    assert!(lab.start().stop().success());
}

#[test]
fn prints_the_effective_configuration_with_origins() {
    let lab = Lab::with("grace = \"3s\"");
    let output = lab.freeboard(&["serve", "--print-config", "--set", "workers=7"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    assert!(text.contains("workers = 7  # command line"), "{text}");
    assert!(text.contains("grace = \"3s\"  # ") && text.contains("freeboard.toml:8"), "{text}");
    assert!(text.contains("reload_every = \"2s\"  # default"), "{text}");
}
