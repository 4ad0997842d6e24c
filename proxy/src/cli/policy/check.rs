//! `freeboard policy check`: every problem of a policy, for people and for programs.

use std::path::{Component, Path, PathBuf};

use clap::Args;
use freeboard_policy::{Allowed, Diagnostic, Loaded, Policy, render_all};
use serde_json::json;

use super::problems::{self, Format};
use super::source::{self, Source};
use super::{Unloaded, count, load, plural, unloaded};
use crate::cli::{Exit, terminal};

#[derive(Debug, Args)]
pub(super) struct Check {
    /// Folder of policy files, one file, `-` for standard input, or git:REV[:PATH]
    #[arg(value_name = "FOLDER", value_parser = source::source)]
    folder: Source,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// Count warnings as problems
    #[arg(long)]
    deny_warnings: bool,
}

impl Check {
    pub(super) fn run(self) -> Exit {
        let (loaded, problems) = match load(&self.folder) {
            Ok((files, Loaded { policy, warnings, allowed })) => {
                (Some(Good { files, policy, allowed }), warnings)
            }
            Err(Unloaded::Problems(problems)) => (None, problems),
            Err(why) => return unloaded(&why),
        };
        let failed = loaded.is_none() || (self.deny_warnings && !problems.is_empty());
        let folder = folder_of(&self.folder);
        let printed = match self.format {
            Format::Sarif => {
                let allowed = loaded.as_ref().map(|good| good.allowed.as_slice()).unwrap_or_default();
                terminal::print(&problems::sarif(&problems, allowed, &folder))
            }
            Format::Github if problems.is_empty() => Exit::Success,
            Format::Github => terminal::print(&problems::github(&problems, &folder)),
            Format::Json => terminal::print(&as_json(loaded.as_ref(), &problems, failed)),
            Format::Text => text(loaded.as_ref(), problems, failed),
        };
        if failed && printed == Exit::Success { Exit::Problems } else { printed }
    }
}

/// A policy that loads.
struct Good {
    files: usize,
    policy: Policy,
    allowed: Vec<Allowed>,
}

fn as_json(loaded: Option<&Good>, problems: &[Diagnostic], failed: bool) -> String {
    let mut report = json!({ "ok": !failed, "problems": problems });
    if let (Some(good), Some(fields)) = (loaded, report.as_object_mut()) {
        fields.insert("digest".to_owned(), json!(good.policy.digest()));
        fields.insert("files".to_owned(), json!(good.files));
        fields.insert("allowed".to_owned(), json!(good.allowed));
    }
    report.to_string()
}

fn text(loaded: Option<&Good>, problems: Vec<Diagnostic>, failed: bool) -> Exit {
    let Some(good) = loaded else { return unloaded(&Unloaded::Problems(problems)) };
    eprint!("{}", render_all(&problems));
    let mut counts =
        vec![plural(good.files, "file"), plural(good.policy.grants().count(), "grant"), count(&problems)];
    if !good.allowed.is_empty() {
        counts.push(format!("{} allowed", good.allowed.len()));
    }
    let verdict = if failed { "refused" } else { "ok" };
    terminal::print(&format!("{verdict}: {}\ndigest {}", counts.join(", "), good.policy.digest()))
}

/// What stands before the names of the files, seen from where the command was started.
fn folder_of(source: &Source) -> String {
    let folder = match source {
        Source::Path(path) if path.is_dir() => path.as_path(),
        Source::Path(path) => path.parent().unwrap_or(Path::new("")),
        Source::Stdin => Path::new(""),
        Source::Git { path, .. } => Path::new(path),
    };
    let parts = folder.components().filter(|part| !matches!(part, Component::CurDir));
    parts.collect::<PathBuf>().display().to_string()
}
