//! `freeboard policy test`: the cases of a folder, and the rules that no case exercises.

use std::path::{Path, PathBuf};

use clap::Args;
use freeboard_policy::cases::{CaseResult, Coverage};
use freeboard_policy::{Diagnostic, SourceFile, render_all};
use serde_json::json;

use super::source::Source;
use super::{Format, files, load, now_unix, plural, unloaded};
use crate::cli::{Exit, exit, terminal};

#[derive(Debug, Args)]
pub(super) struct Test {
    /// Folder of policy files, or one file with its cases beside it
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// List the rules that no case exercises; end with 1 if there is one
    #[arg(long)]
    coverage: bool,
}

impl Test {
    pub(super) fn run(self) -> Exit {
        let policy = match load(&Source::Path(self.folder.clone())) {
            Ok((_, loaded)) => loaded.policy,
            Err(why) => return unloaded(&why),
        };
        let case_files = match files(&Source::Path(cases_of(&self.folder)), SourceFile::is_cases) {
            Ok(files) => files,
            Err(why) => return unloaded(&why),
        };
        if case_files.is_empty() {
            eprintln!("error: no `*.test.toml` in `{}`", self.folder.display());
            exit::hint(
                "a case is `[[case]]` with `request = \"GET https://…\"` and `expect = \"allow\"` or `\"refuse\"`",
            );
            return Exit::Usage;
        }
        let (mut results, mut broken) = (Vec::new(), Vec::new());
        for file in &case_files {
            match policy.test(file, now_unix()) {
                Ok(found) => results.extend(found),
                Err(problem) => broken.push(*problem),
            }
        }
        let coverage = self.coverage.then(|| policy.coverage(&results));
        report(&results, &broken, coverage.as_ref(), self.format)
    }
}

/// For a folder the folder; for `name.toml` the file `name.test.toml` beside it.
fn cases_of(path: &Path) -> PathBuf {
    if path.is_dir() { path.to_owned() } else { path.with_extension("test.toml") }
}

fn report(
    results: &[CaseResult],
    broken: &[Diagnostic],
    coverage: Option<&Coverage>,
    format: Format,
) -> Exit {
    let failed = results.iter().filter(|result| !result.passed()).count();
    let passed = results.len() - failed;
    let printed = match format {
        Format::Json => {
            let mut report =
                json!({ "passed": passed, "failed": failed, "problems": broken, "cases": results });
            if let (Some(coverage), Some(fields)) = (coverage, report.as_object_mut()) {
                fields.insert("coverage".to_owned(), json!(coverage));
            }
            terminal::print(&report.to_string())
        }
        Format::Text => {
            eprint!("{}", render_all(broken));
            let mut text: String =
                results.iter().filter(|result| !result.passed()).map(CaseResult::render).collect();
            if let Some(coverage) = coverage {
                let lines = coverage.unexercised.iter().map(|rule| format!("NO CASE {rule}\n"));
                text.extend(lines);
                let rules = plural(coverage.rules, "rule");
                let exercised = coverage.rules - coverage.unexercised.len();
                text.push_str(&format!("{exercised} of {rules} exercised\n"));
            }
            terminal::print(&format!("{text}{passed} passed, {failed} failed"))
        }
    };
    let uncovered = coverage.is_some_and(|coverage| !coverage.unexercised.is_empty());
    let bad = failed > 0 || !broken.is_empty() || uncovered;
    if bad && printed == Exit::Success { Exit::Problems } else { printed }
}
