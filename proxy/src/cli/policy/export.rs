//! `freeboard policy export`: what a grant allows, in the words of those who use it.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use freeboard_policy::export;

use super::source::Source;
use super::{load, unloaded};
use crate::cli::{Exit, exit, terminal};

#[derive(Debug, Subcommand)]
pub(super) enum Export {
    /// One tool for each route of a grant, as a model is told of it
    Tools(Tools),
}

#[derive(Debug, Args)]
pub(super) struct Tools {
    /// Folder of policy files, or one file
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// The grant
    #[arg(long, value_name = "NAME")]
    grant: String,
    /// For whom
    #[arg(long, value_enum, default_value = "mcp")]
    format: Format,
}

/// How tools are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// The answer to `tools/list` of the Model Context Protocol
    Mcp,
    /// The `tools` of a chat request
    Openai,
    /// A page for people
    Markdown,
}

impl Export {
    pub(super) fn run(self) -> Exit {
        match self {
            Self::Tools(tools) => tools.run(),
        }
    }
}

impl Tools {
    fn run(self) -> Exit {
        let policy = match load(&Source::Path(self.folder)) {
            Ok((_, loaded)) => loaded.policy,
            Err(why) => return unloaded(&why),
        };
        let Some(surface) = policy.client_surface(&self.grant) else {
            eprintln!("error: the policy has no grant `{}`", self.grant.escape_debug());
            let names: Vec<&str> = policy.grants().map(|grant| &*grant.name).take(10).collect();
            exit::hint(&format!("grants are {}", names.join(", ")));
            return Exit::Usage;
        };
        for (route, reason) in &surface.left_out {
            eprintln!("left out: `{route}`: {reason}");
        }
        let format = match self.format {
            Format::Mcp => export::Format::Mcp,
            Format::Openai => export::Format::Openai,
            Format::Markdown => export::Format::Markdown,
        };
        terminal::print(&surface.render(format))
    }
}
