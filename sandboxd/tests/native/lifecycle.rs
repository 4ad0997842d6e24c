//! Ends: at the deadline, by cancellation, with the daemon. Nothing of a run is alive afterwards, nothing is left.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use freeboard_sandboxd::job::{Ending, NoSink, Payload};
use freeboard_sandboxd::provider::native::NativeConfig;

use crate::support::*;

/// A `sleep` that no other test has.
fn mark(number: u32) -> String {
    format!("sleep {number}{}", std::process::id())
}

#[test]
fn f20_nothing_survives_the_deadline() {
    with_provider(NativeConfig::default(), async |provider| {
        let mark = mark(71);
        let script = format!(
            "setsid sh -c '{mark}' & (setsid {mark} &) & nohup {mark} & python3 -c \"import os,time\nif os.fork()==0:\n os.setsid()\n if os.fork()==0: os.execvp('sleep',['sleep','{}'])\n\"; wait; sleep 60",
            &mark[6..]
        );
        let mut job = shell(&script);
        job.timeout = Duration::from_millis(800);
        let began = Instant::now();
        let outcome = run(&provider, job).await.unwrap();
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
        assert_eq!((outcome.ending, outcome.steps[0].exit_code), (Ending::TimedOut, 124));
        assert!(outcome.steps[0].timed_out);
        assert!(!is_running(&mark), "a survivor");
    });
}

#[test]
fn f20_nothing_survives_an_ordinary_end_either() {
    with_provider(NativeConfig::default(), async |provider| {
        let mark = mark(72);
        let outcome =
            run(&provider, shell(&format!("setsid {mark} >/dev/null 2>&1 & echo done"))).await.unwrap();
        assert_eq!(first(&outcome).1, "done\n");
        assert!(!is_running(&mark));
    });
}

#[test]
fn f24_ignored_signals_and_stopped_processes_end_all_the_same() {
    with_provider(NativeConfig::default(), async |provider| {
        let mark = mark(73);
        let script = format!("trap '' TERM INT HUP QUIT; {mark} & kill -STOP $!; while :; do sleep 1; done");
        let mut job = shell(&script);
        job.timeout = Duration::from_millis(500);
        let outcome = run(&provider, job).await.unwrap();
        assert_eq!(outcome.ending, Ending::TimedOut);
        assert!(!is_running(&mark));
    });
}

#[test]
fn a_cancelled_run_is_gone() {
    with_provider(NativeConfig::default(), async |provider| {
        let mark = mark(74);
        let (sandbox, _) = measured(&provider, shell(&mark)).await.unwrap();
        let release = sandbox.release(Arc::new(NoSink));
        let cancelled = tokio::time::timeout(Duration::from_millis(400), release).await;
        assert!(cancelled.is_err());
        wait_until("the cancelled run is gone", || !is_running(&mark));
    });
}

#[test]
fn f23_f25_a_run_dies_with_its_daemon_whatever_kills_it() {
    for (number, signal) in [(81, "KILL"), (82, "TERM"), (83, "INT"), (84, "HUP")] {
        let mark = mark(number);
        let mut daemon = sandboxd(&["sh", "-c", &format!("setsid {mark} & {mark}")]);
        wait_until("the run has begun", || is_running(&mark));
        let pid = daemon.id().to_string();
        Command::new("kill").args([&format!("-{signal}"), &pid]).status().unwrap();
        wait_until(&format!("nothing is left after SIG{signal}"), || !is_running(&mark));
        let _ = daemon.kill();
        daemon.wait().unwrap();
        wait_until("no group is left", || groups_left(&pid).is_empty());
    }
}

#[test]
fn f23_twenty_runs_die_with_their_daemons() {
    let mark = mark(85);
    let mut daemons: Vec<_> = (0..20).map(|_| sandboxd(&["sh", "-c", &mark])).collect();
    wait_until("all run", || count_running(&mark) >= 20);
    for daemon in &mut daemons {
        daemon.kill().unwrap();
    }
    wait_until("nothing is left", || !is_running(&mark));
    for daemon in &mut daemons {
        daemon.wait().unwrap();
    }
}

#[test]
fn f37_without_user_namespaces_nothing_runs_and_the_help_says_why() {
    // In a user namespace of its own whose limit of further ones is zero: what a host that forbids them looks like.
    let daemon = sandboxd_command(&["echo", "ran"]);
    let words: Vec<_> = std::iter::once(daemon.get_program()).chain(daemon.get_args()).collect();
    let output = Command::new("unshare")
        .args(["-Ur", "sh", "-c", "echo 0 > /proc/sys/user/max_user_namespaces; exec \"$@\"", "sh"])
        .args(words)
        .output()
        .unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!((output.status.code(), stdout.as_ref()), (Some(125), ""), "{stderr}");
    assert!(stderr.contains("namespaces"), "{stderr}");
}

#[test]
fn the_smoke_test_passes_here() {
    use freeboard_sandboxd::provider::Provider;
    with_provider(NativeConfig::default(), async |provider| provider.smoke_test().await.unwrap());
}

/// `sandboxd run` of this build, with a configuration of its own.
fn sandboxd(command: &[&str]) -> std::process::Child {
    let mut daemon = sandboxd_command(command);
    daemon.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn sandboxd_command(command: &[&str]) -> Command {
    let empty = std::env::temp_dir().join(format!("freeboard-empty-{}.toml", std::process::id()));
    std::fs::write(&empty, "").unwrap();
    let program =
        std::env::var_os("FREEBOARD_SANDBOXD").unwrap_or_else(|| env!("CARGO_BIN_EXE_sandboxd").into());
    let mut daemon = Command::new(program);
    daemon
        .args(["run", "--provider", "native", "--timeout", "60s", "--config"])
        .arg(&empty)
        .arg("--")
        .args(command)
        .env_remove("SANDBOX_PROVIDER");
    daemon
}

/// Folders of control groups that a daemon's launcher left. The launcher is the daemon's child; its name is in them.
fn groups_left(_daemon: &str) -> Vec<std::path::PathBuf> {
    let mut left = Vec::new();
    for folder in group_folders() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let owner = name.strip_prefix("run-").and_then(|rest| rest.split_once('-'));
            if owner.is_some_and(|(pid, _)| !std::path::Path::new("/proc").join(pid).exists()) {
                left.push(entry.path());
            }
        }
    }
    left
}

#[test]
fn no_group_is_left_after_an_ordinary_end() {
    with_provider(NativeConfig::default(), async |provider| {
        let job = shell("true");
        let name = job.run.clone();
        run(&provider, job).await.unwrap();
        for folder in group_folders() {
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                assert!(!entry.file_name().to_string_lossy().contains(&name));
            }
        }
    });
}

/// What `sandboxd run` uses: the first process is made ahead, and the launcher ends with its run.
#[test]
fn a_launcher_for_one_run_makes_the_same_boundary_and_leaves_nothing() {
    use freeboard_sandboxd::child::launcher::Launcher;
    use freeboard_sandboxd::isolate::Limits;
    use freeboard_sandboxd::provider::native::NativeProvider;
    let config = NativeConfig::default();
    let right = config.allowance.limits();
    let wrong = Limits { pids: right.pids + 1, ..right };
    // With other limits than those of the run, the process that was made ahead is not used.
    for (limits, ahead) in [(right, true), (wrong, false)] {
        let launcher = Launcher::start_for_one_run_in_test(limits).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let run_id = runtime.block_on(async {
            let provider = NativeProvider::new(config.clone(), launcher).unwrap();
            let job = shell("echo $$; cat /proc/sys/kernel/hostname; id -u");
            let run_id = job.run.clone();
            let ran = run_with_evidence(&provider, job).await;
            assert!(ran.0.facts.iter().all(|fact| fact.met), "{:?}", ran.0.facts);
            assert_eq!(first(&ran.1).1, "2\nsandbox\n1000\n", "ahead: {ahead}");
            run_id
        });
        for folder in group_folders() {
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                assert!(!entry.file_name().to_string_lossy().contains(&run_id));
            }
        }
        wait_until("no group is left", || groups_left("").is_empty());
    }
}

#[test]
fn f09_a_run_has_no_real_time_policy_from_its_daemon() {
    let daemon = sandboxd_command(&["sh", "-c", "grep -w policy /proc/self/sched; sleep 0"]);
    let words: Vec<_> = std::iter::once(daemon.get_program()).chain(daemon.get_args()).collect();
    let output = Command::new("chrt").args(["-r", "1"]).args(words).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    if stderr.contains("failed to set pid") {
        eprintln!("SKIPPED: this user may not have a real-time policy: {stderr}");
        return;
    }
    let policy: String = String::from_utf8_lossy(&output.stdout).split(':').skip(1).collect();
    assert_eq!((output.status.code(), policy.trim()), (Some(0), "0"), "{stderr}");
}

#[test]
fn d30_the_fence_stands_before_the_first_instruction() {
    // The built-in of bash, so that the first connection is tried as early as a program can.
    let script = "for a in 1.1.1.1/443 169.254.169.254/80 127.0.0.1/22; do \
                  (exec 3<>/dev/tcp/$a) 2>/dev/null && echo connected $a; done; echo tried";
    with_provider(NativeConfig::default(), async |provider| {
        for _ in 0..200 {
            let argv = ["bash", "-c", script].map(String::from).to_vec();
            assert_eq!(first(&run(&provider, job(Payload::Command { argv })).await.unwrap()).1, "tried\n");
        }
    });
}
