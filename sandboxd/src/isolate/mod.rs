//! What the boundary of a `native` run consists of. Plans are pure data made in the daemon; the functions that carry
//! them out run in the child, between clone and release, in the order of `child::setup`.

pub mod cgroup;
pub mod environment;
pub mod etc;
pub mod java_store;
pub mod kernel;
pub mod landlock;
pub mod limits;
pub mod mounts;
pub mod namespaces;
pub mod privileges;
pub mod seccomp;
pub mod view;

use serde::{Deserialize, Serialize};

/// Everything that the child must know to build the boundary of one run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Boundary {
    pub run: String,
    pub identity: namespaces::Identity,
    pub view: view::View,
    pub limits: Limits,
    /// `None` = a network namespace with nothing in it but `lo`.
    pub gate: Option<GatePorts>,
    /// The interception CA, PEM, or empty.
    pub ca_pem: String,
    /// The run's own kernel; `None` = the run is a process of the host's kernel.
    pub kernel: Option<kernel::Kernel>,
}

impl Boundary {
    /// Who the run's user is inside: of the namespace, or of the run's own kernel.
    pub fn guest_ids(&self) -> (u32, u32) {
        match &self.kernel {
            None => (self.identity.guest_uid, self.identity.guest_gid),
            Some(_) => (namespaces::GUEST_ID, namespaces::GUEST_ID),
        }
    }

    /// The id maps of the user namespace.
    pub fn maps(&self) -> namespaces::Maps {
        let mut maps = self.identity.maps();
        if let Some(kernel::Kernel::Gvisor(gvisor)) = &self.kernel
            && let Some(nobody) = gvisor.nobody_host_id
        {
            maps.add(kernel::NOBODY, nobody);
        }
        maps
    }
}

/// TCP ports of the gate besides those that every gate has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatePorts {
    pub ports: Vec<u16>,
}

/// What one run may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    pub memory_bytes: u64,
    pub pids: u64,
    /// Thousandths of a processor.
    pub cpu_milli: u64,
    pub disk_bytes: u64,
    pub inodes: u64,
}
