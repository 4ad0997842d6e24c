//! `freeboard grants`: what the policy gives to whom, and how it is taken away from those who run.

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};
use freeboard_control::{Revocation, Revoked};
use freeboard_policy::{GrantView, Policy, Tier};

use super::ask::ask;
use super::{ConfigFlags, Exit, exit, terminal};
use crate::reload;

/// The grants of the policy
#[derive(Debug, Subcommand)]
pub enum Grants {
    /// List every grant with its callers, floor and routes
    List {
        #[command(flatten)]
        config: ConfigFlags,
        /// Folder of policy files
        #[arg(long, value_name = "FOLDER")]
        policy: Option<PathBuf>,
    },
    /// Take grants away at once: what is in flight under them is cut, and new requests and runs are refused
    ///
    /// It holds until the broker starts anew. Change the policy too.
    Revoke {
        /// From whom
        #[arg(value_name = "KIND")]
        of: From,
        /// Id of the run, name of the caller or of the grant
        name: String,
        /// Who says so; goes into the audit log
        #[arg(long, value_name = "NAME")]
        by: String,
        #[command(flatten)]
        config: ConfigFlags,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum From {
    /// All grants of one run
    Run,
    /// All grants of a session, by the fingerprint that audit records have
    Session,
    /// All grants of every run of a caller
    Caller,
    /// One grant of every run
    Grant,
}

impl Grants {
    pub(super) fn run(self) -> Exit {
        let (config, policy) = match self {
            Self::List { config, policy } => (config, policy),
            Self::Revoke { of, name, by, config } => return revoke(of, name, by, &config),
        };
        let config = match config.load(&[("policy", policy.as_ref())]) {
            Ok(config) => config,
            Err(exit) => return exit,
        };
        match reload::read(&config.policy) {
            Ok(read) => terminal::print(&table(&read.snapshot.policy)),
            Err(error) => exit::report(Exit::Policy, &error),
        }
    }
}

fn revoke(of: From, name: String, by: String, config: &ConfigFlags) -> Exit {
    let of = match of {
        From::Run => Revoked::Run,
        From::Session => Revoked::Session,
        From::Caller => Revoked::Caller,
        From::Grant => Revoked::Grant,
    };
    ask(config, async |client| {
        let runs = client.revoke(Revocation { of, name, by }).await?;
        let exit = terminal::print(&format!("revoked: {runs} open runs had it"));
        exit::hint("it holds until the broker starts anew; change the policy too");
        Ok(exit)
    })
}

fn table(policy: &Policy) -> String {
    let mut text = String::new();
    for grant in policy.grants() {
        text.push_str(&line(grant));
    }
    if text.is_empty() { "the policy has no grants".to_owned() } else { text }
}

fn line(grant: &GrantView) -> String {
    let mut text = format!("{} floor={}", grant.name, grant.floor.map_or("none", Tier::word));
    let numbers = [
        ("ttl_seconds", grant.ttl_seconds),
        ("calls", grant.calls),
        ("per_minute", grant.per_minute),
        ("concurrent", grant.concurrent),
        ("request_bytes", grant.request_bytes),
        ("response_bytes", grant.response_bytes),
    ];
    for (name, number) in numbers {
        if let Some(number) = number {
            text.push_str(&format!(" {name}={number}"));
        }
    }
    if grant.sessions {
        text.push_str(" sessions=true");
    }
    text.push('\n');
    text
}
