//! `sandboxd callers`: tokens are shown once, on stdout, and stored as hashes.

use std::path::PathBuf;

use clap::Subcommand;

use super::{Exit, Failure, put, say};
use crate::callers;
use crate::config::{ConfigError, Environment};

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The callers file (default: /etc/freeboard/callers.toml, or that of the user)
    #[arg(long, value_name = "FILE", global = true)]
    file: Option<PathBuf>,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Add a caller; its token is printed once and stored nowhere
    Create { name: String },
    /// Show the callers
    List,
    /// Replace a caller's token
    Rotate { name: String },
    /// Remove a caller
    Revoke { name: String },
}

pub(super) fn main(arguments: Arguments) -> Result<Exit, Failure> {
    let file = match arguments.file {
        Some(file) => file,
        None => default_file()?,
    };
    match arguments.action {
        Action::Create { name } => {
            let token = callers::create(&file, &name)?;
            show(token.reveal(), &format!("made `{name}` in {}", file.display()));
        }
        Action::Rotate { name } => {
            let token = callers::rotate(&file, &name)?;
            show(token.reveal(), &format!("`{name}` has a new token"));
        }
        Action::Revoke { name } => {
            callers::revoke(&file, &name)?;
            say(&format!("removed `{name}`; a daemon that runs forgets it on SIGHUP"));
        }
        Action::List => {
            let callers = callers::list(&file)?;
            for caller in callers.entries() {
                let begin = caller.token_sha256.get(..12).unwrap_or_default();
                put(&format!("{}\t{}\tsha256:{begin}…\n", caller.id, caller.scopes.join(",")));
            }
        }
    }
    Ok(Exit::Success)
}

fn default_file() -> Result<PathBuf, ConfigError> {
    let folder = Environment::read().config_folder();
    let missing = ConfigError::NoFolder { what: "folder for the callers file", variable: "HOME" };
    Ok(folder.ok_or(missing)?.join("callers.toml"))
}

fn show(token: &str, what: &str) {
    put(&format!("{token}\n"));
    say(&format!(
        "sandboxd: {what}; the token above is shown only now. A daemon that runs learns it on SIGHUP."
    ));
}
