//! `freeboard grants list`: what the policy gives to whom.

use std::path::PathBuf;

use clap::Subcommand;
use freeboard_policy::{GrantView, Policy, Tier};

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
}

impl Grants {
    pub(super) fn run(self) -> Exit {
        let Self::List { config, policy } = self;
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
    text.push('\n');
    text
}
