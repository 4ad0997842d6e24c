//! The policy folder as files: every `*.toml` in it and below, hidden ones left out.

use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use freeboard_policy::{Diagnostic, SourceFile};

use crate::limits::{POLICY_FILE_READ_BYTES, POLICY_FILES_MAX, POLICY_FOLDER_DEPTH};

/// Why the folder gives no files.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    #[error("cannot read policy `{}`", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("the policy folder `{}` has more than {POLICY_FILES_MAX} files", folder.display())]
    TooMany { folder: PathBuf },
    #[error("the policy folder `{}` has folders deeper than {POLICY_FOLDER_DEPTH}", folder.display())]
    TooDeep { folder: PathBuf },
    #[error("everybody may write `{}` (mode {mode:03o}): take that right away (chmod o-w)", path.display())]
    Writable { path: PathBuf, mode: u32 },
    #[error("{}", .0.render())]
    Encoding(Box<Diagnostic>),
}

/// The policy files of a folder, in the order of their names.
pub fn read(folder: &Path) -> Result<Vec<SourceFile>, FolderError> {
    read_where(folder, SourceFile::is_policy)
}

/// SECURITY: whoever may write a policy file may grant himself everything. Guarded by
/// `does_not_take_a_policy_that_everybody_may_write`.
///
/// # Errors
/// The folder, one below it, or one of its policy files may be written by everybody; or they cannot be looked at.
pub fn refuse_writable(folder: &Path) -> Result<(), FolderError> {
    let files = list(folder, SourceFile::is_policy)?;
    let folders =
        files.iter().flat_map(|(_, path)| path.ancestors().skip(1).take_while(|at| at.starts_with(folder)));
    for path in [folder].into_iter().chain(folders).chain(files.iter().map(|(_, path)| path.as_path())) {
        let metadata =
            std::fs::metadata(path).map_err(|source| FolderError::Read { path: path.to_owned(), source })?;
        let mode = metadata.mode() & 0o7777;
        if mode & 0o002 != 0 {
            return Err(FolderError::Writable { path: path.to_owned(), mode });
        }
    }
    Ok(())
}

/// The files of a folder whose name below it is wanted, in the order of their names.
pub fn read_where(folder: &Path, wanted: fn(&str) -> bool) -> Result<Vec<SourceFile>, FolderError> {
    list(folder, wanted)?.iter().map(|(name, path)| read_file(name, path)).collect()
}

/// One file, under the name that diagnostics show.
pub fn read_file(name: &str, path: &Path) -> Result<SourceFile, FolderError> {
    let failed = |source| FolderError::Read { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    // One byte more than a policy file may have, so that a larger one is seen as too large.
    file.take(POLICY_FILE_READ_BYTES).read_to_end(&mut bytes).map_err(failed)?;
    SourceFile::decode(name, &bytes).map_err(FolderError::Encoding)
}

/// What tells one state of the files from another without reading them.
pub fn fingerprint(folder: &Path) -> Option<Vec<(String, u64, SystemTime)>> {
    let files = list(folder, SourceFile::is_policy).ok()?;
    files
        .into_iter()
        .map(|(name, path)| {
            let metadata = std::fs::metadata(path).ok()?;
            Some((name, metadata.len(), metadata.modified().ok()?))
        })
        .collect()
}

/// Name below the folder and path of each wanted file.
fn list(folder: &Path, wanted: fn(&str) -> bool) -> Result<Vec<(String, PathBuf)>, FolderError> {
    let mut files = Vec::new();
    walk(folder, folder, 0, wanted, &mut files)?;
    files.sort_unstable();
    Ok(files)
}

fn walk(
    root: &Path,
    folder: &Path,
    depth: usize,
    wanted: fn(&str) -> bool,
    files: &mut Vec<(String, PathBuf)>,
) -> Result<(), FolderError> {
    if depth > POLICY_FOLDER_DEPTH {
        return Err(FolderError::TooDeep { folder: root.to_owned() });
    }
    let failed = |source| FolderError::Read { path: folder.to_owned(), source };
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let path = entry.path();
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        if entry.file_type().map_err(failed)?.is_dir() {
            walk(root, &path, depth + 1, wanted, files)?;
            continue;
        }
        let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
        if wanted(&name) {
            files.push((name, path));
        }
        if files.len() > POLICY_FILES_MAX {
            return Err(FolderError::TooMany { folder: root.to_owned() });
        }
    }
    Ok(())
}
