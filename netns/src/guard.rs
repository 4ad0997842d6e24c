//! Joined gates: two namespaces that outlive no run.
//!
//! With a home folder each namespace is kept by a name that begins with the run id, so that the remains of a crash can
//! be found, taken over or swept. Without one, descriptors alone keep them and they die with the process. The veth pair
//! lives inside the namespaces and dies with either.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::mount::{UnmountFlags, mount_bind, unmount};

use crate::apply::{Gate, apply};
use crate::error::{ApplyError, GuardError};
use crate::linux::LinuxKernel;
use crate::plan::{Place, Plan, check_run};

/// Where namespaces are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Home {
    /// As files of this folder, `RUN-gate` and `RUN-guest`. Needs the right to mount.
    Folder(PathBuf),
    /// By descriptors of this process alone.
    Anonymous,
}

/// The two namespaces of one run. Dropping it removes their names; the namespaces die with their last process.
#[derive(Debug)]
pub struct JoinedGate {
    run: String,
    home: Home,
    gate: OwnedFd,
    guest: OwnedFd,
}

/// What `sweep` did.
#[derive(Debug, Default)]
pub struct Swept {
    /// Runs whose remains were removed, sorted.
    pub removed: Vec<String>,
    /// Remains that could not be removed.
    pub failed: Vec<GuardError>,
}

impl JoinedGate {
    /// Makes two fresh namespaces with nothing in them.
    pub fn create(run: &str, home: Home) -> Result<Self, GuardError> {
        check_run(run)?;
        let gate = create_one(run, Place::Gate, &home)?;
        match create_one(run, Place::Guest, &home) {
            Ok(guest) => Ok(Self { run: run.to_owned(), home, gate, guest }),
            Err(error) => {
                if let Home::Folder(folder) = &home {
                    let _ = remove(&path_of(folder, run, Place::Gate));
                }
                Err(error)
            }
        }
    }

    /// Takes over the namespaces that a crashed process left under `folder`.
    pub fn adopt(run: &str, folder: &Path) -> Result<Self, GuardError> {
        check_run(run)?;
        let open = |place| {
            let path = path_of(folder, run, place);
            File::open(&path).map(OwnedFd::from).map_err(|source| GuardError::Name { path, source })
        };
        let (gate, guest) = (open(Place::Gate)?, open(Place::Guest)?);
        Ok(Self { run: run.to_owned(), home: Home::Folder(folder.to_owned()), gate, guest })
    }

    /// Carries out a plan of the joined form, on a thread of its own.
    pub fn apply(&self, plan: &Plan) -> Result<Gate, ApplyError> {
        let work = || apply(plan, &mut LinuxKernel::between(self.gate.as_fd(), self.guest.as_fd()));
        std::thread::scope(|scope| scope.spawn(work).join())
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    pub fn run(&self) -> &str {
        &self.run
    }

    pub fn gate(&self) -> BorrowedFd<'_> {
        self.gate.as_fd()
    }

    /// For the guest's first process, or its tap.
    pub fn guest(&self) -> BorrowedFd<'_> {
        self.guest.as_fd()
    }

    /// Path of the guest's namespace, for runtimes that take one (`linux.namespaces[].path`).
    pub fn guest_path(&self) -> Option<PathBuf> {
        match &self.home {
            Home::Folder(folder) => Some(path_of(folder, &self.run, Place::Guest)),
            Home::Anonymous => None,
        }
    }

    /// Removes both names. Done already is done.
    pub fn remove(&self) -> Result<(), GuardError> {
        let Home::Folder(folder) = &self.home else { return Ok(()) };
        let guest = remove(&path_of(folder, &self.run, Place::Guest));
        remove(&path_of(folder, &self.run, Place::Gate)).and(guest)
    }
}

impl Drop for JoinedGate {
    fn drop(&mut self) {
        let _ = self.remove();
    }
}

/// Removes what runs other than those in `keep` left under `folder`. Files that are not ours are not touched.
pub fn sweep(folder: &Path, keep: &[&str]) -> Result<Swept, GuardError> {
    let unreadable = |source| GuardError::Read { path: folder.to_owned(), source };
    let mut swept = Swept::default();
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(swept),
        Err(error) => return Err(unreadable(error)),
    };
    for entry in entries {
        let name = entry.map_err(unreadable)?.file_name();
        let Some(run) = name.to_str().and_then(run_of) else { continue };
        if keep.contains(&run) {
            continue;
        }
        match remove(&folder.join(&name)) {
            Ok(()) => swept.removed.push(run.to_owned()),
            Err(error) => swept.failed.push(error),
        }
    }
    swept.removed.sort();
    swept.removed.dedup();
    Ok(swept)
}

fn run_of(name: &str) -> Option<&str> {
    let (run, place) = name.rsplit_once('-')?;
    (matches!(place, "gate" | "guest") && check_run(run).is_ok()).then_some(run)
}

fn path_of(folder: &Path, run: &str, place: Place) -> PathBuf {
    folder.join(format!("{run}-{place}"))
}

fn create_one(run: &str, place: Place, home: &Home) -> Result<OwnedFd, GuardError> {
    let path = match home {
        Home::Anonymous => return fresh_namespace(None).map_err(GuardError::Create),
        Home::Folder(folder) => path_of(folder, run, place),
    };
    let at = |source| GuardError::Name { path: path.clone(), source };
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(at)?;
    }
    File::options().write(true).create_new(true).open(&path).map_err(at)?;
    fresh_namespace(Some(&path)).map_err(|source| {
        let _ = std::fs::remove_file(&path);
        GuardError::Name { path: path.clone(), source }
    })
}

/// A thread unshares its network, names it, and ends; the descriptor keeps what it made.
fn fresh_namespace(name: Option<&Path>) -> io::Result<OwnedFd> {
    let make = || {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET)?;
        if let Some(name) = name {
            mount_bind("/proc/thread-self/ns/net", name)?;
        }
        Ok(OwnedFd::from(File::open("/proc/thread-self/ns/net")?))
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("netns-create".to_owned()).spawn_scoped(scope, make)?;
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the creating thread panicked")))
    })
}

fn remove(path: &Path) -> Result<(), GuardError> {
    let failed = |source: io::Error| GuardError::Remove { path: path.to_owned(), source };
    loop {
        match unmount(path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
            // A crash between two mounts, or an adoption, may have left several.
            Ok(()) => {}
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => break,
            Err(error) => return Err(failed(error.into())),
        }
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
        _ => Ok(()),
    }
}
