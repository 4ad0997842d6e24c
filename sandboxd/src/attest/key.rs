//! An Ed25519 key (RFC 8032) in files: PKCS #8 (RFC 5958) and SubjectPublicKeyInfo (RFC 8410), both PEM, as other tools have them.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use freeboard_wire::digest::sha256_hex;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{PrivatePkcs8KeyDer, SubjectPublicKeyInfoDer};
use zeroize::Zeroizing;

use crate::limits::MAX_KEY_FILE_BYTES;

/// Rights that others must not have on the file of a private key.
const RIGHTS_OF_OTHERS: u32 = 0o077;
/// What stands before the 32 bytes of an Ed25519 key in its SubjectPublicKeyInfo (RFC 8410, 4).
const SPKI_HEAD: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// Why a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("cannot read the key `{}`", .0.display())]
    Read(PathBuf, #[source] io::Error),
    #[error("cannot write the key `{}`", .0.display())]
    Write(PathBuf, #[source] io::Error),
    #[error("the private key `{}` can be used by others (mode {mode:o}); run `chmod 600` on it", .file.display())]
    Mode { file: PathBuf, mode: u32 },
    #[error("the private key `{}` is another user's, who could change it", .0.display())]
    Owner(PathBuf),
    #[error("`{}` is no Ed25519 key in PEM", .0.display())]
    Form(PathBuf),
    #[error("`{}` is no key of a TPM in PEM: ECDSA with P-256, or RSA", .0.display())]
    QuoteKey(PathBuf),
    #[error("no key could be made")]
    Generate,
}

/// Signs. Prints as `[secret]`.
pub struct PrivateKey(Ed25519KeyPair);

impl std::fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[secret]")
    }
}

/// Makes a key: the private half in `file`, which must not be there yet, the public half beside it as `FILE.pub`.
pub fn generate(file: &Path) -> Result<PublicKey, KeyError> {
    let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map_err(|_| KeyError::Generate)?;
    let pair = Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).map_err(|_| KeyError::Generate)?;
    let public = PrivateKey(pair).public().ok_or(KeyError::Generate)?;
    write(file, 0o600, &pem("PRIVATE KEY", pkcs8.as_ref()))?;
    let beside = beside(file);
    write(&beside, 0o644, &pem("PUBLIC KEY", &public.spki))?;
    Ok(public)
}

fn beside(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".pub");
    name.into()
}

/// Never over a key that is there: what it signed could not be verified any more.
fn write(path: &Path, mode: u32, text: &str) -> Result<(), KeyError> {
    let failed = |error| KeyError::Write(path.to_owned(), error);
    let mut file = File::options().write(true).create_new(true).mode(mode).open(path).map_err(failed)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)
}

fn pem(label: &str, der: &[u8]) -> Zeroizing<String> {
    let text = Zeroizing::new(STANDARD.encode(der));
    let mut pem = Zeroizing::new(format!("-----BEGIN {label}-----\n"));
    for line in text.as_bytes().chunks(64) {
        pem.push_str(&String::from_utf8_lossy(line));
        pem.push('\n');
    }
    pem.push_str(&format!("-----END {label}-----\n"));
    pem
}

fn read(
    path: &Path,
    check: impl FnOnce(&std::fs::Metadata) -> Result<(), KeyError>,
) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    let failed = |error| KeyError::Read(path.to_owned(), error);
    let file = File::open(path).map_err(failed)?;
    check(&file.metadata().map_err(failed)?)?;
    let mut text = Zeroizing::new(Vec::new());
    file.take(MAX_KEY_FILE_BYTES).read_to_end(&mut text).map_err(failed)?;
    Ok(text)
}

impl PrivateKey {
    /// Of a file that only its owner can read: this user or root.
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        let text = read(path, |metadata| {
            let mode = metadata.mode() & 0o7777;
            // SECURITY: who can read this file can sign whatever it likes. Guarded by
            // a_key_that_others_can_read_is_not_used.
            if mode & RIGHTS_OF_OTHERS != 0 {
                return Err(KeyError::Mode { file: path.to_owned(), mode });
            }
            let own = rustix::process::geteuid().as_raw();
            if metadata.uid() == own || metadata.uid() == 0 {
                Ok(())
            } else {
                Err(KeyError::Owner(path.to_owned()))
            }
        })?;
        let form = || KeyError::Form(path.to_owned());
        let der = PrivatePkcs8KeyDer::from_pem_slice(&text).map_err(|_| form())?;
        // With or without the public half: other tools leave it out.
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der.secret_pkcs8_der()).map_err(|_| form())?;
        Ok(Self(pair))
    }

    pub(super) fn sign(&self, message: &[u8]) -> Vec<u8> {
        self.0.sign(message).as_ref().to_vec()
    }

    pub(super) fn public(&self) -> Option<PublicKey> {
        let spki = self.0.public_key().as_der().ok()?;
        PublicKey::of_spki(spki.as_ref())
    }
}

/// SubjectPublicKeyInfo of a file.
pub(super) fn read_public(path: &Path) -> Result<Vec<u8>, KeyError> {
    let text = read(path, |_| Ok(()))?;
    let spki = SubjectPublicKeyInfoDer::from_pem_slice(&text);
    spki.map(|spki| spki.to_vec()).map_err(|_| KeyError::Form(path.to_owned()))
}

/// Verifies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey {
    spki: Vec<u8>,
}

impl PublicKey {
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        Self::of_spki(&read_public(path)?).ok_or_else(|| KeyError::Form(path.to_owned()))
    }

    fn of_spki(spki: &[u8]) -> Option<Self> {
        let key = spki.strip_prefix(&SPKI_HEAD)?;
        (key.len() == 32).then(|| Self { spki: spki.to_vec() })
    }

    /// SHA-256 of the SubjectPublicKeyInfo, hex: a hint which key it is, never a reason to trust it.
    pub fn id(&self) -> String {
        sha256_hex(&self.spki)
    }

    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        let key = self.spki.get(SPKI_HEAD.len()..).unwrap_or_default();
        UnparsedPublicKey::new(&ED25519, key).verify(message, signature).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_made_key_is_read_again_and_never_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key.pem");
        let made = generate(&file).unwrap();
        assert!(matches!(generate(&file), Err(KeyError::Write(..))));
        let public = PublicKey::read(&beside(&file)).unwrap();
        let private = PrivateKey::read(&file).unwrap();
        assert_eq!((public.clone(), Some(public.clone())), (made, private.public()));
        let signature = private.sign(b"text");
        assert!(public.verifies(b"text", &signature) && !public.verifies(b"Text", &signature));
        assert_eq!(format!("{private:?}"), "[secret]");
    }

    #[test]
    fn a_key_that_others_can_read_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key.pem");
        generate(&file).unwrap();
        for mode in [0o640, 0o604, 0o620] {
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
            let error = PrivateKey::read(&file).unwrap_err();
            assert!(matches!(error, KeyError::Mode { mode: said, .. } if said == mode), "{error}");
        }
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o400)).unwrap();
        assert!(PrivateKey::read(&file).is_ok());
        assert!(matches!(PrivateKey::read(&beside(&file)), Err(KeyError::Mode { .. })));
        assert!(matches!(PublicKey::read(&file), Err(KeyError::Form(_))));
    }
}
