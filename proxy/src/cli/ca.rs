//! `freeboard ca init` and `freeboard ca show`.

use std::path::PathBuf;

use clap::Subcommand;

use super::{ConfigFlags, Exit, exit, terminal};
use crate::broker::Clock;
use crate::config::Config;
use crate::tls::{CertificateAuthority, NewCa};

/// The interception CA, which guests trust
#[derive(Debug, Subcommand)]
pub enum Ca {
    /// Make a CA: a certificate, and a key of mode 0600. Never overwrites one
    Init {
        #[command(flatten)]
        files: Files,
        /// Common name of the certificate
        #[arg(long, value_name = "TEXT")]
        name: Option<String>,
        /// Limit the CA to this domain and what is below it (name constraint); may be repeated
        #[arg(long, value_name = "DOMAIN")]
        permit: Vec<String>,
    },
    /// Show the CA's certificate as PEM; its facts go to stderr
    Show {
        #[command(flatten)]
        files: Files,
    },
}

#[derive(Debug, clap::Args)]
pub struct Files {
    #[command(flatten)]
    config: ConfigFlags,
    /// Certificate of the interception CA
    #[arg(long, value_name = "FILE")]
    ca_certificate: Option<PathBuf>,
    /// Private key of the interception CA
    #[arg(long, value_name = "FILE")]
    ca_key: Option<PathBuf>,
}

impl Files {
    fn config(&self) -> Result<Config, Exit> {
        self.config
            .load(&[("ca_certificate", self.ca_certificate.as_ref()), ("ca_key", self.ca_key.as_ref())])
    }
}

impl Ca {
    pub(super) fn run(self) -> Exit {
        let done = match self {
            Self::Init { files, name, permit } => init(&files, name, permit),
            Self::Show { files } => show(&files),
        };
        done.unwrap_or_else(|exit| exit)
    }
}

fn init(files: &Files, name: Option<String>, permit: Vec<String>) -> Result<Exit, Exit> {
    let config = files.config()?;
    let mut new = NewCa { permitted_names: permit, ..NewCa::default() };
    if let Some(name) = name {
        new.name = name;
    }
    for path in [&config.ca_certificate, &config.ca_key] {
        make_folder(path)?;
    }
    let now = Clock.now().unix_seconds();
    let ca = CertificateAuthority::create(&new, &config.ca_certificate, &config.ca_key, now)
        .map_err(|error| exit::report(Exit::Ca, &error))?;
    eprintln!("made {} and its key {}", config.ca_certificate.display(), config.ca_key.display());
    tell_facts(&ca);
    Ok(Exit::Success)
}

fn show(files: &Files) -> Result<Exit, Exit> {
    let config = files.config()?;
    let now = Clock.now().unix_seconds();
    let ca = CertificateAuthority::load(&config.ca_certificate, &config.ca_key, now).map_err(|error| {
        let exit = exit::report(Exit::Ca, &error);
        exit::hint("`freeboard ca init` makes a CA");
        exit
    })?;
    tell_facts(&ca);
    Ok(terminal::print(&ca.anchor_pem()))
}

fn tell_facts(ca: &CertificateAuthority) {
    let (from, until) = ca.validity();
    let time = |seconds: i64| freeboard_audit::rfc3339_ms(u64::try_from(seconds).unwrap_or_default() * 1000);
    eprintln!("SHA-256 fingerprint {}", ca.fingerprint());
    eprintln!("valid from {} until {}", time(from), time(until));
    match ca.permitted_names() {
        [] => eprintln!("for every name"),
        names => eprintln!("for these domains only: {}", names.join(", ")),
    }
}

fn make_folder(path: &std::path::Path) -> Result<(), Exit> {
    use std::os::unix::fs::DirBuilderExt as _;
    let Some(folder) = path.parent().filter(|folder| !folder.exists()) else { return Ok(()) };
    std::fs::DirBuilder::new().recursive(true).mode(0o755).create(folder).map_err(|error| {
        eprintln!("error: cannot create `{}`: {error}", folder.display());
        Exit::Ca
    })
}
