//! Grants that people took away while the broker runs. They stay away until it starts anew, whatever the policy says.
//!
//! What is in force is asked for with each generation of policy and after each revocation, not for each request.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use freeboard_policy::Reason;

use crate::error::Stop;
use crate::limits;

/// What was taken away from callers and from everybody; what was taken from a run is the run's.
#[derive(Debug, Default)]
pub struct Revocations {
    count: AtomicU64,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    callers: HashSet<Box<str>>,
    grants: HashSet<Box<str>>,
}

impl Revocations {
    /// Counts up with every revocation: whoever has seen this number knows all of them.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// Takes every grant from a caller.
    ///
    /// # Errors
    /// Too many names were revoked.
    pub fn of_caller(&self, name: &str) -> Result<(), Stop> {
        self.add(name, |taken| &mut taken.callers)
    }

    /// Takes one grant from everybody.
    ///
    /// # Errors
    /// Too many names were revoked.
    pub fn of_grant(&self, name: &str) -> Result<(), Stop> {
        self.add(name, |taken| &mut taken.grants)
    }

    /// A run, or a session, was told itself.
    pub fn of_run(&self) {
        self.count.fetch_add(1, Ordering::Release);
    }

    fn add(&self, name: &str, which: impl FnOnce(&mut Taken) -> &mut HashSet<Box<str>>) -> Result<(), Stop> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let names = which(&mut taken);
        if names.len() >= limits::REVOKED_NAMES && !names.contains(name) {
            return Err(Stop::new(Reason::RunLimit, "too many names are revoked: change the policy"));
        }
        names.insert(name.into());
        // SECURITY: after the name is there, so that nobody sees the number without it.
        self.count.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// The grants that are left of these.
    ///
    /// # Errors
    /// `grant_revoked`: none.
    pub fn left(&self, caller: Option<&str>, grants: &[String]) -> Result<Vec<String>, Stop> {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if caller.is_some_and(|caller| taken.callers.contains(caller)) {
            return Err(Stop::new(Reason::GrantRevoked, "the caller's grants were revoked"));
        }
        let left: Vec<String> =
            grants.iter().filter(|grant| !taken.grants.contains(grant.as_str())).cloned().collect();
        if left.is_empty() && !grants.is_empty() {
            return Err(Stop::new(Reason::GrantRevoked, "the grant was revoked"));
        }
        Ok(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_from_whom_it_names_and_from_nobody_else() {
        let revocations = Revocations::default();
        let grants = ["a".to_owned(), "b".to_owned()];
        assert_eq!(revocations.left(Some("bot"), &grants).unwrap(), grants);
        revocations.of_grant("a").unwrap();
        assert_eq!(revocations.left(Some("bot"), &grants).unwrap(), ["b"]);
        assert_eq!(revocations.left(None, &grants[..1]).unwrap_err().reason, Reason::GrantRevoked);
        revocations.of_caller("bot").unwrap();
        assert_eq!(revocations.left(Some("bot"), &grants).unwrap_err().reason, Reason::GrantRevoked);
        assert_eq!(revocations.left(Some("other"), &grants).unwrap(), ["b"]);
        assert_eq!(revocations.count(), 2);
    }
}
