//! Namespaces of a run, and who its user is on both sides of the user namespace.

use std::io;

use nix::libc;
use serde::{Deserialize, Serialize};

/// Every namespace that a run has of its own, as the names under /proc/PID/ns and the flag that makes one.
pub const KINDS: [(&str, i32); 7] = [
    ("user", libc::CLONE_NEWUSER),
    ("pid", libc::CLONE_NEWPID),
    ("mnt", libc::CLONE_NEWNS),
    ("net", libc::CLONE_NEWNET),
    ("ipc", libc::CLONE_NEWIPC),
    ("uts", libc::CLONE_NEWUTS),
    ("cgroup", libc::CLONE_NEWCGROUP),
];

/// The flags for clone3: all but the control group namespace, which the child takes when it is in its group.
pub fn clone_flags() -> u64 {
    let at_birth = KINDS.iter().filter(|(kind, _)| *kind != "cgroup");
    at_birth.fold(0, |flags, (_, flag)| flags | u64::from(flag.cast_unsigned()))
}

/// The user of the run: one id inside, one id on the host, for user and group alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub guest_uid: u32,
    pub guest_gid: u32,
    pub host_uid: u32,
    pub host_gid: u32,
}

/// The user's id inside.
pub const GUEST_ID: u32 = 1000;

impl Identity {
    /// Exactly one id is mapped, nothing else exists inside.
    pub fn maps(self) -> Maps {
        Maps { uid: self.uid_map(), gid: self.gid_map() }
    }

    /// The lines of uid_map and gid_map.
    pub fn uid_map(self) -> String {
        format!("{} {} 1\n", self.guest_uid, self.host_uid)
    }

    pub fn gid_map(self) -> String {
        format!("{} {} 1\n", self.guest_gid, self.host_gid)
    }
}

/// The text of uid_map and gid_map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Maps {
    pub uid: String,
    pub gid: String,
}

impl Maps {
    /// One more id, for user and group alike.
    pub fn add(&mut self, inside: u32, host: u32) {
        for map in [&mut self.uid, &mut self.gid] {
            map.push_str(&format!("{inside} {host} 1\n"));
        }
    }

    /// Writes the maps of a fresh child; the writer is its parent in the outer user namespace.
    ///
    /// setgroups is denied first: an ordinary user must do so (user_namespaces(7)), and the run needs no groups.
    pub fn write(&self, pid: i32) -> io::Result<()> {
        std::fs::write(format!("/proc/{pid}/setgroups"), "deny")?;
        std::fs::write(format!("/proc/{pid}/uid_map"), &self.uid)?;
        std::fs::write(format!("/proc/{pid}/gid_map"), &self.gid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_id_is_mapped() {
        let identity = Identity { guest_uid: 1000, guest_gid: 1000, host_uid: 61_004, host_gid: 61_005 };
        assert_eq!(identity.uid_map(), "1000 61004 1\n");
        assert_eq!(identity.gid_map(), "1000 61005 1\n");
    }

    #[test]
    fn every_kind_but_control_groups_is_new_from_birth() {
        assert_eq!(clone_flags(), 0x7c02_0000);
    }
}
