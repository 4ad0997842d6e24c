//! What an operator chooses about `microvm`.

use std::path::PathBuf;

use crate::provider::Allowance;

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
    /// What one run gets.
    pub allowance: Allowance,
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
            allowance: Allowance::default(),
        }
    }
}
