//! What survives the daemon: one line for each step of a run, appended, and on disk before the step is taken.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::entry::Facts;
use crate::limits::JOURNAL_LINES_PER_RUN;

const NAME: &str = "runs.jsonl";
const NEW_NAME: &str = "runs.jsonl.new";
const LOCK_NAME: &str = "lock";
/// Rights that a group or others must not have on the folder: its files tell what callers run.
const RIGHTS_OF_OTHERS: u32 = 0o077;

/// A step of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Line {
    Accepted(Facts),
    /// Written before the code is released.
    Released {
        run: String,
    },
    /// The answer is stored and has so many bytes.
    Ended {
        run: String,
        bytes: u64,
    },
}

/// Why the state of the last daemon cannot be taken over.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("the state folder `{}` cannot be used", .0.display())]
    Folder(PathBuf, #[source] io::Error),
    #[error("the state folder `{}` can be read or written by others (mode {mode:o}); run `chmod 700` on it", .folder.display())]
    Mode { folder: PathBuf, mode: u32 },
    #[error("another daemon uses the state folder `{}`", .0.display())]
    InUse(PathBuf),
    #[error("line {line} of `{}` cannot be read: {problem}; move the file away to start without what it knows", .file.display())]
    Line { file: PathBuf, line: usize, problem: String },
    #[error("the state folder cannot be written")]
    Write(#[source] io::Error),
}

#[derive(Debug)]
pub(super) struct Journal {
    folder: PathBuf,
    state: Mutex<State>,
    /// Held as long as this lives: one daemon per folder.
    _lock: File,
}

#[derive(Debug)]
struct State {
    file: File,
    lines: usize,
}

impl Journal {
    /// Opens the journal of this folder and reads what it says. A last line that was cut off is not a line.
    pub(super) fn open(folder: &Path) -> Result<(Self, Vec<Line>), JournalError> {
        let unusable = |error| JournalError::Folder(folder.to_owned(), error);
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(unusable)?;
        let mode = std::fs::metadata(folder).map_err(unusable)?.mode();
        if mode & RIGHTS_OF_OTHERS != 0 {
            return Err(JournalError::Mode { folder: folder.to_owned(), mode: mode & 0o7777 });
        }
        let lock = options().open(folder.join(LOCK_NAME)).map_err(unusable)?;
        flock(lock.as_fd(), FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| JournalError::InUse(folder.to_owned()))?;
        let path = folder.join(NAME);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(unusable(error)),
        };
        let whole = text.rfind('\n').map_or("", |end| text.get(..=end).unwrap_or_default());
        let mut lines = Vec::new();
        for (index, line) in whole.lines().enumerate() {
            let read = serde_json::from_str(line).map_err(|error| JournalError::Line {
                file: path.clone(),
                line: index + 1,
                problem: error.to_string(),
            })?;
            lines.push(read);
        }
        let file = options().append(true).open(&path).map_err(unusable)?;
        let state = Mutex::new(State { file, lines: lines.len() });
        Ok((Self { folder: folder.to_owned(), state, _lock: lock }, lines))
    }

    /// Adds a line; with `durable` it is on disk when this returns.
    pub(super) fn append(&self, line: &Line, durable: bool) -> io::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let before = state.file.metadata()?.len();
        if let Err(error) = state.file.write_all(&text(line)?) {
            // Half a line would spoil the next one.
            state.file.set_len(before)?;
            return Err(error);
        }
        state.lines += 1;
        if durable { state.file.sync_data() } else { Ok(()) }
    }

    pub(super) fn is_long_for(&self, runs: usize) -> bool {
        let lines = self.state.lock().unwrap_or_else(PoisonError::into_inner).lines;
        lines > (runs + 100) * JOURNAL_LINES_PER_RUN
    }

    /// Replaces the whole file by these lines, at once. They are asked for while nobody can append.
    pub(super) fn rewrite(&self, lines: impl FnOnce() -> Vec<Line>) -> io::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = lines();
        let new = self.folder.join(NEW_NAME);
        let mut file = options().truncate(true).open(&new)?;
        for line in &lines {
            file.write_all(&text(line)?)?;
        }
        file.sync_data()?;
        std::fs::rename(&new, self.folder.join(NAME))?;
        File::open(&self.folder)?.sync_all()?;
        state.file = options().append(true).open(self.folder.join(NAME))?;
        state.lines = lines.len();
        Ok(())
    }
}

fn text(line: &Line) -> io::Result<Vec<u8>> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    Ok(text)
}

fn options() -> OpenOptions {
    let mut options = File::options();
    options.read(true).write(true).create(true).mode(0o600);
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(run: &str) -> Line {
        Line::Released { run: run.to_owned() }
    }

    fn folder() -> (tempfile::TempDir, PathBuf) {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("state");
        (parent, folder)
    }

    #[test]
    fn what_was_appended_is_read_again_but_not_half_a_line() {
        let (_parent, folder) = folder();
        let (journal, lines) = Journal::open(&folder).unwrap();
        assert_eq!(lines, []);
        journal.append(&line("a"), true).unwrap();
        journal.append(&line("b"), false).unwrap();
        drop(journal);
        let mut file = File::options().append(true).open(folder.join(NAME)).unwrap();
        file.write_all(br#"{"event":"rel"#).unwrap();
        let (_, lines) = Journal::open(&folder).unwrap();
        assert_eq!(lines, [line("a"), line("b")]);
    }

    #[test]
    fn a_journal_that_is_written_anew_has_only_what_was_given() {
        let (_parent, folder) = folder();
        let (journal, _) = Journal::open(&folder).unwrap();
        journal.append(&line("a"), false).unwrap();
        journal.rewrite(|| vec![line("b")]).unwrap();
        journal.append(&line("c"), true).unwrap();
        drop(journal);
        assert_eq!(Journal::open(&folder).unwrap().1, [line("b"), line("c")]);
    }

    #[test]
    fn one_daemon_has_a_folder_and_nobody_else_reads_it() {
        let (_parent, folder) = folder();
        let (first, _) = Journal::open(&folder).unwrap();
        assert!(matches!(Journal::open(&folder), Err(JournalError::InUse(_))));
        drop(first);
        let readable = std::os::unix::fs::PermissionsExt::from_mode(0o750);
        std::fs::set_permissions(&folder, readable).unwrap();
        assert!(matches!(Journal::open(&folder), Err(JournalError::Mode { mode: 0o750, .. })));
    }

    #[test]
    fn a_line_that_is_no_line_is_named() {
        let (_parent, folder) = folder();
        drop(Journal::open(&folder).unwrap());
        std::fs::write(folder.join(NAME), "{\"event\":\"released\",\"run\":\"a\"}\nnonsense\n").unwrap();
        let error = Journal::open(&folder).unwrap_err().to_string();
        assert!(error.contains("line 2"), "{error}");
    }
}
