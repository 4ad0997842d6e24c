//! The broker's own fence: what this process may still open and ask of the kernel once it serves.
//!
//! In: the configuration and the policy of the start. Out: a process that cannot start programs, opens only its own files and
//! makes only the calls of [`calls`]. Whoever takes it over through a fault in a parser has no more than that. Applied before
//! any other thread exists, as each inherits it; what needs more (helpers, git) runs in the process of [`crate::helpers`].

pub mod calls;
pub mod files;

use std::path::Path;
use std::sync::OnceLock;

use freeboard_policy::Policy;

use crate::config::Config;
use files::Place;

/// What the option `confine` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// Whatever this kernel has; what it lacks is said.
    Available,
    /// Everything, or no start.
    Required,
    Off,
}

impl Wanted {
    /// Its words in the configuration.
    pub const WORDS: &'static [&'static str] = &["available", "required", "off"];

    pub fn read(word: &str) -> Option<Self> {
        match word {
            "available" => Some(Self::Available),
            "required" => Some(Self::Required),
            "off" => Some(Self::Off),
            _ => None,
        }
    }
}

/// Why the broker is not confined, where that ends its start.
#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    #[error("this kernel cannot keep the broker to its files (Landlock), and `confine` is \"required\"")]
    NoLandlock,
    #[error("the broker cannot be kept to its files")]
    Files(#[from] landlock::RulesetError),
    #[error("the broker cannot be kept to its system calls")]
    Calls(#[from] calls::CallsError),
}

/// What holds.
#[derive(Debug, Clone, Default)]
pub struct Confined {
    pub files: bool,
    pub calls: bool,
    places: Vec<Place>,
}

static CONFINED: OnceLock<Confined> = OnceLock::new();

/// What holds for this process; nothing where nobody has asked for it.
pub fn state() -> &'static Confined {
    static NOTHING: Confined = Confined { files: false, calls: false, places: Vec::new() };
    CONFINED.get().unwrap_or(&NOTHING)
}

impl Confined {
    /// False where the fence, and not the mode of the file, is why it cannot be read.
    pub fn may_read(&self, path: &Path) -> bool {
        !self.files || self.places.iter().any(|place| path.starts_with(&place.path))
    }
}

/// Confines this process for good. Needs no_new_privs, and no other thread.
///
/// # Errors
/// The kernel refuses, or lacks what is required.
pub fn confine(config: &Config, policy: &Policy) -> Result<(), ConfineError> {
    if config.confine == Wanted::Off {
        tracing::warn!("the broker does not confine itself, because `confine` says so");
        return Ok(());
    }
    let places = files::places(config, policy);
    let files = files::restrict(&places)?;
    match (files, config.confine) {
        (true, _) => {}
        (false, Wanted::Required) => return Err(ConfineError::NoLandlock),
        (false, _) => tracing::warn!(
            "this kernel has no Landlock: the broker may open whatever its user may; `confine = \"required\"` refuses to start then"
        ),
    }
    calls::restrict()?;
    // Only a second call would find it set, and change nothing of what holds.
    let _ = CONFINED.set(Confined { files, calls: true, places });
    Ok(())
}

#[cfg(test)]
mod tests;
