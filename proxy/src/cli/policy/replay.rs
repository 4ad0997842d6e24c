//! `freeboard policy replay`: recorded requests under another policy.

use std::path::PathBuf;

use clap::Args;
use freeboard_policy::replay::{Record, Replayer};

use super::source::{Source, source};
use super::{Format, load, log, now_unix, unloaded};
use crate::cli::{Exit, exit, terminal};

#[derive(Debug, Args)]
pub(super) struct Replay {
    /// Folder of the audit log, or one file of it
    #[arg(value_name = "AUDIT")]
    audit: PathBuf,
    /// The policy to decide by: a folder, a file, `-` for standard input, or git:REV[:PATH]
    #[arg(long, value_name = "POLICY", value_parser = source)]
    policy: Source,
    /// Decide as if each run had named this grant; may be repeated [default: the grants that it named]
    #[arg(long = "grant", value_name = "NAME")]
    grants: Vec<String>,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

impl Replay {
    pub(super) fn run(self) -> Exit {
        let policy = match load(&self.policy) {
            Ok((_, loaded)) => loaded.policy,
            Err(why) => return unloaded(&why),
        };
        let mut replayer = Replayer::new(&policy, now_unix());
        let named = (!self.grants.is_empty()).then_some(self.grants);
        let again = |record: Record| {
            let grants = named.clone().or(record.grants);
            replayer.add(&Record { grants, ..record });
        };
        match log::read(&self.audit, again) {
            Ok(gaps) => gaps.warn(),
            Err(error) => return exit::report(Exit::Audit, &error),
        }
        let replay = replayer.finish();
        let printed = match self.format {
            Format::Text => terminal::print(&replay.render()),
            Format::Json => match serde_json::to_string(&replay) {
                Ok(text) => terminal::print(&text),
                Err(error) => exit::report(Exit::System, &error),
            },
        };
        // Something that worked would stop, or wait: the answer to "may this policy be used as it is?" is no.
        let stops = replay.now_refused > 0 || replay.needs_approval > 0;
        if printed == Exit::Success && stops { Exit::Problems } else { printed }
    }
}
