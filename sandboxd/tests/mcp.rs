//! `sandboxd mcp` with a real client: the package `mcp` from PyPI. Needs python3 with venv, and PyPI once.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic like the tests themselves")]

mod support;

use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use freeboard_policy::Tier;
use support::{Act, FakeBroker, Setup};

const CLIENT: &str = "mcp==2.3.0";

fn sandboxd() -> &'static str {
    env!("CARGO_BIN_EXE_sandboxd")
}

/// A virtual environment with the client; `None`, loudly, where there is no python3 or no PyPI.
fn python() -> Option<PathBuf> {
    support::venv("venv-mcp", CLIENT, "from mcp.client.streamable_http import streamable_http_client")
}

fn write_token(file: &Path, mode: u32, token: &str) {
    use std::io::Write as _;
    let mut file = std::fs::File::options().write(true).create_new(true).mode(mode).open(file).unwrap();
    writeln!(file, "{token}").unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mcp_over_http_takes_the_callers_token_only_and_a_real_client_runs_code() {
    let Some(python) = python() else { return };
    let broker = FakeBroker::start(Some(Tier::Container));
    let daemon = Setup { host: true, ..Setup::new(Act::Hang) }.broker(&broker).start().await;
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    write_token(&token, 0o600, &daemon.alice);
    let output = tokio::process::Command::new(python)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mcp/client.py"))
        .env("SANDBOXD", sandboxd())
        .env("URL", format!("http://{}", daemon.address))
        .env("TOKEN_FILE", &token)
        .output()
        .await
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    for word in ["stdio", "grants", "floor", "http"] {
        assert!(text.contains(&format!("ok {word}\n")), "no {word} in:\n{text}");
    }
}

#[test]
fn what_cannot_be_served_is_said_before_anything_is() {
    let folder = tempfile::tempdir().unwrap();
    let (good, open) = (folder.path().join("good"), folder.path().join("open"));
    write_token(&good, 0o600, "x");
    write_token(&open, 0o644, "x");
    let missing = folder.path().join("missing");
    for (file, more, said) in [
        (&missing, [].as_slice(), "cannot read the token"),
        (&open, &[], "chmod 600"),
        (&good, &["--floor", "strong"], "is no tier"),
        (&good, &["--url", "http://example.test"], "not a URL of a daemon"),
        (&good, &["--listen", "0.0.0.0:1"], "not a loopback address"),
    ] {
        let output =
            Command::new(sandboxd()).arg("mcp").arg("--token-file").arg(file).args(more).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(said), "{more:?}: {text}");
    }
}
