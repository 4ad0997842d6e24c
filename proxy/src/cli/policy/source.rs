//! Where policy files come from: a folder, one file, standard input, or a revision of a git repository.

use std::ffi::OsStr;
use std::io::{BufRead, Read as _, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use freeboard_policy::{Diagnostic, SourceFile};

use crate::limits::{POLICY_FILE_READ_BYTES, POLICY_FILES_MAX};
use crate::reload::folder::{self, FolderError};

/// Name that diagnostics show for standard input.
const STDIN_NAME: &str = "stdin.toml";

/// Ids of 64 digits that are written to git before its answers are read: they fit a pipe (64 KiB, pipe(7)), so that neither
/// side waits for the other.
const ASKED_AT_ONCE: usize = 500;

/// As named on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Source {
    /// A folder or a file.
    Path(PathBuf),
    /// `-`
    Stdin,
    /// `git:REV[:PATH]`, of the repository that holds the working directory.
    Git { revision: String, path: String },
}

/// Why there are no files.
#[derive(Debug, thiserror::Error)]
pub(super) enum SourceError {
    #[error(transparent)]
    Folder(FolderError),
    #[error("{}", .0.render())]
    Encoding(Box<Diagnostic>),
    #[error("cannot read standard input")]
    Stdin(#[source] std::io::Error),
    #[error("cannot run `git`")]
    Git(#[source] std::io::Error),
    #[error("`git` refused: {0}")]
    GitRefused(String),
    #[error("`{0}` has more than {POLICY_FILES_MAX} files")]
    TooMany(String),
    #[error("`git` answered what cannot be read")]
    GitAnswer,
}

impl From<FolderError> for SourceError {
    fn from(error: FolderError) -> Self {
        match error {
            FolderError::Encoding(problem) => Self::Encoding(problem),
            error => Self::Folder(error),
        }
    }
}

/// Reads a command-line word.
///
/// # Errors
/// Why it names no source.
pub(super) fn source(text: &str) -> Result<Source, String> {
    if text == "-" {
        return Ok(Source::Stdin);
    }
    let Some(rest) = text.strip_prefix("git:") else { return Ok(Source::Path(PathBuf::from(text))) };
    let (revision, path) = rest.split_once(':').unwrap_or((rest, ""));
    // SECURITY: a revision that starts with `-` would be an option of git.
    if revision.is_empty() || revision.starts_with('-') || revision.contains(char::is_whitespace) {
        return Err("git:REV[:PATH] is wanted, for example git:main:policy".to_owned());
    }
    Ok(Source::Git { revision: revision.to_owned(), path: path.trim_end_matches('/').to_owned() })
}

impl Source {
    /// The files whose name below the folder is wanted, in the order of their names.
    pub(super) fn files(&self, wanted: fn(&str) -> bool) -> Result<Vec<SourceFile>, SourceError> {
        match self {
            Self::Path(path) if path.is_dir() => Ok(folder::read_where(path, wanted)?),
            Self::Path(path) => {
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                Ok(vec![folder::read_file(&name, path)?])
            }
            Self::Stdin => {
                let mut bytes = Vec::new();
                let mut input = std::io::stdin().lock().take(POLICY_FILE_READ_BYTES);
                input.read_to_end(&mut bytes).map_err(SourceError::Stdin)?;
                Ok(vec![SourceFile::decode(STDIN_NAME, &bytes).map_err(SourceError::Encoding)?])
            }
            Self::Git { revision, path } => of_revision(revision, path, wanted),
        }
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Path(path) => write!(f, "{}", path.display()),
            Self::Stdin => f.write_str("-"),
            Self::Git { revision, path } if path.is_empty() => write!(f, "git:{revision}"),
            Self::Git { revision, path } => write!(f, "git:{revision}:{path}"),
        }
    }
}

fn of_revision(revision: &str, path: &str, wanted: fn(&str) -> bool) -> Result<Vec<SourceFile>, SourceError> {
    let object = if path.is_empty() { format!("{revision}^{{tree}}") } else { format!("{revision}:{path}") };
    let kind = text(git(["cat-file", "-t", &object])?)?;
    if kind.trim() == "blob" {
        let name = path.rsplit('/').next().unwrap_or(path).to_owned();
        let id = text(git(["rev-parse", "--verify", &object])?)?;
        return contents(vec![(name, id.trim().to_owned())]);
    }
    let listed = git(["ls-tree", "-r", "-z", "--full-tree", &object])?;
    let mut entries = Vec::new();
    for entry in listed.split(|byte| *byte == 0).filter(|entry| !entry.is_empty()) {
        let (mode, id, name) = entry_of(entry).ok_or(SourceError::GitAnswer)?;
        let hidden = name.split('/').any(|part| part.starts_with('.'));
        // Regular files only: a link of a revision has no meaning outside of a work tree.
        if mode.starts_with("100") && wanted(&name) && !hidden {
            entries.push((name, id));
        }
    }
    if entries.len() > POLICY_FILES_MAX {
        return Err(SourceError::TooMany(format!("git:{revision}:{path}")));
    }
    entries.sort_unstable();
    contents(entries)
}

/// `MODE TYPE ID TAB NAME`
fn entry_of(entry: &[u8]) -> Option<(String, String, String)> {
    let entry = String::from_utf8_lossy(entry);
    let (head, name) = entry.split_once('\t')?;
    let mut words = head.split(' ');
    let (mode, _, id) = (words.next()?, words.next()?, words.next()?);
    Some((mode.to_owned(), id.to_owned(), name.to_owned()))
}

/// Reads objects of the repository, named by their ids, with one process.
fn contents(entries: Vec<(String, String)>) -> Result<Vec<SourceFile>, SourceError> {
    let mut child = command(["cat-file", "--batch"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(SourceError::Git)?;
    let mut input = child.stdin.take().ok_or(SourceError::GitAnswer)?;
    let mut output = std::io::BufReader::new(child.stdout.take().ok_or(SourceError::GitAnswer)?);
    let read = read_objects(&mut input, &mut output, &entries);
    // Both ends of the conversation are closed before the end of the process is waited for.
    drop((input, output));
    child.wait().map_err(SourceError::Git)?;
    read
}

fn read_objects(
    input: &mut impl Write,
    output: &mut impl BufRead,
    entries: &[(String, String)],
) -> Result<Vec<SourceFile>, SourceError> {
    let mut files = Vec::new();
    for some in entries.chunks(ASKED_AT_ONCE) {
        let asked: String = some.iter().map(|(_, id)| format!("{id}\n")).collect();
        input.write_all(asked.as_bytes()).map_err(SourceError::Git)?;
        for (name, _) in some {
            let bytes = one_object(output)?;
            files.push(SourceFile::decode(name, &bytes).map_err(SourceError::Encoding)?);
        }
    }
    Ok(files)
}

/// `ID TYPE SIZE LF BYTES LF`. No more is kept than shows that a file is too large.
fn one_object(output: &mut impl BufRead) -> Result<Vec<u8>, SourceError> {
    let mut head = Vec::new();
    output.by_ref().take(256).read_until(b'\n', &mut head).map_err(SourceError::Git)?;
    let head = String::from_utf8_lossy(&head);
    let size = head.trim().rsplit(' ').next().and_then(|size| size.parse::<u64>().ok());
    let size = size.ok_or(SourceError::GitAnswer)?;
    let mut bytes = Vec::new();
    let kept = size.min(POLICY_FILE_READ_BYTES);
    output.by_ref().take(kept).read_to_end(&mut bytes).map_err(SourceError::Git)?;
    let rest = (size - kept) + 1;
    std::io::copy(&mut output.by_ref().take(rest), &mut std::io::sink()).map_err(SourceError::Git)?;
    Ok(bytes)
}

fn command<const N: usize>(arguments: [&str; N]) -> Command {
    let mut command = Command::new("git");
    command.arg("--no-pager").arg("--no-replace-objects").args(arguments.map(OsStr::new));
    command
}

fn git<const N: usize>(arguments: [&str; N]) -> Result<Vec<u8>, SourceError> {
    let output = command(arguments).stdin(Stdio::null()).output().map_err(SourceError::Git)?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let first = said.lines().next().unwrap_or("no reason given").trim();
    Err(SourceError::GitRefused(first.trim_start_matches("fatal: ").to_owned()))
}

fn text(bytes: Vec<u8>) -> Result<String, SourceError> {
    String::from_utf8(bytes).map_err(|_| SourceError::GitAnswer)
}

#[cfg(test)]
mod tests {
    use super::{Source, source};

    #[test]
    fn reads_folders_files_standard_input_and_revisions() {
        assert_eq!(source("-"), Ok(Source::Stdin));
        assert_eq!(source("policy"), Ok(Source::Path("policy".into())));
        for (text, revision, path) in [
            ("git:main", "main", ""),
            ("git:HEAD~1:policy/", "HEAD~1", "policy"),
            ("git:v1.0:a/b.toml", "v1.0", "a/b.toml"),
        ] {
            let expected = Source::Git { revision: revision.to_owned(), path: path.to_owned() };
            assert_eq!(source(text), Ok(expected), "{text}");
        }
        for text in ["git:", "git:--upload-pack=x", "git:-x:policy", "git:a b"] {
            assert!(source(text).is_err(), "{text}");
        }
    }
}
