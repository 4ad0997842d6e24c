//! `freeboard policy`: check, compare, explain, test and describe policy files. Reads files, never a running broker.

mod check;
mod diff;
mod explain;
mod export;
mod fmt;
mod import;
mod learn;
mod lint;
mod log;
mod problems;
mod replay;
mod source;
mod test;

use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use freeboard_policy::pages::Page;
use freeboard_policy::{Diagnostic, Loaded, Policy, Severity, SourceFile, render_all, schema};

use self::source::{Source, SourceError};
use super::{Exit, exit, terminal};

/// Check, compare, explain and test policy files
#[derive(Debug, Args)]
pub struct PolicyCommand {
    #[command(subcommand)]
    verb: Verb,
}

/// How the answer is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Check a policy folder and show every problem
    Check(check::Check),
    /// Show what a change of policy means: who may newly send what, each with a shortest request
    ///
    /// Decided on what the rules allow, not on their text. Ends with 0 when nothing differs, 10 when something is only
    /// taken away, 11 when something is newly allowed or may be.
    Diff(diff::DiffCommand),
    /// Say which rule decides a request, why, and what would allow it
    Explain(explain::Explain),
    /// Run the cases of the folder's *.test.toml files
    Test(test::Test),
    /// Lay policy files out in the one way; definitions, their order and comments stay
    Fmt(fmt::Fmt),
    /// Decide the requests of an audit log again by another policy: what would stop, and what cannot be told
    ///
    /// Groups them by route and caller. Ends with 1 when a request that was permitted would now be refused, or would need
    /// somebody's approval.
    Replay(replay::Replay),
    /// Write the smallest grant that covers what callers were seen to do, as a file for review
    ///
    /// Nothing is enabled by it: the file goes to standard output, and into the policy folder through review.
    Learn(learn::Learn),
    /// Report what a policy opens: writes, wildcards, the reach of credentials and callers, what ends soon
    Lint(lint::Lint),
    /// Write a policy from another description of an API
    #[command(subcommand)]
    Import(import::Import),
    /// Write what a grant allows in the words of those who use it
    #[command(subcommand)]
    Export(export::Export),
    /// Say what a problem means, with an example and how to mend it
    ExplainCode {
        /// The code of a problem, for example `E0106`
        #[arg(value_name = "CODE")]
        code: String,
    },
    /// Print the JSON Schema of policy files, for editors
    Schema {
        /// Of files of cases (*.test.toml) instead
        #[arg(long)]
        cases: bool,
    },
}

impl PolicyCommand {
    pub(super) fn run(self) -> ExitCode {
        let exit = match self.verb {
            Verb::Check(check) => check.run(),
            Verb::Diff(diff) => diff.run(),
            Verb::Explain(explain) => explain.run(),
            Verb::Test(test) => test.run(),
            Verb::Fmt(fmt) => fmt.run(),
            Verb::Replay(replay) => replay.run(),
            Verb::Lint(lint) => lint.run(),
            Verb::Learn(learn) => learn.run(),
            Verb::ExplainCode { code } => explain_code(&code),
            Verb::Import(import) => import.run(),
            Verb::Export(export) => export.run(),
            Verb::Schema { cases: false } => terminal::print(&schema::policy_file()),
            Verb::Schema { cases: true } => terminal::print(&schema::cases_file()),
        };
        exit.into()
    }
}

/// Why there is no policy to work with.
enum Unloaded {
    /// Problems of the files themselves.
    Problems(Vec<Diagnostic>),
    Unreadable(SourceError),
}

fn files(source: &Source, wanted: fn(&str) -> bool) -> Result<Vec<SourceFile>, Unloaded> {
    source.files(wanted).map_err(|error| match error {
        SourceError::Encoding(problem) => Unloaded::Problems(vec![*problem]),
        error => Unloaded::Unreadable(error),
    })
}

fn load(source: &Source) -> Result<(usize, Loaded), Unloaded> {
    let files = files(source, SourceFile::is_policy)?;
    Policy::load(&files).map(|loaded| (files.len(), loaded)).map_err(Unloaded::Problems)
}

/// Shows problems on stderr; the exit code of a command that could not go on.
fn unloaded(why: &Unloaded) -> Exit {
    match why {
        Unloaded::Problems(problems) => {
            eprint!("{}", render_all(problems));
            eprintln!("\n{}", count(problems));
            Exit::Problems
        }
        Unloaded::Unreadable(error) => exit::report(Exit::Usage, error),
    }
}

fn count(problems: &[Diagnostic]) -> String {
    let errors = problems.iter().filter(|problem| problem.severity == Severity::Error).count();
    format!("{}, {}", plural(errors, "error"), plural(problems.len() - errors, "warning"))
}

fn plural(number: usize, word: &str) -> String {
    format!("{number} {word}{}", if number == 1 { "" } else { "s" })
}

fn explain_code(code: &str) -> Exit {
    match Page::find(code) {
        Ok(page) => terminal::print(&page.render()),
        Err(meant) => {
            eprintln!("error: no problem has the code `{}`", code.escape_debug());
            match meant {
                Some(near) => exit::hint(&format!("did you mean `{near}`?")),
                None => exit::hint(
                    "codes stand in brackets before each problem, for example `error[freeboard::policy::E0106]`",
                ),
            }
            Exit::Usage
        }
    }
}

/// Policy has no clock; its tools have.
fn now_unix() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    // A clock before 1970 is broken; with this value no grant counts as expired by mistake and none is used, for this
    // is a tool and sends nothing.
    since.ok().and_then(|since| i64::try_from(since.as_secs()).ok()).unwrap_or(0)
}
