//! Programs and other files that a boundary rests on: where they are, which bytes they have, and whether they are still
//! the same ones.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use freeboard_wire::digest::hex;
use sha2::{Digest, Sha256};

use super::CreateError;
use crate::isolate::kernel::FileIdentity;

/// The guest program's place in a package.
const LIBRARY: &str = "/usr/lib/freeboard";
/// The guest program's name.
const GUEST: &str = "freeboard-guest";

/// A program that was looked at once.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) path: PathBuf,
    pub(super) identity: FileIdentity,
    digest: OnceLock<String>,
}

impl Program {
    pub(super) fn at(path: PathBuf) -> io::Result<Self> {
        // Links are resolved here, once: a link that is pointed elsewhere later changes nothing for this daemon.
        let path = path.canonicalize()?;
        let metadata = path.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        Ok(Self { path, identity: FileIdentity::from(&metadata), digest: OnceLock::new() })
    }

    /// SHA-256 of its bytes, worked out once. Tens of megabytes are read: not on a thread that serves others.
    pub(super) fn digest(&self) -> io::Result<&str> {
        if let Some(digest) = self.digest.get() {
            return Ok(digest);
        }
        let mut file = File::open(&self.path)?;
        if !self.identity.is(&file.metadata()?) {
            return Err(io::Error::other("the file was replaced since sandboxd started"));
        }
        let mut hash = Sha256::new();
        io::copy(&mut file, &mut hash)?;
        Ok(self.digest.get_or_init(|| hex(&hash.finalize())))
    }
}

/// Finds our guest program.
pub(super) fn find_guest(named: Option<&Path>) -> Result<Program, CreateError> {
    let missing = |what: String| CreateError::Host {
        what,
        help: "it is built and installed together with sandboxd: `cargo build --workspace --bins`".into(),
    };
    let path = match named {
        Some(path) => Some(path.to_owned()),
        None => beside_us()
            .into_iter()
            .chain([PathBuf::from(LIBRARY)])
            .map(|folder| folder.join(GUEST))
            .find(|path| path.is_file()),
    };
    let path = path.ok_or_else(|| missing(format!("the program `{GUEST}` is not beside sandboxd")))?;
    let shown = path.display().to_string();
    Program::at(path).map_err(|error| missing(format!("cannot use `{shown}`: {error}")))
}

fn beside_us() -> Option<PathBuf> {
    Some(std::env::current_exe().ok()?.parent()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_guest_program_is_named() {
        let error = find_guest(Some(Path::new("/nonexistent/guest"))).unwrap_err().to_string();
        assert!(error.contains("/nonexistent/guest"), "{error}");
    }

    #[test]
    fn notices_every_way_to_change_a_program() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runsc");
        std::fs::write(&path, "one").unwrap();
        let program = Program::at(path.clone()).unwrap();
        assert_eq!(program.digest().unwrap(), hex(&Sha256::digest("one")));
        assert!(program.identity.is(&path.metadata().unwrap()));
        std::fs::write(&path, "two").unwrap();
        assert!(!program.identity.is(&path.metadata().unwrap()), "written to");
        let program = Program::at(path.clone()).unwrap();
        std::fs::write(folder.path().join("new"), "two").unwrap();
        std::fs::rename(folder.path().join("new"), &path).unwrap();
        assert!(!program.identity.is(&path.metadata().unwrap()), "replaced");
        assert!(program.digest().is_err(), "no digest of something else");
    }
}
