//! P6, P8, P10: start, reload, drain, crash. Nothing is reached and nothing stays behind, whoever dies when.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failing test panics")]

use std::process::Command;
use std::time::{Duration, Instant};

use freeboard_policy::Tier;
use freeboard_tests::answer::Answer;
use freeboard_tests::broker::program;
use freeboard_tests::expect::{allowed, allowed_on, bare, get, refused, refused_on};
use freeboard_tests::lab::{Lab, POLICY, WAYS, Way};
use freeboard_tests::sandbox::User;
use freeboard_tests::wait;
use freeboard_tests::wire::Reply;
use nix::sys::signal::Signal;

/// `freeboard audit verify` on the lab's log.
fn verifies(lab: &Lab) -> bool {
    let output = Command::new(program("freeboard"))
        .args(["audit", "verify", "--config"])
        .arg(lab.broker.config_file())
        .output()
        .unwrap();
    if !output.status.success() {
        eprintln!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    }
    output.status.success()
}

#[test]
fn a_run_ends_when_it_is_closed() {
    let Some(lab) = Lab::start() else { return };
    let run = lab.run(&["items"]);
    let mut open = run.tls(Way::Transparent, "api.test");
    allowed_on(&run, &mut open, get("api.test", "/v1/items/1"));
    let (gate, id) = (run.gate.connect("10.1.1.1:3128".parse().unwrap()), run.id.clone());
    drop(gate);
    let trace = run.close();
    assert_eq!((trace.allowed, trace.denied), (1, 0));
    assert_eq!(trace.calls[0].path, "/v1/items/1");
    lab.upstream.take();
    assert!(open.ask(get("api.test", "/v1/items/2")).status().is_none(), "an open connection is cut");
    assert!(lab.upstream.take().is_empty());
    wait::until_true("the end is in the log", || {
        lab.audit
            .records()
            .iter()
            .any(|record| record["kind"] == "gate_closed" && record["run"] == id.as_str())
    });
}

#[test]
fn a_run_ends_at_its_time_without_anybody_closing_it() {
    let Some(lab) = Lab::start() else { return };
    let run = lab.try_run(&["items"], Tier::Container, Duration::from_secs(2)).unwrap();
    let mut open = run.tls(Way::Connect, "api.test");
    allowed_on(&run, &mut open, get("api.test", "/v1/items/1"));
    wait::until_true("the run is over", || open.ask(get("api.test", "/v1/items/1")).status() != Some(200));
    lab.upstream.take();
    assert!(run.gate.connect("10.1.1.1:443".parse().unwrap()).is_err() || run.resolve("api.test").is_none());
    assert!(lab.upstream.take().is_empty());
}

#[test]
fn c32_gates_die_with_the_control_connection_that_opened_them() {
    let Some(mut lab) = Lab::start() else { return };
    let (mut wire, gate, id) = {
        let run = lab.run(&["items"]);
        let mut wire = run.tls(Way::Connect, "api.test");
        allowed_on(&run, &mut wire, get("api.test", "/v1/items/1"));
        (wire, run.gate, run.id)
    };
    lab.disconnect();
    wait::until_true("the gate is closed", || {
        lab.audit
            .records()
            .iter()
            .any(|record| record["kind"] == "gate_closed" && record["run"] == id.as_str())
    });
    assert!(wire.ask(get("api.test", "/v1/items/2")).status().is_none());
    assert!(gate.connect("10.1.1.1:3128".parse().unwrap()).is_err(), "the sockets are gone");
    lab.reconnect();
    let run = lab.run(&["items"]);
    allowed(&run, Way::Transparent, "api.test", get("api.test", "/v1/items/1"));
}

#[test]
fn killing_the_broker_leaves_nothing_reachable_and_a_log_that_verifies() {
    let Some(mut lab) = Lab::start() else { return };
    for _ in 0..3 {
        let gate = {
            let run = lab.run(&["items", "pub"]);
            for way in WAYS {
                allowed(&run, way, "api.test", get("api.test", "/v1/items/1"));
                refused(&run, way, "api.test", get("api.test", "/v1/admin"), &[403]);
            }
            let mut flying = run.tls(Way::Connect, "pub.test");
            flying.send(get("pub.test", "/x")).unwrap();
            run.gate
        };
        lab.broker.kill();
        lab.upstream.take();
        assert!(gate.connect("10.1.1.1:443".parse().unwrap()).is_err(), "no socket of the gate is left");
        assert!(gate.connect("10.1.1.1:3128".parse().unwrap()).is_err());
        lab.restart();
        assert!(verifies(&lab));
        let run = lab.run(&["items"]);
        allowed(&run, Way::Transparent, "api.test", get("api.test", "/v1/items/1"));
    }
    assert!(verifies(&lab));
    let starts = lab.audit.records().iter().filter(|record| record["kind"] == "started").count();
    assert_eq!(starts, 4);
}

#[test]
fn a_torn_last_line_is_recovered_and_a_changed_record_is_found() {
    let Some(mut lab) = Lab::start() else { return };
    {
        let run = lab.run(&["items"]);
        allowed(&run, Way::Connect, "api.test", get("api.test", "/v1/items/1"));
    }
    lab.broker.kill();
    let file = lab.audit.files().pop().unwrap();
    let mut text = std::fs::read_to_string(&file).unwrap();
    text.push_str("{\"kind\":\"request\",\"half");
    std::fs::write(&file, &text).unwrap();
    lab.restart();
    assert!(verifies(&lab));
    wait::until_true("the recovery is in the log", || {
        lab.audit.records().iter().any(|record| record["kind"] == "recovered")
    });
    // Positive control: a change of one byte is found.
    lab.broker.kill();
    let file = lab.audit.files().remove(0);
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replacen("/v1/items/1", "/v1/items/2", 1)).unwrap();
    assert!(!verifies(&lab));
}

#[test]
fn sigterm_lets_requests_finish_and_says_that_it_stopped() {
    let Some(mut lab) = Lab::start() else { return };
    lab.upstream.take_over("pub.test", "/slow", |_, stream| {
        std::thread::sleep(Duration::from_millis(700));
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone");
        let _ = stream.flush();
    });
    {
        let run = lab.run(&["pub"]);
        let mut wire = run.tls(Way::Connect, "pub.test");
        wire.send(get("pub.test", "/slow")).unwrap();
        wait::until_true("the request is under way", || !lab.upstream.requests().is_empty());
        lab.broker.signal(Signal::SIGTERM);
        assert_eq!(wire.read_answer("GET").answer().body, b"done");
    }
    assert!(lab.broker.wait_end().success());
    assert!(lab.audit.records().iter().any(|record| record["kind"] == "stopped"));
    assert!(verifies(&lab));
    assert!(!lab.broker.control_socket().exists(), "the socket is taken away");
}

#[test]
fn g15_a_broken_reload_keeps_the_last_good_policy() {
    let Some(lab) = Lab::start() else { return };
    let run = lab.run(&["items"]);
    for broken in [
        "not toml [",
        "[grant.items]\ncallers = [\"lab\"]\nmethds = []\n",
        &POLICY.replace("c1\"\ntrust", "missing\"\ntrust"),
    ] {
        lab.write_policy(broken);
        lab.broker.reload();
        assert_eq!(lab.audit.records().last().unwrap()["kind"], "reload_refused");
        allowed(&run, Way::Connect, "api.test", get("api.test", "/v1/items/1"));
    }
    std::fs::remove_file(lab.folder().join("policy/lab.toml")).unwrap();
    lab.broker.reload();
    allowed(&run, Way::Connect, "api.test", get("api.test", "/v1/items/1"));
}

#[test]
fn g18_a_route_that_is_taken_away_is_gone_for_open_connections() {
    let Some(lab) = Lab::start() else { return };
    let run = lab.run(&["items"]);
    let mut wires = WAYS.map(|way| run.tls(way, "api.test"));
    for wire in &mut wires {
        allowed_on(&run, wire, get("api.test", "/v1/items/1"));
    }
    lab.write_policy(&POLICY.replace("\"GET /v1/items/*\", ", ""));
    lab.broker.reload();
    lab.upstream.take();
    for wire in &mut wires {
        match wire.ask(get("api.test", "/v1/items/1")) {
            Reply::Answer(response) => assert_eq!(response.status, 403),
            Reply::Closed(_) => {}
        }
    }
    assert!(lab.upstream.take().is_empty());
    // And the whole grant.
    lab.write_policy(
        &POLICY.replace("[grant.items]\ncallers = [\"lab\"]", "[grant.items]\ncallers = [\"somebody-else\"]"),
    );
    lab.broker.reload();
    let reply = run.tls_with(Way::Connect, "api.test", 443, "api.test", &[b"http/1.1"]);
    if let Ok(mut wire) = reply {
        assert_ne!(wire.ask(get("api.test", "/v1/items/1")).status(), Some(200));
    }
    assert!(lab.upstream.take().is_empty());
}

#[test]
fn e18_g18_a_stream_is_cut_when_the_time_of_its_grant_is_over() {
    let policy = POLICY
        .replace("[grant.pub]\ncallers = [\"lab\"]\n", "[grant.pub]\ncallers = [\"lab\"]\nttl = \"3s\"\n");
    let Some(lab) = Lab::start_with(&policy, &[]) else { return };
    lab.upstream.take_over("pub.test", "/sse", |_, stream| {
        let head =
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
        let mut sent = stream.write_all(head);
        while sent.and_then(|()| stream.flush()).is_ok() {
            std::thread::sleep(Duration::from_millis(50));
            sent = stream.write_all(b"8\r\ndata: 1\n\r\n");
        }
    });
    for way in WAYS {
        let before = Instant::now();
        let run = lab.run(&["pub", "items"]);
        let opened = Instant::now();
        let mut idle = run.tls(way, "api.test");
        let mut wire = run.tls(way, "pub.test");
        wire.send(get("pub.test", "/sse")).unwrap();
        let events = wire.rest();
        assert!(events.windows(7).filter(|window| window == b"data: 1").count() > 10, "the stream ran");
        let ttl = Duration::from_secs(3);
        assert!(before.elapsed() >= ttl, "cut after {:?}", before.elapsed());
        assert!(opened.elapsed() < ttl + Duration::from_secs(1), "cut after {:?}", opened.elapsed());
        let cut = run.decisions(1).remove(0);
        assert_eq!((&cut["reason"], &cut["path"]), (&"grant_expired".into(), &"/sse".into()), "{cut:#?}");
        assert!(cut["detail"].as_str().unwrap().contains("time is over"), "{cut:#?}");
        assert!(cut["response_bytes"].as_u64().unwrap() >= 80, "what had passed: {cut:#?}");
        // The time of the run is the shortest of its grants'.
        refused_on(&run, &mut idle, get("api.test", "/v1/items/1"), &[403]);
        assert_eq!(run.resolve("api.test"), None);
    }
}

#[test]
fn a_grant_is_for_its_callers_and_above_its_floor_only() {
    let policy =
        POLICY.replace("[grant.reg]\ncallers = [\"lab\"]", "[grant.reg]\ncallers = [\"other\"]").replace(
            "[grant.query]\ncallers = [\"lab\"]",
            "[grant.query]\ncallers = [\"lab\"]\nfloor = \"kernel\"",
        );
    let Some(lab) = Lab::start_with(&policy, &[]) else { return };
    let refusal = |grants: &[&str]| {
        lab.try_run(grants, Tier::Container, Duration::from_secs(9)).unwrap_err().to_string()
    };
    assert!(refusal(&["reg"]).contains("grant_not_available"));
    assert!(refusal(&["nonsense"]).contains("grant_not_available"));
    assert!(refusal(&["items", "nonsense"]).contains("grant_not_available"));
    assert_eq!(
        refusal(&["reg"]).replace("reg", "X"),
        refusal(&["nonsense"]).replace("nonsense", "X"),
        "same words for both"
    );
    assert!(refusal(&["query"]).contains("floor_not_met"));
    assert_eq!(lab.prepare(&["query"]).unwrap().floor, Some(Tier::Kernel));
    lab.try_run(&["query"], Tier::Kernel, Duration::from_secs(9)).unwrap();
}

#[test]
fn budgets_end_a_grant_with_429_and_a_shed_or_refused_call_costs_nothing() {
    let policy = POLICY.replace(
        "[grant.pub]\ncallers = [\"lab\"]\nbudget = { calls = 100000, per_minute = 100000, concurrent = 64, request_bytes = \"64MiB\", response_bytes = \"64MiB\" }",
        "[grant.pub]\ncallers = [\"lab\"]\nbudget = { calls = 3, per_minute = 100000, concurrent = 64, request_bytes = \"10KiB\", response_bytes = \"10KiB\" }",
    );
    assert_ne!(policy, POLICY);
    let Some(lab) = Lab::start_with(&policy, &[]) else { return };
    let run = lab.run(&["pub"]);
    refused(&run, Way::Connect, "pub.test", bare("DELETE", "pub.test", "/x", &[]), &[403]);
    let large = "x".repeat(11 << 10);
    refused(
        &run,
        Way::Connect,
        "pub.test",
        freeboard_tests::expect::with_body("POST", "pub.test", "/x", &[], &large),
        &[413],
    );
    for _ in 0..3 {
        allowed(&run, Way::Transparent, "pub.test", get("pub.test", "/x"));
    }
    let response = refused(&run, Way::Connect, "pub.test", get("pub.test", "/x"), &[429]).unwrap();
    assert_eq!(response.reason().as_deref(), Some("budget_exhausted"));
    let other = lab.run(&["pub"]);
    allowed(&other, Way::Connect, "pub.test", get("pub.test", "/x"));
}

#[test]
fn f23_killing_sandboxd_run_at_any_moment_leaves_nothing() {
    let Some(lab) = Lab::start() else { return };
    let mark = format!("86{}", std::process::id());
    let script = format!(
        "setsid sleep {mark} & while :; do curl -s -m 1 https://api.test/v1/items/1 >/dev/null; done"
    );
    for user in [User::Own, User::Nobody] {
        for moment_ms in [5, 20, 60, 150, 400, 1000] {
            for signal in [Signal::SIGKILL, Signal::SIGTERM, Signal::SIGINT] {
                let mut child = lab
                    .sandbox_command(user, &["items"], &["--timeout", "60s"], &["/bin/sh", "-c", &script])
                    .stdout(std::process::Stdio::null())
                    .stderr(std::process::Stdio::null())
                    .spawn()
                    .unwrap();
                let begun = Instant::now();
                while begun.elapsed() < Duration::from_millis(moment_ms) {
                    std::thread::sleep(Duration::from_millis(1)); // the moment is what is varied
                }
                let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
                let _ = nix::sys::signal::kill(pid, signal);
                wait::until("sandboxd ends", || child.try_wait().unwrap());
                wait::until_true(
                    &format!("{user:?} {moment_ms} ms {signal}: no process of the run is left"),
                    || !process_with(&mark),
                );
            }
        }
    }
    let opened = |kind: &str| lab.audit.records().iter().filter(|record| record["kind"] == kind).count();
    wait::until_true("every gate is closed", || opened("gate_opened") == opened("gate_closed"));
    lab.upstream.take();
    std::thread::sleep(Duration::from_millis(300)); // an absence is looked at for a while
    assert!(lab.upstream.take().is_empty(), "something still calls");
    assert!(verifies(&lab));
}

/// Whether a process has this text in its command line.
fn process_with(text: &str) -> bool {
    std::fs::read_dir("/proc").unwrap().any(|entry| {
        let path = entry.unwrap().path().join("cmdline");
        std::fs::read(path).is_ok_and(|line| {
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            line.contains(&format!("sleep {text}")) && !line.contains("while :")
        })
    })
}

#[test]
fn killing_the_broker_while_a_program_runs_cuts_it_off() {
    let Some(mut lab) = Lab::start() else { return };
    let script = "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do curl -s -m 1 -o /dev/null -w '%{http_code}\n' https://api.test/v1/items/1; sleep 0.1; done";
    let mut child = lab
        .sandbox_command(User::Own, &["items"], &["--timeout", "60s"], &["/bin/sh", "-c", script])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    wait::until_true("the program has made a call", || !lab.upstream.requests().is_empty());
    lab.broker.kill();
    lab.upstream.take();
    wait::until("sandboxd ends the run", || child.try_wait().unwrap());
    assert!(lab.upstream.take().is_empty());
    lab.restart();
    assert!(verifies(&lab));
}

#[test]
fn an_upload_that_is_cut_is_recorded_with_what_had_passed() {
    let Some(lab) = Lab::start() else { return };
    for way in WAYS {
        for cut_by_run in [false, true] {
            let run = lab.run(&["pub"]);
            let id = run.id.clone();
            let mut wire = run.tls(way, "pub.test");
            let before = lab.upstream.bytes();
            let head = bare("POST", "pub.test", "/x", &["Content-Length: 1000000"]);
            wire.send(head).unwrap();
            for _ in 0..10 {
                wire.send([b'u'; 1000]).unwrap();
            }
            wait::until_true("the upstream has it", || lab.upstream.bytes() >= before + 10_000);
            if cut_by_run {
                run.close();
            } else {
                drop(wire);
            }
            let record = wait::until("the cut upload is recorded", || lab.audit.decisions(&id).pop());
            assert_eq!((record["verdict"].as_str(), record["path"].as_str()), (Some("failed"), Some("/x")));
            assert_eq!(record["request_bytes"], 10_000, "{record:#?}");
        }
    }
}

/// `freeboard grants revoke`.
fn revoke(lab: &Lab, of: &str, name: &str) -> std::process::Output {
    let mut command = Command::new(program("freeboard"));
    command.args(["grants", "revoke", of, name, "--by", "alice", "--config"]).arg(lab.broker.config_file());
    command.output().unwrap()
}

#[test]
fn grants_that_are_revoked_are_cut_within_a_second_and_recorded() {
    let Some(lab) = Lab::start() else { return };
    lab.upstream.take_over("pub.test", "/sse", |_, stream| {
        let head =
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
        let mut sent = stream.write_all(head);
        while sent.and_then(|()| stream.flush()).is_ok() {
            std::thread::sleep(Duration::from_millis(50));
            sent = stream.write_all(b"8\r\ndata: 1\n\r\n");
        }
    });
    let (one, other) = (lab.run(&["pub", "items"]), lab.run(&["pub", "items"]));
    for (of, name, still_pub, still_items) in [
        ("run", one.id.as_str(), false, false),
        ("grant", "pub", false, true),
        ("caller", "lab", false, false),
    ] {
        let run = if of == "run" { &one } else { &other };
        // By the last step the grant is gone: a stream is only open before.
        let stream = (of != "caller").then(|| {
            let mut wire = run.tls(Way::Transparent, "pub.test");
            wire.send(get("pub.test", "/sse")).unwrap();
            wire
        });
        wait::until_true("the stream runs", || of == "caller" || lab.upstream.bytes() > 0);
        let mut items = run.tls(Way::Transparent, "api.test");
        let before = Instant::now();
        let output = revoke(&lab, of, name);
        assert!(output.status.success(), "{output:?}");
        if let Some(mut wire) = stream {
            wire.rest();
            assert!(before.elapsed() < Duration::from_secs(2), "{of}: cut after {:?}", before.elapsed());
            let cut = wait::until("the cut stream is recorded", || {
                lab.audit.decisions(&run.id).into_iter().find(|record| record["path"] == "/sse")
            });
            assert_eq!(
                (&cut["verdict"], &cut["detail"]),
                (&"failed".into(), &"cut: a grant was revoked".into())
            );
        }
        let record = wait::until("the revocation is recorded", || {
            lab.audit.records().into_iter().find(|record| record["kind"] == "revoked" && record["of"] == of)
        });
        assert_eq!((&record["name"], &record["by"]), (&name.into(), &"alice".into()));
        let asked = items.ask(get("api.test", "/v1/items/1"));
        assert_eq!(asked.status() == Some(200), still_items, "{of}: {asked:?}");
        assert_eq!(run.resolve("pub.test").is_some(), still_pub, "{of}");
        let refused = |grants: &[&str]| lab.prepare(grants).err().map(|error| error.to_string());
        match of {
            "run" => assert_eq!(refused(&["pub"]), None, "other runs have it"),
            "grant" => assert!(refused(&["pub", "items"]).unwrap().contains("grant_revoked")),
            _ => assert!(refused(&["items"]).unwrap().contains("grant_revoked")),
        }
    }
    for (of, name) in [("run", "0123456789abcdef0123456789abcdef"), ("grant", "nonsense")] {
        let output = revoke(&lab, of, name);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
    }
    assert!(verifies(&lab));
}

/// Two runs, and an API that says what it is told to.
#[test]
fn an_api_that_is_overloaded_is_left_alone_by_all_runs_and_that_costs_no_budget() {
    let policy = POLICY.replace("[api.pub]\n", "[api.pub]\nhealth_check = \"GET /health\"\n").replace(
        "[grant.pub]\ncallers = [\"lab\"]\nbudget = { calls = 100000,",
        "[grant.pub]\ncallers = [\"lab\"]\nbudget = { calls = 3,",
    );
    assert!(policy.contains("health_check") && policy.contains("calls = 3,"));
    let Some(lab) = Lab::start_with(&policy, &[]) else { return };
    lab.upstream.on("pub.test", "/429", |_| Answer::new(429, &["Retry-After: 2"], "slow down"));
    lab.upstream.on("pub.test", "/503", |_| Answer::new(503, &["Retry-After: 1"], "down"));
    lab.upstream.on("pub.test", "/health", |_| Answer::new(500, &[], "not yet"));
    let (one, other) = (lab.run(&["pub"]), lab.run(&["pub"]));
    let ask = |run: &freeboard_tests::lab::Run<'_>, path: &str| {
        let response = run.tls(Way::Transparent, "pub.test").ask(get("pub.test", path)).answer();
        (response.status, response.reason())
    };
    let shed = (503, Some("shed".to_owned()));
    let paths = || lab.upstream.take().into_iter().map(|asked| asked.target).collect::<Vec<_>>();

    assert_eq!(ask(&one, "/429").0, 429);
    paths();
    for _ in 0..5 {
        assert_eq!(ask(&other, "/x"), shed, "more than its calls");
    }
    assert!(paths().is_empty(), "neither the request nor the health route was sent");
    let record = other.decisions(5).pop().unwrap();
    assert_eq!((&record["verdict"], &record["reason"]), (&"shed".into(), &"shed".into()));
    wait::until_true("the time is waited out", || ask(&other, "/x").0 == 200);
    assert_eq!(paths(), ["/x"]);

    assert_eq!(ask(&one, "/503").0, 503);
    wait::until_true("the health route is asked", || {
        assert_eq!(ask(&other, "/x"), shed);
        paths().iter().any(|path| path == "/health")
    });
    lab.upstream.on("pub.test", "/health", |asked| {
        assert_eq!(asked.field("authorization"), None);
        Answer::new(204, &[], "")
    });
    wait::until_true("it works again", || ask(&other, "/x").0 == 200);
    assert_eq!(paths().iter().filter(|path| *path == "/x").count(), 1);
    let trace = other.close();
    assert_eq!((trace.allowed, trace.denied), (2, 0));
    assert!(trace.shed >= 7, "{trace:?}");
    let findings = lab.audit.records().into_iter().filter(|record| record["code"] == "breaker_open");
    assert_eq!(findings.count(), 2);
}
