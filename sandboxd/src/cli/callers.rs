//! `sandboxd callers`: tokens are shown once, on stdout, and stored as hashes.

use std::io::Read;
use std::path::PathBuf;
use std::time::SystemTime;

use clap::Subcommand;

use super::{Exit, Failure, put, say};
use crate::admission::Own;
use crate::callers;
use crate::config::{ConfigError, Environment};
use crate::launch::unix_ms;
use crate::limits::MAX_TOKEN_BYTES;

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
    Create {
        name: String,
        #[command(flatten)]
        grants: GrantArguments,
    },
    /// Add a caller whose token was made elsewhere; it is read from standard input
    Import {
        name: String,
        #[command(flatten)]
        grants: GrantArguments,
    },
    /// Show the callers
    List,
    /// Replace a caller's token
    Rotate {
        name: String,
        /// For how many seconds the old token still counts
        #[arg(long, value_name = "SECONDS", default_value_t = 0)]
        keep_old_for: u64,
    },
    /// Remove a caller
    Revoke { name: String },
}

/// What a caller gets of its own.
#[derive(Debug, clap::Args)]
struct GrantArguments {
    /// `code:run`, or `code:session` too (default: both)
    #[arg(long, value_name = "SCOPE", value_delimiter = ',')]
    scope: Vec<String>,
    /// Runs at once, instead of the daemon's limit for each caller
    #[arg(long, value_name = "RUNS")]
    max_concurrent: Option<u32>,
    /// Runs per minute, instead of the daemon's limit for each caller; 0 = no limit
    #[arg(long, value_name = "RUNS")]
    rate_per_minute: Option<u32>,
    /// Sessions at once, instead of the daemon's limit for each caller; 0 = no cap of its own
    #[arg(long, value_name = "SESSIONS")]
    max_sessions: Option<u32>,
}

impl GrantArguments {
    fn grants(self) -> callers::Grants {
        let own = Own {
            concurrent: self.max_concurrent,
            rate_per_minute: self.rate_per_minute,
            sessions: self.max_sessions,
        };
        callers::Grants { scopes: self.scope, own }
    }
}

/// The token on standard input, without the end of its line.
fn token_of_stdin() -> Result<callers::Token, Failure> {
    let mut text = zeroize::Zeroizing::new(String::new());
    std::io::stdin().lock().take(MAX_TOKEN_BYTES as u64 + 2).read_to_string(&mut text)?;
    Ok(callers::Token::import(text.trim_end_matches(['\r', '\n']))?)
}

pub(super) fn main(arguments: Arguments) -> Result<Exit, Failure> {
    let file = match arguments.file {
        Some(file) => file,
        None => default_file()?,
    };
    match arguments.action {
        Action::Create { name, grants } => {
            let token = callers::Token::random()?;
            callers::add(&file, &name, &token, &grants.grants())?;
            show(token.reveal(), &format!("made `{name}` in {}", file.display()));
        }
        Action::Import { name, grants } => {
            callers::add(&file, &name, &token_of_stdin()?, &grants.grants())?;
            say(&format!("sandboxd: took `{name}` into {}", file.display()));
        }
        Action::Rotate { name, keep_old_for } => {
            let now = unix_ms(SystemTime::now()) / 1000;
            let until = (keep_old_for > 0).then(|| now.saturating_add(keep_old_for));
            let token = callers::rotate(&file, &name, until)?;
            let old = if keep_old_for > 0 { "; the old one still counts for a while" } else { "" };
            show(token.reveal(), &format!("`{name}` has a new token{old}"));
        }
        Action::Revoke { name } => {
            callers::revoke(&file, &name)?;
            say(&format!("removed `{name}`; a daemon that runs forgets it within seconds"));
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
        "sandboxd: {what}; the token above is shown only now. A daemon that runs learns it within seconds."
    ));
}
