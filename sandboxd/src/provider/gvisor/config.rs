//! What an operator chooses about `gvisor`.

use std::path::PathBuf;
use std::time::Duration;

/// Settings of the provider. [`GvisorConfig::default`] is what a machine without a configuration file gets.
#[derive(Debug, Clone, PartialEq)]
pub struct GvisorConfig {
    /// The runtime's program; `None` = `runsc` in the usual folders.
    pub runsc: Option<PathBuf>,
    /// Our guest program; `None` = beside sandboxd, or in /usr/lib/freeboard.
    pub guest: Option<PathBuf>,
    /// How gVisor intercepts system calls; `None` = as the runtime chooses.
    pub platform: Option<Platform>,
    /// A folder to show as the root instead of the host's tools.
    pub root: Option<PathBuf>,
    /// Folders of the host to show besides /usr and its kin, read-only, at the same place.
    pub extra_read_only: Vec<PathBuf>,
    /// Memory of a run in MiB, its files in /work, /tmp and /dev/shm included. What gVisor itself needs comes on top.
    pub memory_mib: u32,
    /// Processors of a run.
    pub cpus: f64,
    /// Processes and threads of a run. What gVisor itself needs comes on top.
    pub pids: u32,
    /// Size of /work in MiB.
    pub disk_mib: u32,
    /// First of the unused ids of the host that runs are given, two each, when sandboxd is root.
    pub uid_base: u32,
    /// How many such ids.
    pub uid_count: u32,
    pub default_timeout: Duration,
    pub max_timeout: Duration,
}

/// How gVisor intercepts the system calls of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Platform {
    /// Works everywhere; slowest.
    Ptrace,
    /// Signals of a seccomp filter; releases since 2023.
    Systrap,
    /// Hardware virtualisation; needs /dev/kvm.
    Kvm,
}

impl Platform {
    pub const ALL: [Self; 3] = [Self::Ptrace, Self::Systrap, Self::Kvm];

    pub const fn word(self) -> &'static str {
        match self {
            Self::Ptrace => "ptrace",
            Self::Systrap => "systrap",
            Self::Kvm => "kvm",
        }
    }

    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|platform| platform.word() == word)
    }
}

impl Default for GvisorConfig {
    fn default() -> Self {
        Self {
            runsc: None,
            guest: None,
            platform: None,
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
