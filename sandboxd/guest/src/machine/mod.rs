//! The first process of a microVM: builds the room that the steps run in, in a kernel where nothing else is.
//!
//! In: an initramfs with this program and a few kernel modules, and the words of [`Settings`]. Out: a read-only root that
//! the daemon's side offers, places of its own for what a run writes, one link to the gate, limits, and nothing that
//! leads back. It is root of this kernel until here, and keeps of that only what starting a step as another user takes.

mod group;
mod settings;

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Instant;

use freeboard_netns::{Families, Need, Place, Plan, Planned, Step, apply_here};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};
use rustix::mount::{MountFlags, mount, mount_move, mount_remount};
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set, set_capabilities, set_no_new_privs,
};

pub use group::Group;
pub use settings::Settings;

use crate::channel::Channel;
use crate::limits::{DEVICE_INTERVAL, DEVICE_WAIT};
use crate::witness::Fact;

/// This program in the initramfs.
pub const INIT: &str = "/init";
/// Folder of the initramfs with the kernel modules, to be loaded in the order of their names.
pub const MODULES: &str = "/modules";
/// The word by which the daemon's side offers the root.
pub const ROOT_TAG: &str = "root";
/// The user of the steps, as in every sandbox.
pub const STEP_USER: u32 = 1000;

/// Where the root is mounted before it becomes the root.
const NEW_ROOT: &str = "/new";
/// Bytes of /tmp and of /dev/shm each. Their pages are memory of the run.
const TMP_BYTES: u64 = 64 << 20;
/// Open descriptors of each step.
const OPEN_FILES: u64 = 4096;
/// Device nodes that programs expect: name, major, minor.
const DEVICES: [(&str, u32, u32); 6] =
    [("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0)];
const DEVICE_LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];
/// Settings of this kernel, nearly all of them doors that no step needs. One that this kernel does not have is closed already.
const SETTINGS: [(&str, &str); 9] = [
    // Not closed but opened: memory that is asked for and not used is no reason to refuse; the control group holds.
    ("vm/overcommit_memory", "1"),
    ("kernel/modules_disabled", "1"),
    ("kernel/kexec_load_disabled", "1"),
    ("kernel/dmesg_restrict", "1"),
    ("kernel/kptr_restrict", "2"),
    ("kernel/unprivileged_bpf_disabled", "1"),
    ("kernel/perf_event_paranoid", "3"),
    ("vm/unprivileged_userfaultfd", "0"),
    ("user/max_user_namespaces", "0"),
];

/// A room that stands.
pub(crate) struct Built {
    pub(crate) channel: Channel,
    pub(crate) facts: Vec<Fact>,
    pub(crate) group: Group,
}

/// Builds it. What fails is said on the console, which the daemon's side reads.
pub(crate) fn build() -> io::Result<Built> {
    let built = steps();
    if let Err(error) = &built {
        // Nobody listens when this fails as well; the machine ends all the same.
        let _ = fs::write("/dev/console", format!("freeboard-guest: {error}\n"));
    }
    built
}

fn steps() -> io::Result<Built> {
    kernel_files().map_err(at("mount the kernel's own files"))?;
    let line = fs::read_to_string("/proc/cmdline")?;
    let settings =
        Settings::parse(&line).ok_or_else(|| io::Error::other("the command line lacks our words"))?;
    modules()?;
    let channel = channel().map_err(at("find the channel"))?;
    network(settings.gate)?;
    let (group, facts) =
        Group::make(settings.memory_bytes, settings.pids).map_err(at("make the control group"))?;
    root(&settings)?;
    settings_of_kernel();
    limits().map_err(at("set limits"))?;
    rights().map_err(at("drop rights"))?;
    Ok(Built { channel: Channel::both_ways(channel), facts, group })
}

fn at<E: Into<io::Error>>(step: &str) -> impl FnOnce(E) -> io::Error {
    move |error| io::Error::other(format!("{step}: {}", error.into()))
}

fn kernel_files() -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    for (kind, place) in [("proc", "/proc"), ("devtmpfs", "/dev"), ("cgroup2", group::PLACE)] {
        fs::create_dir_all(place)?;
        let flags = if kind == "devtmpfs" { MountFlags::NOSUID | MountFlags::NOEXEC } else { flags };
        mount(kind, place, kind, flags, None)?;
    }
    Ok(())
}

fn modules() -> io::Result<()> {
    /// `MODULE_INIT_COMPRESSED_FILE` of linux/module.h: the kernel unpacks it.
    const COMPRESSED: i32 = 4;
    let mut files: Vec<PathBuf> = fs::read_dir(MODULES)?.flatten().map(|entry| entry.path()).collect();
    files.sort();
    for path in files {
        let shown = path.display().to_string();
        let flags = if path.extension().is_some_and(|end| end == "ko") { 0 } else { COMPRESSED };
        match rustix::system::finit_module(fs::File::open(&path)?, c"", flags) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(at(&format!("load `{shown}`"))(error)),
        }
    }
    Ok(())
}

/// The one serial port. It appears a moment after its driver.
fn channel() -> io::Result<OwnedFd> {
    let end = Instant::now() + DEVICE_WAIT;
    loop {
        let ports = fs::read_dir("/dev")?.flatten().map(|entry| entry.path());
        let is_port = |path: &PathBuf| path.to_string_lossy().starts_with("/dev/vport");
        if let Some(port) = ports.into_iter().find(is_port) {
            return Ok(open(&port, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?);
        }
        if Instant::now() >= end {
            return Err(io::ErrorKind::TimedOut.into());
        }
        std::thread::sleep(DEVICE_INTERVAL);
    }
}

fn network(gate: Option<Families>) -> io::Result<()> {
    let loopback =
        Planned { place: Place::Gate, need: Need::Required, step: Step::LinkUp { link: "lo".to_owned() } };
    let plan = gate.map_or_else(|| Plan { steps: vec![loopback] }, Plan::inside_machine);
    apply_here(&plan).map(drop).map_err(|error| {
        let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        io::Error::other(format!("{error}: {cause}"))
    })
}

/// Mounts the root, makes its own places, and moves into it. The initramfs is out of reach then.
fn root(settings: &Settings) -> io::Result<()> {
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
    fs::create_dir_all(NEW_ROOT)?;
    // One read of a file brings half a megabyte, and pages stay: the root does not change under a run.
    let options = c"trans=virtio,version=9p2000.L,msize=512000,cache=loose";
    mount(ROOT_TAG, NEW_ROOT, "9p", flags, options).map_err(at("mount the root"))?;
    std::env::set_current_dir(NEW_ROOT)?;
    devices().map_err(at("make /dev"))?;
    let kernels = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "proc", "proc", kernels, None).map_err(at("mount /proc"))?;
    let own = MountFlags::NOSUID | MountFlags::NODEV;
    let temporary = format!("size={TMP_BYTES},nr_inodes=16384,mode=1777");
    let work = format!(
        "size={},nr_inodes={},mode=0755,uid={STEP_USER},gid={STEP_USER}",
        settings.disk_bytes, settings.inodes
    );
    for (place, options, flags) in [
        ("tmp", &temporary, own | MountFlags::NOEXEC),
        ("dev/shm", &temporary, own | MountFlags::NOEXEC),
        ("work", &work, own),
    ] {
        let options = std::ffi::CString::new(options.as_str()).map_err(io::Error::other)?;
        mount("tmpfs", place, "tmpfs", flags, &*options).map_err(at(place))?;
    }
    mount_move(".", "/").map_err(at("move the root"))?;
    rustix::process::chroot(".").map_err(at("enter the root"))?;
    std::env::set_current_dir("/")?;
    rustix::system::sethostname(b"sandbox").map_err(at("set the host name"))
}

/// A `/dev` of its own: the kernel's has the channel and the machine's memory in it.
fn devices() -> io::Result<()> {
    mount("tmpfs", "dev", "tmpfs", MountFlags::NOSUID | MountFlags::NOEXEC, c"size=65536,mode=0755")?;
    for (name, major, minor) in DEVICES {
        let place = Path::new("dev").join(name);
        mknodat(CWD, &place, FileType::CharacterDevice, Mode::empty(), rustix::fs::makedev(major, minor))?;
        rustix::fs::chmod(&place, Mode::from_raw_mode(0o666))?;
    }
    for (name, target) in DEVICE_LINKS {
        std::os::unix::fs::symlink(target, Path::new("dev").join(name))?;
    }
    for folder in ["dev/pts", "dev/shm"] {
        fs::create_dir(folder)?;
    }
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    mount("devpts", "dev/pts", "devpts", flags, c"newinstance,ptmxmode=0666,mode=0620")?;
    Ok(mount_remount("dev", flags | MountFlags::RDONLY, c"")?)
}

fn settings_of_kernel() {
    for (key, value) in SETTINGS {
        let _ = fs::write(Path::new("/proc/sys").join(key), value);
    }
}

/// Beside the control group.
fn limits() -> io::Result<()> {
    for (resource, limit) in [(Resource::Core, 0), (Resource::Nofile, OPEN_FILES), (Resource::Rtprio, 0)] {
        setrlimit(resource, Rlimit { current: Some(limit), maximum: Some(limit) })?;
    }
    Ok(())
}

/// SECURITY: of all rights of this kernel's root only those stay that start a step as another user; the rest of the program
/// takes those out of every set that a step could inherit (test: the_evidence_is_of_the_live_boundary).
fn rights() -> io::Result<()> {
    set_no_new_privs(true)?;
    clear_ambient_capability_set()?;
    let few = CapabilitySet::SETUID | CapabilitySet::SETGID | CapabilitySet::SETPCAP;
    set_capabilities(
        None,
        CapabilitySets { effective: few, permitted: few, inheritable: CapabilitySet::empty() },
    )?;
    Ok(())
}
