//! Writes or checks `docs/reference`, which is generated from the code:
//! `cargo run -p freeboard-docs-gen -- write|check`.

#![forbid(unsafe_code)]

mod audit;
mod commands;
mod config;
mod diagnostics;
mod exits;
mod limits;
mod metrics;
mod policy;
mod reasons;
mod schema;
mod source;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// A generated page: its name and its text.
type Page = (String, String);

/// First line of each page.
const NOTICE: &str = "<!-- Generated from the code: cargo run -p freeboard-docs-gen -- write -->";

fn pages() -> Vec<Page> {
    let single = [
        ("audit.md", audit::page()),
        ("audit.schema.json", audit::schema_file()),
        ("cli.md", commands::page()),
        ("config.md", config::page()),
        ("exit-codes.md", exits::page()),
        ("limits.md", limits::page()),
        ("metrics.md", metrics::page()),
        ("policy.md", policy::page()),
        ("reasons.md", reasons::page()),
    ];
    let single = single.into_iter().map(|(name, text)| (name.to_owned(), text));
    single.chain(diagnostics::pages()).map(|(name, text)| (name, tidy(text))).collect()
}

/// Without two empty lines in a row, as where an item has no description.
fn tidy(mut text: String) -> String {
    while text.contains("\n\n\n") {
        text = text.replace("\n\n\n", "\n\n");
    }
    text
}

fn main() -> ExitCode {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../reference");
    match std::env::args().nth(1).as_deref() {
        Some("write") => write(&folder),
        Some("check") => check(&folder),
        _ => {
            eprintln!("usage: freeboard-docs-gen write|check");
            ExitCode::from(2)
        }
    }
}

fn write(folder: &Path) -> ExitCode {
    for (name, text) in pages() {
        let path = folder.join(name);
        let parent = path.parent().unwrap_or(folder);
        if let Err(error) = std::fs::create_dir_all(parent).and_then(|()| std::fs::write(&path, text)) {
            eprintln!("error: cannot write `{}`: {error}", path.display());
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn check(folder: &Path) -> ExitCode {
    let stale = stale(folder);
    for path in &stale {
        eprintln!("error: `{}` is not what the code says", path.display());
    }
    if stale.is_empty() {
        return ExitCode::SUCCESS;
    }
    eprintln!("help: cargo run -p freeboard-docs-gen -- write");
    ExitCode::FAILURE
}

/// Pages that differ from what the code says.
fn stale(folder: &Path) -> Vec<PathBuf> {
    let differs = |(name, text): Page| {
        let path = folder.join(name);
        let stored = std::fs::read_to_string(&path).unwrap_or_default();
        (stored != text).then_some(path)
    };
    pages().into_iter().filter_map(differs).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_is_what_the_code_says() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../reference");
        assert_eq!(stale(&folder), Vec::<PathBuf>::new(), "cargo run -p freeboard-docs-gen -- write");
    }

    #[test]
    fn a_stale_page_is_found() {
        assert_eq!(stale(Path::new("/nonexistent")).len(), pages().len());
    }

    #[test]
    fn pages_are_pages() {
        for (name, text) in pages() {
            assert!(text.len() > 300, "{name} is nearly empty");
            assert!(!text.contains("\n\n\n"), "{name} has gaps");
        }
    }
}
