//! Secret references: where a secret is read from, and how a replaced one is noticed.
//!
//! In: a reference of the policy. Out: the secret's bytes and a stamp. Errors name the reference, never the content.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use freeboard_policy::SecretReference;

use super::Secret;
use crate::limits::SECRET_MAX_BYTES;

/// Why a secret cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum SourceError {
    #[error("cannot read `{}`: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("`{}` has mode {mode:03o}: only its owner may read a secret (mode 600 or 400)", path.display())]
    Mode { path: PathBuf, mode: u32 },
    #[error("`{}` is no regular file", path.display())]
    NotAFile { path: PathBuf },
    #[error("the secret is larger than {SECRET_MAX_BYTES} bytes")]
    TooLarge,
    #[error("the secret is empty")]
    Empty,
    #[error("the environment variable `{0}` is not set")]
    NotInEnvironment(String),
    #[error("`{0}` is no name of a systemd credential, or $CREDENTIALS_DIRECTORY is not set")]
    NotFromSystemd(String),
    #[error("the helper `{program}` {what}")]
    Helper { program: String, what: String },
}

/// Tells a replaced secret from the one that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stamp {
    File {
        modified: Option<SystemTime>,
        length: u64,
        inode: u64,
    },
    /// The environment of a process does not change.
    Constant,
    /// A helper is asked again when its answer is old.
    Ages,
}

/// Reads the secret. One trailing line end is not part of it.
pub(super) async fn read(reference: &SecretReference) -> Result<(Secret, Stamp), SourceError> {
    match reference {
        SecretReference::Exec(command) => Ok((run_helper(command).await?, Stamp::Ages)),
        other => read_now(other),
    }
}

/// Reads what needs no helper.
pub(super) fn read_now(reference: &SecretReference) -> Result<(Secret, Stamp), SourceError> {
    match reference {
        SecretReference::File(path) => read_file(Path::new(path)),
        SecretReference::Systemd(name) => read_file(&systemd_path(name)?),
        SecretReference::Env(name) => {
            let value = std::env::var_os(name).ok_or_else(|| SourceError::NotInEnvironment(name.clone()))?;
            Ok((trimmed(std::os::unix::ffi::OsStringExt::into_vec(value))?, Stamp::Constant))
        }
        SecretReference::Exec(command) => Err(SourceError::Helper {
            program: command.first().cloned().unwrap_or_default(),
            what: "has to be run".to_owned(),
        }),
    }
}

/// The stamp of what the reference holds now; `None` when it cannot be told (the next `read` says why).
pub(super) fn stamp(reference: &SecretReference) -> Option<Stamp> {
    match reference {
        SecretReference::File(path) => std::fs::metadata(path).ok().map(|found| of_metadata(&found)),
        SecretReference::Systemd(name) => {
            std::fs::metadata(systemd_path(name).ok()?).ok().map(|found| of_metadata(&found))
        }
        SecretReference::Env(_) => Some(Stamp::Constant),
        SecretReference::Exec(_) => Some(Stamp::Ages),
    }
}

fn of_metadata(metadata: &std::fs::Metadata) -> Stamp {
    Stamp::File { modified: metadata.modified().ok(), length: metadata.len(), inode: metadata.ino() }
}

/// Reads a file that only its owner can read.
pub(super) fn read_file(path: &Path) -> Result<(Secret, Stamp), SourceError> {
    use std::io::Read as _;
    let failed = |source| SourceError::Read { path: path.to_owned(), source };
    let file = std::fs::File::open(path).map_err(failed)?;
    // The opened file is judged, not the path: what is checked is what is read.
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(SourceError::NotAFile { path: path.to_owned() });
    }
    // SECURITY: a secret that other users of this host can read is not one. Guarded by
    // `refuses_a_secret_file_that_others_can_read`.
    if metadata.mode() & 0o077 != 0 {
        return Err(SourceError::Mode { path: path.to_owned(), mode: metadata.mode() & 0o777 });
    }
    let limit = u64::try_from(SECRET_MAX_BYTES).unwrap_or(u64::MAX);
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes).map_err(failed)?;
    Ok((trimmed(bytes)?, of_metadata(&metadata)))
}

fn systemd_path(name: &str) -> Result<PathBuf, SourceError> {
    let wrong = || SourceError::NotFromSystemd(name.to_owned());
    if name.is_empty() || name.contains('/') || name.starts_with('.') {
        return Err(wrong());
    }
    let folder = std::env::var_os("CREDENTIALS_DIRECTORY").ok_or_else(wrong)?;
    Ok(Path::new(&folder).join(name))
}

fn trimmed(mut bytes: Vec<u8>) -> Result<Secret, SourceError> {
    if bytes.len() > SECRET_MAX_BYTES {
        return Err(SourceError::TooLarge);
    }
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
        if bytes.last() == Some(&b'\r') {
            bytes.pop();
        }
    }
    if bytes.is_empty() { Err(SourceError::Empty) } else { Ok(Secret::new(bytes)) }
}

/// What a helper prints.
pub(super) async fn run_helper(command: &[String]) -> Result<Secret, SourceError> {
    let program = command.first().cloned().unwrap_or_default();
    let printed = crate::helpers::run(command).await.map_err(|what| SourceError::Helper { program, what })?;
    trimmed(printed.to_vec())
}
