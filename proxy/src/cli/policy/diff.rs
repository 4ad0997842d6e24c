//! `freeboard policy diff`: what a change of policy means, for a reviewer and for a pipeline.

use clap::{Args, ValueEnum};
use freeboard_policy::Policy;
use freeboard_policy::diff::{Diff, Verdict};

use super::source::{Source, source};
use super::{Unloaded, load, unloaded};
use crate::cli::{Exit, exit, terminal};

/// How the comparison is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For a terminal
    #[value(alias = "human")]
    Text,
    /// For a comment of a pull request
    Markdown,
    /// For programs
    Json,
}

#[derive(Debug, Args)]
pub(super) struct DiffCommand {
    /// What it was: a folder, a file, `-` for standard input, or git:REV[:PATH]
    #[arg(value_name = "OLD", value_parser = source)]
    old: Source,
    /// What it becomes: as OLD
    #[arg(value_name = "NEW", value_parser = source)]
    new: Source,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// End with 0 when something is only taken away
    #[arg(long)]
    allow_narrower: bool,
}

impl DiffCommand {
    pub(super) fn run(self) -> Exit {
        if self.old == Source::Stdin && self.new == Source::Stdin {
            eprintln!("error: standard input can be one of the two only");
            return Exit::Usage;
        }
        let read = |source: &Source| -> Result<Policy, Exit> {
            load(source).map(|(_, loaded)| loaded.policy).map_err(|why| {
                if let Unloaded::Problems(_) = why {
                    eprintln!("error: `{source}` has errors");
                }
                unloaded(&why)
            })
        };
        let (old, new) = match read(&self.old).and_then(|old| Ok((old, read(&self.new)?))) {
            Ok(both) => both,
            // Neither "same" nor "wider": what has errors is not loaded at all.
            Err(Exit::Problems) => return Exit::Policy,
            Err(exit) => return exit,
        };
        let diff = Diff::between(&old, &new);
        let printed = match self.format {
            Format::Text => terminal::print(&diff.render()),
            Format::Markdown => terminal::print(&diff.render_markdown()),
            Format::Json => match serde_json::to_string(&diff) {
                Ok(text) => terminal::print(&text),
                Err(error) => exit::report(Exit::System, &error),
            },
        };
        match (printed, diff.verdict) {
            (Exit::Success, Verdict::Narrower) if !self.allow_narrower => Exit::Narrower,
            (Exit::Success, Verdict::Wider) => Exit::Wider,
            (printed, _) => printed,
        }
    }
}
