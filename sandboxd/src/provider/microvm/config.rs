//! What an operator chooses about `microvm`.

use std::path::PathBuf;
use std::time::Duration;

/// Settings of the provider. [`MicrovmConfig::default`] is what a machine without a configuration file gets.
#[derive(Debug, Clone, PartialEq)]
pub struct MicrovmConfig {
    /// QEMU's program; `None` = `qemu-system-x86_64` in the usual folders.
    pub qemu: Option<PathBuf>,
    /// The kernel; `None` = the newest below /boot whose modules are there.
    pub kernel: Option<PathBuf>,
    /// The device of hardware virtualisation.
    pub kvm: PathBuf,
    /// Our guest program; `None` = beside sandboxd, or in /usr/lib/freeboard.
    pub guest: Option<PathBuf>,
    /// A folder to show as the root instead of the host's tools.
    pub root: Option<PathBuf>,
    /// Folders of the host to show besides /usr and its kin, read-only, at the same place.
    pub extra_read_only: Vec<PathBuf>,
    /// Memory of a run in MiB, its files in /work, /tmp and /dev/shm included. What its kernel and QEMU need comes on top.
    pub memory_mib: u32,
    /// Processors of a run; the machine has the next whole number.
    pub cpus: f64,
    /// Processes and threads of a run.
    pub pids: u32,
    /// Size of /work in MiB.
    pub disk_mib: u32,
    /// First of the unused ids of the host that runs are given, when sandboxd is root.
    pub uid_base: u32,
    /// How many such ids.
    pub uid_count: u32,
    pub default_timeout: Duration,
    pub max_timeout: Duration,
}

impl Default for MicrovmConfig {
    fn default() -> Self {
        Self {
            qemu: None,
            kernel: None,
            kvm: PathBuf::from("/dev/kvm"),
            guest: None,
            root: None,
            extra_read_only: Vec::new(),
            memory_mib: 512,
            cpus: 1.0,
            pids: 256,
            disk_mib: 256,
            // As of `native`: between systemd's ranges for home folders (to 60577) and dynamic users (from 61184).
            uid_base: 61_000,
            uid_count: 184,
            default_timeout: Duration::from_secs(30),
            max_timeout: Duration::from_secs(300),
        }
    }
}
