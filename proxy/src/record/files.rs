//! The files of a log, oldest first.

use std::io;
use std::path::{Path, PathBuf};

/// The file that is written.
pub(super) const CURRENT: &str = "audit.jsonl";
/// Held by the broker that writes the log.
pub(super) const LOCK: &str = "audit.lock";

/// Why a log's files cannot be listed.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the audit folder `{}`", folder.display())]
pub struct FilesError {
    pub folder: PathBuf,
    pub source: io::Error,
}

/// The name that a full file gets: its first record's number, so that names sort in the order of the log.
pub(super) fn rotated_name(first_seq: u64) -> String {
    format!("audit-{first_seq:020}.jsonl")
}

fn is_rotated(name: &str) -> bool {
    name.strip_prefix("audit-")
        .and_then(|rest| rest.strip_suffix(".jsonl"))
        .is_some_and(|digits| digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Full files, oldest first, then the one that is written.
pub fn log_files(folder: &Path) -> Result<Vec<PathBuf>, FilesError> {
    let failed = |source| FilesError { folder: folder.to_owned(), source };
    let mut names = Vec::new();
    for item in std::fs::read_dir(folder).map_err(failed)? {
        let name = item.map_err(failed)?.file_name();
        names.extend(name.into_string().ok().filter(|name| is_rotated(name)));
    }
    names.sort_unstable();
    let mut files: Vec<PathBuf> = names.into_iter().map(|name| folder.join(name)).collect();
    let current = folder.join(CURRENT);
    if current.exists() {
        files.push(current);
    }
    Ok(files)
}
