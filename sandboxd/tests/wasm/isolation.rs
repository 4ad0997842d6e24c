//! What a worker is, measured from outside, and that nothing of a run reaches another.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use freeboard_sandboxd::job::NoSink;
use freeboard_sandboxd::provider::{Provider as _, RunFailure};

use crate::harness::{fact, plan, provider, run, run_plan, wait_until};

/// A field of /proc/PID/status as it is now.
fn status(pid: &str, field: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    text.lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))
        .unwrap_or_default()
        .trim()
        .to_owned()
}

fn is_gone(pid: &str) -> bool {
    !Path::new(&format!("/proc/{pid}")).exists() || status(pid, "State").starts_with('Z')
}

#[tokio::test]
async fn f35_the_evidence_is_what_the_kernel_says_of_the_live_worker() {
    let ran = run("1").await;
    for (name, value) in [
        ("seccomp_mode", "2"),
        ("no_new_privs", "1"),
        ("capeff", "0000000000000000"),
        ("threads", "2"),
        ("program", "sandboxd"),
        ("files", "denied"),
        ("network", "denied"),
        ("rlimit_core", "0"),
        ("engine_sha256", freeboard_sandboxd::provider::wasm::ENGINE_SHA256),
    ] {
        assert_eq!(ran.fact(name), value, "{name}");
    }
    // Read again by the test itself, on a worker between its measurement and its end.
    let provider = provider();
    let mut sandbox = provider.create(&plan("1")).await.unwrap();
    let pid = fact(&sandbox.measure().await.unwrap(), "pid");
    assert_eq!(
        (status(&pid, "Seccomp"), status(&pid, "NoNewPrivs"), status(&pid, "CapEff")),
        ("2".into(), "1".into(), "0000000000000000".into())
    );
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    assert!(descriptors <= 6, "{descriptors} descriptors");
}

#[tokio::test]
async fn f33_nothing_of_a_run_is_there_in_the_next_run_of_the_same_worker() {
    let provider = provider();
    let dirty = "
        globalThis.planted = 'secret'; Array.prototype.evil = 1; Object.prototype.evil = 2; Math.random = () => 4;
        console.log = () => {}; const keep = []; for (let i = 0; i < 2000; i++) keep.push('PLANTED-MARK-' + i);
        globalThis.big = new Uint8Array(16 << 20).fill(0xAB); setInterval(() => {}, 1); fetch = null; JSON.parse = null;
        throw new Error('ends badly')";
    let clean = "
        console.log(typeof planted, [].evil, ({}).evil, Math.random() === 4, typeof fetch, typeof JSON.parse);
        const fresh = new Uint8Array(24 << 20); console.log(fresh.some(x => x !== 0))";
    let mut pids = Vec::new();
    for _ in 0..5 {
        let first = run_plan(&provider, plan(dirty)).await;
        assert_eq!(first.step().exit_code, 1);
        let second = run_plan(&provider, plan(clean)).await;
        assert_eq!(second.stdout(), "undefined undefined undefined false function function\nfalse\n");
        pids.extend([first.fact("pid"), second.fact("pid")]);
    }
    pids.dedup();
    assert_eq!(pids.len(), 1, "the same worker all the time, or this shows nothing: {pids:?}");
}

#[tokio::test]
async fn f41_runs_from_one_snapshot_draw_different_numbers() {
    let provider = provider();
    let code = "console.log(Math.random(), crypto.randomUUID(), [...crypto.getRandomValues(new Uint8Array(8))].join())";
    let mut seen = std::collections::HashSet::new();
    for _ in 0..20 {
        let out = run_plan(&provider, plan(code)).await.stdout();
        for word in out.split_whitespace() {
            assert!(seen.insert(word.to_owned()), "{word} twice");
        }
    }
    assert_eq!(seen.len(), 60);
}

#[tokio::test]
async fn callers_never_share_a_worker() {
    let provider = provider();
    let mut pids = Vec::new();
    for caller in [Some("a"), Some("b"), None, Some("a"), Some("b"), None] {
        let mut plan = plan("1");
        plan.job.caller = caller.map(str::to_owned);
        pids.push(run_plan(&provider, plan).await.fact("pid"));
    }
    assert_eq!(pids[..3], pids[3..], "each caller's second run is on its own first worker");
    assert!(pids[0] != pids[1] && pids[1] != pids[2] && pids[0] != pids[2]);
}

#[tokio::test]
async fn runs_at_once_have_a_worker_each() {
    let provider = provider();
    let code = "await new Promise(r => setTimeout(r, 150)); console.log('done')";
    let begun = std::time::Instant::now();
    let plans: Vec<_> = (0..4).map(|_| plan(code)).collect();
    let all = futures_util::future::join_all(plans.into_iter().map(|plan| run_plan(&provider, plan))).await;
    let mut pids: Vec<_> = all.iter().map(|ran| ran.fact("pid")).collect();
    pids.sort();
    pids.dedup();
    assert_eq!(pids.len(), 4);
    assert!(all.iter().all(|ran| ran.stdout() == "done\n"));
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn a_worker_that_is_killed_loses_its_run_only() {
    let provider = provider();
    let mut sandbox = provider.create(&plan("for (;;);")).await.unwrap();
    let pid = fact(&sandbox.measure().await.unwrap(), "pid");
    let killed = pid.clone();
    let killer = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(50)).await;
        Command::new("kill").args(["-9", &killed]).status()
    });
    let result = sandbox.release(Arc::new(NoSink)).await;
    assert!(matches!(&result, Err(RunFailure::Lost(text)) if text.contains("signal: 9")), "{result:?}");
    killer.await.unwrap().unwrap();
    assert!(is_gone(&pid));
    let next = run_plan(&provider, plan("console.log(1)")).await;
    assert_eq!(next.stdout(), "1\n");
}

#[tokio::test]
async fn a_cancelled_run_leaves_no_process() {
    let provider = provider();
    let mut sandbox = provider.create(&plan("for (;;);")).await.unwrap();
    let pid = fact(&sandbox.measure().await.unwrap(), "pid");
    let run = tokio::time::timeout(Duration::from_millis(100), sandbox.release(Arc::new(NoSink))).await;
    assert!(run.is_err(), "dropped while it runs");
    wait_until("the end of the worker", || is_gone(&pid)).await;
}

#[tokio::test]
async fn f23_workers_end_when_sandboxd_is_killed_whatever_they_run() {
    let mut daemon = Command::new(env!("CARGO_BIN_EXE_sandboxd"))
        .args(["run", "--timeout", "60s", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    {
        use std::io::Write as _;
        daemon.stdin.take().unwrap().write_all(b"console.log('begun'); for (;;);").unwrap();
    }
    let mut first = [0; 6];
    std::io::Read::read_exact(daemon.stdout.as_mut().unwrap(), &mut first).unwrap();
    let workers: Vec<String> = std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|pid| {
            pid.bytes().all(|byte| byte.is_ascii_digit()) && status(pid, "PPid") == daemon.id().to_string()
        })
        .collect();
    assert!(!workers.is_empty());
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    for pid in &workers {
        wait_until("the end of a worker", || is_gone(pid)).await;
    }
}
