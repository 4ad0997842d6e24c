//! Every case of docs/attack-cases.md has a test that carries its id, or its row says where it is held or why it does not
//! arise.
#![expect(clippy::unwrap_used, reason = "a file of the tree that cannot be read fails the test")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Rows of the page: id, and what the last column says.
fn rows(page: &str) -> Vec<(String, String)> {
    let row = |line: &str| {
        let mut cells = line.strip_prefix("| ")?.strip_suffix('|')?.split(" |").map(str::trim);
        let (id, _, place) = (cells.next()?, cells.next()?, cells.next().unwrap_or_default());
        is_id(id).then(|| (id.to_owned(), place.to_owned()))
    };
    page.lines().filter_map(row).collect()
}

/// A letter from A to H and two digits.
fn is_id(word: &str) -> bool {
    let bytes = word.as_bytes();
    matches!(bytes, [b'A'..=b'H', b'0'..=b'9', b'0'..=b'9'])
}

fn files(folder: &Path, wanted: &mut dyn FnMut(&Path)) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            files(&path, wanted);
        } else if path.is_file() {
            wanted(&path);
        }
    }
}

/// Ids that test functions begin with, and those that cases of the policy's tests name.
fn tested() -> BTreeSet<String> {
    let mut ids = BTreeSet::new();
    files(&root(), &mut |path| {
        let extension = path.extension().unwrap_or_default();
        let of_policy = extension == "toml" && path.starts_with(root().join("policy/tests"));
        if extension != "rs" && !of_policy {
            return;
        }
        // Some files of the policy's tests are not UTF-8 on purpose.
        let text = String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned();
        if of_policy {
            let words = text.split(|c: char| !c.is_ascii_alphanumeric());
            ids.extend(words.filter(|word| is_id(word)).map(str::to_owned));
            return;
        }
        for name in text.split("fn ").skip(1) {
            let words = name.split(['_', '(', '<']).map(str::to_ascii_uppercase);
            ids.extend(words.take_while(|word| is_id(word)));
        }
    });
    ids
}

#[test]
fn every_case_has_a_test_or_a_reason() {
    let page = std::fs::read_to_string(root().join("docs/attack-cases.md")).unwrap();
    let (rows, tested) = (rows(&page), tested());
    assert!(rows.len() > 200, "only {} rows were read", rows.len());
    let without: Vec<&str> = rows
        .iter()
        .filter(|(id, place)| place.is_empty() && !tested.contains(id))
        .map(|(id, _)| id.as_str())
        .collect();
    assert!(without.is_empty(), "no test carries {without:?}");
    let known: BTreeSet<&str> = rows.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(known.len(), rows.len(), "a case is there twice");
    // What a row names must exist.
    for (id, place) in &rows {
        for path in place
            .split('`')
            .skip(1)
            .step_by(2)
            .filter(|word| word.starts_with(['t', 's', 'p']) && word.contains('/'))
        {
            assert!(root().join(path).exists(), "{id} names `{path}`");
        }
    }
}

/// Guards the search itself.
#[test]
fn ids_are_found_where_they_stand() {
    let tested = tested();
    for id in ["A01", "B12", "B14", "C07", "D30", "H41", "G07"] {
        assert!(tested.contains(id), "{id}");
    }
    assert!(!tested.contains("H99"));
    assert_eq!(
        rows("| A01 | x | |\n| B02 | y | z |\n| id | case | where |\n"),
        [("A01".to_owned(), String::new()), ("B02".to_owned(), "z".to_owned()),]
    );
}
