//! A second fence for files and sockets, which holds even if a mount were wrong: Landlock rules on top of the view.

use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope,
};

/// The newest interface that these rules were written for; an older kernel enforces what it knows.
const NEWEST: ABI = ABI::V6;

/// What of the fence this kernel enforces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enforced {
    Fully,
    Partly,
    Not,
}

/// Folders in which programs may change things.
const WRITABLE: [&str; 3] = ["/work", "/tmp", "/dev/shm"];
/// Devices and terminals: read, write and control, nothing made.
const DEVICES: [&str; 1] = ["/dev"];

/// Restricts this process and all that it starts. Everything else than the listed places can still be read and
/// executed as the mounts allow, because what is not meant to be read is not there.
pub fn restrict() -> Result<Enforced, landlock::RulesetError> {
    let all = AccessFs::from_all(NEWEST);
    let read = AccessFs::from_read(NEWEST);
    let device: BitFlags<AccessFs> = read | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev;
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)?
        .scope(Scope::from_all(NEWEST))?
        .create()?;
    for (paths, access) in [(["/"].as_slice(), read), (&WRITABLE, all), (&DEVICES, device)] {
        for path in paths {
            ruleset = allow(ruleset, Path::new(path), access)?;
        }
    }
    let status = ruleset.restrict_self()?;
    Ok(match status.ruleset {
        RulesetStatus::FullyEnforced => Enforced::Fully,
        RulesetStatus::PartiallyEnforced => Enforced::Partly,
        RulesetStatus::NotEnforced => Enforced::Not,
    })
}

fn allow(
    ruleset: landlock::RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<landlock::RulesetCreated, landlock::RulesetError> {
    match PathFd::new(path) {
        Ok(folder) => ruleset.add_rule(PathBeneath::new(folder, access)),
        // A place that is not there needs no rule.
        Err(_) => Ok(ruleset),
    }
}
