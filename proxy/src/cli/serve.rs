//! `freeboard serve`: configuration, log to stderr, the app, the exit code.

use std::io::Write as _;
use std::os::fd::RawFd;
use std::path::PathBuf;

use clap::Args;
use freeboard_control::Sockets;
use tracing_subscriber::EnvFilter;

use super::{ConfigFlags, Exit, exit, terminal};
use crate::app::{App, StartError};
use crate::config::Config;
use crate::shutdown::Until;

/// Run the broker until SIGTERM or SIGINT; SIGHUP reloads the policy
#[derive(Debug, Args)]
pub struct Serve {
    #[command(flatten)]
    config: ConfigFlags,
    /// Folder of policy files
    #[arg(long, value_name = "FOLDER")]
    policy: Option<PathBuf>,
    /// Folder of the audit log
    #[arg(long, value_name = "FOLDER")]
    audit: Option<PathBuf>,
    /// Certificate of the interception CA
    #[arg(long, value_name = "FILE")]
    ca_certificate: Option<PathBuf>,
    /// Private key of the interception CA
    #[arg(long, value_name = "FILE")]
    ca_key: Option<PathBuf>,
    /// Socket for sandboxd
    #[arg(long, value_name = "PATH")]
    control_socket: Option<PathBuf>,
    /// User to become when started as root
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Print the effective configuration with the origin of each value, and end
    #[arg(long)]
    print_config: bool,
    /// Write `ready` and a line feed to this file descriptor once everything listens, and close it
    #[arg(long, value_name = "FD")]
    ready_fd: Option<RawFd>,
    /// End in order, as on SIGTERM, when standard input ends: it must be a pipe, which ends when whoever holds it dies
    #[arg(long)]
    stop_with_stdin: bool,
}

impl Serve {
    pub(super) fn run(self) -> Exit {
        match self.serve() {
            Ok(()) => Exit::Success,
            Err(exit) => exit,
        }
    }

    fn serve(self) -> Result<(), Exit> {
        let sockets = Sockets::of_environment();
        let config = self.configuration()?;
        if self.print_config {
            return match terminal::print(&config.print()) {
                Exit::Success => Ok(()),
                exit => Err(exit),
            };
        }
        log_to_stderr();
        let ready = self.ready_fd.map(ready_file).transpose()?;
        let socket = config.control_socket.display().to_string();
        let app = App::start(config, sockets).map_err(|error| failed(&error))?;
        let until = if self.stop_with_stdin { Until::StdinEnds } else { Until::Signal };
        app.run(until, move || tell_ready(&socket, ready)).map_err(|error| failed(&error))
    }

    fn configuration(&self) -> Result<Config, Exit> {
        let mut flags = self.config.clone();
        flags.set.extend(self.user.iter().map(|user| ("user".to_owned(), user.clone())));
        flags.load(&[
            ("policy", self.policy.as_ref()),
            ("audit.folder", self.audit.as_ref()),
            ("ca_certificate", self.ca_certificate.as_ref()),
            ("ca_key", self.ca_key.as_ref()),
            ("control_socket", self.control_socket.as_ref()),
        ])
    }
}

fn ready_file(descriptor: RawFd) -> Result<std::fs::File, Exit> {
    freeboard_control::inherited_file(descriptor).map_err(|error| {
        eprintln!("error: --ready-fd {descriptor} cannot be written: {error}");
        Exit::Usage
    })
}

fn tell_ready(socket: &str, ready: Option<std::fs::File>) {
    eprintln!("freeboard: ready, control socket {socket}");
    if let Some(mut file) = ready {
        // Nobody waits any more when it cannot be written.
        let _ = file.write_all(b"ready\n");
    }
}

/// The level is set by FREEBOARD_LOG, as tracing's filters are written; `info` without it.
fn log_to_stderr() {
    let filter = EnvFilter::try_from_env("FREEBOARD_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    // An error means that a test has set a logger before.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .try_init();
}

fn failed(error: &StartError) -> Exit {
    let exit = exit::report(Exit::from(error), error);
    match error {
        StartError::Ca(_) => exit::hint("`freeboard ca init` makes a CA; `freeboard doctor` checks the rest"),
        StartError::Policy(_) => exit::hint("`freeboard policy check FOLDER` shows every problem"),
        StartError::ReadableSecrets(_) => {
            exit::hint(
                "give each to the broker's user with mode 600, and replace it: others may have read it",
            );
        }
        StartError::Audit(_) => {
            exit::hint("`freeboard audit verify` reads the whole log; nothing is served without one");
        }
        _ => {}
    }
    exit
}
