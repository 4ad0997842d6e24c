//! Whose the steps are. Where a kernel of the run's own lets one process of a user kill and read another, its first one
//! included, the guest program is another user than its steps.
//!
//! It keeps id 0 as its real and saved id, so that no step may signal or trace it, and acts as the steps' user, so that
//! every file is theirs. It steps up for one moment: to start a step, which loses that way back.

use std::io;
use std::os::fd::AsFd;

use rustix::process::Uid;
use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set, set_thread_res_uid};

/// The steps' user, when it is another than the guest program's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepUser {
    uid: u32,
    gid: u32,
}

impl StepUser {
    /// The owner of the work directory, when this process is root. It acts as that user from here on, and no program that it
    /// or a step executes gets a capability.
    pub(crate) fn take(work: impl AsFd) -> io::Result<Option<Self>> {
        if !rustix::process::geteuid().is_root() {
            return Ok(None);
        }
        let owner = rustix::fs::fstat(work)?;
        let user = Self { uid: owner.st_uid, gid: owner.st_gid };
        if user.uid == 0 {
            return Err(io::Error::from(io::ErrorKind::PermissionDenied));
        }
        for bit in 0..64 {
            let Some(capability) = CapabilitySet::from_bits(1 << bit) else { continue };
            match remove_capability_from_bounding_set(capability) {
                // A number that this kernel does not know.
                Ok(()) | Err(rustix::io::Errno::INVAL) => {}
                Err(error) => return Err(error.into()),
            }
        }
        user.act_as(user.uid)?;
        Ok(Some(user))
    }

    pub(crate) fn uid(self) -> u32 {
        self.uid
    }

    pub(crate) fn gid(self) -> u32 {
        self.gid
    }

    /// Does something as root. This program has one thread.
    pub(crate) fn raised<T>(self, work: impl FnOnce() -> T) -> io::Result<T> {
        self.act_as(0)?;
        let done = work();
        self.act_as(self.uid)?;
        Ok(done)
    }

    fn act_as(self, uid: u32) -> io::Result<()> {
        Ok(set_thread_res_uid(Uid::ROOT, Uid::from_raw(uid), Uid::ROOT)?)
    }
}
