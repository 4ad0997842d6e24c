//! A new policy and its credentials as one generation, at the start, on SIGHUP and when the files change.
//!
//! In: the policy folder. Out: a [`Snapshot`] in force, or the last good one and a record that says why.

pub mod commit;
pub mod folder;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use freeboard_audit::{
    Event, Finding, Loaded as Cause, PolicyIdentity, PolicyLoaded, ReloadRefused, Severity,
};
use freeboard_policy::{Diagnostic, Policy, Reason, render_all};

use crate::broker::{Broker, Snapshot};
use crate::credential::{Store, unready};
use folder::FolderError;

/// Why there is no new policy.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error("the policy has {} problems:\n{}", .0.len(), render_all(.0))]
    Problems(Vec<Diagnostic>),
}

impl LoadError {
    fn count(&self) -> usize {
        match self {
            Self::Folder(_) => 1,
            Self::Problems(problems) => problems.len(),
        }
    }

    /// The first problem in one line.
    fn first(&self) -> String {
        match self {
            Self::Folder(error) => std::error::Error::source(error)
                .map_or_else(|| error.to_string(), |source| format!("{error}: {source}")),
            Self::Problems(problems) => problems.first().map(one_line).unwrap_or_default(),
        }
    }
}

fn one_line(problem: &Diagnostic) -> String {
    let place = problem.place.as_ref();
    let place = place.map(|place| format!(" ({}:{}:{})", place.file, place.line, place.column));
    format!("{}{}", problem.message, place.unwrap_or_default())
}

/// What was read.
#[derive(Debug)]
pub struct Read {
    pub snapshot: Snapshot,
    pub files: usize,
    pub warnings: Vec<Diagnostic>,
}

/// Reads and checks the folder. Blocks: for the start and for a thread of its own.
pub fn read(folder: &Path) -> Result<Read, LoadError> {
    folder::refuse_writable(folder)?;
    let files = folder::read(folder)?;
    let loaded = Policy::load(&files).map_err(LoadError::Problems)?;
    let snapshot = Snapshot::new(loaded.policy, commit::commit(folder), Store::default());
    Ok(Read { snapshot, files: files.len(), warnings: loaded.warnings })
}

/// The policy as records name it.
pub fn identity(snapshot: &Snapshot) -> Arc<PolicyIdentity> {
    Arc::clone(&snapshot.identity)
}

type Fingerprint = Option<Vec<(String, u64, std::time::SystemTime)>>;

/// Reloads on request and notices changes.
#[derive(Debug)]
pub struct Reloader {
    folder: PathBuf,
    broker: Arc<Broker>,
    generation: u64,
    /// Of the files that were loaded or refused last.
    settled: Fingerprint,
    /// Of the last look.
    seen: Fingerprint,
}

impl Reloader {
    /// For a broker that runs with what `read` gave at the start; records that.
    pub fn new(folder: PathBuf, broker: Arc<Broker>, files: usize, warnings: usize) -> Self {
        let settled = folder::fingerprint(&folder);
        let reloader = Self { folder, broker, generation: 1, seen: settled.clone(), settled };
        reloader.record_loaded(Cause::Start, files, warnings);
        reloader
    }

    /// Number of the generation in force.
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// Looks at the files; loads them when they changed and two looks in a row saw the same. Blocks for as long as reading
    /// takes.
    pub fn look(&mut self) {
        let now = folder::fingerprint(&self.folder);
        let still = now == self.seen;
        self.seen = now;
        if still && self.seen != self.settled {
            self.reload(Cause::FileChange);
        }
    }

    /// Loads the files. What does not load leaves the generation in force and is recorded as a finding (ATTACKS G15).
    pub fn reload(&mut self, cause: Cause) {
        // Taken before reading: a change while we read is seen at the next look.
        self.settled = folder::fingerprint(&self.folder);
        match read(&self.folder) {
            Ok(read) if self.same(&read.snapshot) => {
                tracing::info!("policy unchanged");
                self.replace(cause, read);
            }
            Ok(read) => self.replace(cause, read),
            Err(error) => self.refused(cause, &error),
        }
    }

    /// Whether policy and commit are those in force. Credentials are read anew all the same.
    fn same(&self, snapshot: &Snapshot) -> bool {
        identity(snapshot) == identity(&self.broker.snapshot())
    }

    fn replace(&mut self, cause: Cause, read: Read) {
        for warning in &read.warnings {
            tracing::warn!("{}", one_line(warning));
        }
        self.generation += 1;
        self.broker.replace(read.snapshot);
        tracing::info!(generation = self.generation, digest = %self.broker.snapshot().policy.digest(), "policy loaded");
        self.record_loaded(cause, read.files, read.warnings.len());
    }

    fn refused(&self, cause: Cause, error: &LoadError) {
        self.broker.metrics.policies_refused.one_more();
        tracing::error!(generation = self.generation, "reload refused, the last good policy stays: {error}");
        let event = Event::ReloadRefused(ReloadRefused {
            generation: self.generation,
            cause,
            problems: error.count(),
            detail: error.first().into(),
        });
        self.record(event);
    }

    fn record_loaded(&self, cause: Cause, files: usize, warnings: usize) {
        let metrics = &self.broker.metrics;
        metrics.policies_loaded.one_more();
        metrics.policy_loaded_at.set(self.broker.clock.now().unix_ms / 1000);
        self.record(Event::PolicyLoaded(PolicyLoaded {
            generation: self.generation,
            cause,
            files,
            warnings,
        }));
        self.record_unready();
    }

    /// Says which credentials requests would be refused for. The policy is in force all the same: what needs no credential, or
    /// another one, goes on, and a secret that is mended is used without a reload.
    fn record_unready(&self) {
        let unready = unready(&self.broker.snapshot().policy);
        self.broker.metrics.credentials_unready.set(unready.len() as u64);
        for found in unready {
            tracing::error!(credential = %found.credential, "its requests will be refused: {}", found.problem);
            self.record(Event::Finding(Finding {
                severity: Severity::Error,
                code: Reason::CredentialUnavailable.code().into(),
                credential: Some(found.credential),
                detail: found.problem.into(),
            }));
        }
    }

    fn record(&self, event: Event) {
        let policy = identity(&self.broker.snapshot());
        if self.broker.recorder.event(None, Some(policy), event).is_err() {
            tracing::error!("the policy event was not recorded: the audit log cannot be written");
        }
    }
}
