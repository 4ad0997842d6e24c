//! Every folder of `examples/` gives the output that it stores. Each starts its own API, broker and sandbox.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::path::{Path, PathBuf};
use std::process::Command;

use freeboard_tests::broker::program;

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples")
}

#[track_caller]
fn gives_its_expected_output(name: &str) {
    let bin = program("sandboxd").parent().unwrap().to_owned();
    let mut run = Command::new(examples().join("run"));
    let output = run.arg(name).env("FREEBOARD_BIN", bin).env_remove("RUST_LOG").output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{name}: {}\n{stdout}\n{stderr}", output.status);
}

#[test]
fn example_01_allows_one_host() {
    gives_its_expected_output("01-allow-one-host");
}

#[test]
fn example_02_reads_an_api_and_changes_nothing() {
    gives_its_expected_output("02-read-only-api");
}

#[test]
fn example_03_injects_a_token() {
    gives_its_expected_output("03-inject-a-token");
}

#[test]
fn example_04_runs_an_agent() {
    gives_its_expected_output("04-run-an-agent");
}

#[test]
fn example_05_explains_a_denial() {
    gives_its_expected_output("05-explain-a-denial");
}

/// A folder that no test above names would be an example that nobody runs.
#[test]
fn every_example_is_whole_and_has_a_test() {
    let source = include_str!("examples.rs");
    let mut folders = 0;
    for entry in std::fs::read_dir(examples()).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with(|c: char| c.is_ascii_digit()) {
            continue;
        }
        folders += 1;
        for part in ["README.md", "policy", "command", "expected"] {
            assert!(entry.path().join(part).exists(), "{name} has no {part}");
        }
        assert!(source.contains(&format!("\"{name}\"")), "{name} has no test");
    }
    assert_eq!(folders, 5);
}
