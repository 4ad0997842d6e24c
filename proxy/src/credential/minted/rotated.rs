//! Refresh tokens that the issuer replaces at each use (RFC 6749 6): the last one is kept, also across restarts.
//!
//! The file says which configured token it follows. A token that an operator configures anew is taken in its place.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use super::Minter;
use crate::credential::{Secret, source};

/// Calls `with` with the refresh token to use: the last one that the issuer gave for `first`, or `first` itself.
pub(super) fn with_current(minter: &Minter, first: &Secret, file: Option<&str>, with: impl FnOnce(&Secret)) {
    let of = digest(first);
    let mut kept = minter.kept();
    if kept.refresh_token.as_ref().is_none_or(|(followed, _)| *followed != of) {
        kept.refresh_token = file.and_then(|file| read(Path::new(file), of)).map(|token| (of, token));
    }
    match &kept.refresh_token {
        Some((_, token)) => with(token),
        None => with(first),
    }
}

/// Keeps `next` in place of whatever followed `first`.
pub(super) fn keep(minter: &Minter, first: &Secret, next: Secret, file: Option<&str>) {
    let of = digest(first);
    match file {
        Some(file) => {
            if let Err(error) = write(Path::new(file), of, &next) {
                let credential = &minter.name;
                tracing::error!(%credential, file, %error, "the refresh token is kept in memory only");
            }
        }
        None if next.expose() != first.expose() => {
            let credential = &minter.name;
            tracing::warn!(%credential, "the issuer replaces refresh tokens: set `rotated_file`, or a restart loses them");
        }
        None => {}
    }
    minter.kept().refresh_token = Some((of, next));
}

fn digest(token: &Secret) -> [u8; 32] {
    Sha256::digest(token.expose()).into()
}

/// One line: base64 of the digest of the configured token, a space, base64 of the token.
fn read(path: &Path, of: [u8; 32]) -> Option<Secret> {
    if !path.exists() {
        return None;
    }
    let line = match source::read_file(path) {
        Ok((line, _)) => line,
        Err(error) => {
            tracing::error!(%error, "the rotated refresh token cannot be read");
            return None;
        }
    };
    let mut words = line.expose().split(|byte| *byte == b' ');
    let (followed, token) = (words.next()?, words.next()?);
    if STANDARD.decode(followed).ok()?.as_slice() != of {
        return None;
    }
    STANDARD.decode(token).ok().map(Secret::new)
}

/// Written beside and renamed: a crash leaves the old file or the new one, never half of one.
fn write(path: &Path, of: [u8; 32], token: &Secret) -> std::io::Result<()> {
    let beside = path.with_extension("new");
    let encoded = Zeroizing::new(STANDARD.encode(token.expose()));
    let line = Zeroizing::new(format!("{} {}\n", STANDARD.encode(of), *encoded));
    let mut file =
        std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    file.write_all(line.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&beside, path)
}
