//! The guide for reviewers shows what the comparison really prints.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "the test reads the guide; the crate reads no files")]

use std::path::Path;

use freeboard_policy::diff::Diff;
use freeboard_policy::{Policy, SourceFile, render_all};

/// Code blocks of a page in one language.
fn blocks<'p>(page: &'p str, language: &str) -> Vec<&'p str> {
    let opening = format!("```{language}\n");
    page.split(opening.as_str()).skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

#[test]
fn the_review_in_the_guide_is_real() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/policy/reviewing.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let load = |text: &str| {
        let loaded = Policy::load(&[SourceFile::new("tracker.toml", text)]);
        let loaded = loaded.unwrap_or_else(|problems| panic!("{}", render_all(&problems)));
        assert_eq!(render_all(&loaded.warnings), "");
        loaded.policy
    };
    let [old, new] = blocks(&page, "toml").try_into().unwrap();
    let shown = Diff::between(&load(old), &load(new)).render();
    let [printed] = blocks(&page, "text").try_into().unwrap();
    if std::env::var_os("UPDATE_GUIDE").is_some() {
        std::fs::write(&path, page.replace(printed, &shown)).unwrap();
        return;
    }
    assert_eq!(printed, shown, "run the test with UPDATE_GUIDE=1 and read what changed");
}
