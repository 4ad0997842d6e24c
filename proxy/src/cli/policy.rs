//! `freeboard policy`: the security team's tools for policy files.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use freeboard_policy::render_all;

use super::{Exit, exit, terminal};
use crate::reload::{self, LoadError};

/// Check, explain and test policy files
#[derive(Debug, Args)]
pub struct PolicyCommand {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Check a policy folder and show every problem
    Check {
        #[arg(value_name = "FOLDER")]
        folder: PathBuf,
    },
}

impl PolicyCommand {
    pub(super) fn run(self) -> ExitCode {
        let Verb::Check { folder } = self.verb;
        check(&folder).into()
    }
}

fn check(folder: &std::path::Path) -> Exit {
    match reload::read(folder) {
        Ok(read) => {
            eprint!("{}", render_all(&read.warnings));
            terminal::print(&format!("{} files, digest {}", read.files, read.snapshot.policy.digest()))
        }
        Err(LoadError::Problems(problems)) => {
            eprint!("{}", render_all(&problems));
            Exit::Problems
        }
        Err(error) => exit::report(Exit::Policy, &error),
    }
}
