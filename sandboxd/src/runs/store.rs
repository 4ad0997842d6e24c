//! Where the answers of ended runs are: in memory, or one file each.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use freeboard_wire::runs::Run;

/// What the name of an answer ends with.
const SUFFIX: &str = ".answer.json";

#[derive(Debug)]
pub(super) enum Store {
    /// With the entry.
    Memory,
    /// A file in this folder, which only this daemon reads.
    Folder(PathBuf),
}

impl Store {
    /// Keeps an answer, on disk when this returns. Gives its bytes.
    pub(super) fn put(&self, view: &Run) -> io::Result<u64> {
        let content = serde_json::to_vec(view)?;
        if let Self::Folder(folder) = self {
            let path = path(folder, &view.run);
            let new = path.with_extension("new");
            let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
            let written = file.write_all(&content).and_then(|()| file.sync_data());
            if let Err(error) = written.and_then(|()| std::fs::rename(&new, &path)) {
                let _ = std::fs::remove_file(&new);
                return Err(error);
            }
        }
        Ok(content.len() as u64)
    }

    pub(super) fn get(&self, run: &str) -> io::Result<Run> {
        match self {
            Self::Memory => Err(io::ErrorKind::NotFound.into()),
            Self::Folder(folder) => Ok(serde_json::from_slice(&std::fs::read(path(folder, run))?)?),
        }
    }

    /// A file that stays is found and removed at the next start.
    pub(super) fn remove(&self, run: &str) {
        if let Self::Folder(folder) = self
            && let Err(error) = std::fs::remove_file(path(folder, run))
        {
            tracing::warn!(run, %error, "the answer of a forgotten run stays in the state folder");
        }
    }

    /// Removes answers that nobody knows any more.
    pub(super) fn remove_all_but(&self, known: impl Fn(&str) -> bool) {
        let Self::Folder(folder) = self else { return };
        let Ok(files) = std::fs::read_dir(folder) else { return };
        for file in files.flatten() {
            let name = file.file_name();
            let of_run = name.to_str().and_then(|name| name.strip_suffix(SUFFIX));
            let half = name.to_str().is_some_and(|name| name.ends_with(".answer.new"));
            if half || of_run.is_some_and(|run| !known(run)) {
                let _ = std::fs::remove_file(file.path());
            }
        }
    }
}

fn path(folder: &Path, run: &str) -> PathBuf {
    folder.join(format!("{run}{SUFFIX}"))
}
