//! What an operator chooses about `gvisor`.

use std::path::PathBuf;

use crate::provider::Allowance;

/// Settings of the provider. [`GvisorConfig::default`] is what a machine without a configuration file gets.
#[derive(Debug, Clone, Default, PartialEq)]
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
    /// What one run gets.
    pub allowance: Allowance,
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
