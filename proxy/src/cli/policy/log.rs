//! The audit log as records for `replay` and `learn`: its requests and the connections that were passed on, with the grants that their runs named.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use freeboard_audit::{MAX_LINE_BYTES, RawRecord};
use freeboard_policy::replay::Record;
use freeboard_policy::{Reason, Tier, Traffic};

use crate::record::log_files;

/// Why the log cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum LogError {
    #[error(transparent)]
    List(#[from] crate::record::FilesError),
    #[error("there is no audit log in `{}`", .0.display())]
    Empty(PathBuf),
    #[error("cannot read `{}`", path.display())]
    Read { path: PathBuf, source: std::io::Error },
}

/// What the log does not show.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    /// Lines that are no record: torn or changed ones.
    unreadable: u64,
    /// Equal refusals that were counted instead of written one by one.
    suppressed: u64,
}

/// Reads a folder with an audit log, rotated files first, or one file of it; hands each request to `each`, in order.
pub(super) fn read(path: &Path, each: impl FnMut(Record)) -> Result<Gaps, LogError> {
    let files = if path.is_dir() { log_files(path)? } else { vec![path.to_owned()] };
    if files.is_empty() {
        return Err(LogError::Empty(path.to_owned()));
    }
    let mut reader = Reader { each, grants: HashMap::new(), gaps: Gaps::default() };
    let most = u64::try_from(MAX_LINE_BYTES).unwrap_or(u64::MAX);
    for path in files {
        let failed = |source| LogError::Read { path: path.clone(), source };
        let mut file = BufReader::new(File::open(&path).map_err(failed)?);
        let mut line = Vec::new();
        while file.by_ref().take(most).read_until(b'\n', &mut line).map_err(failed)? > 0 {
            reader.line(line.trim_ascii());
            line.clear();
        }
    }
    Ok(reader.gaps)
}

struct Reader<F> {
    each: F,
    /// Run → the grants that it named, of the runs that are under way.
    grants: HashMap<String, Vec<String>>,
    gaps: Gaps,
}

impl<F: FnMut(Record)> Reader<F> {
    fn line(&mut self, line: &[u8]) {
        let Some(record) = RawRecord::parse(line) else {
            self.gaps.unreadable += u64::from(!line.is_empty());
            return;
        };
        let run = record.field("run");
        match record.field("kind").as_deref() {
            Some("gate_opened") => {
                let named = record.field("grants").and_then(|grants| serde_json::from_str(&grants).ok());
                self.grants.extend(run.zip(named));
            }
            Some("request") => {
                let request = self.request(&record, run);
                (self.each)(request);
            }
            // Others have no name that a policy could decide on, or carried nothing.
            Some("connection") if record.field("uninspected").as_deref() == Some("true") => {
                let tls = record.field("protocol").as_deref() == Some("tls");
                let traffic = if tls { Traffic::TlsPassthrough } else { Traffic::Tcp };
                let connection = Record { traffic, ..self.request(&record, run) };
                (self.each)(connection);
            }
            Some("suppressed") if record.field("of").as_deref() == Some("request") => {
                let count = record.field("count").and_then(|count| count.parse::<u64>().ok());
                self.gaps.suppressed += count.unwrap_or(0);
            }
            _ => {}
        }
    }

    fn request(&self, record: &RawRecord, run: Option<String>) -> Record {
        let grants = run.as_ref().and_then(|run| self.grants.get(run)).cloned();
        request(record, run, grants)
    }
}

fn request(record: &RawRecord, run: Option<String>, grants: Option<Vec<String>>) -> Record {
    let reason = record.field("reason");
    let reason = reason.and_then(|code| Reason::ALL.iter().copied().find(|reason| reason.code() == code));
    let time = record.field("time").and_then(|time| time.parse::<jiff::Timestamp>().ok());
    Record {
        caller: record.field("caller"),
        tier: record.field("tier").and_then(|tier| Tier::from_word(&tier)),
        grants,
        run,
        session: record.field("session").is_some(),
        method: record.field("method").unwrap_or_default(),
        host: record.field("host").unwrap_or_default(),
        port: record.field("port").and_then(|port| port.parse().ok()).unwrap_or(443),
        time_unix: time.map(jiff::Timestamp::as_second),
        traffic: Traffic::Requests,
        target: record.field("path").unwrap_or_default(),
        websocket: record.field("protocol").as_deref() == Some("websocket")
            || reason == Some(Reason::UpgradeRefused),
        permitted: record.field("verdict").as_deref() != Some("denied"),
        approved: record.field("approved_by").is_some(),
        reason,
        api: record.field("api"),
    }
}

impl Gaps {
    /// Says on stderr what the log does not show.
    pub(super) fn warn(&self) {
        if self.unreadable > 0 {
            eprintln!(
                "warning: {} lines are no record (torn, or changed): `freeboard audit verify`",
                self.unreadable
            );
        }
        if self.suppressed > 0 {
            eprintln!(
                "warning: {} equal refusals were counted in the log and not written; they are not looked at",
                self.suppressed
            );
        }
    }
}
