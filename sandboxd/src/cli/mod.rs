//! The command line: one file per command. Data goes to stdout, everything else to stderr.

mod ahead;
mod attest;
mod callers;
mod demo;
mod describe;
mod doctor;
mod exit;
mod mcp;
mod run;
mod serve;
mod start;

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

pub use exit::Exit;

/// Runs programs behind a measured boundary, from which only granted requests go out.
#[derive(Debug, Parser)]
#[command(name = "sandboxd", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the API to callers
    Serve(serve::Arguments),
    /// Run one program here and now
    Run(run::Arguments),
    /// Show what this host can run, and behind which tier
    Describe(describe::Arguments),
    /// Check configuration, host, broker and providers
    Doctor(doctor::Arguments),
    /// Show everything on this machine, in plain words
    Demo(demo::Arguments),
    /// Make, list, rotate and revoke callers' tokens
    Callers(callers::Arguments),
    /// Sign the records of runs, and verify them
    Attest(attest::Arguments),
    /// Let a model run programs: a server of the Model Context Protocol
    Mcp(mcp::Arguments),
}

/// `run` without the other commands: defining all of them is a tenth of what a short run executes by itself.
#[derive(Debug, Parser)]
#[command(name = "sandboxd")]
struct RunAlone {
    #[command(subcommand)]
    command: RunCommand,
}

#[derive(Debug, Subcommand)]
enum RunCommand {
    Run(run::Arguments),
}

impl RunAlone {
    /// `None` for other commands, for help and for mistakes: those are for the whole definition.
    fn parse(arguments: &[OsString]) -> Option<run::Arguments> {
        if arguments.get(1).is_none_or(|command| command != "run") {
            return None;
        }
        let RunCommand::Run(parsed) = Self::try_parse_from(arguments).ok()?.command;
        Some(parsed)
    }
}

/// The whole program. Single-threaded when a command begins.
pub fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let ahead = ahead::begin(&arguments);
    if let Some(arguments) = RunAlone::parse(&arguments) {
        return run::main(arguments, ahead);
    }
    drop(ahead);
    let parsed = match Arguments::try_parse_from(&arguments) {
        Ok(parsed) => parsed,
        Err(error) => {
            // Cannot fail in a way that anybody could be told about.
            let _ = error.print();
            let of_run = arguments.get(1).is_some_and(|command| command == "run");
            return match (error.use_stderr(), of_run) {
                (false, _) => Exit::Success.into(),
                (true, true) => Exit::NotStarted.into(),
                (true, false) => Exit::Usage.into(),
            };
        }
    };
    let ended = match parsed.command {
        Command::Serve(arguments) => serve::main(arguments),
        Command::Run(arguments) => return run::main(arguments, None),
        Command::Describe(arguments) => describe::main(&arguments),
        Command::Doctor(arguments) => doctor::main(&arguments),
        Command::Demo(arguments) => demo::main(arguments),
        Command::Callers(arguments) => callers::main(arguments),
        Command::Attest(arguments) => attest::main(arguments),
        Command::Mcp(arguments) => mcp::main(&arguments),
    };
    match ended {
        Ok(exit) => exit.into(),
        Err(failure) => {
            report(failure.as_ref());
            Exit::Failure.into()
        }
    }
}

/// Why a command did not do its work.
type Failure = Box<dyn std::error::Error>;

/// An error and its causes, one line, to stderr.
fn report(error: &dyn std::error::Error) {
    say(&format!("error: {}", crate::causes::chain(error)));
}

/// One line to stderr. Nobody reads it any more when that fails.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// Text to stdout. A reader that is gone ends the output, not the program.
fn put(text: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}

/// Log lines on stderr; `RUST_LOG` chooses others than `default`.
fn log(default: &str) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    // Set already only in tests.
    let _ = subscriber.try_init();
}

/// The command line's definition, for the reference page.
pub fn definition() -> clap::Command {
    <Arguments as clap::CommandFactory>::command()
}
