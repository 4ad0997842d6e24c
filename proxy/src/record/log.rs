//! The log's file: opened, its tail checked, appended to, rotated.
//!
//! Lines come in from the writer, bytes go to `audit.jsonl`. It is never rewritten: after a crash the torn last line is
//! ended and a record says what stood there.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use freeboard_audit::{Chain, Digest, Entry, Event, Fault, RawRecord, Recovered, Report, Verifier};

use super::files::{CURRENT, FilesError, LOCK, log_files, rotated_name};
use super::writer::Syncer;
use crate::limits::AUDIT_TAIL_CHECK_BYTES;

/// Where the log is and how large its files grow.
#[derive(Debug, Clone)]
pub struct LogSettings {
    pub folder: PathBuf,
    /// A file that has reached this size is closed and a new one begun.
    pub file_bytes: u64,
    /// Full files that are kept; older ones are removed. `None` keeps all.
    pub keep_files: Option<usize>,
    /// Longest time between a write and its flush to the disk.
    pub sync_every: std::time::Duration,
}

/// Why there is no log.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("cannot {step} `{}`", path.display())]
    Io { step: &'static str, path: PathBuf, source: io::Error },
    #[error(transparent)]
    Files(#[from] FilesError),
    #[error("another broker writes the audit log in `{}`", folder.display())]
    InUse { folder: PathBuf },
    #[error("the end of the audit log `{}` does not verify: {fault}", path.display())]
    Tail { path: PathBuf, fault: Fault },
    #[error(transparent)]
    Encode(#[from] freeboard_audit::EncodeError),
    #[error("cannot start the audit writer")]
    Thread(#[source] io::Error),
}

/// The open log. Bytes that could not be written stay in `pending` and are tried again, from the very byte on.
#[derive(Debug)]
pub(super) struct Log {
    settings: LogSettings,
    file: File,
    size: u64,
    first_seq: u64,
    pub(super) chain: Chain,
    pending: Vec<u8>,
    unsynced: bool,
    /// A new name in the folder was not flushed to the disk yet.
    folder_unsynced: bool,
    /// Holds the lock for as long as the log is open.
    _lock: File,
}

impl Log {
    /// Opens or begins the log.
    pub(super) fn open(settings: LogSettings, now_unix_ms: u64) -> Result<Self, LogError> {
        let folder = settings.folder.clone();
        let io = |step, path: &Path| {
            let path = path.to_owned();
            move |source| LogError::Io { step, path, source }
        };
        if !folder.exists() {
            let mut builder = DirBuilder::new();
            builder.recursive(true).mode(0o700).create(&folder).map_err(io("create", &folder))?;
        }
        let lock = lock(&folder)?;
        let path = folder.join(CURRENT);
        let tail = newest_tail(&folder)?;
        let (file, created) = open_current(&path).map_err(io("open", &path))?;
        if created {
            sync_folder(&folder).map_err(io("flush", &folder))?;
        }
        let size = file.metadata().map_err(io("read", &path))?.len();
        let mut log = Self {
            settings,
            file,
            size,
            first_seq: tail.report.last + 1,
            chain: match tail.report.records {
                0 => Chain::default(),
                _ => Chain::after(tail.report.last, tail.report.head),
            },
            pending: Vec::new(),
            unsynced: false,
            folder_unsynced: false,
            _lock: lock,
        };
        if size > 0 {
            log.first_seq = first_seq(&path).map_err(io("read", &path))?.unwrap_or(log.first_seq);
            log.close_torn(&tail.torn, now_unix_ms)?;
        }
        log.flush().map_err(io("write", &path))?;
        Ok(log)
    }

    /// Adds an entry to what is to be written. Nothing is in the file before `flush`.
    pub(super) fn append(&mut self, time_unix_ms: u64, entry: &Entry) -> Result<(), LogError> {
        self.chain.append(time_unix_ms, entry, &mut self.pending)?;
        Ok(())
    }

    /// Bytes that wait for `flush`.
    pub(super) const fn pending_bytes(&self) -> usize {
        self.pending.len()
    }

    /// Writes what is pending. On an error the rest stays pending, and the next call goes on at the same byte, so
    /// a full disk tears no line.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        let mut written = 0;
        let result = loop {
            let rest = self.pending.get(written..).unwrap_or_default();
            if rest.is_empty() {
                break Ok(());
            }
            match self.file.write(rest) {
                Ok(0) => break Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        self.pending.drain(..written);
        self.size += u64::try_from(written).unwrap_or_default();
        self.unsynced |= written > 0;
        result?;
        if self.size >= self.settings.file_bytes {
            self.rotate()?;
        }
        if self.folder_unsynced {
            sync_folder(&self.settings.folder)?;
            self.folder_unsynced = false;
        }
        Ok(())
    }

    /// Flushes to the disk what was written.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        if self.unsynced {
            self.file.sync_data()?;
            self.unsynced = false;
        }
        Ok(())
    }

    /// The same on the syncer's thread.
    pub(super) fn sync_on(&mut self, syncer: &Syncer) -> io::Result<()> {
        if self.unsynced && syncer.sync(self.file.try_clone()?) {
            self.unsynced = false;
        }
        Ok(())
    }

    /// Begins a new file; the chain goes on. INVARIANT: nothing is pending, so a file ends with a whole line. After a failure of
    /// any step, for lack of room or descriptors, the next call goes on with that step.
    fn rotate(&mut self) -> io::Result<()> {
        self.sync()?;
        let folder = &self.settings.folder;
        let current = folder.join(CURRENT);
        let full = folder.join(rotated_name(self.first_seq));
        // A hard link fails where the name is taken; a rename would replace an older part of the log.
        match std::fs::hard_link(&current, &full) {
            Ok(()) => std::fs::remove_file(&current)?,
            // After a crash between the two steps both names are the same file.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && same_file(&current, &full)? => {
                std::fs::remove_file(&current)?;
            }
            // The file has its new name only: the next one could not be begun at the last try.
            Err(error) if error.kind() == io::ErrorKind::NotFound && is_file(&self.file, &full)? => {}
            Err(error) => return Err(error),
        }
        let (file, _) = open_current(&current)?;
        (self.file, self.size, self.first_seq) = (file, 0, self.chain.seq() + 1);
        self.folder_unsynced = true;
        self.remove_old()
    }

    fn remove_old(&self) -> io::Result<()> {
        let Some(keep) = self.settings.keep_files else { return Ok(()) };
        let files = log_files(&self.settings.folder).map_err(|error| error.source)?;
        let full = files.len().saturating_sub(1);
        files.iter().take(full.saturating_sub(keep)).try_for_each(std::fs::remove_file)
    }

    /// Ends a torn last line and says so. A line that is whole but for its line feed is simply ended.
    fn close_torn(&mut self, torn: &Torn, now_unix_ms: u64) -> Result<(), LogError> {
        match torn {
            Torn::No => {}
            Torn::OnlyLineFeed => self.pending.push(b'\n'),
            Torn::Bytes { count, digest } => {
                self.pending.push(b'\n');
                let event = Event::Recovered(Recovered {
                    torn_bytes: *count,
                    torn_sha256: digest.to_string().into(),
                });
                self.append(now_unix_ms, &Entry { policy: None, run: None, event })?;
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
enum Torn {
    No,
    OnlyLineFeed,
    Bytes { count: u64, digest: Digest },
}

#[derive(Debug)]
struct Tail {
    report: Report,
    torn: Torn,
}

/// The end of the log: of the current file, or of the newest full one where the current one is empty.
fn newest_tail(folder: &Path) -> Result<Tail, LogError> {
    let mut tail = Tail { report: Report::default(), torn: Torn::No };
    for path in log_files(folder)?.iter().rev() {
        tail = file_tail(path)?;
        if tail.report.records > 0 || !matches!(tail.torn, Torn::No) {
            break;
        }
    }
    Ok(tail)
}

/// Line by line: a broker that starts on a large log must not keep the memory of its end.
fn file_tail(path: &Path) -> Result<Tail, LogError> {
    let failed = |source| LogError::Io { step: "read", path: path.to_owned(), source };
    let broken = |fault| LogError::Tail { path: path.to_owned(), fault };
    let mut end = last_lines(path).map_err(failed)?;
    let mut verifier = Verifier::new();
    let mut line = Vec::new();
    loop {
        line.clear();
        end.read_until(b'\n', &mut line).map_err(failed)?;
        let Some(whole) = line.strip_suffix(b"\n") else { break };
        verifier.line(whole).map_err(broken)?;
    }
    let rest = line.as_slice();
    let torn = if rest.is_empty() {
        Torn::No
    } else if verifier.would_accept(rest) {
        verifier.line(rest).map_err(broken)?;
        Torn::OnlyLineFeed
    } else {
        Torn::Bytes { count: u64::try_from(rest.len()).unwrap_or_default(), digest: Digest::of(rest) }
    };
    Ok(Tail { report: verifier.finish(b"").map_err(broken)?, torn })
}

/// The last whole lines of a file and what stands after them: at most `AUDIT_TAIL_CHECK_BYTES`.
fn last_lines(path: &Path) -> io::Result<impl BufRead> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    let start = size.saturating_sub(AUDIT_TAIL_CHECK_BYTES);
    file.seek(SeekFrom::Start(start))?;
    let mut end = BufReader::new(file).take(AUDIT_TAIL_CHECK_BYTES);
    if start > 0 {
        end.skip_until(b'\n')?;
    }
    Ok(end)
}

/// The number of the first record of a file.
fn first_seq(path: &Path) -> io::Result<Option<u64>> {
    let mut start = BufReader::new(File::open(path)?).take(AUDIT_TAIL_CHECK_BYTES);
    let mut line = Vec::new();
    while start.read_until(b'\n', &mut line)? > 0 {
        let record = RawRecord::parse(line.strip_suffix(b"\n").unwrap_or(&line));
        if let Some(record) = record {
            return Ok(record.seq());
        }
        line.clear();
    }
    Ok(None)
}

fn open_current(path: &Path) -> io::Result<(File, bool)> {
    let created = !path.exists();
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
        .open(path)?;
    Ok((file, created))
}

fn lock(folder: &Path) -> Result<File, LogError> {
    let path = folder.join(LOCK);
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(|source| LogError::Io { step: "open", path: path.clone(), source })?;
    match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(LogError::InUse { folder: folder.to_owned() }),
        Err(error) => Err(LogError::Io { step: "lock", path, source: error.into() }),
    }
}

/// Makes a new name in the folder survive a power failure.
fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

fn same_file(one: &Path, other: &Path) -> io::Result<bool> {
    Ok(identity(&std::fs::metadata(one)?) == identity(&std::fs::metadata(other)?))
}

fn is_file(file: &File, path: &Path) -> io::Result<bool> {
    Ok(identity(&file.metadata()?) == identity(&std::fs::metadata(path)?))
}

fn identity(metadata: &std::fs::Metadata) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt as _;
    (metadata.dev(), metadata.ino())
}
