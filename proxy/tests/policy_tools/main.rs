//! The tools that a reviewer of a policy uses, as people run them: output and exit codes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod explain;
mod fmt;
mod formats;
mod lint;
mod records;

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// `freeboard policy …` in a folder.
fn policy(folder: &Path, arguments: &[&str]) -> Output {
    command(folder, arguments).stdin(Stdio::null()).output().unwrap()
}

/// The same with something on standard input.
fn policy_with_input(folder: &Path, arguments: &[&str], input: &str) -> Output {
    let mut child = command(folder, arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_freeboard"));
    command.arg("policy").args(arguments).current_dir(folder);
    command
}

fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    folder
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Everything that somebody at a terminal sees.
fn seen(output: &Output) -> String {
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    format!("status {}\n--- stdout\n{stdout}--- stderr\n{stderr}", output.status.code().unwrap())
}
