//! `freeboard ca init`, `freeboard ca show` and `freeboard ca rotate`.

use std::path::PathBuf;

use clap::Subcommand;

use super::{ConfigFlags, Exit, exit, terminal};
use crate::broker::Clock;
use crate::config::Config;
use crate::tls::{CaError, CertificateAuthority, NewCa, Rotation, Stage};

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
    /// Replace the CA in three steps: `prepare`, `switch`, `finish`. Restart the broker after each, and wait before the next
    /// until every run from before it has ended
    Rotate {
        #[command(flatten)]
        files: Files,
        /// The step to take
        step: Step,
    },
    /// Show the CA's certificate as PEM; its facts go to stderr
    Show {
        #[command(flatten)]
        files: Files,
    },
}

/// A step of a rotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Step {
    /// Make the next CA; new runs trust it beside the one that signs
    Prepare,
    /// Let the next CA sign; runs from before still trust the one that signed
    Switch,
    /// Forget the CA from before the switch
    Finish,
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
            Self::Rotate { files, step } => rotate(&files, step),
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

fn rotate(files: &Files, step: Step) -> Result<Exit, Exit> {
    let config = files.config()?;
    let rotation = Rotation::new(&config.ca_certificate, &config.ca_key);
    let now = Clock.now().unix_seconds();
    let failed = |error: CaError| exit::report(Exit::Ca, &error);
    match (step, rotation.stage()) {
        (Step::Prepare, Stage::Settled) => {
            let ca =
                CertificateAuthority::load(&config.ca_certificate, &config.ca_key, now).map_err(failed)?;
            let mut new = NewCa { permitted_names: ca.permitted_names().to_vec(), ..NewCa::default() };
            // A name of its own: some clients tell two authorities in one bundle apart by their names.
            let day = freeboard_audit::rfc3339_ms(u64::try_from(now).unwrap_or_default() * 1000);
            new.name = format!("{} {}", new.name, day.get(..10).unwrap_or_default());
            let next = rotation.prepare(&new, now).map_err(failed)?;
            eprintln!("made the next CA; it signs nothing yet");
            tell_facts(&next);
            exit::hint(
                "restart the broker; when every run from before has ended: `freeboard ca rotate switch`",
            );
        }
        (Step::Switch, Stage::Prepared) => {
            rotation.switch(now).map_err(failed)?;
            eprintln!("the next CA signs from the next start of the broker on");
            exit::hint(
                "restart the broker; when every run from before has ended: `freeboard ca rotate finish`",
            );
        }
        (Step::Finish, Stage::Switched) => {
            rotation.finish().map_err(failed)?;
            eprintln!("the CA from before the switch is forgotten from the next start of the broker on");
        }
        (_, stage) => {
            let next = match stage {
                Stage::Settled => "no rotation is going on: `prepare` begins one",
                Stage::Prepared => "the next CA is prepared: `switch` is the next step",
                Stage::Switched => "the CA was switched: `finish` is the next step",
            };
            eprintln!("error: {next}");
            return Err(Exit::Problems);
        }
    }
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
