//! Every folder of `examples/` gives the output that it stores. Each starts its own API, broker and sandbox.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::path::{Path, PathBuf};
use std::process::Command;

use freeboard_tests::broker::program;

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples")
}

/// What an example prints, without ids and times.
#[track_caller]
fn gives_its_expected_output(name: &str) -> String {
    let bin = program("sandboxd").parent().unwrap().to_owned();
    let mut run = Command::new(examples().join("run"));
    let output = run.arg(name).env("FREEBOARD_BIN", bin).env_remove("RUST_LOG").output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{name}: {}\n{stdout}\n{stderr}", output.status);
    stdout.into_owned()
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

#[test]
fn example_06_turns_a_change_red_that_widens_a_grant() {
    gives_its_expected_output("06-review-a-change");
}

/// The fenced blocks of a page's section, each with its language.
fn blocks(page: &str, section: &str) -> Vec<(String, String)> {
    let after = page.split(&format!("\n## {section}\n")).nth(1).unwrap();
    let section = after.split("\n## ").next().unwrap();
    let fenced = section.split("```").skip(1).step_by(2);
    fenced.map(|block| block.split_once('\n').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap()).collect()
}

/// Ids, times and durations as `examples/run` writes them.
fn normal(text: &str) -> String {
    let word = |word: &str| {
        let (key, value) = word.split_once('=').map_or(("", word), |(key, value)| (key, value));
        let equals = if key.is_empty() { "" } else { "=" };
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let is_id = value.len() == 32 && value.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let is_time = value.len() == 24 && value.ends_with('Z') && value.as_bytes().get(10) == Some(&b'T');
        match value {
            _ if is_id => format!("{key}{equals}RUN"),
            _ if is_time => format!("{key}{equals}TIME"),
            _ if value.strip_suffix("us").is_some_and(digits) => "Nus".to_owned(),
            _ => word.to_owned(),
        }
    };
    let line = |line: &str| line.split(' ').map(word).collect::<Vec<_>>().join(" ");
    text.lines().map(|text| line(text) + "\n").collect()
}

/// The example in README is a run of an example, word for word; only ids, times and durations may differ.
#[test]
fn the_readme_shows_what_the_programs_print() {
    let readme = std::fs::read_to_string(examples().join("../README.md")).unwrap();
    let folder = examples().join("04-run-an-agent");
    let file = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let shown = blocks(&readme, "A real example");
    let of = |language: &str| {
        let mut found = shown.iter().filter(|(name, _)| name == language).map(|(_, text)| text.as_str());
        let text = found.next().unwrap_or_else(|| panic!("README shows no {language}"));
        assert_eq!(found.next(), None, "README shows two blocks of {language}");
        text
    };
    assert_eq!(of("toml"), file("policy/things.toml"));
    assert_eq!(of("python"), file("program.py"));
    assert_eq!(of("sh"), file("command"));
    let shown = of("text");
    assert_ne!(shown, normal(shown), "the output of a real run has ids and times");
    assert_eq!(normal(shown), gives_its_expected_output("04-run-an-agent"));
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
    assert_eq!(folders, 6);
}
