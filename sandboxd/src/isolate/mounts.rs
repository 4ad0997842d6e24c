//! Builds the root of a run and moves into it. Runs in the child's own mount namespace.
//!
//! The root is a small tmpfs with read-only views of the host's tools; nothing else of the host is reachable after
//! `pivot_root`, not even by a descriptor: the old root is detached and the child keeps none that leads there.

use std::ffi::CStr;
use std::fmt;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::CWD;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount, mount_bind,
    mount_change, move_mount, open_tree, unmount,
};

use super::view::{Entry, Source, View};
use super::{Boundary, Limits, etc, limits};
use crate::child::sys::mount_setattr;

/// `MOUNT_ATTR_*` of linux/mount.h.
pub(crate) const READ_ONLY: u64 = 0x1;
pub(crate) const NO_SUID: u64 = 0x2;
pub(crate) const NO_DEV: u64 = 0x4;
pub(crate) const NO_EXEC: u64 = 0x8;

/// Where the new root is built; any folder that exists on every host will do, it is covered in our namespace only.
pub(crate) const STAGE: &str = "/tmp";

/// A step that failed and why.
#[derive(Debug)]
pub struct MountError {
    pub what: String,
    pub source: io::Error,
}

impl fmt::Display for MountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.what)
    }
}

impl std::error::Error for MountError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Names the step of a failure.
pub(crate) fn at<E: Into<io::Error>>(what: impl fmt::Display) -> impl FnOnce(E) -> MountError {
    move |source| MountError { what: what.to_string(), source: source.into() }
}

/// Device nodes that programs expect. They are the host's own, shown one by one.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// Links of /dev.
const DEVICE_LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];

/// Files of /proc that tell about the host or could change it: covered with an empty file.
const MASKED_FILES: [&str; 20] = [
    "kcore",
    "keys",
    "key-users",
    "kallsyms",
    "kmsg",
    "timer_list",
    "sched_debug",
    "sysrq-trigger",
    "interrupts",
    "softirqs",
    "iomem",
    "ioports",
    "modules",
    "cmdline",
    "config.gz",
    "diskstats",
    "partitions",
    "swaps",
    "mtrr",
    "locks",
];
/// Folders of /proc of the same kind: covered with an empty folder.
const MASKED_FOLDERS: [&str; 10] =
    ["acpi", "asound", "bus", "driver", "fs", "irq", "pressure", "scsi", "sysvipc", "tty"];

/// Builds the root and stands in it. `/` is still the host's.
pub fn build(boundary: &Boundary) -> Result<(), MountError> {
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).map_err(at("make the mounts private"))?;
    // Before the stage covers anything: a place of the view may be below it.
    let places = take(&boundary.view)?;
    let size = tmpfs_options(limits::ROOT_BYTES, limits::ROOT_INODES, "0755");
    tmpfs(Path::new(STAGE), MountFlags::empty(), &size).map_err(at("mount the root"))?;
    std::env::set_current_dir(STAGE).map_err(at("enter the root"))?;
    for folder in ["dev/pts", "dev/shm", "proc", "tmp", "work", "etc", "run", "var", "root", "home", "sys"] {
        fs::create_dir_all(folder).map_err(at(format_args!("make /{folder}")))?;
    }
    etc::generate(boundary.guest_ids(), &boundary.ca_pem).map_err(at("generate /etc"))?;
    show(places)?;
    devices()?;
    process_files()?;
    writable_places(&boundary.limits)?;
    for (link, target) in [("var/tmp", "/tmp"), ("var/run", "/run")] {
        std::os::unix::fs::symlink(target, link).map_err(at(format_args!("link /{link}")))?;
    }
    Ok(())
}

/// Makes what was built the process's root. Afterwards the current directory is `/work`.
pub fn enter() -> Result<(), MountError> {
    pivot()?;
    std::env::set_current_dir("/work").map_err(at("enter /work"))
}

/// A place of the view with its tree, detached from the host's.
pub(crate) type Place<'a> = (&'a Entry, Option<OwnedFd>);

/// Takes a read-only tree of each place of the host.
pub(crate) fn take(view: &View) -> Result<Vec<Place<'_>>, MountError> {
    let tree = |entry: &Entry| match &entry.source {
        Source::Link(_) => Ok(None),
        Source::Folder(folder) => tree(folder, READ_ONLY | NO_SUID | NO_DEV).map(Some),
        Source::File(file) => tree(file, READ_ONLY | NO_SUID | NO_DEV | NO_EXEC).map(Some),
    };
    view.entries
        .iter()
        .map(|entry| match tree(entry) {
            Ok(tree) => Ok((entry, tree)),
            Err(error) => Err(at(format_args!("take /{} from the host", entry.place.display()))(error)),
        })
        .collect()
}

/// Puts the places of the view into the new root.
pub(crate) fn show(places: Vec<Place<'_>>) -> Result<(), MountError> {
    for (entry, tree) in places {
        let place = entry.place.as_path();
        put(entry, tree).map_err(at(format_args!("show /{}", place.display())))?;
    }
    Ok(())
}

fn put(entry: &Entry, tree: Option<OwnedFd>) -> io::Result<()> {
    let place = entry.place.as_path();
    if let Some(above) = place.parent() {
        fs::create_dir_all(above)?;
    }
    match &entry.source {
        Source::Link(target) => return std::os::unix::fs::symlink(target, place),
        Source::Folder(_) => fs::create_dir_all(place)?,
        Source::File(_) => drop(fs::File::create(place)?),
    }
    match tree {
        Some(tree) => attach(&tree, place),
        None => Ok(()),
    }
}

fn devices() -> Result<(), MountError> {
    for name in DEVICES {
        let place = Path::new("dev").join(name);
        fs::File::create(&place).map_err(at(format_args!("make /dev/{name}")))?;
        bind(&Path::new("/dev").join(name), &place, NO_SUID | NO_EXEC)
            .map_err(at(format_args!("show /dev/{name}")))?;
    }
    for (name, target) in DEVICE_LINKS {
        std::os::unix::fs::symlink(target, Path::new("dev").join(name))
            .map_err(at(format_args!("link /dev/{name}")))?;
    }
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    mount("devpts", "dev/pts", "devpts", flags, c"newinstance,ptmxmode=0666,mode=0620")
        .map_err(at("mount /dev/pts"))
}

/// /proc of the run's own process namespace: read-only, other users' processes hidden, the host's facts covered.
fn process_files() -> Result<(), MountError> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::RDONLY;
    mount("proc", "proc", "proc", flags, c"hidepid=ptraceable").map_err(at("mount /proc"))?;
    let mut nothing = Cover::new(|first| bind(Path::new("/dev/null"), first, READ_ONLY | NO_SUID | NO_EXEC));
    for name in MASKED_FILES {
        nothing.put(&Path::new("proc").join(name)).map_err(at(format_args!("cover /proc/{name}")))?;
    }
    // A folder of the root itself, which is empty for ever: it is removed, and the root closed for writing.
    let empty = Path::new("empty");
    fs::DirBuilder::new().mode(0o555).create(empty).map_err(at("make an empty folder"))?;
    let mut nothing = Cover::new(|first| bind(empty, first, READ_ONLY | NO_SUID | NO_DEV | NO_EXEC));
    for name in MASKED_FOLDERS {
        nothing.put(&Path::new("proc").join(name)).map_err(at(format_args!("cover /proc/{name}")))?;
    }
    fs::remove_dir(empty).map_err(at("remove the empty folder"))
}

/// One thing that covers many places. Only the first is made from its source and gets its attributes; the others are views of
/// the first, which have the same: one call of the kernel each, and no file system of their own.
struct Cover<F> {
    make: F,
    first: Option<PathBuf>,
}

impl<F: Fn(&Path) -> io::Result<()>> Cover<F> {
    fn new(make: F) -> Self {
        Self { make, first: None }
    }

    /// Covers a place; one that is not there needs none.
    fn put(&mut self, place: &Path) -> io::Result<()> {
        if !place.exists() {
            return Ok(());
        }
        if let Some(first) = &self.first {
            return Ok(mount_bind(first, place)?);
        }
        (self.make)(place)?;
        self.first = Some(place.to_owned());
        Ok(())
    }
}

/// The places where a run may write, each with a size and a number of files.
fn writable_places(wanted: &Limits) -> Result<(), MountError> {
    let places = [
        ("tmp", tmpfs_options(limits::TMP_BYTES, limits::TMP_INODES, "1777"), MountFlags::NOEXEC),
        ("dev/shm", tmpfs_options(limits::SHM_BYTES, limits::SHM_INODES, "1777"), MountFlags::NOEXEC),
        // Programs that a run builds or installs are executed from here, so this one is not noexec.
        ("work", tmpfs_options(wanted.disk_bytes, wanted.inodes, "0755"), MountFlags::empty()),
    ];
    for (place, options, flags) in places {
        tmpfs(Path::new(place), flags, &options).map_err(at(format_args!("mount /{place}")))?;
    }
    Ok(())
}

/// Makes the stage the root, lets go of the old one, closes the root for writing.
pub(crate) fn pivot() -> Result<(), MountError> {
    rustix::process::pivot_root(".", ".").map_err(at("pivot_root"))?;
    // The old root now lies over the new one; detaching it uncovers ours.
    unmount(".", UnmountFlags::DETACH).map_err(at("detach the host's root"))?;
    std::env::set_current_dir("/").map_err(at("enter the new root"))?;
    let root = open_root().map_err(at("open the new root"))?;
    mount_setattr(&root, READ_ONLY | NO_SUID | NO_DEV, false).map_err(at("close the root for writing"))
}

pub(crate) fn open_root() -> io::Result<OwnedFd> {
    use rustix::fs::{Mode, OFlags, open};
    Ok(open("/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// A view of a place of the host with attributes on everything below it.
pub(crate) fn bind(source: &Path, place: &Path, attributes: u64) -> io::Result<()> {
    attach(&tree(source, attributes)?, place)
}

pub(crate) fn tree(source: &Path, attributes: u64) -> io::Result<OwnedFd> {
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    let tree = open_tree(CWD, source, flags)?;
    mount_setattr(&tree, attributes, true)?;
    Ok(tree)
}

pub(crate) fn attach(tree: &OwnedFd, place: &Path) -> io::Result<()> {
    move_mount(tree, "", CWD, place, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    Ok(())
}

pub(crate) fn tmpfs(place: &Path, flags: MountFlags, options: &CStr) -> io::Result<()> {
    mount("tmpfs", place, "tmpfs", flags | MountFlags::NOSUID | MountFlags::NODEV, options)?;
    Ok(())
}

pub(crate) fn tmpfs_options(bytes: u64, inodes: u64, mode: &str) -> std::ffi::CString {
    std::ffi::CString::new(format!("size={bytes},nr_inodes={inodes},mode={mode}")).unwrap_or_default()
}
