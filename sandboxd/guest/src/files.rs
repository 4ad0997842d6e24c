//! Places the job's files in the work directory. Links are never followed, nothing above the directory is touched.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, mkdirat, openat, openat2, unlinkat};

/// Everything is resolved below the directory, and no component may be a link.
const STRICT: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

/// What happens to a file that is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Existing {
    /// The work directory is new: there is none, and one that is there is an error.
    Refuse,
    /// An earlier call of the session left it, or put a link or a pipe in its place: the name is taken from it.
    Replace,
}

/// Writes one file and the folders above it. A file that starts with `#!` may be executed.
pub(crate) fn place(work: impl AsFd, path: &str, content: &[u8], existing: Existing) -> io::Result<()> {
    let (folders, name) = split(path).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    let mut folder: OwnedFd = work.as_fd().try_clone_to_owned()?;
    for part in folders {
        match mkdirat(&folder, part, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        folder = open_part(&folder, part, flags, Mode::empty())?;
    }
    if existing == Existing::Replace {
        match unlinkat(&folder, name, AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let mode = Mode::from_raw_mode(if content.starts_with(b"#!") { 0o755 } else { 0o644 });
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = open_part(&folder, name, flags, mode)?;
    File::from(file).write_all(content)
}

/// Opens a regular file below `work` for reading, or says why not.
pub(crate) fn open_beneath(work: impl AsFd, path: &str) -> io::Result<File> {
    let (folders, name) = split(path).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    let mut folder: OwnedFd = work.as_fd().try_clone_to_owned()?;
    for part in folders {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        folder = open_part(&folder, part, flags, Mode::empty())?;
    }
    // Not blocking: a pipe that somebody put there must not stop the capture; it is refused below.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = File::from(open_part(&folder, name, flags, Mode::empty())?);
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::from(io::ErrorKind::InvalidInput)) }
}

/// Opens one component of a path. A kernel without openat2 (gVisor) resolves a single name, which is no `..`, below the
/// folder anyway, and `NOFOLLOW` refuses a link.
fn open_part(folder: &OwnedFd, part: &str, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
    match openat2(folder, part, flags, mode, STRICT) {
        Err(rustix::io::Errno::NOSYS) => Ok(openat(folder, part, flags | OFlags::NOFOLLOW, mode)?),
        opened => Ok(opened?),
    }
}

/// Folders and name of a relative path that stays below its root as written.
fn split(path: &str) -> Option<(Vec<&str>, &str)> {
    let mut parts: Vec<&str> = path.split('/').collect();
    let plain = |part: &&str| !part.is_empty() && *part != "." && *part != ".." && !part.contains('\0');
    if !parts.iter().all(plain) {
        return None;
    }
    let name = parts.pop()?;
    Some((parts, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> (tempfile::TempDir, File) {
        let folder = tempfile::tempdir().unwrap();
        let handle = File::open(folder.path()).unwrap();
        (folder, handle)
    }

    #[test]
    fn places_files_in_folders_of_their_own() {
        let (folder, work) = folder();
        place(&work, "a/b/c.txt", b"one", Existing::Refuse).unwrap();
        place(&work, "a/b/run.sh", b"#!/bin/sh\n", Existing::Refuse).unwrap();
        assert_eq!(std::fs::read(folder.path().join("a/b/c.txt")).unwrap(), b"one");
        use std::os::unix::fs::PermissionsExt;
        let mode = |path| std::fs::metadata(folder.path().join(path)).unwrap().permissions().mode() & 0o111;
        assert_eq!((mode("a/b/c.txt"), mode("a/b/run.sh")), (0, 0o111));
    }

    #[test]
    fn refuses_paths_that_leave_and_links_on_the_way() {
        let (folder, work) = folder();
        for path in ["", "/etc/passwd", "../x", "a/../../x", "a//b", "./a", "a/."] {
            assert!(place(&work, path, b"x", Existing::Refuse).is_err(), "{path}");
            assert!(open_beneath(&work, path).is_err(), "{path}");
        }
        std::os::unix::fs::symlink("/tmp", folder.path().join("out")).unwrap();
        assert!(place(&work, "out/x", b"x", Existing::Refuse).is_err());
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("p")).unwrap();
        assert!(open_beneath(&work, "p").is_err());
        place(&work, "once", b"x", Existing::Refuse).unwrap();
        assert!(place(&work, "once", b"y", Existing::Refuse).is_err(), "a file is placed once");
    }

    #[test]
    fn a_later_call_takes_the_name_and_follows_nothing() {
        let (folder, work) = folder();
        let outside = tempfile::tempdir().unwrap();
        let target = outside.path().join("target");
        std::fs::write(&target, b"kept").unwrap();
        std::os::unix::fs::symlink(&target, folder.path().join("name")).unwrap();
        place(&work, "name", b"one", Existing::Replace).unwrap();
        place(&work, "name", b"two", Existing::Replace).unwrap();
        assert_eq!(std::fs::read(folder.path().join("name")).unwrap(), b"two");
        assert_eq!(std::fs::read(target).unwrap(), b"kept");
        std::fs::create_dir(folder.path().join("folder")).unwrap();
        assert!(place(&work, "folder", b"x", Existing::Replace).is_err(), "a folder is not a file");
    }

    #[test]
    fn opens_only_regular_files() {
        let (folder, work) = folder();
        let path = folder.path().join("fifo");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        assert!(open_beneath(&work, "fifo").is_err());
        place(&work, "plain", b"x", Existing::Refuse).unwrap();
        assert!(open_beneath(&work, "plain").is_ok());
    }
}
