//! What an operator chooses about `native`.

use std::path::PathBuf;
use std::time::Duration;

use crate::provider::CreateError;

/// Settings of the provider. [`NativeConfig::default`] is what a machine without a configuration file gets.
#[derive(Debug, Clone, PartialEq)]
pub struct NativeConfig {
    /// A folder to show as the root instead of the host's tools.
    pub root: Option<PathBuf>,
    /// Folders of the host to show besides /usr and its kin, read-only, at the same place. Never a home.
    pub extra_read_only: Vec<PathBuf>,
    /// The guest's user is called root (id 0). It has no more rights than any other id; some tools want the name.
    pub guest_root: bool,
    /// Memory of a run in MiB, its files in /work, /tmp and /dev/shm included.
    pub memory_mib: u32,
    /// Processors of a run.
    pub cpus: f64,
    /// Processes and threads of a run.
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

impl Default for NativeConfig {
    fn default() -> Self {
        Self {
            root: None,
            extra_read_only: Vec::new(),
            guest_root: false,
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

impl NativeConfig {
    /// No account of the host may have an id that runs are given: its files would be theirs.
    pub(super) fn check_ids(&self, passwd: &str) -> Result<(), CreateError> {
        let range = self.uid_base..self.uid_base.saturating_add(self.uid_count.max(1));
        let taken = passwd.lines().find_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            let id: u32 = fields.nth(1)?.parse().ok()?;
            range.contains(&id).then(|| format!("`{name}` has id {id}"))
        });
        match taken {
            None => Ok(()),
            Some(taken) => Err(CreateError::Host {
                what: format!("an account of this host has an id that runs would be given: {taken}"),
                help: format!("ids {} to {} must be unused", range.start, range.end - 1),
            }),
        }
    }

    /// The places that the operator chose are folders, and no link leads from them to where nobody looked.
    pub(super) fn check_places(&self) -> Result<(), CreateError> {
        let chosen = self.root.iter().map(|root| ("native_root", root));
        let extra = self.extra_read_only.iter().map(|folder| ("native_extra_read_only", folder));
        for (option, path) in chosen.chain(extra) {
            let said = |what: String, help: &str| {
                let what = format!("`{}` of `{option}` {what}", path.display());
                Err(CreateError::Host { what, help: help.to_owned() })
            };
            match path.canonicalize() {
                Err(error) => {
                    return said(format!("cannot be shown: {error}"), "make it, or name another folder");
                }
                Ok(found) if found != *path => {
                    let what = format!("leads over a link to `{}`", found.display());
                    return said(what, "name the folder itself");
                }
                Ok(found) if !found.is_dir() => return said("is no folder".to_owned(), "name a folder"),
                Ok(_) => {}
            }
        }
        Ok(())
    }

    /// Thousandths of a processor, at least the kernel's least quota (1 ms in 100 ms).
    pub(super) fn cpu_milli(&self) -> u64 {
        cpu_milli(self.cpus)
    }
}

/// Processors as thousandths, within what the kernel takes.
pub(in crate::provider) fn cpu_milli(cpus: f64) -> u64 {
    let milli = (cpus * 1000.0).clamp(10.0, 1_024_000.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped just above")]
    let milli = milli as u64;
    milli
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_with_an_id_of_the_runs_is_refused() {
        let config = NativeConfig::default();
        assert!(config.check_ids("root:x:0:0::/root:/bin/sh\nuser:x:60999:1::/:/bin/sh\n").is_ok());
        let refused = config.check_ids("root:x:0:0::/:/bin/sh\nbuild:x:61010:1::/:/bin/sh\n").unwrap_err();
        assert!(refused.to_string().contains("`build` has id 61010"), "{refused}");
    }

    #[test]
    fn a_place_that_is_no_folder_or_leads_elsewhere_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        std::fs::create_dir(base.join("tools")).unwrap();
        std::fs::write(base.join("file"), "").unwrap();
        std::os::unix::fs::symlink("/root", base.join("link")).unwrap();
        let check = |name: &str| {
            let root = NativeConfig { root: Some(base.join(name)), ..NativeConfig::default() };
            let extra = NativeConfig { extra_read_only: vec![base.join(name)], ..NativeConfig::default() };
            let said =
                [root.check_places(), extra.check_places()].map(|checked| checked.map_err(|e| e.to_string()));
            assert_eq!(said[0].is_ok(), said[1].is_ok());
            said[0].clone()
        };
        assert_eq!(check("tools"), Ok(()));
        for (name, why) in
            [("file", "is no folder"), ("link", "leads over a link to `/root`"), ("none", "No such file")]
        {
            let said = check(name).unwrap_err();
            assert!(said.contains(why) && said.contains("native_root"), "{said}");
        }
    }

    #[test]
    fn a_share_of_a_processor_is_within_what_the_kernel_takes() {
        let share = |cpus| NativeConfig { cpus, ..NativeConfig::default() }.cpu_milli();
        assert_eq!((share(1.0), share(0.25), share(0.0), share(f64::INFINITY)), (1000, 250, 10, 1_024_000));
    }
}
