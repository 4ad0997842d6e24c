//! `sandboxd attest`: a key, the process that signs with it, and what anybody does with what it signed.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use freeboard_wire::limits::MAX_RESPONSE_BYTES;
use freeboard_wire::runs::{Envelope, Run};
use rustix::process::{DumpableBehavior, geteuid, set_dumpable_behavior};
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};

use super::{Exit, Failure, put, say};
use crate::attest::{PrivateKey, PublicKey, Serving, Signer, Statement, generate, seal, verify};

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Make a key: the private half in FILE, the public half in FILE.pub
    Keygen { file: PathBuf },
    /// Hold a key and sign with it what sandboxd asks for; ends on SIGTERM
    Serve {
        /// The private key, which only its owner can read
        #[arg(long, value_name = "FILE")]
        key: PathBuf,
        /// Where to listen
        #[arg(long, value_name = "PATH")]
        socket: PathBuf,
        /// Number of the user that sandboxd runs as; repeat for several (default: this user)
        #[arg(long = "user", value_name = "UID")]
        users: Vec<u32>,
    },
    /// Sign the record of an answer of freeboard.v1; prints the envelope
    Sign {
        #[command(flatten)]
        by: By,
        /// The answer, as Get gives it; - is standard input
        run: PathBuf,
    },
    /// Verify an envelope, an answer with its attestation, or a bundle, offline
    Verify {
        /// The public key
        #[arg(long, value_name = "FILE")]
        public_key: PathBuf,
        /// The answer that the envelope is about, to be compared too
        #[arg(long, value_name = "FILE")]
        run: Option<PathBuf>,
        /// What to verify; - is standard input
        file: PathBuf,
    },
    /// Put answers with their attestations into one file for an auditor, after verifying each
    Bundle {
        /// The public key
        #[arg(long, value_name = "FILE")]
        public_key: PathBuf,
        /// Answers with an attestation, as Get gives them
        #[arg(required = true)]
        runs: Vec<PathBuf>,
    },
}

/// What signs.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct By {
    /// The process that holds the key
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// The private key itself
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
}

/// Several answers, each with its attestation.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Bundle {
    /// What this file is.
    bundle: String,
    runs: Vec<Run>,
}

const BUNDLE: &str = "freeboard.bundle.v1";

/// Why there is nothing to verify.
#[derive(Debug, thiserror::Error)]
enum AttestFailure {
    #[error("cannot read `{}`", .0.display())]
    Read(PathBuf, #[source] std::io::Error),
    #[error("`{}` is larger than any answer", .0.display())]
    TooLarge(PathBuf),
    #[error("`{}` is no {what}", .file.display())]
    Form {
        file: PathBuf,
        what: &'static str,
        #[source]
        source: serde_json::Error,
    },
    #[error("the run {0} has no attestation")]
    NoAttestation(String),
    #[error("the run {run} does not verify")]
    Run {
        run: String,
        #[source]
        source: crate::attest::StatementError,
    },
    #[error("the bundle is of another version: {0}")]
    Version(String),
}

pub(super) fn main(arguments: Arguments) -> Result<Exit, Failure> {
    match arguments.action {
        Action::Keygen { file } => {
            let public = generate(&file)?;
            say(&format!("sandboxd: made {} and {0}.pub; the key is {}", file.display(), public.id()));
        }
        Action::Serve { key, socket, users } => serve(&key, &socket, &users)?,
        Action::Sign { by, run } => {
            let run: Run = parse(&run, "answer of freeboard.v1")?;
            let envelope = sign(&by, &run)?;
            put(&format!("{}\n", serde_json::to_string(&envelope)?));
        }
        Action::Verify { public_key, run, file } => {
            verify_file(&PublicKey::read(&public_key)?, run.as_deref(), &file)?;
        }
        Action::Bundle { public_key, runs } => bundle(&PublicKey::read(&public_key)?, &runs)?,
    }
    Ok(Exit::Success)
}

/// Nothing of this process is left in a core file, and nobody of the same user traces it.
fn serve(key: &Path, socket: &Path, users: &[u32]) -> Result<(), Failure> {
    super::log("info");
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let key = PrivateKey::read(key)?;
    let users = if users.is_empty() { vec![geteuid().as_raw()] } else { users.to_vec() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let serving = Serving::at(socket, key, &users)?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        say(&format!("sandboxd: signing at {}", socket.display()));
        tokio::select! {
            ended = serving.serve() => ended?,
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        // It may be another's by now; then that one stays without, and is started again.
        let _ = std::fs::remove_file(socket);
        Ok(())
    })
}

fn sign(by: &By, run: &Run) -> Result<Envelope, Failure> {
    match (&by.key, &by.socket) {
        (Some(key), _) => Ok(seal(&PrivateKey::read(key)?, &Statement::of(run)?.to_json()?)),
        (None, socket) => {
            let signer = Signer::new(socket.clone().unwrap_or_default());
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            Ok(runtime.block_on(signer.sign(run))?)
        }
    }
}

fn verify_file(key: &PublicKey, run: Option<&Path>, file: &Path) -> Result<(), Failure> {
    let value: serde_json::Value = parse(file, "JSON")?;
    let form = |what| {
        let file = file.to_owned();
        move |source| AttestFailure::Form { file, what, source }
    };
    if value.get("bundle").is_some() {
        let bundle: Bundle = serde_json::from_value(value).map_err(form("bundle"))?;
        if bundle.bundle != BUNDLE {
            return Err(AttestFailure::Version(bundle.bundle).into());
        }
        for run in &bundle.runs {
            tell(&verify_run(key, run)?);
        }
    } else if value.get("payloadType").is_some() {
        let envelope: Envelope = serde_json::from_value(value).map_err(form("envelope"))?;
        let statement = verify(&envelope, key)?;
        if let Some(run) = run {
            statement.check_run(&parse(run, "answer of freeboard.v1")?)?;
        }
        tell(&statement);
    } else {
        let run: Run = serde_json::from_value(value).map_err(form("envelope, answer or bundle"))?;
        tell(&verify_run(key, &run)?);
    }
    Ok(())
}

/// An answer with its attestation: signature, statement, record and result, all of one run.
fn verify_run(key: &PublicKey, run: &Run) -> Result<Statement, AttestFailure> {
    let envelope = run.attestation.as_ref().ok_or_else(|| AttestFailure::NoAttestation(run.run.clone()))?;
    let statement = verify(envelope, key).and_then(|statement| {
        statement.check_run(run)?;
        Ok(statement)
    });
    statement.map_err(|source| AttestFailure::Run { run: run.run.clone(), source })
}

fn bundle(key: &PublicKey, files: &[PathBuf]) -> Result<(), Failure> {
    let mut runs = Vec::new();
    for file in files {
        let run: Run = parse(file, "answer of freeboard.v1")?;
        verify_run(key, &run)?;
        runs.push(run);
    }
    let bundle = Bundle { bundle: BUNDLE.to_owned(), runs };
    put(&format!("{}\n", serde_json::to_string(&bundle)?));
    Ok(())
}

/// One line for each run that verifies.
fn tell(statement: &Statement) {
    let record = &statement.predicate.record;
    let ending = statement.predicate.ending.word();
    let (run, isolation, provider) = (&record.run, &record.isolation, &record.provider);
    put(&format!("verified\t{run}\t{ending}\t{isolation}\t{provider}\tsha256:{}\n", record.record_sha256));
}

fn parse<T: serde::de::DeserializeOwned>(file: &Path, what: &'static str) -> Result<T, AttestFailure> {
    let failed = |error| AttestFailure::Read(file.to_owned(), error);
    let most = MAX_RESPONSE_BYTES as u64;
    let mut text = Vec::new();
    if file == Path::new("-") {
        std::io::stdin().lock().take(most + 1).read_to_end(&mut text).map_err(failed)?;
    } else {
        std::fs::File::open(file).map_err(failed)?.take(most + 1).read_to_end(&mut text).map_err(failed)?;
    }
    if text.len() as u64 > most {
        return Err(AttestFailure::TooLarge(file.to_owned()));
    }
    serde_json::from_slice(&text).map_err(|source| AttestFailure::Form {
        file: file.to_owned(),
        what,
        source,
    })
}
