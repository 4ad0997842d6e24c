//! `freeboard policy check --format …`

use crate::{folder, policy, policy_with_input, seen, text};

const WARNED: &str = "[api.a]\norigins = [\"https://a.test\"]\n\n[grant.g]\ncallers = [\"*\"]\n\n[[grant.g.allow]]\napi = \"a\"\nroutes = [\"GET /a\"]\n";
const WRONG: &str = "[api.a]\norigins = [\"http://a.test\"]\nhots = 1\n";

#[test]
fn github_has_a_command_for_each_problem_on_the_line_of_the_file() {
    let folder = folder(&[("policy/a.toml", WRONG)]);
    insta::assert_snapshot!(seen(&policy(folder.path(), &["check", "policy", "--format", "github"])));
    // The names of files are those that the repository has, wherever the folder is written from.
    let output = policy(folder.path(), &["check", "./policy/", "--format", "github"]);
    assert!(
        text(&output.stdout).lines().all(|line| line.contains(" file=policy/a.toml,")),
        "{}",
        seen(&output)
    );
}

#[test]
fn github_has_nothing_to_say_of_a_good_policy() {
    let good = WARNED.replace('*', "x");
    let folder = folder(&[("a.toml", &good)]);
    insta::assert_snapshot!(seen(&policy(folder.path(), &["check", "a.toml", "--format", "github"])), @r"
    status 0
    --- stdout
    --- stderr
    ");
}

#[test]
fn warnings_end_with_1_only_where_they_are_denied() {
    let folder = folder(&[("a.toml", WARNED)]);
    for format in ["text", "human", "json", "sarif", "github"] {
        let output = policy(folder.path(), &["check", ".", "--format", format]);
        assert_eq!(output.status.code(), Some(0), "{format}: {}", seen(&output));
        let output = policy(folder.path(), &["check", ".", "--format", format, "--deny-warnings"]);
        assert_eq!(output.status.code(), Some(1), "{format}: {}", seen(&output));
    }
}

#[test]
fn sarif_goes_to_standard_output_and_nothing_else_does() {
    let folder = folder(&[("policy/a.toml", WRONG)]);
    let output = policy(folder.path(), &["check", "policy", "--format", "sarif"]);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(1), String::new()));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let uri = report.pointer("/runs/0/results/0/locations/0/physicalLocation/artifactLocation/uri");
    assert_eq!(uri.and_then(|uri| uri.as_str()), Some("policy/a.toml"));
    // What cannot be read is no result.
    let absent = policy(folder.path(), &["check", "absent", "--format", "sarif"]);
    assert_eq!((absent.status.code(), text(&absent.stdout)), (Some(2), String::new()));
}

#[test]
fn standard_input_is_checked_as_one_file() {
    let here = folder(&[]);
    let output = policy_with_input(here.path(), &["check", "-"], WRONG);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("--> stdin.toml:2:"), "{}", seen(&output));
    assert_eq!(policy_with_input(here.path(), &["check", "-"], WARNED).status.code(), Some(0));
}
