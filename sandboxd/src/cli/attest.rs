//! `sandboxd attest`: a key, the process that signs with it, and what anybody does with what it signed.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use freeboard_wire::limits::MAX_RESPONSE_BYTES;
use freeboard_wire::runs::{Envelope, Run};
use rustix::process::{DumpableBehavior, geteuid, set_dumpable_behavior};
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};

use super::{Exit, Failure, put, say};
use crate::attest::{
    DEFAULT_REGISTERS, KeyError, NotQuoted, PrivateKey, PublicKey, QuoteKey, Quoter, REGISTERS, Serving,
    Signer, Statement, StatementError, generate, seal, verify, verify_quote,
};

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
        /// A key in the host's TPM 2.0 that quotes its registers beside each signature: a handle or a context file, as
        /// tpm2_quote takes it
        #[arg(long, value_name = "KEY")]
        tpm_key: Option<String>,
        /// Registers that are quoted
        #[arg(long, value_name = "NUMBERS", value_delimiter = ',', default_values_t = DEFAULT_REGISTERS, requires = "tpm_key",
            value_parser = clap::value_parser!(u8).range(..i64::from(REGISTERS)))]
        tpm_registers: Vec<u8>,
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
        #[command(flatten)]
        quoted: Quoted,
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

/// What a TPM must have said.
#[derive(Debug, clap::Args)]
struct Quoted {
    /// The public half of the TPM's key: every envelope must have its quote
    #[arg(long, value_name = "FILE")]
    tpm_key: Option<PathBuf>,
    /// What a register must be: 64 hex digits; repeat for several
    #[arg(long = "tpm-register", value_name = "NUMBER=VALUE", requires = "tpm_key", value_parser = register)]
    tpm_registers: Vec<(u8, String)>,
}

fn register(text: &str) -> Result<(u8, String), String> {
    let wanted = "write it as NUMBER=VALUE, with 64 hex digits: 7=65ca…";
    let (number, value) = text.split_once('=').ok_or(wanted)?;
    let number = number.parse().ok().filter(|number| *number < REGISTERS).ok_or(wanted)?;
    let plain = value.len() == 64 && value.bytes().all(|digit| digit.is_ascii_hexdigit());
    if plain { Ok((number, value.to_owned())) } else { Err(wanted.to_owned()) }
}

/// The keys that what is verified must be of.
struct Keys {
    signing: PublicKey,
    tpm: Option<QuoteKey>,
    registers: BTreeMap<u8, String>,
}

impl Keys {
    fn signing(file: &Path) -> Result<Self, KeyError> {
        Ok(Self { signing: PublicKey::read(file)?, tpm: None, registers: BTreeMap::new() })
    }

    fn read(signing: &Path, quoted: Quoted) -> Result<Self, KeyError> {
        let tpm = quoted.tpm_key.as_deref().map(QuoteKey::read).transpose()?;
        Ok(Self { tpm, registers: quoted.tpm_registers.into_iter().collect(), ..Self::signing(signing)? })
    }

    /// What an envelope says, when all of these keys say so.
    fn verify(&self, envelope: &Envelope) -> Result<Statement, NotVerified> {
        let statement = verify(envelope, &self.signing)?;
        if let Some(tpm) = &self.tpm {
            verify_quote(envelope, tpm, &self.registers)?;
        }
        Ok(statement)
    }
}

/// Why an envelope does not count.
#[derive(Debug, thiserror::Error)]
enum NotVerified {
    #[error(transparent)]
    Statement(#[from] StatementError),
    #[error("the quote of the TPM does not count")]
    Quote(#[from] NotQuoted),
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
        source: NotVerified,
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
        Action::Serve { key, socket, users, tpm_key, tpm_registers } => {
            let tpm = tpm_key.map(|key| Quoter::new(key, &tpm_registers));
            serve(&key, tpm, &socket, &users)?;
        }
        Action::Sign { by, run } => {
            let run: Run = parse(&run, "answer of freeboard.v1")?;
            let envelope = sign(&by, &run)?;
            put(&format!("{}\n", serde_json::to_string(&envelope)?));
        }
        Action::Verify { public_key, run, quoted, file } => {
            verify_file(&Keys::read(&public_key, quoted)?, run.as_deref(), &file)?;
        }
        Action::Bundle { public_key, runs } => bundle(&Keys::signing(&public_key)?, &runs)?,
    }
    Ok(Exit::Success)
}

/// Nothing of this process is left in a core file, and nobody of the same user traces it.
fn serve(key: &Path, tpm: Option<Quoter>, socket: &Path, users: &[u32]) -> Result<(), Failure> {
    super::log("info");
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let key = PrivateKey::read(key)?;
    let users = if users.is_empty() { vec![geteuid().as_raw()] } else { users.to_vec() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        if let Some(tpm) = &tpm {
            // A chip that does not answer is better known now than when a run has ended.
            tpm.quote(b"start").await?;
        }
        let serving = Serving::at(socket, key, tpm, &users)?;
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

fn verify_file(keys: &Keys, run: Option<&Path>, file: &Path) -> Result<(), Failure> {
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
            tell(&verify_run(keys, run)?);
        }
    } else if value.get("payloadType").is_some() {
        let envelope: Envelope = serde_json::from_value(value).map_err(form("envelope"))?;
        let statement = keys.verify(&envelope)?;
        if let Some(run) = run {
            statement.check_run(&parse(run, "answer of freeboard.v1")?)?;
        }
        tell(&statement);
    } else {
        let run: Run = serde_json::from_value(value).map_err(form("envelope, answer or bundle"))?;
        tell(&verify_run(keys, &run)?);
    }
    Ok(())
}

/// An answer with its attestation: signature, statement, record and result, all of one run.
fn verify_run(keys: &Keys, run: &Run) -> Result<Statement, AttestFailure> {
    let envelope = run.attestation.as_ref().ok_or_else(|| AttestFailure::NoAttestation(run.run.clone()))?;
    let statement = keys.verify(envelope).and_then(|statement| {
        statement.check_run(run)?;
        Ok(statement)
    });
    statement.map_err(|source| AttestFailure::Run { run: run.run.clone(), source })
}

fn bundle(keys: &Keys, files: &[PathBuf]) -> Result<(), Failure> {
    let mut runs = Vec::new();
    for file in files {
        let run: Run = parse(file, "answer of freeboard.v1")?;
        verify_run(keys, &run)?;
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
