//! The commit of the policy folder's git work tree, for the audit record.
//!
//! HEAD is read from git's own files; whether files differ from it is asked of the `git` program where there is one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::limits::GIT_FILE_MAX_BYTES;

/// The commit, with `+dirty` when files of the folder differ from it; `None` outside a work tree.
pub fn commit(folder: &Path) -> Option<Arc<str>> {
    let git = git_folder(folder)?;
    let head = resolve(&git)?;
    let dirty = if is_dirty(folder) { "+dirty" } else { "" };
    Some(Arc::from(format!("{head}{dirty}")))
}

/// The nearest `.git`, also where it is a file that names the folder (worktrees, submodules).
fn git_folder(folder: &Path) -> Option<PathBuf> {
    let absolute = std::fs::canonicalize(folder).ok()?;
    absolute.ancestors().find_map(|at| {
        let git = at.join(".git");
        if git.is_dir() {
            return Some(git);
        }
        let named = read(&git)?.strip_prefix("gitdir:")?.trim().to_owned();
        Some(at.join(named)).filter(|folder| folder.is_dir())
    })
}

fn resolve(git: &Path) -> Option<String> {
    let head = read(&git.join("HEAD"))?;
    let Some(name) = head.trim().strip_prefix("ref:").map(str::trim) else { return hex(head.trim()) };
    if !name.starts_with("refs/") || name.split('/').any(|part| part == "..") {
        return None;
    }
    let common = common_folder(git);
    let loose = [git, &common].into_iter().find_map(|folder| hex(read(&folder.join(name))?.trim()));
    loose.or_else(|| packed(&read(&common.join("packed-refs"))?, name))
}

fn packed(refs: &str, name: &str) -> Option<String> {
    refs.lines().find_map(|line| {
        let (commit, of) = line.split_once(' ')?;
        if of == name { hex(commit) } else { None }
    })
}

fn hex(text: &str) -> Option<String> {
    let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_hex && matches!(text.len(), 40 | 64)).then(|| text.to_owned())
}

fn read(path: &Path) -> Option<String> {
    use std::io::Read as _;
    let mut text = String::new();
    std::fs::File::open(path).ok()?.take(GIT_FILE_MAX_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

/// The folders and files that are read here.
pub fn places(folder: &Path) -> Vec<PathBuf> {
    let Some(git) = git_folder(folder) else { return Vec::new() };
    let absolute = std::fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    let named = absolute.ancestors().map(|at| at.join(".git")).find(|path| path.is_file());
    let common = common_folder(&git);
    [Some(git), Some(common), named].into_iter().flatten().collect()
}

/// What worktrees of one repository share.
fn common_folder(git: &Path) -> PathBuf {
    read(&git.join("commondir")).map_or_else(|| git.to_owned(), |path| git.join(path.trim()))
}

/// SECURITY: with an environment of its own and without the work tree's hooks and monitors, so that a repository's
/// configuration runs nothing. The folder may belong to another user (`safe.directory`). The process that runs helpers runs
/// it: a broker that serves starts no program.
fn is_dirty(folder: &Path) -> bool {
    let words = [
        "env",
        "-i",
        "PATH=/usr/local/bin:/usr/bin:/bin",
        "GIT_CONFIG_NOSYSTEM=1",
        "git",
        "-c",
        "safe.directory=*",
        "-c",
        "core.fsmonitor=false",
        "-c",
        "core.hooksPath=/dev/null",
        "--no-optional-locks",
        "-C",
    ];
    let status = ["status", "--porcelain", "--untracked-files=all", "--ignore-submodules=all", "--", "."];
    let folder = folder.display().to_string();
    let words = words.into_iter().chain([folder.as_str()]).chain(status);
    match crate::helpers::run_blocking(&words.map(str::to_owned).collect::<Vec<_>>()) {
        Ok(listed) => !listed.is_empty(),
        // More changed files than an answer has room for.
        Err(problem) => problem.starts_with(crate::helpers::runner::TOO_MUCH),
    }
}
