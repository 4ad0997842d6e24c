//! `freeboard policy learn`: a grant for review that covers what a caller was seen to do.

use std::path::PathBuf;

use clap::Args;
use freeboard_policy::SourceFile;
use freeboard_policy::import::ImportError;
use freeboard_policy::learn::{Learner, Options};

use super::source::{Source, source};
use super::{files, log, unloaded};
use crate::cli::{Exit, exit, terminal};

#[derive(Debug, Args)]
pub(super) struct Learn {
    /// Folder of the audit log, or one file of it
    #[arg(value_name = "AUDIT")]
    audit: PathBuf,
    /// Caller whose requests are looked at; may be repeated
    #[arg(long = "caller", value_name = "NAME", required = true)]
    callers: Vec<String>,
    /// Name of the grant
    #[arg(long, value_name = "NAME", default_value = "learnt")]
    grant: String,
    /// Take requests that rules refused, too
    #[arg(long)]
    include_refused: bool,
    /// The policy that the file is for: its APIs are used, and the file is checked beside its files
    #[arg(long, value_name = "POLICY", value_parser = source)]
    policy: Option<Source>,
}

impl Learn {
    pub(super) fn run(self) -> Exit {
        let beside = self.policy.as_ref().map(|source| files(source, SourceFile::is_policy)).transpose();
        let beside = match beside {
            Ok(files) => files.unwrap_or_default(),
            Err(why) => return unloaded(&why),
        };
        let callers = self.callers.join(", ");
        let mut learner = Learner::new(Options {
            callers: self.callers,
            grant: self.grant,
            include_refused: self.include_refused,
            beside,
        });
        match log::read(&self.audit, |record| learner.add(&record)) {
            Ok(gaps) => gaps.warn(),
            Err(error) => return exit::report(Exit::Audit, &error),
        }
        match learner.finish() {
            Ok(learnt) => {
                eprint!("{}", learnt.report.render());
                terminal::print(&learnt.policy)
            }
            Err(ImportError::Nothing(report)) => {
                eprint!("{}", report.render());
                eprintln!("error: no request of {callers} is in the log");
                if !self.include_refused {
                    exit::hint("requests that rules refused are taken with `--include-refused`");
                }
                Exit::Problems
            }
            Err(error) => exit::report(Exit::Problems, &error),
        }
    }
}
