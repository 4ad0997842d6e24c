//! What works: languages, files, exit codes.

use std::sync::Arc;
use std::time::Duration;

use freeboard_sandboxd::input::Input;
use freeboard_sandboxd::job::{Ending, Job, JobFile, Payload};
use freeboard_wire::runs::Stdin;

use crate::support::*;

#[test]
fn shell_python_javascript_and_commands_run() {
    with_provider(Allowance::default(), async |provider| {
        let outcome = run(provider, shell("echo $((6*7)); echo oops >&2; exit 3")).await.unwrap();
        assert_eq!(first(&outcome), (3, "42\n".into(), "oops\n".into()));
        let outcome = run(provider, python("print(6*7)")).await.unwrap();
        assert_eq!(first(&outcome), (0, "42\n".into(), String::new()));
        let command = job(Payload::Command { argv: vec!["uname".into(), "-s".into()] });
        assert_eq!(first(&run(provider, command).await.unwrap()).1, "Linux\n");
        let unknown = job(Payload::Command { argv: vec!["no-such-command".into()] });
        assert_eq!(first(&run(provider, unknown).await.unwrap()).0, 127);
        if provider.describe().supports_javascript {
            let script = job(Payload::JavaScript { code: "console.log(6*7)".into() });
            let outcome = run(provider, script).await.unwrap();
            assert_eq!(first(&outcome), (0, "42\n".into(), String::new()));
        }
    });
}

#[test]
fn files_go_in_and_artifacts_come_out_and_no_link_is_followed() {
    with_provider(Allowance::default(), async |provider| {
        let mut job = shell(
            "set -e; test \"$(cat in/a.txt)\" = content; ./in/run.sh > out.txt; rm in/a.txt; \
             ln -s /etc/passwd link; mkdir -p d; ln -s /etc d/e; test $(id -u) != 0 && echo user >> out.txt",
        );
        job.files = vec![
            JobFile { path: "in/a.txt".into(), content: b"content".to_vec() },
            JobFile { path: "in/run.sh".into(), content: b"#!/bin/sh\necho ran\n".to_vec() },
        ];
        job.artifacts = ["out.txt", "link", "d/e/passwd", "missing"].map(String::from).to_vec();
        let outcome = run(provider, job).await.unwrap();
        assert_eq!(outcome.ending, Ending::Completed, "{outcome:?}");
        assert_eq!(first(&outcome).0, 0, "{outcome:?}");
        let artifacts = vec![JobFile { path: "out.txt".into(), content: b"ran\nuser\n".to_vec() }];
        assert_eq!(outcome.artifacts, artifacts);
    });
}

#[test]
fn the_smoke_test_passes_here() {
    with_provider(Allowance::default(), async |provider| provider.smoke_test().await.unwrap());
}

#[test]
fn standard_input_arrives_whole_while_the_program_runs() {
    with_provider(Allowance::default(), async |provider| {
        let stdin = Stdin { data: vec![b'x'; 300_000], open: true };
        let input = Arc::new(Input::of(stdin));
        let job = Job { input: Some(Arc::clone(&input)), ..shell("echo begun; wc -c") };
        let more = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            input.put(300_000, b"end", true).unwrap();
        };
        let (outcome, ()) = tokio::join!(run(provider, job), more);
        assert_eq!(first(&outcome.unwrap()).1.replace(' ', ""), "begun\n300003\n");
    });
}
