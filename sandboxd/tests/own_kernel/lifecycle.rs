//! Ends: at the deadline, by cancellation, with the daemon. Nothing of a run is alive afterwards.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use freeboard_sandboxd::job::{Ending, NoSink, Payload};

use crate::sessions::output;
use crate::support::*;

#[test]
fn f20_f24_nothing_survives_the_deadline() {
    with_provider(Allowance::default(), async |provider| {
        let script =
            "trap '' TERM INT HUP; setsid sh -c 'sleep 300' & (setsid sleep 300 &) & wait; sleep 300";
        let mut job = shell(script);
        job.timeout = Duration::from_secs(2);
        let run_id = job.run.clone();
        let (sandbox, _) = measured(provider, job).await.unwrap();
        assert!(runtime_processes(&run_id) > 0, "positive control: the runtime is there");
        let began = Instant::now();
        let outcome = sandbox.release(Arc::new(NoSink)).await.unwrap();
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        assert_eq!((outcome.ending, outcome.steps[0].exit_code), (Ending::TimedOut, 124));
        assert_eq!(runtime_processes(&run_id), 0);
    });
}

#[test]
fn f20_a_background_process_does_not_keep_the_run_alive() {
    with_provider(Allowance::default(), async |provider| {
        let job = shell("setsid sleep 300 >/dev/null 2>&1 & echo done");
        let run_id = job.run.clone();
        let outcome = run(provider, job).await.unwrap();
        assert_eq!(first(&outcome).1, "done\n");
        assert_eq!(runtime_processes(&run_id), 0);
    });
}

#[test]
fn a_cancelled_run_is_gone() {
    with_provider(Allowance::default(), async |provider| {
        let job = shell("sleep 300");
        let run_id = job.run.clone();
        let (sandbox, _) = measured(provider, job).await.unwrap();
        let cancelled =
            tokio::time::timeout(Duration::from_millis(400), sandbox.release(Arc::new(NoSink))).await;
        assert!(cancelled.is_err());
        wait_until("the cancelled run is gone", || runtime_processes(&run_id) == 0);
    });
}

#[test]
fn f23_f25_a_run_dies_with_its_daemon_whatever_kills_it() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    for signal in ["KILL", "TERM"] {
        let empty = tempfile::NamedTempFile::new().unwrap();
        let mut daemon = Command::new(env!("CARGO_BIN_EXE_sandboxd"))
            .args(["run", "--provider", NAME, "--json", "--timeout", "100s", "--config"])
            .arg(empty.path())
            .args(["--", "sleep", "300"])
            .env_remove("SANDBOX_PROVIDER")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let pid = daemon.id();
        wait_until("the run has begun", || descendants(pid).iter().any(|line| line.contains(ENGINE)));
        let alive: Vec<i32> = pids(pid);
        Command::new("kill").args([&format!("-{signal}"), &pid.to_string()]).status().unwrap();
        wait_until(&format!("nothing is left after SIG{signal}"), || alive.iter().all(|pid| !is_ours(*pid)));
        daemon.wait().unwrap();
    }
}

fn pids(of: u32) -> Vec<i32> {
    let found =
        freeboard_sandboxd::evidence::process::Process::descendants(of.cast_signed()).unwrap_or_default();
    found.iter().map(freeboard_sandboxd::evidence::process::Process::id).collect()
}

fn descendants(of: u32) -> Vec<String> {
    let found =
        freeboard_sandboxd::evidence::process::Process::descendants(of.cast_signed()).unwrap_or_default();
    found.iter().filter_map(|process| process.first_argument().ok()).collect()
}

/// Whether a process with this number is one of the runtime or its launcher; zombies are not.
fn is_ours(pid: i32) -> bool {
    let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.contains(ENGINE) || line.contains("sandboxd")
}

#[test]
fn the_end_of_a_session_leaves_nothing() {
    with_provider(Allowance::default(), async |provider| {
        let job = job(Payload::Session);
        let run_id = job.run.clone();
        let (sandbox, _) = measured(provider, job).await.unwrap();
        let mut session = sandbox.into_session().await.unwrap();
        assert_eq!(output(session.as_mut(), shell("echo one")).await, "one\n");
        assert!(runtime_processes(&run_id) > 0, "positive control");
        session.end().await;
        assert_eq!(runtime_processes(&run_id), 0);
    });
}

/// Processes of the runtime on this host that carry the id of a run in their command line.
fn runtime_processes(run: &str) -> usize {
    std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok())
        .map(|line| String::from_utf8_lossy(&line).into_owned())
        .filter(|line| line.contains(ENGINE) && line.contains(run))
        .count()
}
