//! The unmodified public client, `plimsoll-client` 0.23.0 from PyPI, against this daemon: it runs code, verifies the
//! records and sees typed refusals. Needs python3 with venv, and PyPI once: the environment is kept under `target/`.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic like the tests themselves")]

mod support;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use freeboard_sandboxd::session::Settings;
use support::{Act, Daemon, Setup};

const CLIENT: &str = "plimsoll-client==0.23.0";

/// A virtual environment with the client; `None`, loudly, where there is no python3 or no PyPI.
fn python() -> Option<PathBuf> {
    let code = "import importlib.metadata as m; assert m.version('plimsoll-client') == '0.23.0'";
    support::venv("venv-client", CLIENT, code)
}

async fn smoke(daemon: &Daemon, token: Option<&str>) {
    let Some(text) = run_script(daemon, token, "smoke.py").await else { return };
    assert!(text.contains("ok   snippet") && text.contains("ok   project"), "{text}");
    assert!(!text.contains("FAIL"), "{text}");
}

/// What a script prints that succeeds.
async fn run_script(daemon: &Daemon, token: Option<&str>, name: &str) -> Option<String> {
    let python = python()?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/public_client").join(name);
    let mut command = tokio::process::Command::new(python);
    command.arg(script).env("PLIMSOLL_URL", format!("http://{}", daemon.address));
    if let Some(token) = token {
        command.env("PLIMSOLL_TOKEN", token);
    }
    let output = command.output().await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    Some(text)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_public_client_believes_the_record_of_a_call_that_may_have_run() {
    let daemon = Setup::new(Act::Lose).sessions(Settings::default()).start().await;
    let token = daemon.alice.clone();
    let Some(text) = run_script(&daemon, Some(&token), "unanswered.py").await else { return };
    assert!(text.contains("ok   unanswered"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_public_client_runs_code_and_verifies_records_with_a_token() {
    let daemon = Setup { host: true, ..Setup::new(Act::Hang) }.start().await;
    let token = daemon.alice.clone();
    smoke(&daemon, Some(&token)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_public_client_runs_code_without_tokens_where_that_is_allowed() {
    let daemon = Arc::new(Setup { host: true, anybody: true, ..Setup::new(Act::Hang) }.start().await);
    smoke(&daemon, None).await;
}
