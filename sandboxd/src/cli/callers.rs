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
    /// Add a caller; its token is printed once and stored nowhere. One with --subject or --certificate has none
    Create {
        name: String,
        /// Who it is at --issuer: the exact `sub` of its tokens
        #[arg(long, value_name = "SUBJECT", requires = "issuer")]
        subject: Option<String>,
        /// One of the file's issuers, by its exact name
        #[arg(long, value_name = "ISSUER", requires = "subject")]
        issuer: Option<String>,
        /// A URI or DNS name of its client certificate
        #[arg(long, value_name = "NAME", conflicts_with = "subject")]
        certificate: Option<String>,
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
    /// `code:run`, `code:session`, `code:admin` (default: the first two)
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
        Action::Create { name, certificate: Some(certificate), grants, .. } => {
            callers::add_certificate(&file, &name, &certificate, &grants.grants())?;
            say(&format!("sandboxd: made `{name}` in {}", file.display()));
        }
        Action::Create { name, subject: Some(subject), issuer: Some(issuer), grants, .. } => {
            let subject = callers::Subject { issuer, subject };
            callers::add_subject(&file, &name, &subject, &grants.grants())?;
            say(&format!("sandboxd: made `{name}` in {}", file.display()));
        }
        Action::Create { name, grants, .. } => {
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
            let now = unix_ms(SystemTime::now()) / 1000;
            for caller in callers.entries() {
                put(&format!(
                    "{}\t{}\t{}\t{}\n",
                    caller.id,
                    caller.scopes.join(","),
                    known_by(caller, now),
                    own(caller)
                ));
            }
        }
    }
    Ok(Exit::Success)
}

/// What a caller is known by: the beginning of a hash, an identity elsewhere, a token that still counts.
fn known_by(caller: &callers::Caller, now_unix: u64) -> String {
    let begin = |hash: &str| format!("sha256:{}…", hash.get(..12).unwrap_or_default());
    let mut known: Vec<String> = caller.token_sha256.iter().map(|hash| begin(hash)).collect();
    if let (Some(issuer), Some(subject)) = (&caller.issuer, &caller.subject) {
        known.push(format!("{subject} of {issuer}"));
    }
    known.extend(caller.certificate.iter().map(|name| format!("certificate {name}")));
    if let Some(old) = caller.previous.as_ref().filter(|old| old.until_unix > now_unix) {
        known.push(format!("{} for {} s more", begin(&old.token_sha256), old.until_unix - now_unix));
    }
    known.join(", ")
}

/// Limits of its own, or `-`.
fn own(caller: &callers::Caller) -> String {
    let limits = [
        ("max_concurrent", caller.max_concurrent),
        ("rate_per_minute", caller.rate_per_minute),
        ("max_sessions", caller.max_sessions),
    ];
    let own: Vec<String> =
        limits.into_iter().filter_map(|(name, limit)| Some(format!("{name}={}", limit?))).collect();
    if own.is_empty() { "-".to_owned() } else { own.join(",") }
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
