//! `freeboard policy diff` as people and pipelines run it: folders, files, standard input, revisions of a real git repository.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const OLD: &str = r#"
[api.a]
origins = ["https://a.test"]

[grant.g]
callers = ["x"]

[[grant.g.allow]]
api = "a"
routes = ["GET /v1/items/{int}"]
"#;

const SAME: i32 = 0;
const USAGE: i32 = 2;
const POLICY: i32 = 4;
const NARROWER: i32 = 10;
const WIDER: i32 = 11;

fn wider() -> String {
    OLD.replace("GET /v1", "GET|DELETE /v1")
}

fn narrower() -> String {
    OLD.replace("{int}", "1")
}

fn freeboard(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_freeboard"))
        .arg("policy")
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap()
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

#[test]
fn the_exit_code_says_same_narrower_or_wider() {
    let folder = folder(&[
        ("old/p.toml", OLD),
        ("same/other.toml", &OLD.replace("GET /v1", "HEAD|GET    /v1")),
        ("wider/p.toml", &wider()),
        ("narrower/p.toml", &narrower()),
    ]);
    for (old, new, code) in [
        ("old", "same", SAME),
        ("old", "wider", WIDER),
        ("old", "narrower", NARROWER),
        ("wider", "old", NARROWER),
        ("narrower", "wider", WIDER),
        ("old/p.toml", "wider/p.toml", WIDER),
    ] {
        let output = freeboard(folder.path(), &["diff", old, new]);
        assert_eq!(output.status.code(), Some(code), "{old} {new}: {output:?}");
        assert_eq!(text(&output.stderr), "");
    }
    let output = freeboard(folder.path(), &["diff", "--allow-narrower", "old", "narrower"]);
    assert_eq!(output.status.code(), Some(SAME));
    let output = freeboard(folder.path(), &["diff", "--allow-narrower", "old", "wider"]);
    assert_eq!(output.status.code(), Some(WIDER));
}

#[test]
fn each_difference_is_shown_with_a_request_in_three_forms() {
    let folder = folder(&[("old.toml", OLD), ("new.toml", &wider())]);
    let shown = |format: &str| {
        let output = freeboard(folder.path(), &["diff", "old.toml", "new.toml", "--format", format]);
        assert_eq!(output.status.code(), Some(WIDER), "{output:?}");
        text(&output.stdout)
    };
    for (format, wanted) in [
        ("text", "DELETE https://a.test/v1/items/0"),
        ("markdown", "`DELETE https://a.test/v1/items/0`"),
        ("human", "wider: 1 wider, 0 narrower"),
    ] {
        assert!(shown(format).contains(wanted), "{wanted}:\n{}", shown(format));
    }
    let report: Value = serde_json::from_str(&shown("json")).unwrap();
    assert_eq!(report["verdict"], "wider");
    assert_eq!(report["changes"][0]["kind"], "allowed");
    let witness = &report["changes"][0]["witness"];
    assert_eq!(
        (&witness["method"], &witness["url"]),
        (&"DELETE".into(), &"https://a.test/v1/items/0".into())
    );
    assert_eq!((&witness["old"]["allowed"], &witness["new"]["allowed"]), (&false.into(), &true.into()));
}

#[test]
fn standard_input_is_a_policy_too_but_only_once() {
    let folder = folder(&[("old.toml", OLD)]);
    let run = |arguments: &[&str]| {
        let mut child = Command::new(env!("CARGO_BIN_EXE_freeboard"))
            .args(arguments)
            .current_dir(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A command that refuses its arguments does not read.
        let _ = child.stdin.take().unwrap().write_all(narrower().as_bytes());
        child.wait_with_output().unwrap()
    };
    assert_eq!(run(&["policy", "diff", "old.toml", "-"]).status.code(), Some(NARROWER));
    assert_eq!(run(&["policy", "check", "-"]).status.code(), Some(SAME));
    let twice = run(&["policy", "diff", "-", "-"]);
    assert_eq!(twice.status.code(), Some(USAGE));
    assert!(text(&twice.stderr).contains("standard input"), "{twice:?}");
}

#[test]
fn a_side_with_errors_is_neither_same_nor_wider() {
    let folder = folder(&[("old.toml", OLD), ("bad.toml", "[grant.g]\ncaller = [\"x\"]\n")]);
    for sides in [["old.toml", "bad.toml"], ["bad.toml", "old.toml"]] {
        let output = freeboard(folder.path(), &["diff", sides[0], sides[1]]);
        assert_eq!(output.status.code(), Some(POLICY), "{output:?}");
        let shown = text(&output.stderr);
        assert!(shown.contains("did you mean `callers`?"), "{shown}");
        assert!(shown.contains("error: `bad.toml` has errors"), "{shown}");
    }
    let output = freeboard(folder.path(), &["diff", "old.toml", "nowhere"]);
    assert_eq!(output.status.code(), Some(USAGE), "{output:?}");
}

/// A git repository, away from any configuration of the machine.
struct Repository(tempfile::TempDir);

impl Repository {
    fn new() -> Self {
        let repository = Self(tempfile::tempdir().unwrap());
        repository.git(&["init", "--quiet", "--initial-branch=main"]);
        repository
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.0.path())
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .envs([("GIT_AUTHOR_NAME", "a"), ("GIT_AUTHOR_EMAIL", "a@a.test")])
            .envs([("GIT_COMMITTER_NAME", "a"), ("GIT_COMMITTER_EMAIL", "a@a.test")]);
        command
    }

    fn git(&self, arguments: &[&str]) {
        let output = self.command("git").args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.0.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn commit(&self) {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--message", "a change"]);
    }

    fn policy(&self, arguments: &[&str]) -> Output {
        self.command(env!("CARGO_BIN_EXE_freeboard")).arg("policy").args(arguments).output().unwrap()
    }
}

#[test]
fn revisions_of_a_repository_are_compared_without_checking_them_out() {
    let repository = Repository::new();
    repository.write("policy/team/p.toml", OLD);
    repository.write("policy/p.test.toml", "[[case]]\n");
    repository.write("policy/.hidden.toml", "not = 'a policy'");
    repository.write("README.md", "Policies.");
    repository.commit();
    repository.write("policy/team/p.toml", &wider());
    repository.commit();
    repository.git(&["tag", "v1"]);
    repository.write("policy/team/p.toml", &narrower());
    std::os::unix::fs::symlink("team/p.toml", repository.0.path().join("policy/link.toml")).unwrap();
    repository.commit();
    std::fs::remove_file(repository.0.path().join("policy/link.toml")).unwrap();

    for (old, new, code) in [
        ("git:HEAD~2:policy", "git:v1:policy", WIDER),
        ("git:v1:policy/", "git:HEAD:policy", NARROWER),
        ("git:HEAD~2", "git:HEAD~2:policy/team/p.toml", SAME),
        ("git:HEAD~2:policy", "policy", NARROWER),
        ("git:HEAD:policy", "policy", SAME),
        ("git:HEAD:policy", "git:v1:policy/team/p.toml", WIDER),
    ] {
        let output = repository.policy(&["diff", old, new]);
        assert_eq!(output.status.code(), Some(code), "{old} {new}: {output:?}");
    }
    let output = repository.policy(&["check", "git:v1:policy"]);
    assert_eq!(output.status.code(), Some(SAME), "{output:?}");
    assert!(text(&output.stdout).starts_with("ok: 1 file, 1 grant"), "{output:?}");
}

#[test]
fn what_git_does_not_have_is_said() {
    let repository = Repository::new();
    repository.write("policy/p.toml", OLD);
    repository.commit();
    for source in ["git:nowhere:policy", "git:HEAD:elsewhere", "git:--help", "git:"] {
        let output = repository.policy(&["diff", source, "policy"]);
        assert_eq!(output.status.code(), Some(USAGE), "{source}: {output:?}");
        assert!(!output.stderr.is_empty() && output.stdout.is_empty(), "{output:?}");
    }
    let outside = folder(&[("p.toml", OLD)]);
    let output = Command::new(env!("CARGO_BIN_EXE_freeboard"))
        .args(["policy", "diff", "git:HEAD", "p.toml"])
        .current_dir(outside.path())
        .env("GIT_CEILING_DIRECTORIES", outside.path().parent().unwrap())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(USAGE), "{output:?}");
}
