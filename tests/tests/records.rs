//! What the broker wrote, read again by `freeboard policy replay` and `learn`: rotated files, runs that named several grants,
//! values that were replaced.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failing test panics")]

use std::path::Path;
use std::process::{Command, Output};

use freeboard_tests::broker::program;
use freeboard_tests::expect::{allowed_on, get, refused, with_body};
use freeboard_tests::lab::{CALLER, Lab, POLICY, Way};
use freeboard_tests::wait;

/// Requests of one kind: more than fit into one file of the log.
const READS: usize = 220;

fn policy(arguments: &[&str]) -> Output {
    Command::new(program("freeboard")).arg("policy").args(arguments).output().unwrap()
}

fn shown(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A log of several files that a broker wrote while a run did this and that.
fn recorded() -> Option<Lab> {
    let lab = Lab::start_with_small_files()?;
    let run = lab.run(&["items", "query"]);
    let mut wire = run.tls(Way::Transparent, "api.test");
    for number in 0..READS {
        let response = wire.ask(get("api.test", &format!("/v1/items/{number}"))).answer();
        assert_eq!(response.status, 200);
    }
    run.decisions(READS);
    allowed_on(&run, &mut wire, with_body("POST", "api.test", "/v1/items", &[], "x"));
    refused(&run, Way::Connect, "api.test", get("api.test", "/v1/search?scope=write&token=hunter2"), &[403]);
    refused(
        &run,
        Way::Transparent,
        "api.test",
        "DELETE /v1/items/1 HTTP/1.1\r\nHost: api.test\r\n\r\n",
        &[403],
    );
    let id = run.id.clone();
    run.close();
    wait::until_true("the end of the run is in the log", || {
        let closed =
            |record: &serde_json::Value| record["kind"] == "gate_closed" && record["run"] == id.as_str();
        lab.audit.records().iter().any(closed)
    });
    assert!(lab.audit.files().len() > 1, "{:?}", lab.audit.files());
    Some(lab)
}

fn replay(lab: &Lab, policy_file: &Path, more: &[&str]) -> Output {
    let log = lab.broker.audit_folder();
    let words = ["replay", log.to_str().unwrap(), "--policy", policy_file.to_str().unwrap()];
    policy(&[&words, more].concat())
}

#[test]
fn a_log_is_replayed_and_learnt_from() {
    let Some(lab) = recorded() else { return };
    let own = tempfile::tempdir().unwrap();
    let file = own.path().join("policy.toml");

    // The policy of the log: nothing changes.
    let of_the_log = POLICY.replace("FOLDER", "/lab");
    std::fs::write(&file, &of_the_log).unwrap();
    let same = replay(&lab, &file, &[]);
    let requests = READS + 3;
    let all = format!("{requests} requests: {requests} as before, 0 now refused");
    assert!(same.status.success() && shown(&same).contains(&all), "{}", shown(&same));

    // A narrower one: POST is gone, single items need a yes.
    let reads = "\"GET /v1/items/*\", \"POST /v1/items\", ";
    let narrow = of_the_log.replacen(reads, "", 1);
    assert_ne!(narrow, of_the_log);
    let asked =
        "\n[[grant.items.allow]]\napi = \"api\"\nroutes = [\"GET /v1/items/{int}\"]\napprove = \"human\"\n";
    std::fs::write(&file, format!("{narrow}{asked}")).unwrap();
    let narrower = replay(&lab, &file, &[]);
    let text = shown(&narrower);
    assert_eq!(narrower.status.code(), Some(1), "{text}");
    for wanted in [
        format!("1 x {CALLER} POST https://api.test/v1/items (no_rule) in 1 run"),
        format!(
            "{READS} x {CALLER} GET https://api.test/v1/items/{{int}} by items.allow[1].routes[0] in 1 run"
        ),
        format!("{requests} requests: 2 as before, 1 now refused, {READS} need approval, 0 now allowed"),
    ] {
        assert!(text.contains(&wanted), "{wanted}:\n{text}");
    }

    // What is learnt passes the check and allows what was allowed; the refused requests stay refused.
    let log = lab.broker.audit_folder();
    let learnt = policy(&["learn", log.to_str().unwrap(), "--caller", CALLER]);
    assert!(learnt.status.success(), "{}", shown(&learnt));
    std::fs::write(&file, &learnt.stdout).unwrap();
    let checked = policy(&["check", "--deny-warnings", file.to_str().unwrap()]);
    assert!(checked.status.success(), "{}", shown(&checked));
    let again = replay(&lab, &file, &["--grant", "learnt"]);
    assert!(again.status.success() && shown(&again).contains(&all), "{}\n{}", shown(&again), shown(&learnt));
    assert!(shown(&learnt).contains("\"GET  /v1/items/{int}\""), "{}", shown(&learnt));

    // With the refusals, they are allowed too: the file says which they were.
    let log = lab.broker.audit_folder();
    let wide = policy(&["learn", log.to_str().unwrap(), "--caller", CALLER, "--include-refused"]);
    assert!(shown(&wide).contains("1 refused") && !shown(&wide).contains("hunter2"), "{}", shown(&wide));
    std::fs::write(&file, &wide.stdout).unwrap();
    let now = replay(&lab, &file, &["--grant", "learnt"]);
    assert!(
        now.status.success() && shown(&now).contains("2 now allowed"),
        "{}\n{}",
        shown(&now),
        shown(&wide)
    );

    // Beside the policy of today its API, with trust and credential, is used.
    std::fs::write(&file, &of_the_log).unwrap();
    let beside =
        policy(&["learn", log.to_str().unwrap(), "--caller", CALLER, "--policy", file.to_str().unwrap()]);
    assert!(beside.status.success() && !shown(&beside).contains("[api."), "{}", shown(&beside));
    std::fs::write(own.path().join("learnt.toml"), &beside.stdout).unwrap();
    let together = policy(&["check", own.path().to_str().unwrap()]);
    assert!(together.status.success(), "{}", shown(&together));
}
