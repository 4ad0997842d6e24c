//! Whether KVM may be relied on: what a device's file says is not enough, a boot shows it.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;

use rustix::process::{getegid, geteuid};

use super::limits;
use crate::child::sys;
use crate::isolate::kernel::Accelerator;

/// How much is known. It only goes forward.
#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    /// The device can be opened; nothing has been booted yet.
    Untried,
    Proved,
    /// Why machines are translated.
    Without(String),
}

/// What executes machines here.
#[derive(Debug)]
pub(super) struct Proof {
    device: PathBuf,
    /// The device's group, which QEMU is given where that is how it may open it.
    group: Option<u32>,
    state: Mutex<State>,
}

impl Proof {
    /// Looks at the device, as the user of a run would find it.
    pub(super) fn begin(device: &Path) -> Self {
        let (group, state) = match access(device) {
            Ok(group) => (group, State::Untried),
            Err(why) => (None, State::Without(why)),
        };
        Self { device: device.to_owned(), group, state: Mutex::new(state) }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The group that QEMU needs.
    pub(super) fn group(&self) -> Option<u32> {
        self.group
    }

    /// What the next machine uses.
    pub(super) fn accelerator(&self) -> Accelerator {
        match &*self.state() {
            State::Untried | State::Proved => Accelerator::Kvm { device: self.device.clone() },
            State::Without(why) => Accelerator::Translated { why: why.clone(), ticks_khz: ticks_khz() },
        }
    }

    pub(super) fn is_proved(&self) -> bool {
        *self.state() == State::Proved
    }

    /// Why there is no KVM; `None` while it may be relied on.
    pub(super) fn why_not(&self) -> Option<String> {
        match &*self.state() {
            State::Without(why) => Some(why.clone()),
            State::Untried | State::Proved => None,
        }
    }

    /// A machine booted with it.
    pub(super) fn booted(&self) {
        let mut state = self.state();
        if *state == State::Untried {
            *state = State::Proved;
        }
    }

    /// The first machine did not. A proof that came meanwhile from another one stands.
    pub(super) fn failed(&self, why: &str) {
        let mut state = self.state();
        if *state == State::Untried {
            *state =
                State::Without(format!("`{}` is there but boots no machine: {why}", self.device.display()));
        }
    }
}

/// The rate of the processor's counter, measured once against the clock.
fn ticks_khz() -> u64 {
    static RATE: OnceLock<u64> = OnceLock::new();
    *RATE.get_or_init(|| {
        let (began, first) = (Instant::now(), sys::ticks());
        std::thread::sleep(limits::TICKS_SPAN);
        let (span, last) = (began.elapsed(), sys::ticks());
        let ticks = last.zip(first).map_or(0, |(last, first)| last.wrapping_sub(first));
        // Ticks in a millisecond are thousands of them in a second.
        let per_ms = u128::from(ticks) * 1_000_000 / span.as_nanos().max(1);
        u64::try_from(per_ms).unwrap_or(0)
    })
}

/// The group that a run must have to open the device, when it needs one; else why it cannot.
fn access(device: &Path) -> Result<Option<u32>, String> {
    let shown = device.display();
    let metadata = device.metadata().map_err(|error| format!("`{shown}`: {error}"))?;
    let (mode, group) = (metadata.mode(), metadata.gid());
    if mode & 0o006 == 0o006 {
        return Ok(None);
    }
    if !geteuid().is_root() {
        let allowed = rustix::fs::access(device, rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK);
        // The user's own group is the only one that a run keeps.
        return match allowed {
            Ok(()) if metadata.uid() == geteuid().as_raw() || group == getegid().as_raw() => Ok(None),
            _ => Err(format!("this user may not open `{shown}`")),
        };
    }
    if mode & 0o060 == 0o060 && group != 0 {
        return Ok(Some(group));
    }
    Err(format!(
        "only root may open `{shown}`, and QEMU never runs as root: `chgrp kvm {shown}; chmod 0660 {shown}` lets it"
    ))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn device(mode: u32) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_permissions(std::fs::Permissions::from_mode(mode)).unwrap();
        file
    }

    #[test]
    fn a_device_that_runs_may_not_open_is_no_kvm() {
        let open = device(0o666);
        assert_eq!(Proof::begin(open.path()).why_not(), None);
        let missing = Proof::begin(Path::new("/nonexistent/kvm")).why_not().unwrap();
        assert!(missing.contains("/nonexistent/kvm"), "{missing}");
        if geteuid().is_root() {
            let closed = device(0o600);
            let why = Proof::begin(closed.path()).why_not().unwrap();
            assert!(why.contains("chgrp kvm"), "{why}");
            std::os::unix::fs::chown(closed.path(), None, Some(61_500)).unwrap();
            closed.as_file().set_permissions(std::fs::Permissions::from_mode(0o660)).unwrap();
            let proof = Proof::begin(closed.path());
            assert_eq!((proof.group(), proof.why_not()), (Some(61_500), None));
        }
    }

    #[test]
    fn the_counter_moves_as_fast_as_a_processor_does() {
        if sys::ticks().is_some() {
            assert!((100_000..20_000_000).contains(&ticks_khz()), "{}", ticks_khz());
        }
    }

    #[test]
    fn one_failure_before_any_boot_counts_and_none_after() {
        let open = device(0o666);
        let proof = Proof::begin(open.path());
        assert!(matches!(proof.accelerator(), Accelerator::Kvm { .. }) && !proof.is_proved());
        proof.failed("it hangs");
        assert!(proof.why_not().unwrap().contains("it hangs"));
        proof.booted();
        assert!(matches!(proof.accelerator(), Accelerator::Translated { .. }), "a late boot proves nothing");
        let proof = Proof::begin(open.path());
        proof.booted();
        proof.failed("out of memory");
        assert!(proof.is_proved() && proof.why_not().is_none());
    }
}
