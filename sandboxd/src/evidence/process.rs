//! Reads what the kernel says about a process of another: status, namespaces, maps, mounts, descriptors, limits.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::kernel_file;

/// The /proc folder of one process.
#[derive(Debug, Clone)]
pub struct Process {
    folder: PathBuf,
    /// 0 = ourselves.
    id: i32,
}

/// One line of mountinfo, as far as it is judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    pub place: String,
    pub kind: String,
    pub read_only: bool,
    pub no_suid: bool,
    pub no_dev: bool,
}

impl Process {
    pub fn new(pid: i32) -> Self {
        Self { folder: Path::new("/proc").join(pid.to_string()), id: pid }
    }

    pub fn ourselves() -> Self {
        Self { folder: PathBuf::from("/proc/self"), id: 0 }
    }

    pub fn id(&self) -> i32 {
        self.id
    }

    /// Everything that a process started, directly or not, and that is alive. Its own children come first.
    pub fn descendants(pid: i32) -> io::Result<Vec<Self>> {
        let mut found = Self::new(pid).children()?;
        let mut next = 0;
        while let Some(process) = found.get(next) {
            // One that ended just now has no children any more.
            let children = process.children().unwrap_or_default();
            found.extend(children);
            next += 1;
        }
        Ok(found)
    }

    /// The children of each of its threads.
    fn children(&self) -> io::Result<Vec<Self>> {
        let mut children = Vec::new();
        for thread in fs::read_dir(self.folder.join("task"))? {
            let list = fs::read_to_string(thread?.path().join("children"))?;
            children.extend(list.split_whitespace().filter_map(|pid| pid.parse().ok()).map(Self::new));
        }
        Ok(children)
    }

    /// The name by which it was started, as it says itself.
    pub fn first_argument(&self) -> io::Result<String> {
        let line = self.text("cmdline")?;
        Ok(line.split('\0').next().unwrap_or_default().to_owned())
    }

    /// The file that it executes, whatever its path is by now.
    pub fn executable(&self) -> io::Result<fs::Metadata> {
        fs::metadata(self.folder.join("exe"))
    }

    fn text(&self, name: &str) -> io::Result<String> {
        kernel_file::text(self.folder.join(name))
    }

    /// Device and inode of a namespace: the same for two processes exactly when they share it.
    pub fn namespace(&self, kind: &str) -> io::Result<(u64, u64)> {
        let metadata = fs::metadata(self.folder.join("ns").join(kind))?;
        Ok((metadata.dev(), metadata.ino()))
    }

    /// /proc/PID/status.
    pub fn status(&self) -> io::Result<Status> {
        Ok(Status(self.text("status")?))
    }

    /// `uid_map` or `gid_map`, one line per mapping, single spaces.
    pub fn id_map(&self, name: &str) -> io::Result<String> {
        let text = self.text(name)?;
        let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        Ok(lines.collect::<Vec<_>>().join("; "))
    }

    /// What each open descriptor leads to, as `/dev/null` or `socket:[4711]`.
    pub fn descriptors(&self) -> io::Result<Vec<(u32, String)>> {
        let mut descriptors = Vec::new();
        for entry in fs::read_dir(self.folder.join("fd"))? {
            let entry = entry?;
            let number = entry.file_name().to_string_lossy().parse().unwrap_or(u32::MAX);
            descriptors.push((number, fs::read_link(entry.path())?.to_string_lossy().into_owned()));
        }
        descriptors.sort();
        Ok(descriptors)
    }

    pub fn mounts(&self) -> io::Result<Vec<Mount>> {
        Ok(self.text("mountinfo")?.lines().filter_map(parse_mount).collect())
    }

    /// Device of the process's root folder.
    pub fn root_device(&self) -> io::Result<u64> {
        Ok(fs::metadata(self.folder.join("root/."))?.dev())
    }

    /// Soft limit of a line of /proc/PID/limits.
    pub fn limit(&self, name: &str) -> io::Result<String> {
        let text = self.text("limits")?;
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let value = line.and_then(|rest| rest.split_whitespace().next());
        value.map(str::to_owned).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }
}

fn parse_mount(line: &str) -> Option<Mount> {
    let (first, second) = line.split_once(" - ")?;
    let mut first = first.split(' ').skip(4);
    let place = first.next()?.to_owned();
    let options: Vec<&str> = first.next()?.split(',').collect();
    let has = |option| options.contains(&option);
    Some(Mount {
        place,
        kind: second.split(' ').next()?.to_owned(),
        read_only: has("ro"),
        no_suid: has("nosuid"),
        no_dev: has("nodev"),
    })
}

/// The text of /proc/PID/status.
#[derive(Debug, Clone)]
pub struct Status(String);

impl Status {
    /// The value of a line, or empty.
    pub fn value(&self, name: &str) -> &str {
        self.0
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .map(str::trim)
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_itself() {
        let process = Process::ourselves();
        assert_eq!(process.status().unwrap().value("NoSuchLine"), "");
        assert!(!process.status().unwrap().value("CapEff").is_empty());
        assert!(process.descriptors().unwrap().len() >= 3);
        assert!(process.mounts().unwrap().iter().any(|mount| mount.place == "/proc"));
        assert!(process.limit("Max open files").unwrap().parse::<u64>().is_ok());
        let id = i32::try_from(std::process::id()).unwrap();
        for kind in ["user", "net"] {
            assert_eq!(process.namespace(kind).unwrap(), Process::new(id).namespace(kind).unwrap());
        }
    }

    #[test]
    fn reads_a_mount_line() {
        let line = "36 35 98:0 /mnt1 /mnt2 ro,nosuid,noatime master:1 - ext3 /dev/root rw,errors=continue";
        let mount = parse_mount(line).unwrap();
        assert_eq!((mount.place.as_str(), mount.kind.as_str()), ("/mnt2", "ext3"));
        assert_eq!((mount.read_only, mount.no_suid, mount.no_dev), (true, true, false));
    }
}
