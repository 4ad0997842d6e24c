//! freeboard.v1 on the real daemon with a real boundary: what is known, and what is left, after the daemon was killed.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failing test panics")]

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use freeboard_client::{Client, Ending, Error, Executed, Program, Start, State, Stdin};
use freeboard_tests::broker::program;
use freeboard_tests::wait;

/// `sandboxd serve` with `native`, its state and its callers in one folder. Killed when dropped.
struct Daemon {
    child: Child,
    client: Client,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Daemon {
    fn start(folder: &Path, token: &str) -> Self {
        Self::with(folder, token, "max_concurrent = 1\n")
    }

    fn with(folder: &Path, token: &str, more: &str) -> Self {
        let config = folder.join("freeboard.toml");
        let text = format!(
            "[sandboxd]\nlisten = \"127.0.0.1:0\"\nproviders = [\"native\"]\nmax_sessions = 0\n{more}"
        );
        let place = |name: &str| format!("{name} = \"{}\"\n", folder.join(name).display());
        std::fs::write(&config, format!("{text}{}{}", place("callers"), place("state_folder"))).unwrap();
        let mut child = Command::new(program("sandboxd"))
            .args(["serve", "--config"])
            .arg(&config)
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = lines.by_ref().find_map(|line| {
            let line = line.unwrap();
            line.split_once("serving on ").map(|(_, rest)| rest.split(' ').next().unwrap().to_owned())
        });
        let address = address.unwrap_or_else(|| panic!("sandboxd did not start: {:?}", child.wait()));
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, client: Client::new(&address, token).unwrap() }
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn token(folder: &Path) -> String {
    let made = Command::new(program("sandboxd"))
        .args(["callers", "--file"])
        .arg(folder.join("callers"))
        .args(["create", "alice"])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    String::from_utf8(made.stdout).unwrap().trim().to_owned()
}

fn shell(code: &str, key: &str) -> Start {
    Start::of(Program::Shell(code.to_owned())).key(key)
}

/// Whether a process sleeps for this long.
fn sleeps(seconds: &str) -> bool {
    std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).eq([b"sleep".as_slice(), seconds.as_bytes(), b""])
    })
}

#[tokio::test]
async fn after_kill_9_nothing_is_left_and_what_may_have_run_is_unknown() {
    let folder = tempfile::tempdir().unwrap();
    let token = token(folder.path());
    let daemon = Daemon::start(folder.path(), &token);
    let done = daemon.client.run(shell("echo done", "done")).await.unwrap();
    let mark = format!("87{}", std::process::id());
    let sleeping = shell(&format!("echo begun; setsid sleep {mark}"), "sleeping");
    let (running, _) = daemon.client.start(&sleeping).await.unwrap();
    let watched = daemon.client.watch(&running.run, 0, Duration::from_secs(30)).await.unwrap();
    assert_eq!(watched.output[0].data, b"begun\n");
    let mut waits = shell("echo never", "waiting");
    waits.request.queue_ms = 600_000;
    let (waiting, _) = daemon.client.start(&waits).await.unwrap();
    assert_eq!((waiting.state, waiting.executed), (State::Queued, Executed::No));
    daemon.kill();
    wait::until_true("nothing of the run is left", || !sleeps(&mark));

    let daemon = Daemon::start(folder.path(), &token);
    let lost = daemon.client.get_by_key("sleeping").await.unwrap();
    assert_eq!((lost.run, lost.ending, lost.executed), (running.run, Some(Ending::Lost), Executed::Unknown));
    let waited = daemon.client.get_by_key("waiting").await.unwrap();
    assert_eq!((waited.ending, waited.executed), (Some(Ending::Lost), Executed::No));
    // Sent once more: the answer that was stored, the run that may have run, the one that did not. None runs again.
    assert_eq!(daemon.client.run(shell("echo done", "done")).await.unwrap(), done);
    assert!(matches!(daemon.client.run(sleeping).await, Err(Error::Failed { .. })));
    assert!(!sleeps(&mark));
    let again = daemon.client.run(shell("echo other", "other")).await.unwrap();
    assert_eq!(again.result.unwrap().steps[0].stdout, b"other\n");
}

#[tokio::test]
async fn killed_at_any_moment_the_daemon_never_says_that_nothing_ran_of_what_ran() {
    let folder = tempfile::tempdir().unwrap();
    let token = token(folder.path());
    for moment_ms in [0_u64, 3, 6, 10, 15, 25, 40, 80] {
        let daemon = Daemon::start(folder.path(), &token);
        let key = format!("at-{moment_ms}");
        let start = shell("echo begun; sleep 30", &key);
        let (run, _) = daemon.client.start(&start).await.unwrap();
        tokio::time::sleep(Duration::from_millis(moment_ms)).await; // the moment is what is varied
        let watched = daemon.client.watch(&run.run, 0, Duration::ZERO).await.unwrap();
        let ran = !watched.output.is_empty();
        daemon.kill();
        let daemon = Daemon::start(folder.path(), &token);
        let known = daemon.client.get_by_key(&key).await.unwrap();
        assert_eq!((known.state, known.ending), (State::Ended, Some(Ending::Lost)), "{moment_ms} ms");
        assert!(!ran || known.executed == Executed::Unknown, "{moment_ms} ms: {known:?}");
        assert!(daemon.client.run(shell("true", &format!("next-{moment_ms}"))).await.is_ok());
    }
}

/// Each is there while all the others are, reads what it is sent, and answers for itself.
#[tokio::test]
async fn two_hundred_runs_are_there_at_once() {
    const RUNS: usize = 200;
    let folder = tempfile::tempdir().unwrap();
    let token = token(folder.path());
    let more = format!("max_concurrent = {RUNS}\nmax_concurrent_per_caller = {RUNS}\nrate_per_minute = 0\n");
    let daemon = Daemon::with(folder.path(), &token, &more);
    let mut runs = Vec::new();
    for number in 0..RUNS {
        let mut reads = shell("echo up; read line; echo \"$line\"", &format!("run-{number}"));
        reads.request.stdin = Some(Stdin { data: Vec::new(), open: true });
        reads.request.timeout_ms = 240_000;
        runs.push(daemon.client.start(&reads).await.unwrap().0.run);
    }
    for run in &runs {
        let mut said = Vec::new();
        let deadline = std::time::Instant::now() + Duration::from_secs(120);
        while said != b"up\n" && std::time::Instant::now() < deadline {
            let watched = daemon.client.watch(run, 0, Duration::from_secs(30)).await.unwrap();
            said = watched.output.iter().flat_map(|piece| piece.data.clone()).collect();
        }
        assert_eq!(said, b"up\n", "{run}");
    }
    assert_eq!(daemon.client.list(Some(State::Running)).await.unwrap().len(), RUNS);
    for (number, run) in runs.iter().enumerate() {
        daemon.client.write(run, 0, format!("{number}\n").as_bytes(), true).await.unwrap();
    }
    for number in 0..RUNS {
        let ended = loop {
            let run = daemon.client.get_by_key(&format!("run-{number}")).await.unwrap();
            if run.state == State::Ended {
                break run;
            }
            daemon.client.watch(&run.run, u64::MAX, Duration::from_secs(30)).await.unwrap();
        };
        let step = &ended.result.unwrap().steps[0];
        assert_eq!((step.exit_code, &*step.stdout), (0, format!("up\n{number}\n").as_bytes()));
    }
}
