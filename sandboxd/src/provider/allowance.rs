//! What an operator gives each run of the providers that run programs, and what follows from it.

use std::time::Duration;

use freeboard_policy::Tier;

use super::{Description, RunLimits};
use crate::isolate::Limits;
use crate::isolate::limits::BYTES_PER_INODE;
use crate::job::Less;

/// What one run gets. [`Allowance::default`] is what a machine without a configuration file gives.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Allowance {
    /// Memory of a run in MiB, its files in /work, /tmp and /dev/shm included. What a kernel of its own needs comes on top.
    pub memory_mib: u32,
    /// Processors of a run.
    pub cpus: f64,
    /// Processes and threads of a run. What a kernel of its own needs comes on top.
    pub pids: u32,
    /// Size of /work in MiB.
    pub disk_mib: u32,
    /// First of the unused ids of the host that runs are given, when sandboxd is root.
    pub uid_base: u32,
    /// How many such ids; with more runs at once than this, two share one. Their namespaces still keep them apart.
    pub uid_count: u32,
    pub default_timeout: Duration,
    pub max_timeout: Duration,
}

impl Default for Allowance {
    fn default() -> Self {
        Self {
            memory_mib: 512,
            cpus: 1.0,
            pids: 256,
            disk_mib: 256,
            // Between systemd's ranges for home folders (to 60577) and dynamic users (from 61184).
            uid_base: 61_000,
            uid_count: 184,
            default_timeout: Duration::from_secs(30),
            max_timeout: Duration::from_secs(300),
        }
    }
}

impl Allowance {
    pub fn of(limits: &RunLimits) -> Self {
        let RunLimits { memory_mib, cpus, pids, disk_mib, .. } = *limits;
        Self { memory_mib, cpus, pids, disk_mib, ..Self::default() }
    }

    /// What a run gets that asked for less of it. More than this is refused before; it would change nothing here.
    #[must_use]
    pub fn lowered(&self, less: Less) -> Self {
        Self {
            memory_mib: less.memory_mib.map_or(self.memory_mib, |asked| asked.min(self.memory_mib)),
            pids: less.pids.map_or(self.pids, |asked| asked.min(self.pids)),
            ..*self
        }
    }

    /// In the kernel's units.
    pub fn limits(&self) -> Limits {
        let disk_bytes = u64::from(self.disk_mib) << 20;
        Limits {
            memory_bytes: u64::from(self.memory_mib) << 20,
            pids: u64::from(self.pids),
            cpu_milli: self.cpu_milli(),
            disk_bytes,
            inodes: disk_bytes / BYTES_PER_INODE,
        }
    }

    /// Thousandths of a processor, within what the kernel takes: at least its least quota (1 ms in 100 ms).
    pub fn cpu_milli(&self) -> u64 {
        let milli = (self.cpus * 1000.0).clamp(10.0, 1_024_000.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped just above")]
        let milli = milli as u64;
        milli
    }

    /// The id of the host for the run with this number.
    pub(super) fn uid(&self, turn: u32) -> u32 {
        self.uid_base + turn % self.uid_count.max(1)
    }

    /// What a provider says of itself whose runs get this; which tools its guests have is `node` and `python`.
    pub(super) fn description(
        &self,
        name: &'static str,
        tier: Tier,
        node: bool,
        python: bool,
    ) -> Description {
        let languages = [("javascript", node), ("python", python)].into_iter().filter(|(_, there)| *there);
        Description {
            name,
            tier,
            weaker: None,
            environment: String::new(),
            supports_javascript: node,
            supports_project: true,
            supports_grants: true,
            supports_sessions: true,
            lowers_memory: true,
            languages: languages.map(|(name, _)| name.to_owned()).collect(),
            default_timeout: self.default_timeout,
            max_timeout: self.max_timeout,
            memory_mib: self.memory_mib,
            cpus: self.cpus,
            pids: self.pids,
            disk_mib: self.disk_mib,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_a_processor_is_within_what_the_kernel_takes() {
        let share = |cpus| Allowance { cpus, ..Allowance::default() }.cpu_milli();
        assert_eq!((share(1.0), share(0.25), share(0.0), share(f64::INFINITY)), (1000, 250, 10, 1_024_000));
    }

    #[test]
    fn a_run_gets_less_but_never_more() {
        let allowance = Allowance { memory_mib: 100, pids: 50, ..Allowance::default() };
        let asked = |memory_mib, pids| {
            let lowered = allowance.lowered(Less { memory_mib, pids, time: None });
            (lowered.memory_mib, lowered.pids)
        };
        assert_eq!(asked(None, None), (100, 50));
        assert_eq!(asked(Some(20), Some(8)), (20, 8));
        assert_eq!(asked(Some(101), Some(51)), (100, 50));
    }

    #[test]
    fn ids_are_given_in_turn_and_never_beyond_the_last() {
        let allowance = Allowance { uid_base: 10, uid_count: 2, ..Allowance::default() };
        assert_eq!([0, 1, 2, u32::MAX].map(|turn| allowance.uid(turn)), [10, 11, 10, 11]);
        assert_eq!(Allowance { uid_count: 0, ..allowance }.uid(7), 10);
    }
}
