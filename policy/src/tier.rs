//! The boundary that a run ran behind, weakest first.

use serde::{Deserialize, Serialize};

/// Isolation tiers in order of strength. A floor is met by an equal or a stronger tier.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// Code in a language sandbox inside a locked-down worker process.
    Process,
    /// A process in namespaces of its own on the host's kernel.
    Container,
    /// A kernel in user space between the code and the host's kernel (gVisor).
    Kernel,
    /// A virtual machine with a kernel of its own.
    Vm,
}

impl Tier {
    /// Weakest first.
    pub const ALL: [Self; 4] = [Self::Process, Self::Container, Self::Kernel, Self::Vm];

    /// The word used in policy files, on the wire and in the audit log.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Container => "container",
            Self::Kernel => "kernel",
            Self::Vm => "vm",
        }
    }

    /// Reads the exact lower-case word; anything else (also ` kernel `, `Kernel`, `none`) is `None`.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tier| tier.word() == word)
    }
}

impl std::fmt::Display for Tier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.word())
    }
}
