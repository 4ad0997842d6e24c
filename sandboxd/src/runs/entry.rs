//! One started run: what is known of it, its output as it comes, its end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use freeboard_wire::runs::{Executed, Output, Run, State, Stream};
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::journal::{Journal, Line};
use super::store::Store;
use crate::input::Input;
use crate::job::OutputSink;
use crate::launch::Witness;

/// What never changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    pub run: String,
    pub caller: Option<String>,
    pub key: Option<String>,
    pub request_sha256: String,
    pub created_unix_ms: u64,
}

/// A started run.
#[derive(Debug)]
pub struct Entry {
    pub facts: Facts,
    /// Its standard input, where it has one.
    pub input: Option<Arc<Input>>,
    /// Whether code was released.
    released: Arc<AtomicBool>,
    /// Set before the journal is told of the release, so that a journal that is written anew meanwhile has it.
    release_noted: AtomicBool,
    progress: Mutex<Progress>,
    /// Counts changes: output, state.
    changed: watch::Sender<u64>,
    cancel: watch::Sender<bool>,
}

#[derive(Debug)]
struct Progress {
    state: State,
    output: Vec<Output>,
    kept: Kept,
    truncated: bool,
    /// The whole view of an ended run, where it is not in a folder.
    view: Option<Run>,
    /// Bytes of the answer once it is stored, wherever that is. Set before the journal is told of the end.
    answer_bytes: Option<u64>,
}

/// Bytes of output so far.
#[derive(Debug, Default, Clone, Copy)]
struct Kept {
    stdout: usize,
    stderr: usize,
}

/// What a Watch learns.
#[derive(Debug)]
pub struct Watched {
    pub state: State,
    pub output: Vec<Output>,
    pub next: u64,
    pub truncated: bool,
}

impl Entry {
    pub(super) fn new(facts: Facts, input: Option<Arc<Input>>, released: Arc<AtomicBool>) -> Self {
        let progress = Progress {
            state: State::Queued,
            output: Vec::new(),
            kept: Kept::default(),
            truncated: false,
            view: None,
            answer_bytes: None,
        };
        Self {
            facts,
            input,
            released,
            release_noted: AtomicBool::new(false),
            progress: Mutex::new(progress),
            changed: watch::Sender::new(0),
            cancel: watch::Sender::new(false),
        }
    }

    /// As the journal knows it: its output was never written down.
    pub(super) fn of_journal(facts: Facts) -> Self {
        let entry = Self::new(facts, None, Arc::default());
        entry.lock().truncated = true;
        entry
    }

    pub(super) fn order_released(&self) {
        self.released.store(true, Ordering::SeqCst);
    }

    pub(super) fn note_release(&self) {
        self.release_noted.store(true, Ordering::SeqCst);
    }

    pub(super) fn answer_stored(&self, bytes: u64) {
        self.lock().answer_bytes = Some(bytes);
    }

    /// Its end is in the journal, its answer in the folder.
    pub(super) fn end_of_journal(&self) {
        self.lock().state = State::Ended;
    }

    pub fn state(&self) -> State {
        self.lock().state
    }

    /// What is kept of it, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        let progress = self.lock();
        progress.answer_bytes.unwrap_or(0) + (progress.kept.stdout + progress.kept.stderr) as u64
    }

    /// Without result and record.
    pub fn outline(&self) -> Run {
        let state = self.state();
        let executed = match (self.released.load(Ordering::SeqCst), state) {
            (true, _) => Executed::Yes,
            (false, State::Queued | State::Ended) => Executed::No,
            // It may be released while this is told.
            (false, State::Running) => Executed::Unknown,
        };
        Run {
            run: self.facts.run.clone(),
            state,
            executed,
            created_unix_ms: self.facts.created_unix_ms,
            caller: None,
            ending: None,
            refusal: None,
            result: None,
            record: None,
            attestation: None,
        }
    }

    /// The whole view of an ended run, where it is kept in memory.
    pub(super) fn kept(&self) -> Option<Run> {
        self.lock().view.clone()
    }

    pub(super) fn end(&self, view: &Run, store: &Store) {
        {
            let mut progress = self.lock();
            progress.state = State::Ended;
            progress.view = matches!(store, Store::Memory).then(|| view.clone());
        }
        self.tell();
    }

    /// What the journal says of it when it is written anew.
    pub(super) fn lines(&self) -> Vec<Line> {
        let run = || self.facts.run.clone();
        let mut lines = vec![Line::Accepted(self.facts.clone())];
        if self.release_noted.load(Ordering::SeqCst) {
            lines.push(Line::Released { run: run() });
        }
        if let Some(bytes) = self.lock().answer_bytes {
            lines.push(Line::Ended { run: run(), bytes });
        }
        lines
    }

    /// Output from `after` on; waits up to `longest` for some, or for the end.
    pub async fn watch(&self, after: u64, longest: Duration) -> Watched {
        let mut changes = self.changed.subscribe();
        let waited = tokio::time::timeout(longest, async {
            while self.watched(after).is_none() {
                // The sender lives as long as this entry.
                let _ = changes.changed().await;
            }
        });
        // Over or not: what is there now is told.
        let _ = waited.await;
        self.watched(after).unwrap_or_else(|| Watched {
            state: self.state(),
            output: Vec::new(),
            next: after,
            truncated: self.lock().truncated,
        })
    }

    fn watched(&self, after: u64) -> Option<Watched> {
        let progress = self.lock();
        let total = progress.output.len();
        let from = usize::try_from(after).unwrap_or(usize::MAX).min(total);
        let output = progress.output.get(from..).unwrap_or_default().to_vec();
        let something = !output.is_empty() || progress.state == State::Ended;
        something.then(|| Watched {
            state: progress.state,
            output,
            next: total as u64,
            truncated: progress.truncated,
        })
    }

    /// Waits until it has ended.
    pub async fn wait_for_end(&self) {
        let mut changes = self.changed.subscribe();
        while self.state() != State::Ended {
            let _ = changes.changed().await;
        }
    }

    /// Asks for the end. [`Entry::wait_for_end`] tells when nothing of the run is left.
    pub fn cancel(&self) {
        self.cancel.send_replace(true);
    }

    pub(super) async fn cancelled(&self) {
        let mut asked = self.cancel.subscribe();
        // The sender lives as long as this entry.
        let _ = asked.wait_for(|asked| *asked).await;
    }

    fn tell(&self) {
        self.changed.send_modify(|count| *count += 1);
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Follows a run for its entry: output, place, release.
#[derive(Debug)]
pub(super) struct Watcher {
    pub(super) entry: Arc<Entry>,
    pub(super) journal: Option<Arc<Journal>>,
    /// Bytes of each stream that are kept.
    pub(super) most: usize,
}

impl Watcher {
    fn keep(&self, stream: Stream, bytes: &[u8]) {
        {
            let mut progress = self.entry.lock();
            let kept = match stream {
                Stream::Stdout => &mut progress.kept.stdout,
                Stream::Stderr => &mut progress.kept.stderr,
            };
            let room = self.most.saturating_sub(*kept).min(bytes.len());
            *kept += room;
            progress.truncated |= room < bytes.len();
            let Some(data) = bytes.get(..room).filter(|data| !data.is_empty()) else { return };
            progress.output.push(Output { stream, data: data.to_vec() });
        }
        self.entry.tell();
    }
}

impl OutputSink for Watcher {
    fn stdout(&self, bytes: &[u8]) {
        self.keep(Stream::Stdout, bytes);
    }
    fn stderr(&self, bytes: &[u8]) {
        self.keep(Stream::Stderr, bytes);
    }
}

impl Witness for Watcher {
    fn admitted(&self) {
        self.entry.lock().state = State::Running;
        self.entry.tell();
    }

    fn before_release(&self) -> BoxFuture<'_, std::io::Result<()>> {
        Box::pin(async move {
            let Some(journal) = self.journal.clone() else { return Ok(()) };
            self.entry.note_release();
            let line = Line::Released { run: self.entry.facts.run.clone() };
            tokio::task::spawn_blocking(move || journal.append(&line, true))
                .await
                .map_err(std::io::Error::other)?
        })
    }
}
