//! What stands between a run and the host's kernel where that is a kernel of the run's own. Pure data for the child.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::view::View;

/// The id that runtimes give to a process that shall have no rights.
pub const NOBODY: u32 = 65534;

/// A kernel of the run's own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kernel {
    Gvisor(Gvisor),
    Microvm(Box<Microvm>),
    /// What a container engine started by itself.
    Engine,
}

impl Kernel {
    /// How long it may take to be ready, where that is not as usual.
    pub fn setup_limit(&self) -> Option<Duration> {
        match self {
            Self::Microvm(machine) => machine.setup_limit_seconds.map(Duration::from_secs),
            Self::Gvisor(_) | Self::Engine => None,
        }
    }
}

/// What the child needs to start a virtual machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Microvm {
    /// QEMU, on the host and in the machine monitor's own root.
    pub qemu: Known,
    /// The kernel, and its release.
    pub kernel: Known,
    pub release: String,
    /// What the initramfs is made of: names in it, and files of the host.
    pub pieces: Vec<(String, PathBuf)>,
    pub initramfs_sha256: String,
    /// What QEMU itself sees of the host: programs and libraries.
    pub tools: View,
    pub accelerator: Accelerator,
    /// Memory of the machine.
    pub memory_mib: u64,
    pub processors: u64,
    /// What its first process is told.
    pub words: String,
    pub setup_limit_seconds: Option<u64>,
}

/// A file that was looked at: its path, what it was then, and the SHA-256 of its bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    pub path: PathBuf,
    pub file: FileIdentity,
    pub sha256: String,
}

/// What executes the machine's code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Accelerator {
    /// The processor, through this device.
    Kvm { device: PathBuf },
    /// QEMU translates it; why it is not KVM, and how many thousand times a second the processor's counter moves.
    Translated { why: String, ticks_khz: u64 },
}

/// What the child needs to start gVisor.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gvisor {
    /// The runtime's program, on the host.
    pub runsc: PathBuf,
    /// What that file was when sandboxd looked at it, and the SHA-256 of its bytes.
    pub runsc_file: FileIdentity,
    pub runsc_sha256: String,
    /// Our guest program, on the host.
    pub guest: PathBuf,
    /// How gVisor intercepts system calls; `None` = as the runtime chooses.
    pub platform: Option<String>,
    /// The host's id of the runtime's `nobody`, when sandboxd may map a second one. Without it gVisor runs in its mode for
    /// ordinary users, which has no network.
    pub nobody_host_id: Option<u32>,
}

/// What a file is as the kernel sees it. Writing to a file or putting another in its place changes it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileIdentity {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl From<&Metadata> for FileIdentity {
    fn from(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

impl FileIdentity {
    /// Whether an open or running file is the one that was looked at.
    pub fn is(&self, metadata: &Metadata) -> bool {
        *self == Self::from(metadata)
    }
}
