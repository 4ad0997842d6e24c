//! Replacing the interception CA without a guest that stands between two of them.
//!
//! Three steps, each followed by a restart of the broker: `prepare` makes the next authority, which new runs trust beside the
//! one that signs; `switch` lets it sign, and runs from before still trust it; `finish` forgets the one before. Between two
//! steps every run that trusted less must have ended.

use std::path::{Path, PathBuf};

use super::ca::{self, CaError, CertificateAuthority, NewCa};

/// How far a rotation has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// One authority.
    Settled,
    /// There is a next one, which signs nothing yet.
    Prepared,
    /// The certificate of the one before is still handed out.
    Switched,
}

/// The files of an authority and those of its rotation beside them.
#[derive(Debug, Clone)]
pub struct Rotation {
    certificate: PathBuf,
    key: PathBuf,
}

impl Rotation {
    pub fn new(certificate: &Path, key: &Path) -> Self {
        Self { certificate: certificate.to_owned(), key: key.to_owned() }
    }

    pub fn stage(&self) -> Stage {
        if self.next_certificate().exists() {
            Stage::Prepared
        } else if self.previous().exists() {
            Stage::Switched
        } else {
            Stage::Settled
        }
    }

    /// Makes the next authority.
    ///
    /// # Errors
    /// There is one already, or one before is still handed out.
    pub fn prepare(&self, new: &NewCa, now_unix: i64) -> Result<CertificateAuthority, CaError> {
        if self.previous().exists() {
            return Err(CaError::Exists { path: self.previous() });
        }
        CertificateAuthority::create(new, &self.next_certificate(), &self.next_key(), now_unix)
    }

    /// Lets the next authority sign. A crash between two renames leaves a state in which the broker does not start and this
    /// step can be taken again.
    ///
    /// # Errors
    /// There is no next authority, or its key is not its own.
    pub fn switch(&self, now_unix: i64) -> Result<(), CaError> {
        let rename = |from: PathBuf, to: &Path| {
            std::fs::rename(&from, to).map_err(|source| CaError::Write { path: from, source })
        };
        if !self.next_certificate().exists() {
            let source = std::io::ErrorKind::NotFound.into();
            return Err(CaError::Read { path: self.next_certificate(), source });
        }
        if self.next_key().exists() {
            // Whatever is wrong with it is said before the old one is put aside.
            CertificateAuthority::load(&self.next_certificate(), &self.next_key(), now_unix)?;
        }
        if self.certificate.exists() && !self.previous().exists() {
            rename(self.certificate.clone(), &self.previous())?;
        }
        if self.next_key().exists() {
            rename(self.next_key(), &self.key)?;
        }
        rename(self.next_certificate(), &self.certificate)
    }

    /// Forgets the authority from before the switch.
    ///
    /// # Errors
    /// There is none.
    pub fn finish(&self) -> Result<(), CaError> {
        let path = self.previous();
        std::fs::remove_file(&path).map_err(|source| CaError::Write { path, source })
    }

    /// Certificates that guests trust beside the one that signs, as PEM.
    ///
    /// # Errors
    /// One of the files cannot be read.
    pub fn also_trusted(&self) -> Result<String, CaError> {
        let paths = [self.next_certificate(), self.previous()];
        let texts = paths.iter().filter(|path| path.exists()).map(|path| ca::anchor_of(path));
        Ok(texts.collect::<Result<Vec<_>, _>>()?.concat())
    }

    fn next_certificate(&self) -> PathBuf {
        beside(&self.certificate, "next")
    }

    fn next_key(&self) -> PathBuf {
        beside(&self.key, "next")
    }

    fn previous(&self) -> PathBuf {
        beside(&self.certificate, "previous")
    }
}

/// `ca.pem` with `next`: `ca.pem.next`.
fn beside(path: &Path, what: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(what);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn certificates(pem: &str) -> usize {
        pem.matches("BEGIN CERTIFICATE").count()
    }

    #[test]
    fn every_run_trusts_what_signs_at_each_step() {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = (folder.path().join("ca.pem"), folder.path().join("ca.key"));
        let rotation = Rotation::new(&certificate, &key);
        let load = || CertificateAuthority::load(&certificate, &key, NOW).unwrap();
        let old = CertificateAuthority::create(&NewCa::default(), &certificate, &key, NOW).unwrap();
        assert_eq!((rotation.stage(), load().guests_trust()), (Stage::Settled, old.anchor_pem()));
        assert!(rotation.switch(NOW).is_err() && rotation.finish().is_err());
        assert_eq!(load().fingerprint(), old.fingerprint(), "nothing was touched");

        let next = rotation.prepare(&NewCa::default(), NOW).unwrap();
        assert_eq!(rotation.stage(), Stage::Prepared);
        let prepared = load();
        assert_eq!(prepared.fingerprint(), old.fingerprint(), "the old one signs");
        assert!(prepared.guests_trust().contains(&next.anchor_pem()), "a new run trusts what will sign");
        assert!(rotation.prepare(&NewCa::default(), NOW).is_err(), "a next one is never overwritten");

        rotation.switch(NOW).unwrap();
        assert_eq!(rotation.stage(), Stage::Switched);
        let switched = load();
        assert_eq!(switched.fingerprint(), next.fingerprint());
        assert!(switched.guests_trust().contains(&old.anchor_pem()));
        assert!(rotation.prepare(&NewCa::default(), NOW).is_err(), "one rotation at a time");

        rotation.finish().unwrap();
        assert_eq!(certificates(&load().guests_trust()), 1);
        assert_eq!(load().fingerprint(), next.fingerprint());
    }

    #[test]
    fn a_switch_that_was_cut_short_can_be_taken_again() {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = (folder.path().join("ca.pem"), folder.path().join("ca.key"));
        let rotation = Rotation::new(&certificate, &key);
        for renames in 1..=2 {
            for name in ["ca.pem", "ca.key", "ca.pem.previous"] {
                let _ = std::fs::remove_file(folder.path().join(name));
            }
            CertificateAuthority::create(&NewCa::default(), &certificate, &key, NOW).unwrap();
            let next = rotation.prepare(&NewCa::default(), NOW).unwrap();
            std::fs::rename(&certificate, folder.path().join("ca.pem.previous")).unwrap();
            if renames == 2 {
                std::fs::rename(folder.path().join("ca.key.next"), &key).unwrap();
            }
            assert!(
                CertificateAuthority::load(&certificate, &key, NOW).is_err(),
                "the broker does not start"
            );
            rotation.switch(NOW).unwrap();
            let loaded = CertificateAuthority::load(&certificate, &key, NOW).unwrap();
            assert_eq!(loaded.fingerprint(), next.fingerprint());
        }
    }
}
