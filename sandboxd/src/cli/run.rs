//! `sandboxd run`: one program, here and now. Its output is printed as it appears, its exit code becomes ours.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use freeboard_control::Trace;
use freeboard_policy::{Fault, Tier};
use freeboard_wire::check;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use super::start::{self, NotStarted};
use super::{Exit, report, say};
use crate::config::{Config, Flags};
use crate::control_client::BrokerError;
use crate::job::{Ending, JobFile, NoSink, OutputSink, Payload};
use crate::launch::{InSession, Launcher, Order, Ran, Refusal, RunError, millis, new_run_id};
use crate::limits::{ARTIFACT_BYTES, CLI_OUTPUT_BYTES, MAX_PROGRAM_BYTES};
use crate::placement::Unplaced;
use crate::provider::{Ahead, CreateError, Kind, Service};

/// Ends with the program's own exit code. 124: the time was over. 125: could not start, nothing ran. 126: refused,
/// nothing ran. 127: the sandbox failed, the program may have run.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Program file; `-` or nothing reads it from stdin
    #[arg(value_name = "PROGRAM", conflicts_with = "command")]
    program: Option<PathBuf>,
    /// A command instead of a program, after `--`
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
    /// Language of the program (default: by its extension; stdin is JavaScript)
    #[arg(long, value_enum, conflicts_with = "command")]
    language: Option<Language>,
    /// A grant for this run; repeat for several. Needs a broker and --caller
    #[arg(long = "grant", value_name = "NAME", requires = "caller")]
    grants: Vec<String>,
    /// The caller in whose name the grants are used and the run is recorded
    #[arg(long, value_name = "NAME")]
    caller: Option<String>,
    /// Weakest tier that this run may have: process, container, kernel, vm
    #[arg(long, value_name = "TIER", value_parser = tier)]
    floor: Option<Tier>,
    /// Longest time, for example 500ms, 10s, 2m (default: the provider's)
    #[arg(long, value_name = "TIME", value_parser = duration)]
    timeout: Option<Duration>,
    /// A file for the work folder, as PATH or PATH:NAME-INSIDE; repeat for several
    #[arg(long = "file", value_name = "PATH[:NAME]", value_parser = file_argument)]
    files: Vec<FileArgument>,
    /// One JSON object on stdout instead of the program's output
    #[arg(long)]
    json: bool,
    /// No line about tier and evidence on stderr
    #[arg(long)]
    quiet: bool,
    #[command(flatten)]
    flags: Flags,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lowercase")]
pub(super) enum Language {
    Javascript,
    Python,
    Shell,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct FileArgument {
    path: PathBuf,
    inside: String,
}

/// Why there is nothing to run.
#[derive(Debug, thiserror::Error)]
enum InputError {
    #[error("cannot read `{path}`")]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("`{path}` is larger than {MAX_PROGRAM_BYTES} bytes")]
    TooLarge { path: PathBuf },
    #[error(
        "the language of `{path}` is not clear from its name; say --language javascript, python or shell"
    )]
    Language { path: PathBuf },
    #[error("the program is not valid UTF-8")]
    NotText,
    #[error("a part of the command is not valid UTF-8")]
    Command,
    #[error("{0}")]
    Invalid(check::Invalid),
    #[error("`{name}` cannot be a file inside: {why}")]
    FileName { name: String, why: &'static str },
    #[error("`{0}` would be in the work folder twice")]
    FileTwice(String),
}

/// `ahead`: what was begun of it before its arguments were parsed.
pub(super) fn main(arguments: Arguments, ahead: Option<Ahead>) -> ExitCode {
    let prepared = prepare(&arguments, ahead);
    // While the helpers begin.
    super::log("warn");
    match prepared {
        Ok((launcher, order, failed)) => carry_out(&arguments, &launcher, order, &failed).into(),
        Err(failure) => {
            report(failure.as_ref());
            Exit::NotStarted.into()
        }
    }
}

/// Everything up to the first thread.
fn prepare(
    arguments: &Arguments,
    mut ahead: Option<Ahead>,
) -> Result<(Launcher, Order, Vec<NotStarted>), super::Failure> {
    let order = order(arguments)?;
    let config = start::configuration(&arguments.flags)?;
    let kinds = candidates(&config, &order);
    // A provider costs milliseconds to start; a grant's floor is not known yet, so with grants all are there.
    let enough = if config.providers.value.is_empty() && order.grants.is_empty() { 1 } else { kinds.len() };
    let likely = if could_be_wasm(&config, &order) { Kind::Wasm } else { Kind::Native };
    // Without configuration the others are there for a grant's floor alone, and none of them starts a thread.
    let others_wait = config.providers.value.is_empty() && kinds.contains(&likely);
    let service = |kind| match (kind == likely, others_wait) {
        (true, _) => Service::OneRun(ahead.take()),
        (false, true) => Service::Unlikely,
        (false, false) => Service::ManyRuns,
    };
    let (providers, failed) = start::providers(&kinds, enough, &config, service);
    Ok((start::launcher(&config, providers), order, failed))
}

/// The configured providers; without configuration, those that could take this run.
fn candidates(config: &Config, order: &Order) -> Vec<Kind> {
    if !config.providers.value.is_empty() {
        return config.providers.value.clone();
    }
    let floor = order.floor.max(config.min_isolation.value);
    let at_most = |tier: Tier| floor.is_none_or(|floor| floor <= tier);
    let mut kinds = Vec::new();
    if could_be_wasm(config, order) {
        kinds.push(Kind::Wasm);
    }
    if at_most(Tier::Container) {
        kinds.push(Kind::Native);
    }
    // A grant may have a floor of its own, which only the broker knows.
    if floor == Some(Tier::Kernel) || !order.grants.is_empty() {
        kinds.push(Kind::Gvisor);
    }
    if kinds.is_empty() { Kind::ALL.to_vec() } else { kinds }
}

/// Whether `wasm` takes this run when it is there and no grant asks for more.
fn could_be_wasm(config: &Config, order: &Order) -> bool {
    let floor = order.floor.max(config.min_isolation.value);
    let snippet = matches!(order.payload, Payload::JavaScript { .. }) && order.files.is_empty();
    snippet && floor.is_none_or(|floor| floor <= Tier::Process)
}

fn order(arguments: &Arguments) -> Result<Order, super::Failure> {
    let (payload, program) = payload(arguments)?;
    let mut files: Vec<JobFile> = program.into_iter().collect();
    for argument in &arguments.files {
        let content = read_file(&argument.path)?;
        if files.iter().any(|file| file.path == argument.inside) {
            return Err(InputError::FileTwice(argument.inside.clone()).into());
        }
        files.push(JobFile { path: argument.inside.clone(), content });
    }
    Ok(Order {
        run: new_run_id()?,
        caller: arguments.caller.clone(),
        trace_id: None,
        grants: check::grants(&arguments.grants.join(",")).map_err(InputError::Invalid)?,
        floor: arguments.floor,
        timeout: arguments.timeout,
        software: Vec::new(),
        payload,
        files,
        artifacts: Vec::new(),
        environment: Vec::new(),
        output_limit: CLI_OUTPUT_BYTES,
        less: crate::job::Less::default(),
        input: None,
        artifact_limit: ARTIFACT_BYTES,
        released: Arc::default(),
        wait: None,
        witness: None,
        session: InSession::No,
    })
}

/// The payload, and the file that it is, where it is one.
fn payload(arguments: &Arguments) -> Result<(Payload, Option<JobFile>), InputError> {
    if !arguments.command.is_empty() {
        let part = |part: &OsString| part.to_str().map(str::to_owned).ok_or(InputError::Command);
        let argv = arguments.command.iter().map(part).collect::<Result<_, _>>()?;
        return Ok((Payload::Command { argv }, None));
    }
    let path = arguments.program.as_deref().filter(|path| *path != Path::new("-"));
    let language = match (arguments.language, path) {
        (Some(language), _) => language,
        (None, None) => Language::Javascript,
        (None, Some(path)) => {
            by_extension(path).ok_or_else(|| InputError::Language { path: path.to_owned() })?
        }
    };
    let content = match path {
        Some(path) => read_file(path)?,
        None => read(Path::new("-"), std::io::stdin().lock())?,
    };
    let named = |interpreter: &str, name: &str| {
        let payload = Payload::Command { argv: vec![interpreter.to_owned(), name.to_owned()] };
        (payload, Some(JobFile { path: name.to_owned(), content: content.clone() }))
    };
    match language {
        Language::Python => Ok(named("python3", "main.py")),
        Language::Shell => Ok(named("sh", "main.sh")),
        Language::Javascript => {
            let code = String::from_utf8(content).map_err(|_| InputError::NotText)?;
            check::code("program", &code).map_err(InputError::Invalid)?;
            Ok((Payload::JavaScript { code }, None))
        }
    }
}

pub(super) fn by_extension(path: &Path) -> Option<Language> {
    match path.extension()?.to_str()? {
        "js" | "mjs" | "cjs" => Some(Language::Javascript),
        "py" => Some(Language::Python),
        "sh" => Some(Language::Shell),
        _ => None,
    }
}

fn read_file(path: &Path) -> Result<Vec<u8>, InputError> {
    let file = std::fs::File::open(path);
    read(path, file.map_err(|source| InputError::Read { path: path.to_owned(), source })?)
}

fn read(path: &Path, source: impl Read) -> Result<Vec<u8>, InputError> {
    let mut content = Vec::new();
    let read = source.take(MAX_PROGRAM_BYTES + 1).read_to_end(&mut content);
    read.map_err(|source| InputError::Read { path: path.to_owned(), source })?;
    if content.len() as u64 > MAX_PROGRAM_BYTES {
        return Err(InputError::TooLarge { path: path.to_owned() });
    }
    Ok(content)
}

fn carry_out(arguments: &Arguments, launcher: &Launcher, order: Order, failed: &[NotStarted]) -> Exit {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            report(&error);
            return Exit::NotStarted;
        }
    };
    let run = order.run.clone();
    let output: Arc<dyn OutputSink> = if arguments.json { Arc::new(NoSink) } else { Arc::new(Terminal) };
    let ended = runtime.block_on(async {
        let Ok(mut interrupt) = signal(SignalKind::interrupt()) else { return None };
        let Ok(mut terminate) = signal(SignalKind::terminate()) else { return None };
        let mut running = std::pin::pin!(launcher.run(order, output));
        tokio::select! {
            ended = &mut running => Some(ended),
            _ = interrupt.recv() => None,
            _ = terminate.recv() => None,
        }
    });
    match ended {
        None => {
            say("sandboxd: interrupted; the program was killed");
            Exit::Interrupted
        }
        Some(Ok(ran)) => {
            let exit = exit_of(&ran);
            if arguments.json {
                super::put(&format!("{}\n", ran_json(&run, &ran, exit)));
            } else if !arguments.quiet {
                say_ran(&run, &ran);
            }
            exit
        }
        Some(Err(error)) => {
            let exit = exit_of_error(&error);
            if arguments.json {
                super::put(&format!("{}\n", error_json(&run, &error, exit)));
            }
            say_error(&error, failed);
            exit
        }
    }
}

/// Prints what the program writes, as it writes it. A reader that is gone changes nothing for the run.
#[derive(Debug)]
struct Terminal;

impl OutputSink for Terminal {
    fn stdout(&self, bytes: &[u8]) {
        let mut stdout = std::io::stdout().lock();
        let _ = stdout.write_all(bytes).and_then(|()| stdout.flush());
    }
    fn stderr(&self, bytes: &[u8]) {
        let _ = std::io::stderr().lock().write_all(bytes);
    }
    /// A terminal or a pipe shows all; what is kept for the record stays limited.
    fn wants_all(&self) -> bool {
        true
    }
}

fn exit_of(ran: &Ran) -> Exit {
    let last = ran.outcome.steps.last().map_or(0, |step| step.exit_code);
    match ran.outcome.ending {
        Ending::Completed => Exit::Guest(u8::try_from(last.rem_euclid(256)).unwrap_or(u8::MAX)),
        Ending::TimedOut => Exit::Guest(124),
        Ending::SetupFailed => Exit::NotStarted,
        Ending::RunnerFailed => Exit::Lost,
    }
}

fn exit_of_error(error: &RunError) -> Exit {
    match error {
        RunError::Failed(_) => Exit::Lost,
        RunError::Refused(refusal) => match refusal {
            Refusal::Broker(BrokerError::Refused { reason, .. })
                if matches!(reason.fault(), Fault::Policy | Fault::Client) =>
            {
                Exit::Refused
            }
            Refusal::Grant
            | Refusal::Measured { .. }
            | Refusal::Software
            | Refusal::Full(_)
            | Refusal::Unplaced(Unplaced::TooWeak { .. }) => Exit::Refused,
            Refusal::NoBroker
            | Refusal::Port(_)
            | Refusal::Broker(_)
            | Refusal::Unplaced(Unplaced::Disabled | Unplaced::Unsupported { .. } | Unplaced::TooMuch(_))
            | Refusal::Create(
                CreateError::Unsupported { .. } | CreateError::Host { .. } | CreateError::Step { .. },
            )
            | Refusal::Random
            | Refusal::Journal(_) => Exit::NotStarted,
        },
    }
}

fn say_ran(run: &str, ran: &Ran) {
    let evidence = &ran.evidence;
    let facts: Vec<String> =
        evidence.facts.iter().map(|fact| format!("{}={}", fact.name, fact.value)).collect();
    say(&format!(
        "sandboxd: run {run} at tier {} by {}, {} ms",
        evidence.tier,
        evidence.provider,
        millis(ran.duration)
    ));
    say(&format!("sandboxd: measured before release: {}", facts.join(" ")));
    match ran.outcome.ending {
        Ending::Completed => {}
        Ending::TimedOut => say("sandboxd: the time was over; the program was killed"),
        Ending::SetupFailed => say(&format!("sandboxd: nothing ran: {}", ran.outcome.detail)),
        Ending::RunnerFailed => say(&format!("sandboxd: the sandbox failed: {}", ran.outcome.detail)),
    }
    if ran.outcome.steps.iter().any(|step| step.stdout_truncated || step.stderr_truncated) {
        say("sandboxd: output was cut at its limit");
    }
    if let Some(trace) = &ran.trace {
        say_trace(trace);
    }
}

fn say_trace(trace: &Trace) {
    if trace.allowed + trace.denied + trace.failed + trace.shed == 0 {
        return;
    }
    say(&format!(
        "sandboxd: requests: {} allowed, {} denied, {} failed, {} shed",
        trace.allowed, trace.denied, trace.failed, trace.shed
    ));
    for call in trace.calls.iter().filter(|call| call.verdict != "allowed") {
        let reason = call.reason.map_or("", freeboard_policy::Reason::code);
        say(&format!("sandboxd:   {} {} {}{}: {reason}", call.verdict, call.method, call.host, call.path));
    }
}

fn say_error(error: &RunError, failed: &[NotStarted]) {
    let what = match error {
        RunError::Refused(_) => "nothing ran",
        RunError::Failed(_) => "the program may have run",
    };
    say(&format!("sandboxd: {what}: {}", crate::causes::chain(error)));
    if let RunError::Refused(Refusal::Unplaced(_)) = error {
        start::say_not_started(failed);
    }
}

fn ran_json(run: &str, ran: &Ran, exit: Exit) -> serde_json::Value {
    let step = ran.outcome.steps.last().cloned().unwrap_or_default();
    json!({
        "run": run,
        "verdict": "ran",
        "exit_code": exit.code(),
        "ending": match ran.outcome.ending {
            Ending::Completed => "completed",
            Ending::TimedOut => "timed_out",
            Ending::SetupFailed => "setup_failed",
            Ending::RunnerFailed => "runner_failed",
        },
        "detail": ran.outcome.detail,
        "tier": ran.evidence.tier,
        "provider": ran.evidence.provider,
        "environment": ran.environment,
        "evidence": ran.evidence.facts,
        "duration_ms": millis(ran.duration),
        "stdout": String::from_utf8_lossy(&step.stdout),
        "stderr": String::from_utf8_lossy(&step.stderr),
        "stdout_truncated": step.stdout_truncated,
        "stderr_truncated": step.stderr_truncated,
        "policy_digest": ran.policy_digest,
        "trace": ran.trace,
    })
}

fn error_json(run: &str, error: &RunError, exit: Exit) -> serde_json::Value {
    let verdict = match error {
        RunError::Refused(_) => "nothing_ran",
        RunError::Failed(_) => "may_have_run",
    };
    json!({"run": run, "verdict": verdict, "exit_code": exit.code(), "message": crate::causes::chain(error)})
}

fn tier(word: &str) -> Result<Tier, String> {
    Tier::from_word(word).ok_or_else(|| "it is one of process, container, kernel, vm".to_owned())
}

/// `500ms`, `10s`, `2m`; a number alone is seconds.
fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| "it is a number and ms, s or m".to_owned())?;
    let milliseconds = match unit {
        "ms" => Some(number),
        "" | "s" => number.checked_mul(1000),
        "m" => number.checked_mul(60_000),
        _ => None,
    };
    let positive = milliseconds.filter(|milliseconds| *milliseconds > 0);
    positive.map(Duration::from_millis).ok_or_else(|| "it is a number above 0 and ms, s or m".to_owned())
}

fn file_argument(text: &str) -> Result<FileArgument, String> {
    let (path, inside) = match text.split_once(':') {
        Some((path, inside)) => (PathBuf::from(path), inside.to_owned()),
        None => {
            let path = PathBuf::from(text);
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
            (path, name)
        }
    };
    check::path(&inside).map_err(|why| InputError::FileName { name: inside.clone(), why }.to_string())?;
    Ok(FileArgument { path, inside })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        let table = [("500ms", 500), ("10s", 10_000), ("10", 10_000), ("2m", 120_000)];
        for (text, expected) in table {
            assert_eq!(duration(text), Ok(Duration::from_millis(expected)), "{text}");
        }
        for text in ["", "s", "0", "0ms", "1h", "-1", "1.5s", "99999999999999999999", "18446744073709551615m"]
        {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn files_go_by_their_name_or_a_given_one() {
        let parse =
            |text: &str| file_argument(text).map(|file| (file.path.display().to_string(), file.inside));
        assert_eq!(parse("/a/b.txt"), Ok(("/a/b.txt".into(), "b.txt".into())));
        assert_eq!(parse("/a/b.txt:d/c"), Ok(("/a/b.txt".into(), "d/c".into())));
        for text in ["/", "a:", "a:/etc/passwd", "a:../x", "a:b//c"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_language_is_guessed_from_the_extension_only() {
        let table = [
            ("a.js", Some(Language::Javascript)),
            ("a.mjs", Some(Language::Javascript)),
            ("a.py", Some(Language::Python)),
            ("x/a.sh", Some(Language::Shell)),
            ("a", None),
            ("a.rb", None),
            (".py", None),
        ];
        for (path, expected) in table {
            assert_eq!(by_extension(Path::new(path)), expected, "{path}");
        }
    }
}
