//! Control groups: limits that hold for a run as a whole. Version 2 where it is delegated to us, version 1 else, and
//! nothing where neither is; the evidence says which.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Limits, limits};
use crate::kernel_file;
use crate::limits::GROUP_ATTEMPTS;

/// Folder below our own group that holds the groups of runs.
const BASE: &str = "freeboard";

/// Where groups can be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Groups {
    /// One folder with all controllers.
    Unified {
        base: PathBuf,
    },
    /// One folder per controller; at least memory and pids.
    PerController {
        memory: PathBuf,
        pids: PathBuf,
        cpu: Option<PathBuf>,
    },
    None,
}

/// How a run's group is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Version {
    V2,
    V1,
}

/// The group of one run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    pub version: Version,
    /// Folder that holds the memory limit.
    pub memory: PathBuf,
    /// Folder that holds the limit of processes.
    pub pids: PathBuf,
    /// Folder that holds the processor quota, where there is one.
    pub cpu: Option<PathBuf>,
}

/// What a run used, read before its group is removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    pub memory_peak_bytes: u64,
    /// Processes that the kernel killed because the run's memory was used up.
    pub memory_kills: u64,
    /// Forks that were refused because the run had its number of processes.
    pub pids_refusals: u64,
}

impl Groups {
    /// Finds where this process may make groups, and prepares the place. What cannot be prepared does not count.
    pub fn detect() -> Self {
        let own = kernel_file::text("/proc/self/cgroup").unwrap_or_default();
        let mounts = kernel_file::text("/proc/self/mountinfo").unwrap_or_default();
        let places = Places::parse(&own, &mounts);
        if let Some(base) = places.unified.as_deref().and_then(prepare_unified) {
            return Self::Unified { base };
        }
        let prepare = |folder: &Option<PathBuf>| folder.as_deref().and_then(prepare_v1);
        match (prepare(&places.memory), prepare(&places.pids)) {
            (Some(memory), Some(pids)) => Self::PerController { memory, pids, cpu: prepare(&places.cpu) },
            _ => Self::None,
        }
    }

    /// Makes the group of a run with its limits, still empty.
    pub fn create(&self, name: &str, wanted: &Limits) -> io::Result<Option<Group>> {
        for _ in 0..GROUP_ATTEMPTS {
            match self.try_create(name, wanted) {
                // Another launcher that ended just now took the base along, which was empty at that moment.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    for base in self.bases() {
                        let _ = fs::create_dir(base);
                    }
                }
                made => return made,
            }
        }
        self.try_create(name, wanted)
    }

    fn try_create(&self, name: &str, wanted: &Limits) -> io::Result<Option<Group>> {
        let group = match self {
            Self::None => return Ok(None),
            Self::Unified { base } => {
                let folder = base.join(name);
                Group {
                    version: Version::V2,
                    memory: folder.clone(),
                    pids: folder.clone(),
                    cpu: Some(folder),
                }
            }
            Self::PerController { memory, pids, cpu } => Group {
                version: Version::V1,
                memory: memory.join(name),
                pids: pids.join(name),
                cpu: cpu.as_ref().map(|cpu| cpu.join(name)),
            },
        };
        match group.build(wanted) {
            Ok(()) => Ok(Some(group)),
            Err(error) => {
                group.remove();
                Err(error)
            }
        }
    }

    /// Removes groups that a launcher left behind which is no longer alive. Groups of others that live are not touched.
    pub fn sweep(&self) {
        for base in self.bases() {
            for entry in fs::read_dir(base).into_iter().flatten().flatten() {
                let name = entry.file_name();
                if owner(&name.to_string_lossy()).is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
                    let _ = fs::remove_dir(entry.path());
                }
            }
        }
    }

    /// Removes the base folders of version 1 where no other launcher has a group in them. Those of version 2 go with the
    /// delegated group that they are in.
    pub fn leave(&self) {
        if let Self::PerController { .. } = self {
            for base in self.bases() {
                let _ = fs::remove_dir(base);
            }
        }
    }

    fn bases(&self) -> Vec<&Path> {
        match self {
            Self::None => Vec::new(),
            Self::Unified { base } => vec![base.as_path()],
            Self::PerController { memory, pids, cpu } => {
                [Some(memory), Some(pids), cpu.as_ref()].into_iter().flatten().map(PathBuf::as_path).collect()
            }
        }
    }
}

/// Moves the calling thread through [`Group::entrances`].
pub fn enter(entrances: &[fs::File]) -> io::Result<()> {
    use std::io::Write;
    entrances.iter().try_for_each(|mut entrance| entrance.write_all(b"0"))
}

/// The name of a run's group: whose launcher made it, and for which run.
pub fn group_name(launcher: i32, run: &str) -> String {
    format!("run-{launcher}-{run}")
}

fn owner(name: &str) -> Option<&str> {
    name.strip_prefix("run-")?.split_once('-').map(|(pid, _)| pid).filter(|pid| pid.parse::<i32>().is_ok())
}

impl Group {
    /// Every folder once.
    pub fn folders(&self) -> Vec<&Path> {
        let mut folders = vec![self.memory.as_path()];
        for folder in [Some(&self.pids), self.cpu.as_ref()].into_iter().flatten() {
            if !folders.contains(&folder.as_path()) {
                folders.push(folder);
            }
        }
        folders
    }

    fn build(&self, wanted: &Limits) -> io::Result<()> {
        for folder in self.folders() {
            fs::create_dir(folder)?;
        }
        for (path, value, need) in self.settings(wanted) {
            match fs::write(&path, value) {
                Err(error) if need == Need::Required => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    fn settings(&self, wanted: &Limits) -> Vec<(PathBuf, String, Need)> {
        use Need::{Optional, Required};
        let quota = wanted.cpu_milli * limits::CPU_PERIOD_US / 1000;
        let memory = wanted.memory_bytes.to_string();
        let mut settings = match self.version {
            Version::V2 => vec![
                (self.memory.join("memory.max"), memory, Required),
                (self.memory.join("memory.swap.max"), "0".into(), Optional),
                // One process out of memory ends the run: half a run is no result.
                (self.memory.join("memory.oom.group"), "1".into(), Optional),
            ],
            Version::V1 => vec![
                (self.memory.join("memory.limit_in_bytes"), memory.clone(), Required),
                (self.memory.join("memory.memsw.limit_in_bytes"), memory, Optional),
            ],
        };
        settings.push((self.pids.join("pids.max"), wanted.pids.to_string(), Required));
        if let Some(cpu) = &self.cpu {
            match self.version {
                Version::V2 => {
                    let value = format!("{quota} {}", limits::CPU_PERIOD_US);
                    settings.push((cpu.join("cpu.max"), value, Required));
                }
                Version::V1 => {
                    settings.push((
                        cpu.join("cpu.cfs_period_us"),
                        limits::CPU_PERIOD_US.to_string(),
                        Required,
                    ));
                    settings.push((cpu.join("cpu.cfs_quota_us"), quota.to_string(), Required));
                }
            }
        }
        settings
    }

    /// A descriptor for `clone3`, which then puts the child into the group without a moment outside. Version 2 only.
    pub fn for_clone(&self) -> io::Result<Option<OwnedFd>> {
        match self.version {
            Version::V1 => Ok(None),
            Version::V2 => Ok(Some(fs::File::open(&self.memory)?.into())),
        }
    }

    /// Version 1: files by which a thread enters the group itself ([`enter`]). They are opened by who may, and used by
    /// the child.
    ///
    /// A thread that moves itself needs no lock over all processes of the host; moving another (`cgroup.procs`) waits
    /// for a grace period of the kernel, which took 8 to 15 ms where a whole start takes 3.
    pub fn entrances(&self) -> io::Result<Vec<fs::File>> {
        if self.version == Version::V2 {
            return Ok(Vec::new());
        }
        let open = |folder: &Path| fs::OpenOptions::new().write(true).open(folder.join("tasks"));
        self.folders().into_iter().map(open).collect()
    }

    /// The limits as the kernel holds them: name, value.
    pub fn read_back(&self) -> Vec<(&'static str, String)> {
        let read = |path: PathBuf| kernel_file::text(path).unwrap_or_default().trim().to_owned();
        let memory = match self.version {
            Version::V2 => self.memory.join("memory.max"),
            Version::V1 => self.memory.join("memory.limit_in_bytes"),
        };
        let mut values = vec![("memory", read(memory)), ("pids", read(self.pids.join("pids.max")))];
        if let Some(cpu) = &self.cpu {
            let quota = match self.version {
                Version::V2 => read(cpu.join("cpu.max")).split(' ').next().unwrap_or_default().to_owned(),
                Version::V1 => read(cpu.join("cpu.cfs_quota_us")),
            };
            values.push(("cpu_quota_us", quota));
        }
        values
    }

    /// Lets a process that uses the memory up die alone, where the group was made to die as a whole: in a session the files and the
    /// other interpreters are worth more than that nothing is left by halves.
    pub fn spare_the_rest(&self) -> io::Result<()> {
        match self.version {
            Version::V1 => Ok(()),
            Version::V2 => fs::write(self.memory.join("memory.oom.group"), "0"),
        }
    }

    /// Whether a process is in the group's folders, as the kernel lists it.
    pub fn holds(&self, pid: i32) -> bool {
        let line = pid.to_string();
        self.folders().into_iter().all(|folder| {
            kernel_file::text(folder.join("cgroup.procs"))
                .is_ok_and(|pids| pids.lines().any(|listed| listed == line))
        })
    }

    pub fn usage(&self) -> Usage {
        let read = |path: PathBuf| kernel_file::text(path).unwrap_or_default();
        let counter = |text: String, name: &str| {
            text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).unwrap_or_default()
        };
        let (peak, events) = match self.version {
            Version::V2 => ("memory.peak", "memory.events"),
            Version::V1 => ("memory.max_usage_in_bytes", "memory.oom_control"),
        };
        Usage {
            memory_peak_bytes: read(self.memory.join(peak)).trim().parse().unwrap_or_default(),
            memory_kills: counter(read(self.memory.join(events)), "oom_kill "),
            pids_refusals: counter(read(self.pids.join("pids.events")), "max "),
        }
    }

    /// Kills what is left, where the kernel can (version 2), and removes the folders. Best effort: the sweep of the next
    /// start takes what stays.
    pub fn remove(&self) {
        for folder in self.folders() {
            let _ = fs::write(folder.join("cgroup.kill"), "1");
            // A killed process leaves its group a moment after its death is reported.
            for _ in 0..50 {
                match fs::remove_dir(folder) {
                    Err(error) if error.raw_os_error() == Some(nix::libc::EBUSY) => {
                        std::thread::sleep(std::time::Duration::from_millis(2));
                    }
                    _ => break,
                }
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    Required,
    Optional,
}

/// Our own group's folder in each hierarchy.
#[derive(Debug, Default, PartialEq, Eq)]
struct Places {
    unified: Option<PathBuf>,
    memory: Option<PathBuf>,
    pids: Option<PathBuf>,
    cpu: Option<PathBuf>,
}

impl Places {
    /// From /proc/self/cgroup and /proc/self/mountinfo.
    fn parse(own: &str, mounts: &str) -> Self {
        let mut places = Self::default();
        for mount in mounts.lines().filter_map(Mount::parse) {
            let folder = |controller: &str| {
                let path = own_path(own, controller)?;
                let inner = Path::new(path).strip_prefix(mount.root).ok()?;
                Some(Path::new(mount.point).join(inner))
            };
            match mount.kind {
                "cgroup2" => places.unified = places.unified.or_else(|| folder("")),
                "cgroup" => {
                    for (name, place) in
                        [("memory", &mut places.memory), ("pids", &mut places.pids), ("cpu", &mut places.cpu)]
                    {
                        if place.is_none() && mount.options.split(',').any(|option| option == name) {
                            *place = folder(name);
                        }
                    }
                }
                _ => {}
            }
        }
        places
    }
}

/// Our path in the hierarchy of a controller; the empty name is version 2's.
fn own_path<'a>(own: &'a str, controller: &str) -> Option<&'a str> {
    own.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (id, names, path) = (parts.next()?, parts.next()?, parts.next()?);
        let hit = if controller.is_empty() {
            id == "0" && names.is_empty()
        } else {
            names.split(',').any(|name| name == controller)
        };
        hit.then_some(path)
    })
}

/// The fields of a mountinfo line that matter here (proc_pid_mountinfo(5)).
struct Mount<'a> {
    root: &'a str,
    point: &'a str,
    kind: &'a str,
    options: &'a str,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (first, second) = line.split_once(" - ")?;
        let mut first = first.split(' ').skip(3);
        let mut second = second.split(' ');
        Some(Self {
            root: first.next()?,
            point: first.next()?,
            kind: second.next()?,
            options: second.nth(1)?,
        })
    }
}

/// Makes the base folder with the controllers on. Needs a group of our own without other processes (systemd's
/// `Delegate=yes`), since a group with children and controllers may hold no process itself.
fn prepare_unified(own: &Path) -> Option<PathBuf> {
    let available = kernel_file::text(own.join("cgroup.controllers")).ok()?;
    let has = |name| available.split_whitespace().any(|word| word == name);
    if !(has("memory") && has("pids")) {
        return None;
    }
    let wanted = if has("cpu") { "+memory +pids +cpu" } else { "+memory +pids" };
    if fs::write(own.join("cgroup.subtree_control"), wanted).is_err() {
        // Move what is ours (the daemon and this launcher) into a leaf, then try again.
        let leaf = own.join("freeboard-daemon");
        let _ = fs::create_dir(&leaf);
        let parent = rustix::process::getppid().map(rustix::process::Pid::as_raw_nonzero);
        for pid in [Some(rustix::process::getpid().as_raw_nonzero()), parent].into_iter().flatten() {
            fs::write(leaf.join("cgroup.procs"), pid.to_string()).ok()?;
        }
        fs::write(own.join("cgroup.subtree_control"), wanted).ok()?;
    }
    let base = make(own)?;
    fs::write(base.join("cgroup.subtree_control"), wanted).ok()?;
    Some(base)
}

fn prepare_v1(own: &Path) -> Option<PathBuf> {
    make(own)
}

fn make(own: &Path) -> Option<PathBuf> {
    let base = own.join(BASE);
    match fs::create_dir(&base) {
        Ok(()) => Some(base),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            // Another user's folder is of no use.
            rustix::fs::access(&base, rustix::fs::Access::WRITE_OK).is_ok().then_some(base)
        }
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_our_groups_in_both_versions() {
        let mounts = "30 29 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      31 29 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      32 29 0:28 /box /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n\
                      33 29 0:29 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
        let own = "8:pids:/box/inner\n4:memory:/api/x\n1:cpu:/\n0::/user.slice\n";
        let places = Places::parse(own, mounts);
        let path = |text: &str| Some(PathBuf::from(text));
        assert_eq!(
            places,
            Places {
                unified: path("/sys/fs/cgroup/unified/user.slice"),
                memory: path("/sys/fs/cgroup/memory/api/x"),
                pids: path("/sys/fs/cgroup/pids/inner"),
                cpu: path("/sys/fs/cgroup/cpu/"),
            }
        );
        assert_eq!(Places::parse("", ""), Places::default());
    }

    #[test]
    fn a_group_names_its_launcher() {
        assert_eq!(owner(&group_name(42, "abc")), Some("42"));
        assert_eq!(owner("something"), None);
        assert_eq!(owner("run-x-y"), None);
    }

    #[test]
    fn a_run_dies_as_a_whole_and_of_a_session_one_process() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run-1-x");
        let group = Group { memory: path.clone(), pids: path.clone(), cpu: None, version: Version::V2 };
        group.build(&Limits { memory_bytes: 1, pids: 1, cpu_milli: 1, disk_bytes: 1, inodes: 1 }).unwrap();
        let whole = || fs::read_to_string(path.join("memory.oom.group")).unwrap();
        assert_eq!(whole(), "1");
        group.spare_the_rest().unwrap();
        assert_eq!(whole(), "0");
    }

    #[test]
    fn without_a_hierarchy_there_is_no_group() {
        let limits = Limits { memory_bytes: 1, pids: 1, cpu_milli: 1, disk_bytes: 1, inodes: 1 };
        assert_eq!(Groups::None.create("run-1-x", &limits).unwrap(), None);
    }
}
