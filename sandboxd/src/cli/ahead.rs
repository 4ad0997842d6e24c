//! Begins the sandbox of `sandboxd run` before anything else is read, when its words look like those of an ordinary run.
//!
//! The kernel and the worker take about as long to make a sandbox as this process takes to find out what to run in it. A wrong
//! guess costs a process that is ended unused, and decides nothing: what runs where is decided later, by all that was read.

use std::ffi::OsString;
use std::path::Path;

use super::run::{Language, by_extension};
use crate::provider::{Ahead, Kind};

/// Called while the process has one thread.
pub(super) fn begin(arguments: &[OsString]) -> Option<Ahead> {
    likely(arguments).and_then(Ahead::begin)
}

/// Options after which the run may go elsewhere.
const UNUSUAL: [&str; 5] = ["--config", "--file", "--floor", "--help", "--language"];

/// The provider that takes the run without a configuration that says otherwise.
fn likely(arguments: &[OsString]) -> Option<Kind> {
    let [_, command, words @ ..] = arguments else { return None };
    if command != "run" {
        return None;
    }
    let end = words.iter().position(|word| word == "--");
    let options = words.get(..end.unwrap_or(words.len()))?;
    let is_unusual = |word: &OsString| {
        word.to_str().is_none_or(|word| UNUSUAL.iter().any(|unusual| word.starts_with(unusual)))
    };
    if options.iter().any(is_unusual) {
        return None;
    }
    if end.is_some() {
        return Some(Kind::Native);
    }
    match options.iter().find_map(|word| by_extension(Path::new(word)))? {
        Language::Javascript => Some(Kind::Wasm),
        Language::Python | Language::Shell => Some(Kind::Native),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_runs_are_begun_and_nothing_else() {
        let table = [
            ("run a.js", Some(Kind::Wasm)),
            ("run --quiet --broker /run/b.sock --caller c --grant g dir/a.mjs", Some(Kind::Wasm)),
            ("run a.py", Some(Kind::Native)),
            ("run -- node a.js", Some(Kind::Native)),
            ("run --json -- true", Some(Kind::Native)),
            ("run --floor kernel a.js", None),
            ("run --floor=vm -- true", None),
            ("run --file data.js a.js", None),
            ("run --config other.toml a.js", None),
            ("run --help a.js", None),
            ("run", None),
            ("run -", None),
            ("run a.rb", None),
            ("serve a.js", None),
            ("", None),
        ];
        for (words, expected) in table {
            let words = std::iter::once("sandboxd").chain(words.split_whitespace());
            let words: Vec<OsString> = words.map(OsString::from).collect();
            assert_eq!(likely(&words), expected, "{words:?}");
        }
    }
}
