//! Folder-driven: a case is a file, or a folder for a policy of several files.
//!
//! `accept/` loads; its warnings are the snapshot. `reject/` does not; all its problems are the snapshot.
//! `decisions/NAME.toml` is asked what `decisions/NAME.test.toml` says.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test reads its cases from files and fails by panicking"
)]

use std::path::{Path, PathBuf};

use freeboard_policy::{Policy, SourceFile, render_all};

fn entries(folder: &str) -> Vec<(String, PathBuf)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder);
    let mut found: Vec<_> = std::fs::read_dir(root)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.file_stem().unwrap().to_str().unwrap().to_owned(), path))
        .collect();
    found.sort();
    assert!(!found.is_empty());
    found
}

/// The files of a case by the names below it; `Err` is the text of what cannot even be decoded.
fn sources(path: &Path) -> Result<Vec<SourceFile>, String> {
    let files = if path.is_dir() {
        std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect()
    } else {
        vec![path.to_owned()]
    };
    let named = files.iter().filter(|file| SourceFile::is_policy(file.to_str().unwrap()));
    named
        .map(|file| {
            let name = file.file_name().unwrap().to_str().unwrap();
            SourceFile::decode(name, &std::fs::read(file).unwrap()).map_err(|problem| problem.render())
        })
        .collect()
}

#[test]
fn accepts_what_is_good_and_warns_about_what_looks_wrong() {
    for (name, path) in entries("accept") {
        let files = sources(&path).unwrap();
        let loaded =
            Policy::load(&files).unwrap_or_else(|problems| panic!("{name}:\n{}", render_all(&problems)));
        insta::assert_snapshot!(format!("accept__{name}"), render_all(&loaded.warnings));
    }
}

#[test]
fn rejects_what_is_wrong_with_every_problem_at_its_place() {
    for (name, path) in entries("reject") {
        let problems = match sources(&path) {
            Ok(files) => match Policy::load(&files) {
                Ok(loaded) => panic!("{name} was accepted:\n{}", render_all(&loaded.warnings)),
                Err(problems) => render_all(&problems),
            },
            Err(problem) => problem,
        };
        assert!(!problems.contains("hunter2"), "{name}: a secret is shown:\n{problems}");
        insta::assert_snapshot!(format!("reject__{name}"), problems);
    }
}

#[test]
fn decides_as_the_cases_say() {
    let mut count = 0;
    for (name, path) in
        entries("decisions").into_iter().filter(|(_, path)| SourceFile::is_policy(path.to_str().unwrap()))
    {
        let policy = Policy::load(&sources(&path).unwrap())
            .unwrap_or_else(|p| panic!("{name}:\n{}", render_all(&p)))
            .policy;
        let cases = path.with_file_name(format!("{name}.test.toml"));
        let file = SourceFile::new(format!("{name}.test.toml"), std::fs::read_to_string(cases).unwrap());
        let results = policy.test(&file, 0).unwrap_or_else(|problem| panic!("{}", problem.render()));
        let failed: String = results
            .iter()
            .filter(|result| !result.passed())
            .map(freeboard_policy::cases::CaseResult::render)
            .collect();
        assert!(failed.is_empty(), "{failed}");
        count += results.len();
    }
    assert!(count > 100, "only {count} cases were found");
}
