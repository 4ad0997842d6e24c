//! Who may call: a file of callers with hashed tokens, or with the identity that another issuer's tokens state. Our tokens are
//! random, shown once, and never stored.
//!
//! A token is 32 random bytes in hex, so a plain SHA-256 cannot be reversed; each presented token is compared with
//! every entry in constant time.

mod issuers;
mod jwks;

use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use freeboard_wire::digest::{hex, sha256_hex};
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::admission::Own;
use crate::limits::{MAX_CALLERS, MAX_CONFIG_BYTES, MAX_ISSUERS, MAX_TOKEN_BYTES, MIN_IMPORTED_TOKEN_BYTES};

pub use issuers::{Issuer, JwtError, Settings as IssuerSettings, Subject};
pub use jwks::KeysError;

/// The scope that every procedure needs which runs code or tells of one's own runs.
pub const SCOPE_RUN: &str = "code:run";
/// The scope that the procedures of sessions need besides.
pub const SCOPE_SESSION: &str = "code:session";
/// The scope for the runs and limits of all callers. It does not open what they ran.
pub const SCOPE_ADMIN: &str = "code:admin";
/// What a new caller gets.
const USUAL_SCOPES: [&str; 2] = [SCOPE_RUN, SCOPE_SESSION];
/// All there are.
pub const SCOPES: [&str; 3] = [SCOPE_RUN, SCOPE_SESSION, SCOPE_ADMIN];

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
    #[error("caller `{id}` has no token here; its issuer rotates it")]
    NoToken { id: String },
    #[error("issuer `{issuer}`: {problem}")]
    Issuer { issuer: String, problem: &'static str },
    #[error("no random bytes from the operating system")]
    Random,
    #[error("a token is {MIN_IMPORTED_TOKEN_BYTES} to {MAX_TOKEN_BYTES} visible ASCII characters")]
    BadToken,
}

/// One caller as the file holds it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Caller {
    /// The name that grants list under `callers` and that audit records carry.
    pub id: String,
    /// SHA-256 of the token, lower-case hex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_sha256: Option<String>,
    /// Who it is at one of the file's issuers, instead of a token or besides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// The exact `sub` of its tokens there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// A URI or DNS name of its client certificate, exactly, where the API is served over TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
    /// `code:run` for everything of its own, `code:session` besides for sessions, `code:admin` for the runs of all. The first two when
    /// it is left out.
    #[serde(default = "usual_scopes")]
    pub scopes: Vec<String>,
    /// Runs at once, instead of the daemon's limit for each caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_concurrent: Option<u32>,
    /// Runs per minute, instead of the daemon's limit for each caller; 0 = no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_minute: Option<u32>,
    /// Sessions at once, instead of the daemon's limit for each caller; 0 = no cap of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_sessions: Option<u32>,
    /// The token before the last rotation, while it still counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<Previous>,
}

/// A token that was replaced.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Previous {
    /// SHA-256 of the token, lower-case hex.
    pub token_sha256: String,
    /// Seconds since 1970 UTC; from then on it is unknown.
    pub until_unix: u64,
}

/// What a caller has of its own, besides its name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grants {
    pub scopes: Vec<String>,
    pub own: Own,
}

fn usual_scopes() -> Vec<String> {
    USUAL_SCOPES.map(str::to_owned).to_vec()
}

/// What a caller may do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Scopes {
    pub run: bool,
    pub sessions: bool,
    pub admin: bool,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Schema {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    issuer: Vec<IssuerSettings>,
    #[serde(default)]
    caller: Vec<Caller>,
}

/// The checked callers of one file.
#[derive(Debug, Clone, Default)]
pub struct Callers {
    entries: Vec<Caller>,
    issuers: Vec<Arc<Issuer>>,
}

/// A new token, zeroed when dropped. Prints as `[secret]`.
pub struct Token(Zeroizing<String>);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[secret]")
    }
}

impl Token {
    /// 32 random bytes in hex.
    pub fn random() -> Result<Self, CallersError> {
        let mut bytes = Zeroizing::new([0_u8; 32]);
        getrandom::fill(bytes.as_mut()).map_err(|_| CallersError::Random)?;
        Ok(Self(Zeroizing::new(hex(bytes.as_ref()))))
    }

    /// A token that was made elsewhere. Its hash can only be guessed when it can be, so it must be long.
    pub fn import(text: &str) -> Result<Self, CallersError> {
        let long = (MIN_IMPORTED_TOKEN_BYTES..=MAX_TOKEN_BYTES).contains(&text.len());
        if long && text.bytes().all(|byte| byte.is_ascii_graphic()) {
            Ok(Self(Zeroizing::new(text.to_owned())))
        } else {
            Err(CallersError::BadToken)
        }
    }

    fn sha256(&self) -> String {
        sha256_hex(self.0.as_bytes())
    }

    /// The text, for the one place that shows it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

/// What a presented token is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Known { id: String, scopes: Scopes },
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
        Self::check(schema)
    }

    fn check(schema: Schema) -> Result<Self, CallersError> {
        let issuers = issuers(schema.issuer)?;
        let entries = schema.caller;
        let mut subjects = HashSet::new();
        let mut names = HashSet::new();
        let mut ids = HashSet::new();
        let mut hashes = HashSet::new();
        for (index, caller) in entries.iter().enumerate() {
            let problem = if index >= MAX_CALLERS {
                Some("there are more than 1000 callers")
            } else if !valid_id(&caller.id) {
                Some("a name is 1 to 64 of letters, digits, `.`, `_`, `-`")
            } else if !ids.insert(&caller.id) {
                Some("the name is there twice")
            } else if caller.is_nobody() {
                Some("it has none of `token_sha256`, `subject` and `certificate`: nobody could be it")
            } else if caller.certificate.as_ref().is_some_and(|name| name.is_empty() || !names.insert(name)) {
                Some("its `certificate` is empty, or another caller's")
            } else if caller.token_sha256.as_ref().is_some_and(|hash| !is_hash(hash)) {
                Some("`token_sha256` is not 64 lower-case hex digits")
            } else if caller.token_sha256.as_ref().is_some_and(|hash| !hashes.insert(hash)) {
                Some("another caller has the same token")
            } else if caller.issuer.is_some() != caller.subject.is_some() {
                Some("`issuer` and `subject` go together")
            } else if caller.issuer.as_ref().is_some_and(|name| !known_issuer(&issuers, name)) {
                Some("its `issuer` is none of the file's")
            } else if caller.subject.is_some() && !subjects.insert((&caller.issuer, &caller.subject)) {
                Some("another caller has the same subject")
            } else if caller.previous.as_ref().is_some_and(|old| !is_hash(&old.token_sha256)) {
                Some("`previous.token_sha256` is not 64 lower-case hex digits")
            } else if caller.previous.as_ref().is_some_and(|old| !hashes.insert(&old.token_sha256)) {
                Some("its previous token is there twice")
            } else if caller.scopes.iter().any(|scope| !SCOPES.contains(&scope.as_str())) {
                Some("a scope is `code:run`, `code:session` or `code:admin`")
            } else if caller.max_concurrent == Some(0) {
                Some("`max_concurrent` is 0: remove `code:run` from its scopes instead")
            } else {
                None
            };
            if let Some(problem) = problem {
                return Err(CallersError::Caller { id: caller.id.clone(), problem });
            }
        }
        Ok(Self { entries, issuers })
    }

    /// Takes over the keys that the callers before knew of the same issuers, so that a change of the file asks nobody for them.
    pub fn adopt(&mut self, before: &Self) {
        for issuer in &mut self.issuers {
            let same = before.issuers.iter().find(|other| other.settings() == issuer.settings());
            if let Some(same) = same {
                *issuer = Arc::clone(same);
            }
        }
    }

    /// The caller whom a token of an issuer speaks for; `None` for one who is none here.
    ///
    /// # Errors
    /// The token does not hold, or the issuer's keys are not known.
    pub async fn verify_jwt(&self, token: &str) -> Result<Option<Verdict>, JwtError> {
        let subject = issuers::verify(&self.issuers, token).await?;
        let of = |caller: &&Caller| {
            caller.issuer.as_ref() == Some(&subject.issuer)
                && caller.subject.as_ref() == Some(&subject.subject)
        };
        Ok(self.entries.iter().find(of).map(Caller::known))
    }

    /// The caller with one of these names of a certificate that its authority has signed. One that names two callers is nobody's.
    pub fn verify_certificate(&self, names: &[String]) -> Verdict {
        let of = |caller: &&Caller| caller.certificate.as_ref().is_some_and(|name| names.contains(name));
        let mut found = self.entries.iter().filter(of);
        match (found.next(), found.next()) {
            (Some(caller), None) => caller.known(),
            _ => Verdict::Unknown,
        }
    }

    /// Whether tokens of other issuers are taken at all.
    pub fn has_issuers(&self) -> bool {
        !self.issuers.is_empty()
    }

    /// Looks a token up. Takes the same time wherever in the file it stands.
    pub fn verify(&self, token: &str, now_unix: u64) -> Verdict {
        let presented = sha256_hex(token.as_bytes());
        let is = |hash: &str| bool::from(presented.as_bytes().ct_eq(hash.as_bytes()));
        let mut found = None;
        for caller in &self.entries {
            // SECURITY: no early exit and a constant-time comparison, so that timing tells nothing about stored hashes.
            let replaced = caller.previous.as_ref();
            let replaced = replaced.is_some_and(|old| is(&old.token_sha256) && now_unix < old.until_unix);
            if caller.token_sha256.as_deref().is_some_and(is) || replaced {
                found = Some(caller);
            }
        }
        found.map_or(Verdict::Unknown, Caller::known)
    }

    /// Limits that callers have of their own, by name.
    pub fn limits(&self) -> HashMap<String, Own> {
        self.entries.iter().map(|caller| (caller.id.clone(), caller.own())).collect()
    }

    /// Names in the file's order.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|caller| caller.id.as_str())
    }

    pub fn entries(&self) -> &[Caller] {
        &self.entries
    }
}

impl Caller {
    fn known(&self) -> Verdict {
        let has = |wanted: &str| self.scopes.iter().any(|scope| scope == wanted);
        let scopes = Scopes { run: has(SCOPE_RUN), sessions: has(SCOPE_SESSION), admin: has(SCOPE_ADMIN) };
        Verdict::Known { id: self.id.clone(), scopes }
    }

    fn is_nobody(&self) -> bool {
        self.token_sha256.is_none() && self.subject.is_none() && self.certificate.is_none()
    }

    /// Without anything that it could be known by.
    fn of(id: &str, grants: &Grants) -> Self {
        Self {
            id: id.to_owned(),
            token_sha256: None,
            issuer: None,
            subject: None,
            certificate: None,
            scopes: if grants.scopes.is_empty() { usual_scopes() } else { grants.scopes.clone() },
            max_concurrent: grants.own.concurrent,
            rate_per_minute: grants.own.rate_per_minute,
            max_sessions: grants.own.sessions,
            previous: None,
        }
    }

    pub fn own(&self) -> Own {
        Own {
            concurrent: self.max_concurrent,
            rate_per_minute: self.rate_per_minute,
            sessions: self.max_sessions,
        }
    }
}

/// Adds a caller with every scope and no limit of its own, and gives its token, which is stored nowhere.
pub fn create(path: &Path, id: &str) -> Result<Token, CallersError> {
    let token = Token::random()?;
    add(path, id, &token, &Grants { scopes: usual_scopes(), own: Own::default() })?;
    Ok(token)
}

/// Adds a caller with this token.
pub fn add(path: &Path, id: &str, token: &Token, grants: &Grants) -> Result<(), CallersError> {
    let entry = Caller { token_sha256: Some(token.sha256()), ..Caller::of(id, grants) };
    change(path, |entries| {
        entries.push(entry);
        Ok(())
    })
}

/// Adds a caller who is this subject at one of the file's issuers.
pub fn add_subject(path: &Path, id: &str, subject: &Subject, grants: &Grants) -> Result<(), CallersError> {
    let Subject { issuer, subject } = subject.clone();
    let entry = Caller { issuer: Some(issuer), subject: Some(subject), ..Caller::of(id, grants) };
    change(path, |entries| {
        entries.push(entry);
        Ok(())
    })
}

/// Adds a caller who is known by this name of a client certificate.
pub fn add_certificate(path: &Path, id: &str, name: &str, grants: &Grants) -> Result<(), CallersError> {
    let entry = Caller { certificate: Some(name.to_owned()), ..Caller::of(id, grants) };
    change(path, |entries| {
        entries.push(entry);
        Ok(())
    })
}

/// Gives a caller a new token. The old one counts until `old_until_unix`; one that is older still is worthless at once. A
/// daemon that runs knows it when it has read the file again.
pub fn rotate(path: &Path, id: &str, old_until_unix: Option<u64>) -> Result<Token, CallersError> {
    change(path, |entries| {
        let token = Token::random()?;
        let known = entries.iter_mut().find(|caller| caller.id == id);
        let caller = known.ok_or_else(|| CallersError::Unknown { id: id.to_owned() })?;
        let Some(old) = caller.token_sha256.replace(token.sha256()) else {
            return Err(CallersError::NoToken { id: id.to_owned() });
        };
        caller.previous = old_until_unix.map(|until_unix| Previous { token_sha256: old, until_unix });
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

    let Callers { mut entries, issuers } = list(path)?;
    let result = edit(&mut entries)?;
    let issuer = issuers.iter().map(|issuer| issuer.settings().clone()).collect();
    let schema = Schema { issuer, caller: entries };
    let text = toml::to_string(&schema)
        .map_err(|error| CallersError::Parse { path: path.to_owned(), message: error.to_string() })?;
    Callers::check(schema)?;
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

fn issuers(settings: Vec<IssuerSettings>) -> Result<Vec<Arc<Issuer>>, CallersError> {
    let mut issuers: Vec<Arc<Issuer>> = Vec::new();
    for settings in settings {
        let name = settings.issuer.clone();
        let failed = |problem| CallersError::Issuer { issuer: name.clone(), problem };
        if issuers.len() >= MAX_ISSUERS {
            return Err(failed("there are more than 16 issuers"));
        }
        if known_issuer(&issuers, &name) {
            return Err(failed("it is there twice"));
        }
        issuers.push(Arc::new(Issuer::new(settings).map_err(failed)?));
    }
    Ok(issuers)
}

fn known_issuer(issuers: &[Arc<Issuer>], name: &str) -> bool {
    issuers.iter().any(|issuer| issuer.settings().issuer == name)
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

    const NOW: u64 = 1_800_000_000;

    fn known(id: &str) -> Verdict {
        Verdict::Known { id: id.into(), scopes: Scopes { run: true, sessions: true, admin: false } }
    }

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
        assert_eq!(callers.verify(token.reveal(), NOW), known("triage-bot"));
        assert_eq!(callers.verify(other.reveal(), NOW), known("other"));
        for wrong in ["", "wrong", &token.reveal()[1..], &token.reveal().to_uppercase()] {
            assert_eq!(callers.verify(wrong, NOW), Verdict::Unknown, "{wrong}");
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
        let second = rotate(&path, "a", None).unwrap();
        let callers = Callers::load(&path).unwrap();
        assert_eq!(callers.verify(first.reveal(), NOW), Verdict::Unknown);
        assert_eq!(callers.verify(second.reveal(), NOW), known("a"));
        revoke(&path, "a").unwrap();
        assert_eq!(Callers::load(&path).unwrap().verify(second.reveal(), NOW), Verdict::Unknown);
        assert!(matches!(rotate(&path, "a", None), Err(CallersError::Unknown { .. })));
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
    fn a_certificate_is_one_caller_by_its_exact_name() {
        let (_folder, path) = file();
        add_certificate(&path, "a", "spiffe://acme/a", &Grants::default()).unwrap();
        add_certificate(&path, "b", "b.acme.test", &Grants::default()).unwrap();
        let again = add_certificate(&path, "c", "spiffe://acme/a", &Grants::default());
        assert!(matches!(again, Err(CallersError::Caller { .. })));
        let callers = Callers::load(&path).unwrap();
        let verify = |names: &[&str]| {
            callers.verify_certificate(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(verify(&["other", "spiffe://acme/a"]), known("a"));
        for nobody in
            [&[][..], &["spiffe://acme/a/x"], &["SPIFFE://acme/a"], &["spiffe://acme/a", "b.acme.test"]]
        {
            assert_eq!(verify(nobody), Verdict::Unknown, "{nobody:?}");
        }
    }

    const ISSUER: &str = "[[issuer]]\nissuer = \"https://i.test\"\naudience = \"us\"\nalgorithms = [\"ES256\"]\njwks_file = \"/k\"\n";

    #[test]
    fn issuers_stay_in_the_file_and_their_subjects_are_callers() {
        let (_folder, path) = file();
        std::fs::write(&path, ISSUER).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let subject = Subject { issuer: "https://i.test".into(), subject: "repo:a/b".into() };
        add_subject(&path, "ci", &subject, &Grants::default()).unwrap();
        assert!(matches!(
            add_subject(&path, "cj", &subject, &Grants::default()),
            Err(CallersError::Caller { .. })
        ));
        let elsewhere = Subject { issuer: "https://j.test".into(), ..subject };
        assert!(matches!(
            add_subject(&path, "ck", &elsewhere, &Grants::default()),
            Err(CallersError::Caller { .. })
        ));
        create(&path, "a").unwrap();
        assert!(matches!(rotate(&path, "ci", None), Err(CallersError::NoToken { .. })));
        let callers = Callers::load(&path).unwrap();
        assert!(callers.has_issuers());
        assert_eq!(callers.ids().collect::<Vec<_>>(), ["ci", "a"]);
        revoke(&path, "ci").unwrap();
        assert!(Callers::load(&path).unwrap().has_issuers());
    }

    #[test]
    fn issuers_that_pin_nothing_are_refused() {
        let (_folder, path) = file();
        let caller = format!("[[caller]]\nid = \"a\"\ntoken_sha256 = \"{}\"\n", "0".repeat(64));
        let load = |issuer: &str| {
            std::fs::write(&path, format!("{issuer}{caller}")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
            Callers::load(&path)
        };
        assert!(load(ISSUER).is_ok());
        for (from, to) in [
            ("\"ES256\"", ""),
            ("ES256", "HS256"),
            ("ES256", "none"),
            ("audience = \"us\"", "audience = \"\""),
            ("jwks_file = \"/k\"", ""),
            ("jwks_file = \"/k\"", "jwks_url = \"http://i.test/k\""),
            ("jwks_file = \"/k\"", "jwks_file = \"/k\"\njwks_url = \"https://i.test/k\""),
            ("jwks_file = \"/k\"", "jwks_file = \"/k\"\njwks_ca_file = \"/c\""),
        ] {
            assert!(matches!(load(&ISSUER.replace(from, to)), Err(CallersError::Issuer { .. })), "{to}");
        }
        assert!(matches!(load(&[ISSUER, ISSUER].concat()), Err(CallersError::Issuer { .. })));
    }

    #[test]
    fn a_caller_without_the_scope_is_told_apart() {
        let (_folder, path) = file();
        let hash = sha256_hex(b"token");
        let text = format!("[[caller]]\nid = \"a\"\ntoken_sha256 = \"{hash}\"\nscopes = []\n");
        std::fs::write(&path, text).unwrap();
        let nothing = Verdict::Known { id: "a".into(), scopes: Scopes::default() };
        assert_eq!(Callers::load(&path).unwrap().verify("token", NOW), nothing);
    }

    #[test]
    fn a_replaced_token_counts_until_its_time_and_only_the_last_one() {
        let (_folder, path) = file();
        let first = create(&path, "a").unwrap();
        let second = rotate(&path, "a", Some(NOW + 60)).unwrap();
        let callers = Callers::load(&path).unwrap();
        for token in [&first, &second] {
            assert_eq!(callers.verify(token.reveal(), NOW + 59), known("a"));
        }
        assert_eq!(callers.verify(first.reveal(), NOW + 60), Verdict::Unknown);
        assert_eq!(callers.verify(second.reveal(), NOW + 60), known("a"));
        let third = rotate(&path, "a", Some(NOW + 60)).unwrap();
        let callers = Callers::load(&path).unwrap();
        assert_eq!(callers.verify(first.reveal(), NOW), Verdict::Unknown);
        assert_eq!(callers.verify(second.reveal(), NOW), known("a"));
        assert_eq!(callers.verify(third.reveal(), NOW), known("a"));
    }

    #[test]
    fn an_imported_token_is_long_and_plain_and_its_caller_has_what_was_given() {
        let (_folder, path) = file();
        let text = "imported-token-of-forty-characters-00001";
        let own = Own { concurrent: Some(2), rate_per_minute: Some(0), sessions: Some(1) };
        let grants = Grants { scopes: vec![SCOPE_RUN.into()], own };
        add(&path, "a", &Token::import(text).unwrap(), &grants).unwrap();
        let callers = Callers::load(&path).unwrap();
        let run_only = Scopes { run: true, ..Scopes::default() };
        assert_eq!(callers.verify(text, NOW), Verdict::Known { id: "a".into(), scopes: run_only });
        assert_eq!(callers.limits().get("a"), Some(&own));
        assert!(!std::fs::read_to_string(&path).unwrap().contains(text));
        for bad in
            ["short", &"x".repeat(31), &"x".repeat(4097), &format!("{text} "), &format!("{text}\u{fc}")]
        {
            assert!(matches!(Token::import(bad), Err(CallersError::BadToken)), "{bad}");
        }
        let strange = Grants { scopes: vec!["admin".into()], own: Own::default() };
        let other = Token::random().unwrap();
        assert!(matches!(add(&path, "b", &other, &strange), Err(CallersError::Caller { .. })));
    }
}
