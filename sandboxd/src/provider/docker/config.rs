//! What an operator chooses about `docker`.

use std::path::PathBuf;

use crate::provider::Allowance;

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
    /// What one run gets.
    pub allowance: Allowance,
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
            allowance: Allowance::default(),
        }
    }
}
