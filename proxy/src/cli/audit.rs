//! `freeboard audit tail`, `verify` and `query`.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use freeboard_audit::{Digest, MAX_LINE_BYTES, RawRecord, Report, Verifier, readable};

use super::terminal::Output;
use super::{ConfigFlags, Exit, exit, terminal};
use crate::limits::FOLLOW_PAUSE;
use crate::record::log_files;

/// The audit log
#[derive(Debug, Subcommand)]
pub enum Audit {
    /// Show the last records, one readable line each; escapes are shown, not acted on
    Tail {
        #[command(flatten)]
        log: LogFlags,
        /// Number of records
        #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 20)]
        lines: usize,
        /// Go on showing records as they are written
        #[arg(short, long)]
        follow: bool,
        /// Show the records as they are in the log: JSON lines
        #[arg(long)]
        json: bool,
    },
    /// Read the whole log and find the first record that is changed, missing or out of order
    Verify {
        #[command(flatten)]
        log: LogFlags,
        /// Also check that record SEQ has the hash HEAD, as noted earlier: finds a log that was rewritten or cut
        #[arg(long, value_name = "SEQ:HEAD", value_parser = anchor)]
        anchor: Option<(u64, Digest)>,
    },
    /// Show the records whose fields have these values
    Query {
        #[command(flatten)]
        log: LogFlags,
        /// A field and its value, for example `verdict=denied` or `run=…`; all must match. `FIELD~TEXT`: contains
        #[arg(value_name = "FIELD=VALUE", required = true, value_parser = condition)]
        conditions: Vec<Condition>,
        /// Show the records as they are in the log: JSON lines
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub struct LogFlags {
    #[command(flatten)]
    config: ConfigFlags,
    /// Folder of the audit log
    #[arg(long, value_name = "FOLDER")]
    audit: Option<PathBuf>,
}

/// One condition of a query.
#[derive(Debug, Clone)]
pub struct Condition {
    field: String,
    value: String,
    contains: bool,
}

fn condition(text: &str) -> Result<Condition, String> {
    let at = text.find(['=', '~']).ok_or("FIELD=VALUE or FIELD~TEXT is wanted")?;
    let (field, rest) = text.split_at(at);
    let value = rest.get(1..).unwrap_or_default().to_owned();
    Ok(Condition { field: field.to_owned(), value, contains: rest.starts_with('~') })
}

fn anchor(text: &str) -> Result<(u64, Digest), String> {
    let parsed = text.split_once(':').and_then(|(seq, head)| Some((seq.parse().ok()?, Digest::parse(head)?)));
    parsed.ok_or_else(|| "SEQ:HEAD is wanted, HEAD being 64 lower-case hex digits".to_owned())
}

impl Condition {
    fn holds(&self, record: &RawRecord) -> bool {
        record.field(&self.field).is_some_and(|value| {
            if self.contains { value.contains(&self.value) } else { value == self.value }
        })
    }
}

impl Audit {
    pub(super) fn run(self) -> Exit {
        let done = match self {
            Self::Tail { log, lines, follow, json } => {
                log.folder().and_then(|folder| tail(&folder, lines, follow, json))
            }
            Self::Verify { log, anchor } => log.folder().and_then(|folder| verify(&folder, anchor)),
            Self::Query { log, conditions, json } => {
                log.folder().and_then(|folder| query(&folder, &conditions, json))
            }
        };
        done.unwrap_or_else(|exit| exit)
    }
}

impl LogFlags {
    fn folder(&self) -> Result<PathBuf, Exit> {
        match &self.audit {
            Some(folder) => Ok(folder.clone()),
            None => Ok(self.config.load(&[])?.audit.folder),
        }
    }
}

fn files(folder: &Path) -> Result<Vec<PathBuf>, Exit> {
    let files = log_files(folder).map_err(|error| exit::report(Exit::Audit, &error))?;
    if files.is_empty() {
        eprintln!("error: there is no audit log in `{}`", folder.display());
        return Err(Exit::Audit);
    }
    Ok(files)
}

fn open(path: &Path) -> Result<BufReader<File>, Exit> {
    File::open(path).map(BufReader::new).map_err(|error| cannot_read(path, &error))
}

fn cannot_read(path: &Path, error: &std::io::Error) -> Exit {
    eprintln!("error: cannot read `{}`: {error}", path.display());
    Exit::Audit
}

/// Reads one line into `line`, its line feed included, but no more than a line may have.
fn next_line(reader: &mut BufReader<File>, line: &mut Vec<u8>) -> std::io::Result<usize> {
    let most = u64::try_from(MAX_LINE_BYTES).unwrap_or(u64::MAX);
    reader.by_ref().take(most).read_until(b'\n', line)
}

fn verify(folder: &Path, anchor: Option<(u64, Digest)>) -> Result<Exit, Exit> {
    let mut verifier = match anchor {
        Some((seq, head)) => Verifier::with_anchor(seq, head),
        None => Verifier::new(),
    };
    let files = files(folder)?;
    let mut line = Vec::new();
    let mut rest = Vec::new();
    for (index, path) in files.iter().enumerate() {
        let mut reader = open(path)?;
        loop {
            line.clear();
            match next_line(&mut reader, &mut line).map_err(|error| cannot_read(path, &error))? {
                0 => break,
                _ if line.ends_with(b"\n") => {
                    line.pop();
                    if let Err(fault) = verifier.line(&line) {
                        return Ok(broken(path, verifier.report(), &fault));
                    }
                }
                _ if index + 1 == files.len() && line.len() < MAX_LINE_BYTES => rest.clone_from(&line),
                // Only the newest file can have a torn end; elsewhere it is a line like any other, and no record.
                _ => {
                    if let Err(fault) = verifier.line(&line) {
                        return Ok(broken(path, verifier.report(), &fault));
                    }
                }
            }
        }
    }
    let last = files.last().map_or(folder, PathBuf::as_path);
    let so_far = verifier.report().clone();
    match verifier.finish(&rest) {
        Ok(report) => Ok(terminal::print(&summary(&report))),
        Err(fault) => Ok(broken(last, &so_far, &fault)),
    }
}

fn broken(path: &Path, report: &Report, fault: &freeboard_audit::Fault) -> Exit {
    eprintln!("error: {fault} (in `{}`)", path.display());
    if report.records > 0 {
        eprintln!("records {} to {} verified before it", report.first, report.last);
    }
    Exit::Problems
}

fn summary(report: &Report) -> String {
    if report.records == 0 && report.torn_tail.is_none() {
        return "the log is empty".to_owned();
    }
    let mut text = format!("verified up to record {}: {} records", report.last, report.records);
    if report.first > 1 {
        text.push_str(&format!("\nolder files were taken away: the log begins at record {}", report.first));
    }
    if report.recovered > 0 {
        text.push_str(&format!(
            "\n{} torn lines, each accounted for by the record after it",
            report.recovered
        ));
    }
    if let Some(bytes) = report.torn_tail {
        text.push_str(&format!(
            "\nthe last line is torn after {bytes} bytes: the broker was killed while it wrote"
        ));
    }
    text.push_str(&format!("\nhead {}:{}", report.last, report.head));
    text
}

fn show(output: &mut Output, line: &[u8], json: bool) -> Result<(), Exit> {
    let line = line.trim_ascii_end();
    match RawRecord::parse(line) {
        Some(_) if json => output.line(&freeboard_audit::printable_line(line)),
        Some(record) => output.line(&readable(&record)),
        None if line.is_empty() => Ok(()),
        None => {
            eprintln!(
                "warning: a line of {} bytes is no record (torn, or changed): `freeboard audit verify`",
                line.len()
            );
            Ok(())
        }
    }
}

fn query(folder: &Path, conditions: &[Condition], json: bool) -> Result<Exit, Exit> {
    let mut output = Output::new();
    let mut line = Vec::new();
    for path in files(folder)? {
        let mut reader = open(&path)?;
        loop {
            line.clear();
            if next_line(&mut reader, &mut line).map_err(|error| cannot_read(&path, &error))? == 0 {
                break;
            }
            let Some(record) = RawRecord::parse(line.trim_ascii_end()) else { continue };
            if conditions.iter().all(|condition| condition.holds(&record)) {
                show(&mut output, &line, json)?;
            }
        }
    }
    output.flush()?;
    Ok(Exit::Success)
}

fn tail(folder: &Path, count: usize, follow: bool, json: bool) -> Result<Exit, Exit> {
    let files = files(folder)?;
    let mut output = Output::new();
    let mut last: std::collections::VecDeque<Vec<u8>> = std::collections::VecDeque::new();
    // Newest file first, until there are enough lines.
    for path in files.iter().rev() {
        let mut lines = last_lines(path, count)?;
        while last.len() < count
            && let Some(line) = lines.pop()
        {
            last.push_front(line);
        }
        if last.len() >= count {
            break;
        }
    }
    for line in &last {
        show(&mut output, line, json)?;
    }
    output.flush()?;
    if follow { follow_log(folder, &mut output, json) } else { Ok(Exit::Success) }
}

/// The last complete lines of a file.
fn last_lines(path: &Path, count: usize) -> Result<Vec<Vec<u8>>, Exit> {
    let mut reader = open(path)?;
    let mut lines = std::collections::VecDeque::new();
    loop {
        let mut line = Vec::new();
        if next_line(&mut reader, &mut line).map_err(|error| cannot_read(path, &error))? == 0 {
            return Ok(lines.into());
        }
        if line.ends_with(b"\n") {
            lines.push_back(line);
        }
        if lines.len() > count {
            lines.pop_front();
        }
    }
}

/// Shows lines as they are written, over rotations, until interrupted.
fn follow_log(folder: &Path, output: &mut Output, json: bool) -> Result<Exit, Exit> {
    let mut path = files(folder)?.pop().ok_or(Exit::Audit)?;
    let mut reader = open(&path)?;
    reader.seek(SeekFrom::End(0)).map_err(|error| cannot_read(&path, &error))?;
    let mut line = Vec::new();
    loop {
        let mut read = next_line(&mut reader, &mut line).map_err(|error| cannot_read(&path, &error))?;
        if read == 0 {
            // Asked before the last look at this file: what was written to it until then has been read after it.
            let next = after(folder, reader.get_ref())?;
            read = next_line(&mut reader, &mut line).map_err(|error| cannot_read(&path, &error))?;
            match next {
                _ if read > 0 => {}
                Some(next) => {
                    (reader, path) = (open(&next)?, next);
                    line.clear();
                    continue;
                }
                None => {
                    output.flush()?;
                    std::thread::sleep(FOLLOW_PAUSE);
                    continue;
                }
            }
        }
        // Without its end, the rest of the line is still being written.
        if line.ends_with(b"\n") {
            show(output, &line, json)?;
            line.clear();
        }
    }
}

/// The file of the log that comes after the open one; `None` when that is the one being written.
fn after(folder: &Path, open: &File) -> Result<Option<PathBuf>, Exit> {
    let Ok(held) = open.metadata() else { return Ok(None) };
    let files = files(folder)?;
    let is_held = |path: &PathBuf| {
        std::fs::metadata(path).is_ok_and(|named| (named.dev(), named.ino()) == (held.dev(), held.ino()))
    };
    match files.iter().position(is_held) {
        Some(at) => Ok(files.get(at + 1).cloned()),
        // Taken away already: go on with the oldest that is left.
        None => Ok(files.first().cloned()),
    }
}
