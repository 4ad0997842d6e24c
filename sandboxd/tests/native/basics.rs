//! Running something at all.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use freeboard_sandboxd::job::{Ending, JobFile, NoSink, OutputSink, Payload};
use freeboard_sandboxd::provider::native::NativeConfig;
use freeboard_sandboxd::provider::{CreateError, Plan, Provider};

use crate::support::*;

#[test]
fn runs_a_command_in_namespaces_of_its_own_and_measures_them() {
    with_provider(NativeConfig::default(), async |provider| {
        let (sandbox, evidence) = measured(&provider, shell("echo hello")).await.unwrap();
        assert!(evidence.facts.iter().all(|fact| fact.met), "{evidence:#?}");
        for name in ["namespace_user", "seccomp_mode", "capabilities_bounding", "network_links", "limits"] {
            assert!(evidence.facts.iter().any(|fact| fact.name == name), "{name}");
        }
        let outcome = sandbox.release(Arc::new(NoSink)).await.unwrap();
        assert_eq!(first(&outcome), (0, "hello\n".into(), String::new()));
        assert_eq!(outcome.ending, Ending::Completed);
    });
}

#[test]
fn nothing_runs_before_release() {
    with_provider(NativeConfig::default(), async |provider| {
        let mark = format!("sleep 86{}", std::process::id());
        let (sandbox, _) = measured(&provider, shell(&mark)).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(!is_running(&mark), "code ran before it was released");
        drop(sandbox);
    });
}

#[test]
fn steps_run_in_order_and_stop_after_the_first_that_fails() {
    with_provider(NativeConfig::default(), async |provider| {
        let steps = ["echo one > a", "cat a; exit 3", "echo never"].map(String::from).to_vec();
        let outcome = run(&provider, job(Payload::Steps { steps })).await.unwrap();
        let codes: Vec<i32> = outcome.steps.iter().map(|step| step.exit_code).collect();
        assert_eq!(codes, [0, 3]);
        assert_eq!(outcome.steps[1].stdout, b"one\n");
        assert_eq!(outcome.steps[1].command, "cat a; exit 3");
        assert_eq!(outcome.ending, Ending::Completed);
    });
}

#[test]
fn a_command_has_its_own_exit_code_and_signals_are_128_more() {
    let command = |argv: &[&str]| {
        once(job(Payload::Command { argv: argv.iter().map(|word| (*word).to_owned()).collect() })).0
    };
    assert_eq!(command(&["true"]), 0);
    assert_eq!(command(&["false"]), 1);
    assert_eq!(command(&["sh", "-c", "kill -SEGV $$"]), 139);
    assert_eq!(command(&["no-such-command"]), 127);
    assert_eq!(command(&["/etc/passwd"]), 126);
}

#[test]
fn javascript_runs_where_node_is_among_the_tools() {
    with_provider(NativeConfig::default(), async |provider| {
        let code = "console.log(6 * 7); console.error('e'); process.exitCode = 5".to_owned();
        let plan = Plan { job: job(Payload::JavaScript { code }), prepared: None };
        if !provider.describe().supports_javascript {
            assert!(matches!(provider.create(&plan).await, Err(CreateError::Unsupported { .. })));
            return;
        }
        let outcome = run(&provider, plan.job).await.unwrap();
        assert_eq!(first(&outcome), (5, "42\n".into(), "e\n".into()));
    });
}

#[test]
fn modules_with_top_level_await_run_too() {
    with_provider(NativeConfig::default(), async |provider| {
        if !provider.describe().supports_javascript {
            return;
        }
        let code = "import os from 'node:os'; console.log(await Promise.resolve(os.hostname()))".to_owned();
        let outcome = run(&provider, job(Payload::JavaScript { code })).await.unwrap();
        assert_eq!(first(&outcome).1, "sandbox\n", "{outcome:?}");
    });
}

#[test]
fn a_root_folder_can_stand_for_the_hosts_tools() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(root.path().join("bin")).unwrap();
    let busybox =
        ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|path| std::path::Path::new(path).exists());
    let Some(busybox) = busybox else {
        // Without a static program: the host's shell and its libraries, copied.
        copy_program("/bin/sh", root.path());
        return run_in_root(root.path());
    };
    std::fs::copy(busybox, root.path().join("bin/sh")).unwrap();
    run_in_root(root.path());
}

fn run_in_root(root: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(root, std::fs::Permissions::from_mode(0o755)).unwrap();
    let config = NativeConfig { root: Some(root.to_owned()), ..NativeConfig::default() };
    with_provider(config, async |provider| {
        let outcome = run(&provider, shell("echo from the root; test -e /usr || echo no usr")).await.unwrap();
        assert_eq!(first(&outcome), (0, "from the root\nno usr\n".into(), String::new()));
    });
}

/// A program and the libraries that the dynamic linker names, at their own places below `root`.
fn copy_program(program: &str, root: &std::path::Path) {
    let listed = std::process::Command::new("ldd").arg(program).output().unwrap();
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let libraries = listed.split_whitespace().filter(|word| word.starts_with('/'));
    for file in libraries.chain([program]) {
        let place = root.join(file.trim_start_matches('/'));
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        std::fs::copy(file, place).unwrap();
    }
}

#[derive(Debug, Default)]
struct Everything(Mutex<usize>);

impl OutputSink for Everything {
    fn stdout(&self, bytes: &[u8]) {
        *self.0.lock().unwrap() += bytes.len();
    }
    fn stderr(&self, _bytes: &[u8]) {}
    fn wants_all(&self) -> bool {
        true
    }
}

#[test]
fn a_sink_that_wants_all_gets_all_while_the_result_keeps_its_limit() {
    with_provider(NativeConfig::default(), async |provider| {
        let (sandbox, _) = measured(&provider, shell("head -c 3000000 /dev/zero")).await.unwrap();
        let sink = Arc::new(Everything::default());
        let outcome = sandbox.release(Arc::clone(&sink) as Arc<dyn OutputSink>).await.unwrap();
        assert_eq!(*sink.0.lock().unwrap(), 3_000_000);
        let step = &outcome.steps[0];
        assert_eq!((step.stdout.len(), step.stdout_truncated), (64 << 10, true));
    });
}

#[test]
fn files_come_in_and_artifacts_go_out() {
    with_provider(NativeConfig::default(), async |provider| {
        let mut job = shell("cat in/a.txt; ./run.sh; mkdir -p out; printf '\\000\\377' > out/raw; exit 4");
        job.files = vec![
            JobFile { path: "in/a.txt".into(), content: b"a\n".to_vec() },
            JobFile { path: "run.sh".into(), content: b"#!/bin/sh\necho ran\n".to_vec() },
        ];
        job.artifacts = vec!["out/raw".into(), "out/missing".into()];
        let outcome = run(&provider, job).await.unwrap();
        assert_eq!(first(&outcome), (4, "a\nran\n".into(), String::new()), "also after a failed step");
        assert_eq!(outcome.artifacts, [JobFile { path: "out/raw".into(), content: vec![0, 255] }]);
        assert!(!outcome.artifacts_truncated);
    });
}

#[test]
fn many_runs_at_once_do_not_see_each_other() {
    with_provider(NativeConfig::default(), async |provider| {
        let runs = (0..8).map(|number| {
            run(
                &provider,
                shell(&format!("echo {number} > mine; sleep 0.1; ls; cat mine; ls /proc | grep -c '^[0-9]'")),
            )
        });
        for (number, outcome) in futures_util::future::join_all(runs).await.into_iter().enumerate() {
            let (code, text, _) = first(&outcome.unwrap());
            assert_eq!(code, 0);
            assert!(text.starts_with(&format!("mine\n{number}\n")), "{text}");
            let processes: u32 = text.lines().last().unwrap().parse().unwrap();
            assert!(processes < 8, "{text}");
        }
    });
}
