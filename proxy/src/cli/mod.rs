//! The commands of `freeboard`, one file each. Data goes to stdout, everything else to stderr.

pub mod approvals;
mod ask;
pub mod audit;
pub mod ca;
pub mod doctor;
pub mod exit;
pub mod grants;
pub mod policy;
pub mod serve;
pub mod terminal;

use std::path::PathBuf;

use clap::{Args, CommandFactory as _, Parser, Subcommand};

use crate::config::{Config, Environment, Flags};
pub use exit::Exit;

/// The broker of Freeboard and the security team's tools.
#[derive(Debug, Parser)]
#[command(name = "freeboard", version, max_term_width = 110, propagate_version = true)]
struct Command {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run the broker
    Serve(serve::Serve),
    /// Check, explain and test policy files
    Policy(policy::PolicyCommand),
    /// Read and verify the audit log
    #[command(subcommand)]
    Audit(audit::Audit),
    /// List the grants of the policy; take one away
    #[command(subcommand)]
    Grants(grants::Grants),
    /// Requests that wait for a person: list, approve, deny
    #[command(subcommand)]
    Approvals(approvals::Approvals),
    /// Make and show the interception CA
    #[command(subcommand)]
    Ca(ca::Ca),
    /// Check whether the broker can run here
    Doctor(doctor::Doctor),
    /// Run the programs that print secrets: started by `serve`, with its socket as standard input
    #[command(hide = true)]
    RunHelpers {
        /// User to become
        uid: u32,
        /// Group to become
        gid: u32,
    },
}

/// How the configuration is found and changed; shared by the commands that need it.
#[derive(Debug, Clone, Args)]
pub struct ConfigFlags {
    /// The configuration file [default: /etc/freeboard/freeboard.toml as root, $XDG_CONFIG_HOME/freeboard/freeboard.toml otherwise]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Set an option of [broker], over the file; may be repeated
    #[arg(long = "set", value_name = "OPTION=VALUE", value_parser = assignment)]
    pub set: Vec<(String, String)>,
}

fn assignment(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("OPTION=VALUE is wanted")?;
    Ok((key.to_owned(), value.to_owned()))
}

impl ConfigFlags {
    /// The effective configuration, or the message and exit code.
    pub fn load(&self, more: &[(&str, Option<&PathBuf>)]) -> Result<Config, Exit> {
        let mut set = self.set.clone();
        for (key, path) in more {
            let Some(path) = path else { continue };
            let absolute = std::path::absolute(path).unwrap_or_else(|_| (*path).clone());
            set.push(((*key).to_owned(), absolute.display().to_string()));
        }
        let flags = Flags { config: self.config.clone(), set };
        Config::load(&flags, &Environment::read()).map_err(|error| exit::report(Exit::Config, &error))
    }
}

/// Runs the command line; what `main` ends with.
pub fn main() -> std::process::ExitCode {
    let command = match Command::try_parse() {
        Ok(command) => command,
        Err(error) => {
            // Help and version are no errors and go to stdout; clap knows. A closed pipe is not our concern here.
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage } else { Exit::Success }.into();
        }
    };
    let exit = match command.verb {
        Verb::Serve(serve) => serve.run(),
        Verb::Policy(policy) => return policy.run(),
        Verb::Audit(audit) => audit.run(),
        Verb::Grants(grants) => grants.run(),
        Verb::Approvals(approvals) => approvals.run(),
        Verb::Ca(ca) => ca.run(),
        Verb::Doctor(doctor) => doctor.run(),
        Verb::RunHelpers { uid, gid } => match crate::helpers::runner::serve(uid, gid) {
            Ok(()) => Exit::Success,
            Err(error) => exit::report(Exit::System, &*error),
        },
    };
    exit.into()
}

/// The command line's definition, for the reference page.
pub fn definition() -> clap::Command {
    Command::command()
}
