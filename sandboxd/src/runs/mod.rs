//! Started runs: they outlive the exchange that started them, and are remembered when they have ended.
//!
//! start (a key is looked up, the run is written down) -> the launcher's whole life of a run, with its output kept as it comes
//! -> end (written down, then told). `table` knows which runs there are; `entry` is one of them; `journal` is what survives
//! this process: with it a run that may have executed is never taken for one that did not.

mod entry;
mod journal;
mod store;
mod table;

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use freeboard_wire::runs::{Ending, Executed, Run, State};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

pub use entry::{Entry, Watched};
pub use journal::JournalError;

use crate::admission::Full;
use crate::attest::Signer;
use crate::job::OutputSink;
use crate::launch::{Order, Ran, RunError, unix_ms};
use crate::limits::ENDED_RUNS_KEPT;
use crate::metrics::Counts;
use entry::{Facts, Watcher};
use journal::{Journal, Line};
use store::Store;
use table::Table;

/// A run as it is asked for.
#[derive(Debug)]
pub struct Asked {
    pub order: Order,
    /// The caller's own name for it.
    pub key: Option<String>,
    /// SHA-256 of the request, as it came.
    pub request_sha256: String,
    /// Runs that the caller may have at once.
    pub places: u32,
}

/// Why a run is not started. Nothing ran.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("{0}")]
    Full(Full),
    #[error("this key was used for another request")]
    KeyTaken,
    #[error("the journal of runs cannot be written")]
    Journal(#[source] std::io::Error),
}

/// How what came of a run is told to its caller.
pub type Tell = fn(&Entry, Result<Ran, RunError>) -> Run;

/// The daemon's started runs.
#[derive(Debug)]
pub struct Runs {
    table: Mutex<Table>,
    journal: Option<Arc<Journal>>,
    store: Store,
    tell: Tell,
    /// Has records signed, where that is wanted.
    signer: OnceLock<Signer>,
    /// Records that were signed, or not.
    pub signatures: Counts,
}

impl Runs {
    /// Runs that are forgotten with this process.
    pub fn in_memory(tell: Tell) -> Arc<Self> {
        Arc::new(Self {
            table: Mutex::default(),
            journal: None,
            store: Store::Memory,
            tell,
            signer: OnceLock::new(),
            signatures: Counts::default(),
        })
    }

    /// Runs that survive this process, in a folder of its own. What was under way when the last one ended is ended now:
    /// as not executed where the journal shows that it was never released, as unknown where it was.
    pub fn in_folder(folder: &Path, tell: Tell) -> Result<Arc<Self>, JournalError> {
        let (journal, lines) = Journal::open(folder)?;
        let store = Store::Folder(folder.to_owned());
        let now = unix_ms(SystemTime::now());
        let kept = u64::try_from(ENDED_RUNS_KEPT.as_millis()).unwrap_or(u64::MAX);
        let mut table = Table::default();
        for line in lines {
            match line {
                Line::Accepted(facts) if facts.created_unix_ms.saturating_add(kept) >= now => {
                    table.insert(Entry::of_journal(facts));
                }
                Line::Accepted(_) => {}
                Line::Released { run } => {
                    if let Some(entry) = table.any(&run) {
                        entry.note_release();
                        entry.order_released();
                    }
                }
                Line::Ended { run, bytes } => {
                    if let Some(entry) = table.any(&run) {
                        entry.answer_stored(bytes);
                        entry.end_of_journal();
                    }
                }
            }
        }
        let runs = Arc::new(Self {
            table: Mutex::new(table),
            journal: Some(Arc::new(journal)),
            store,
            tell,
            signer: OnceLock::new(),
            signatures: Counts::default(),
        });
        runs.settle_the_lost()?;
        Ok(runs)
    }

    /// Has the records of runs signed from now on. Said once, before the first run.
    pub fn sign_with(&self, signer: Signer) {
        // A second signer would be a mistake of ours, and the first one stays.
        let _ = self.signer.set(signer);
    }

    /// The run with its record signed. Without a signature it is told all the same: it ran, and its caller has to know.
    async fn signed(&self, mut view: Run) -> Run {
        let Some(signer) = self.signer.get().filter(|_| view.record.is_some()) else { return view };
        match signer.sign(&view).await {
            Ok(envelope) => {
                self.signatures.add(&["signed"]);
                view.attestation = Some(envelope);
            }
            Err(error) => {
                self.signatures.add(&["failed"]);
                tracing::error!(
                    run = view.run,
                    error = crate::causes::chain(&error),
                    "a run's record is not signed"
                );
            }
        }
        view
    }

    /// Ends what the last process left under way, and writes the journal anew without what is forgotten.
    fn settle_the_lost(&self) -> Result<(), JournalError> {
        let entries = self.lock().all();
        for entry in &entries {
            if entry.state() != State::Ended {
                let view = lost(entry);
                let bytes = self.store.put(&view).map_err(JournalError::Write)?;
                tracing::warn!(run = entry.facts.run, executed = ?view.executed, "a run was under way when the last daemon ended");
                entry.answer_stored(bytes);
                entry.end(&view, &self.store);
            }
        }
        let forgotten = {
            let mut table = self.lock();
            for entry in &entries {
                table.ended(&entry.facts.run);
            }
            table.forget_what_is_too_much(SystemTime::now())
        };
        for entry in &forgotten {
            self.store.remove(&entry.facts.run);
        }
        let kept: VecDeque<Arc<Entry>> = self.lock().all();
        self.store.remove_all_but(|run| kept.iter().any(|entry| entry.facts.run == run));
        if let Some(journal) = &self.journal {
            journal.rewrite(|| lines_of(&kept)).map_err(JournalError::Write)?;
        }
        Ok(())
    }

    /// Starts a run, or finds the one that was started with the same key before.
    pub async fn start(
        self: &Arc<Self>,
        launcher: Arc<dyn Launch>,
        asked: Asked,
    ) -> Result<Arc<Entry>, StartError> {
        let Asked { mut order, key, request_sha256, places } = asked;
        let facts = Facts {
            run: order.run.clone(),
            caller: order.caller.clone(),
            key,
            request_sha256,
            created_unix_ms: unix_ms(SystemTime::now()),
        };
        let entry = {
            let mut table = self.lock();
            if let Some(known) = table.by_key(facts.caller.as_deref(), facts.key.as_deref()) {
                let same = known.facts.request_sha256 == facts.request_sha256;
                return if same { Ok(known) } else { Err(StartError::KeyTaken) };
            }
            table.room_for(facts.caller.as_deref(), places).map_err(StartError::Full)?;
            table.insert(Entry::new(facts, order.input.clone(), Arc::clone(&order.released)))
        };
        if let Err(error) = self.note(Line::Accepted(entry.facts.clone()), false).await {
            self.lock().remove(&entry.facts.run);
            return Err(StartError::Journal(error));
        }
        let (journal, most) = (self.journal.clone(), order.output_limit);
        let watcher = Arc::new(Watcher { entry: Arc::clone(&entry), journal, most });
        order.witness = Some(Arc::clone(&watcher) as _);
        let runs = Arc::clone(self);
        let mine = Arc::clone(&entry);
        tokio::spawn(async move {
            let running = AssertUnwindSafe(launcher.launch(order, watcher)).catch_unwind();
            let ended = tokio::select! {
                ended = running => Some(ended.unwrap_or_else(|_| {
                    tracing::error!(run = mine.facts.run, "a run panicked");
                    Err(RunError::Failed(crate::provider::RunFailure::Lost("internal error".to_owned())))
                })),
                () = mine.cancelled() => None,
            };
            let view = match ended {
                Some(ended) => (runs.tell)(&mine, ended),
                None => cancelled(&mine),
            };
            let view = runs.signed(view).await;
            runs.finish(&mine, &view).await;
        });
        Ok(entry)
    }

    /// The end is written down before anybody is told of it. Where that fails the answer is still given, and only a
    /// restart would not know it any more: it says `unknown` then, not `no`.
    async fn finish(self: &Arc<Self>, entry: &Arc<Entry>, view: &Run) {
        let runs = Arc::clone(self);
        let written = view.clone();
        let stored = tokio::task::spawn_blocking(move || runs.store.put(&written)).await;
        let bytes = match stored.map_err(std::io::Error::other).and_then(|stored| stored) {
            Ok(bytes) => {
                entry.answer_stored(bytes);
                let line = Line::Ended { run: entry.facts.run.clone(), bytes };
                if let Err(error) = self.note(line, true).await {
                    tracing::error!(run = entry.facts.run, %error, "the end of a run is not in the journal");
                }
                entry.end(view, &self.store);
                bytes
            }
            Err(error) => {
                tracing::error!(run = entry.facts.run, %error, "the answer of a run is kept in memory only");
                entry.end(view, &Store::Memory);
                0
            }
        };
        let (forgotten, needed) = {
            let mut table = self.lock();
            table.ended(&entry.facts.run);
            (table.forget_what_is_too_much(SystemTime::now()), table.len())
        };
        tracing::debug!(run = entry.facts.run, bytes, forgotten = forgotten.len(), "a started run has ended");
        let runs = Arc::clone(self);
        let tidied = tokio::task::spawn_blocking(move || {
            for entry in &forgotten {
                runs.store.remove(&entry.facts.run);
            }
            match &runs.journal {
                Some(journal) if journal.is_long_for(needed) => {
                    journal.rewrite(|| lines_of(&runs.lock().all()))
                }
                _ => Ok(()),
            }
        });
        if let Ok(Err(error)) = tidied.await {
            tracing::error!(%error, "the journal of runs could not be written anew; it goes on growing");
        }
    }

    /// One of this caller's runs; another's does not exist for it.
    pub fn of_caller(&self, caller: Option<&str>, run: &str) -> Option<Arc<Entry>> {
        self.lock().any(run).filter(|entry| entry.facts.caller.as_deref() == caller)
    }

    pub fn by_key(&self, caller: Option<&str>, key: &str) -> Option<Arc<Entry>> {
        self.lock().by_key(caller, Some(key))
    }

    /// Anybody's run.
    pub fn any(&self, run: &str) -> Option<Arc<Entry>> {
        self.lock().any(run)
    }

    /// Everybody's runs, newest first.
    pub fn list_all(&self) -> Vec<Arc<Entry>> {
        self.lock().all().into_iter().rev().collect()
    }

    /// This caller's runs, newest first.
    pub fn list(&self, caller: Option<&str>) -> Vec<Arc<Entry>> {
        let mut all = self.lock().all();
        all.retain(|entry| entry.facts.caller.as_deref() == caller);
        all.into_iter().rev().collect()
    }

    /// The run as it is told, with result and record when it has ended. An answer that cannot be read is an error: the run
    /// is not told without its result.
    pub async fn view(self: &Arc<Self>, entry: &Arc<Entry>) -> std::io::Result<Run> {
        if entry.state() != State::Ended {
            return Ok(entry.outline());
        }
        match entry.kept() {
            Some(view) => Ok(view),
            None => {
                let (runs, run) = (Arc::clone(self), entry.facts.run.clone());
                tokio::task::spawn_blocking(move || runs.store.get(&run))
                    .await
                    .map_err(std::io::Error::other)?
            }
        }
    }

    /// Lets what runs end within `grace`, then cancels the rest and waits until nothing of it is left.
    pub async fn shut_down(&self, grace: Duration) {
        let active: Vec<Arc<Entry>> =
            self.lock().all().into_iter().filter(|entry| entry.state() != State::Ended).collect();
        let all_ended = async {
            for entry in &active {
                entry.wait_for_end().await;
            }
        };
        if tokio::time::timeout(grace, all_ended).await.is_err() {
            for entry in &active {
                entry.cancel();
            }
            for entry in &active {
                entry.wait_for_end().await;
            }
        }
    }

    async fn note(&self, line: Line, durable: bool) -> std::io::Result<()> {
        let Some(journal) = self.journal.clone() else { return Ok(()) };
        tokio::task::spawn_blocking(move || journal.append(&line, durable))
            .await
            .map_err(std::io::Error::other)?
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Carries one run from its order to its result.
pub trait Launch: Send + Sync {
    fn launch(&self, order: Order, output: Arc<dyn OutputSink>) -> BoxFuture<'_, Result<Ran, RunError>>;
}

fn lines_of(entries: &VecDeque<Arc<Entry>>) -> Vec<Line> {
    entries.iter().flat_map(|entry| entry.lines()).collect()
}

/// A run that somebody ended.
fn cancelled(entry: &Entry) -> Run {
    Run { ending: Some(Ending::Cancelled), state: State::Ended, ..entry.outline() }
}

/// A run that was under way when the daemon was lost.
fn lost(entry: &Entry) -> Run {
    let outline = entry.outline();
    let executed = if outline.executed == Executed::No { Executed::No } else { Executed::Unknown };
    Run { ending: Some(Ending::Lost), state: State::Ended, executed, ..outline }
}
