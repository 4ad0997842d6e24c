//! Who may call: a file of callers with hashed tokens. Tokens are random, shown once, and never stored.
//!
//! A token is 32 random bytes in hex, so a plain SHA-256 cannot be reversed; each presented token is compared with
//! every entry in constant time.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use freeboard_wire::digest::{hex, sha256_hex};
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::limits::{MAX_CALLERS, MAX_CONFIG_BYTES};

/// The scope that every procedure needs.
pub const SCOPE_RUN: &str = "code:run";

/// Why a callers file cannot be used. The old callers stay in force where there are any.
#[derive(Debug, thiserror::Error)]
pub enum CallersError {
    #[error("cannot read the callers file `{path}`")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("cannot write the callers file `{path}`")]
    Write { path: PathBuf, source: std::io::Error },
    #[error("the callers file `{path}` does not parse: {message}")]
    Parse { path: PathBuf, message: String },
    #[error("the callers file `{path}` may be written by others (mode {mode:o}); use 0600 or 0640")]
    Writable { path: PathBuf, mode: u32 },
    #[error("the callers file `{path}` is not a regular file")]
    NotAFile { path: PathBuf },
    #[error("the callers file `{path}` has no caller; make one with `sandboxd callers create NAME`")]
    Empty { path: PathBuf },
    #[error("caller `{id}`: {problem}")]
    Caller { id: String, problem: &'static str },
    #[error("there is no caller `{id}`")]
    Unknown { id: String },
    #[error("no random bytes from the operating system")]
    Random,
}

/// One caller as the file holds it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Caller {
    /// The name that grants list under `callers` and that audit records carry.
    pub id: String,
    /// SHA-256 of the token, lower-case hex.
    pub token_sha256: String,
    /// `code:run` is the only scope there is.
    #[serde(default = "run_scope")]
    pub scopes: Vec<String>,
}

fn run_scope() -> Vec<String> {
    vec![SCOPE_RUN.to_owned()]
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Schema {
    #[serde(default)]
    caller: Vec<Caller>,
}

/// The checked callers of one file.
#[derive(Debug, Clone, Default)]
pub struct Callers {
    entries: Vec<Caller>,
}

/// A new token, zeroed when dropped. Prints as `[secret]`.
pub struct Token(Zeroizing<String>);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[secret]")
    }
}

impl Token {
    fn random() -> Result<Self, CallersError> {
        let mut bytes = Zeroizing::new([0_u8; 32]);
        getrandom::fill(bytes.as_mut()).map_err(|_| CallersError::Random)?;
        Ok(Self(Zeroizing::new(hex(bytes.as_ref()))))
    }

    /// The text, for the one place that shows it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

/// What a presented token is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Known {
        id: String,
    },
    /// The caller exists but lacks `code:run`.
    WithoutScope,
    Unknown,
}

impl Callers {
    /// Reads and checks a file; one without a caller is an error, since nobody could call.
    pub fn load(path: &Path) -> Result<Self, CallersError> {
        let callers = Self::read(path)?;
        if callers.entries.is_empty() {
            return Err(CallersError::Empty { path: path.to_owned() });
        }
        Ok(callers)
    }

    fn read(path: &Path) -> Result<Self, CallersError> {
        let failed = |source| CallersError::Read { path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(CallersError::NotAFile { path: path.to_owned() });
        }
        // SECURITY: whoever can write this file can run code as any caller. Guarded by
        // refuses_a_file_that_others_may_write.
        let mode = metadata.mode() & 0o7777;
        if mode & 0o022 != 0 {
            return Err(CallersError::Writable { path: path.to_owned(), mode });
        }
        let mut text = String::new();
        file.take(MAX_CONFIG_BYTES).read_to_string(&mut text).map_err(failed)?;
        let schema: Schema = toml::from_str(&text)
            .map_err(|error| CallersError::Parse { path: path.to_owned(), message: error.to_string() })?;
        Self::check(schema.caller)
    }

    fn check(entries: Vec<Caller>) -> Result<Self, CallersError> {
        let mut ids = HashSet::new();
        let mut hashes = HashSet::new();
        for (index, caller) in entries.iter().enumerate() {
            let problem = if index >= MAX_CALLERS {
                Some("there are more than 1000 callers")
            } else if !valid_id(&caller.id) {
                Some("a name is 1 to 64 of letters, digits, `.`, `_`, `-`")
            } else if !ids.insert(&caller.id) {
                Some("the name is there twice")
            } else if !is_hash(&caller.token_sha256) {
                Some("`token_sha256` is not 64 lower-case hex digits")
            } else if !hashes.insert(&caller.token_sha256) {
                Some("another caller has the same token")
            } else if caller.scopes.iter().any(|scope| scope != SCOPE_RUN) {
                Some("the only scope is `code:run`")
            } else {
                None
            };
            if let Some(problem) = problem {
                return Err(CallersError::Caller { id: caller.id.clone(), problem });
            }
        }
        Ok(Self { entries })
    }

    /// Looks a token up. Takes the same time wherever in the file it stands.
    pub fn verify(&self, token: &str) -> Verdict {
        let presented = sha256_hex(token.as_bytes());
        let mut found = None;
        for caller in &self.entries {
            // SECURITY: no early exit and a constant-time comparison, so that timing tells nothing about stored hashes.
            if bool::from(presented.as_bytes().ct_eq(caller.token_sha256.as_bytes())) {
                found = Some(caller);
            }
        }
        match found {
            None => Verdict::Unknown,
            Some(caller) if caller.scopes.iter().any(|scope| scope == SCOPE_RUN) => {
                Verdict::Known { id: caller.id.clone() }
            }
            Some(_) => Verdict::WithoutScope,
        }
    }

    /// Names in the file's order.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|caller| caller.id.as_str())
    }

    pub fn entries(&self) -> &[Caller] {
        &self.entries
    }
}

/// Adds a caller and gives its token, which is stored nowhere.
pub fn create(path: &Path, id: &str) -> Result<Token, CallersError> {
    change(path, |entries| {
        let token = Token::random()?;
        entries.push(Caller {
            id: id.to_owned(),
            token_sha256: sha256_hex(token.reveal().as_bytes()),
            scopes: run_scope(),
        });
        Ok(token)
    })
}

/// Gives a caller a new token; the old one is worthless once the daemon has reloaded (SIGHUP).
pub fn rotate(path: &Path, id: &str) -> Result<Token, CallersError> {
    change(path, |entries| {
        let token = Token::random()?;
        let known = entries.iter_mut().find(|caller| caller.id == id);
        let caller = known.ok_or_else(|| CallersError::Unknown { id: id.to_owned() })?;
        caller.token_sha256 = sha256_hex(token.reveal().as_bytes());
        Ok(token)
    })
}

/// Removes a caller.
pub fn revoke(path: &Path, id: &str) -> Result<(), CallersError> {
    change(path, |entries| {
        let before = entries.len();
        entries.retain(|caller| caller.id != id);
        if entries.len() == before { Err(CallersError::Unknown { id: id.to_owned() }) } else { Ok(()) }
    })
}

/// The callers of a file that may not exist yet.
pub fn list(path: &Path) -> Result<Callers, CallersError> {
    match Callers::read(path) {
        Err(CallersError::Read { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            Ok(Callers::default())
        }
        other => other,
    }
}

/// Read, change, check, replace: a reader sees the old file or the new one, never half of it. A lock file keeps two
/// changes apart.
fn change<T>(
    path: &Path,
    edit: impl FnOnce(&mut Vec<Caller>) -> Result<T, CallersError>,
) -> Result<T, CallersError> {
    let failed = |source: std::io::Error| CallersError::Write { path: path.to_owned(), source };
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    let lock = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(beside(path, ".lock"))
        .map_err(failed)?;
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).map_err(|e| failed(e.into()))?;

    let mut entries = list(path)?.entries;
    let result = edit(&mut entries)?;
    let callers = Callers::check(entries)?;

    let text = toml::to_string(&Schema { caller: callers.entries })
        .map_err(|error| CallersError::Parse { path: path.to_owned(), message: error.to_string() })?;
    let fresh = beside(path, ".new");
    let _ = std::fs::remove_file(&fresh);
    let mut file =
        OpenOptions::new().create_new(true).write(true).mode(0o600).open(&fresh).map_err(failed)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
    std::fs::rename(&fresh, path).map_err(failed)?;
    Ok(result)
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn valid_id(id: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=64).contains(&id.len()) && id.bytes().all(good)
}

fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn file() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("callers.toml");
        (folder, path)
    }

    #[test]
    fn a_created_caller_is_known_by_its_token_alone() {
        let (_folder, path) = file();
        let token = create(&path, "triage-bot").unwrap();
        let other = create(&path, "other").unwrap();
        let callers = Callers::load(&path).unwrap();
        assert_eq!(callers.verify(token.reveal()), Verdict::Known { id: "triage-bot".into() });
        assert_eq!(callers.verify(other.reveal()), Verdict::Known { id: "other".into() });
        for wrong in ["", "wrong", &token.reveal()[1..], &token.reveal().to_uppercase()] {
            assert_eq!(callers.verify(wrong), Verdict::Unknown, "{wrong}");
        }
        let stored = std::fs::read_to_string(&path).unwrap();
        assert!(!stored.contains(token.reveal()), "the token itself is stored nowhere");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(format!("{token:?}"), "[secret]");
    }

    #[test]
    fn rotating_and_revoking_end_a_token() {
        let (_folder, path) = file();
        let first = create(&path, "a").unwrap();
        create(&path, "b").unwrap();
        let second = rotate(&path, "a").unwrap();
        let callers = Callers::load(&path).unwrap();
        assert_eq!(callers.verify(first.reveal()), Verdict::Unknown);
        assert_eq!(callers.verify(second.reveal()), Verdict::Known { id: "a".into() });
        revoke(&path, "a").unwrap();
        assert_eq!(Callers::load(&path).unwrap().verify(second.reveal()), Verdict::Unknown);
        assert!(matches!(rotate(&path, "a"), Err(CallersError::Unknown { .. })));
        assert!(matches!(revoke(&path, "a"), Err(CallersError::Unknown { .. })));
    }

    #[test]
    fn refuses_the_same_name_twice_and_names_that_mean_everybody() {
        let (_folder, path) = file();
        create(&path, "a").unwrap();
        for id in ["a", "*", "", "a b", "ü", &"x".repeat(65)] {
            assert!(matches!(create(&path, id), Err(CallersError::Caller { .. })), "{id}");
        }
        assert_eq!(list(&path).unwrap().ids().collect::<Vec<_>>(), ["a"]);
    }

    #[test]
    fn refuses_a_file_that_others_may_write() {
        let (_folder, path) = file();
        create(&path, "a").unwrap();
        for mode in [0o620, 0o602] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert!(matches!(Callers::load(&path), Err(CallersError::Writable { .. })), "{mode:o}");
        }
    }

    #[test]
    fn refuses_files_that_say_something_else() {
        let (_folder, path) = file();
        let hash = "0".repeat(64);
        let bad = [
            String::new(),
            "[[caller]]\nid = \"a\"\n".into(),
            format!("[[caller]]\nid = \"a\"\ntoken_sha256 = \"{hash}\"\ntoken = \"x\"\n"),
            format!("[[caller]]\nid = \"a\"\ntoken_sha256 = \"{}\"\n", hash.replace('0', "F")),
            format!("[[caller]]\nid = \"a\"\ntoken_sha256 = \"{hash}\"\nscopes = [\"*\"]\n"),
            format!(
                "[[caller]]\nid = \"a\"\ntoken_sha256 = \"{hash}\"\n[[caller]]\nid = \"b\"\ntoken_sha256 = \"{hash}\"\n"
            ),
            "not toml".into(),
        ];
        for text in bad {
            std::fs::write(&path, &text).unwrap();
            assert!(Callers::load(&path).is_err(), "{text}");
        }
    }

    #[test]
    fn a_caller_without_the_scope_is_told_apart() {
        let (_folder, path) = file();
        let hash = sha256_hex(b"token");
        let text = format!("[[caller]]\nid = \"a\"\ntoken_sha256 = \"{hash}\"\nscopes = []\n");
        std::fs::write(&path, text).unwrap();
        assert_eq!(Callers::load(&path).unwrap().verify("token"), Verdict::WithoutScope);
    }
}
