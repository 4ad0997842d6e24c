//! Giving up what the broker does not need, before it reads a single byte of a guest.
//!
//! Started as root it becomes its own user; whoever starts it, it keeps no capability, gains none by running programs
//! (`no_new_privs`), and leaves no core file with secrets in it.

use std::io;

use nix::unistd::{Gid, Uid, User, setgroups, setresgid, setresuid};
use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

use crate::limits::OPEN_FILES_WANTED;

/// Why privileges could not be dropped. Nothing is served then.
#[derive(Debug, thiserror::Error)]
pub enum PrivilegeError {
    #[error("there is no user `{0}`")]
    NoUser(String),
    #[error("cannot look up the user `{name}`")]
    LookUp { name: String, source: io::Error },
    #[error("cannot {step}")]
    Step { step: &'static str, source: io::Error },
    #[error("the broker still has privileges after dropping them")]
    Kept,
}

/// Who the broker will be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub uid: Uid,
    pub gid: Gid,
    /// Whether the process must change to it.
    pub change: bool,
}

/// Finds the user to become. An ordinary user stays who it is.
pub fn identity(user: &str) -> Result<Identity, PrivilegeError> {
    let (uid, gid) = (Uid::effective(), Gid::effective());
    if !uid.is_root() {
        return Ok(Identity { uid, gid, change: false });
    }
    if user == "root" {
        tracing::warn!("the broker keeps root because the option `user` says so");
        return Ok(Identity { uid, gid, change: false });
    }
    let look_up = |name: &str| {
        User::from_name(name)
            .map_err(|error| PrivilegeError::LookUp { name: name.to_owned(), source: error.into() })
    };
    let found = match look_up(user)? {
        None if user == "freeboard" => {
            tracing::warn!(
                "there is no user `freeboard`: the broker becomes `nobody`, whom other programs may share"
            );
            look_up("nobody")?
        }
        found => found,
    };
    let found = found.ok_or_else(|| PrivilegeError::NoUser(user.to_owned()))?;
    Ok(Identity { uid: found.uid, gid: found.gid, change: true })
}

/// Becomes `identity` for good. Call it before any thread is started: capabilities belong to threads.
pub fn drop_to(identity: &Identity) -> Result<(), PrivilegeError> {
    if identity.change {
        let step = |step| move |error: nix::Error| PrivilegeError::Step { step, source: error.into() };
        setgroups(&[]).map_err(step("leave root's groups"))?;
        setresgid(identity.gid, identity.gid, identity.gid).map_err(step("change the group"))?;
        setresuid(identity.uid, identity.uid, identity.uid).map_err(step("change the user"))?;
        // SECURITY: proves that root is really gone. Guarded by `drops_to_its_own_user_when_started_as_root`.
        if setresuid(Uid::from_raw(0), Uid::from_raw(0), Uid::from_raw(0)).is_ok() {
            return Err(PrivilegeError::Kept);
        }
    }
    harden()
}

fn harden() -> Result<(), PrivilegeError> {
    let step = |step| move |error: rustix::io::Errno| PrivilegeError::Step { step, source: error.into() };
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    set_capabilities(None, sets).map_err(step("drop capabilities"))?;
    rustix::thread::clear_ambient_capability_set().map_err(step("drop ambient capabilities"))?;
    rustix::thread::set_no_new_privs(true).map_err(step("refuse new privileges"))?;
    // Also keeps other processes of the same user from reading our memory with ptrace.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(step("switch core dumps off"))?;
    let nothing = Rlimit { current: Some(0), maximum: Some(0) };
    setrlimit(Resource::Core, nothing).map_err(step("switch core dumps off"))?;
    raise_open_files();
    Ok(())
}

/// The soft limit on open files goes up to the hard one; each gate takes about ten.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let now = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    if now.is_some_and(|now| now < OPEN_FILES_WANTED) {
        tracing::warn!(
            limit = now,
            wanted = OPEN_FILES_WANTED,
            "few open files are allowed: raise LimitNOFILE or ulimit -Hn"
        );
    }
}
