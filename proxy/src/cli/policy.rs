//! `freeboard policy`: check, compare, explain, test and describe policy files. Reads files, never a running broker.

mod check;
mod diff;
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

use std::io::Read as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use freeboard_policy::explain::{Request, Verdict};
use freeboard_policy::limits::INSPECT_BYTES_MAX;
use freeboard_policy::pages::Page;
use freeboard_policy::{Diagnostic, Loaded, Policy, Severity, SourceFile, Tier, render_all, schema};

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
    Explain(Explain),
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

#[derive(Debug, Args)]
struct Explain {
    /// Folder of policy files, or one file
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// Method of the request
    #[arg(value_name = "METHOD")]
    method: String,
    /// https://HOST[:PORT]/PATH[?QUERY]
    #[arg(value_name = "URL")]
    url: String,
    /// Authenticated caller of the run
    #[arg(long, value_name = "NAME")]
    caller: String,
    /// Grant that the run names; may be repeated [default: every grant of the caller]
    #[arg(long = "grant", value_name = "NAME")]
    grants: Vec<String>,
    /// Measured tier of the run [default: floors are not compared]
    #[arg(long, value_name = "TIER", value_parser = tier)]
    tier: Option<Tier>,
    /// Header field of the request; may be repeated
    #[arg(long = "header", value_name = "NAME: VALUE", value_parser = header)]
    headers: Vec<(String, String)>,
    /// Body of the request, decoded; `@FILE` reads it from a file
    #[arg(long, value_name = "TEXT")]
    body: Option<String>,
    /// The request is a websocket handshake
    #[arg(long)]
    websocket: bool,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("a header is `NAME: VALUE`")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

/// The bytes of `--body`.
fn body(text: &str) -> std::io::Result<Vec<u8>> {
    let Some(path) = text.strip_prefix('@') else { return Ok(text.as_bytes().to_vec()) };
    let mut bytes = Vec::new();
    // One byte more than is ever looked at, so that a larger body is seen as too large.
    std::fs::File::open(path)?.take(INSPECT_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn tier(word: &str) -> Result<Tier, String> {
    Tier::from_word(word).ok_or_else(|| format!("tiers are {}", Tier::ALL.map(Tier::word).join(", ")))
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

impl Explain {
    fn run(self) -> Exit {
        let policy = match load(&Source::Path(self.folder)) {
            Ok((_, loaded)) => loaded.policy,
            Err(why) => return unloaded(&why),
        };
        let body = match self.body.as_deref().map(body).transpose() {
            Ok(body) => body,
            Err(error) => return exit::report(Exit::Usage, &error),
        };
        let explanation = policy.explain(&Request {
            caller: Some(&self.caller),
            grants: (!self.grants.is_empty()).then_some(self.grants.as_slice()),
            tier: self.tier,
            method: &self.method,
            url: &self.url,
            headers: &self.headers,
            body: body.as_deref(),
            websocket: self.websocket,
            now_unix: now_unix(),
        });
        let printed = match self.format {
            Format::Json => match serde_json::to_string(&explanation) {
                Ok(text) => terminal::print(&text),
                Err(error) => exit::report(Exit::System, &error),
            },
            Format::Text => terminal::print(&explanation.render()),
        };
        match (printed, explanation.verdict) {
            (Exit::Success, Verdict::Refuse) => Exit::Problems,
            (printed, _) => printed,
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
