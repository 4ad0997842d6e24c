//! What an operator chooses about `docker`.

use std::path::PathBuf;
use std::time::Duration;

/// Settings of the provider. Only the image has no default.
#[derive(Debug, Clone, PartialEq)]
pub struct DockerConfig {
    /// The engine's socket on this host. An engine elsewhere is none of ours: nothing of it could be measured.
    pub socket: PathBuf,
    /// A name, `NAME@sha256:…` or `sha256:…`. Whatever it is, the content that it names at the start is what runs.
    pub image: String,
    pub runtime: Runtime,
    /// Our guest program; `None` = beside sandboxd, or in /usr/lib/freeboard.
    pub guest: Option<PathBuf>,
    /// Memory of a run in MiB, its files in /work, /tmp and /dev/shm included.
    pub memory_mib: u32,
    pub cpus: f64,
    /// Processes and threads of a run.
    pub pids: u32,
    /// Size of /work in MiB.
    pub disk_mib: u32,
    /// First of the unused ids of the host that runs are given.
    pub uid_base: u32,
    pub uid_count: u32,
    pub default_timeout: Duration,
    pub max_timeout: Duration,
}

/// What runs a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runtime {
    /// Processes of the host's kernel.
    Runc,
    /// gVisor: a kernel of the run's own.
    Runsc,
}

impl Runtime {
    pub const ALL: [Self; 2] = [Self::Runc, Self::Runsc];

    /// Its name in the engine, and the name of its program.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Runc => "runc",
            Self::Runsc => "runsc",
        }
    }

    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|runtime| runtime.word() == word)
    }
}

impl Default for DockerConfig {
    fn default() -> Self {
        Self {
            socket: PathBuf::from("/var/run/docker.sock"),
            image: String::new(),
            runtime: Runtime::Runc,
            guest: None,
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
