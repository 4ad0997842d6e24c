//! The examples of the README are policies that load, and its cases hold.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use freeboard_policy::{Policy, SourceFile, render_all};

/// (language line, text) of each fenced block.
fn blocks(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut open: Option<(String, String)> = None;
    for line in text.lines() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(language)) => open = Some((language.to_owned(), String::new())),
            (Some(_), Some(_)) => found.extend(open.take()),
            (Some((_, block)), None) => {
                block.push_str(line);
                block.push('\n');
            }
            (None, None) => {}
        }
    }
    found
}

#[test]
fn every_example_of_the_readme_is_true() {
    let (mut policy, mut policies, mut cases) = (Policy::deny_all(), 0, 0);
    for (language, text) in blocks(include_str!("../README.md")) {
        let file = SourceFile::new("README.md", text);
        match language.as_str() {
            "toml" => {
                policy = Policy::load(&[file])
                    .unwrap_or_else(|problems| panic!("{}", render_all(&problems)))
                    .policy;
                policies += 1;
            }
            "toml cases" => {
                for result in policy.test(&file, 0).unwrap_or_else(|problem| panic!("{}", problem.render())) {
                    assert!(result.passed(), "{}", result.render());
                    cases += 1;
                }
            }
            _ => {}
        }
    }
    assert!(policies >= 4 && cases >= 15, "{policies} policies, {cases} cases");
}
