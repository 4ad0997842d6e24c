//! The root that the runtime's own processes live in, and in it the root of the run. Runs in the child's own mount
//! namespace.
//!
//! ```text
//! /              read-only, nothing of the host but what follows
//! ├─ runsc       the runtime
//! ├─ proc        of the child's process namespace
//! ├─ dev         null, zero, random, urandom
//! ├─ state, tmp  the runtime's own files, in memory
//! └─ bundle
//!    ├─ config.json
//!    └─ root     the run's: read-only view of the host's tools, generated /etc, the guest program
//! ```
//!
//! Whoever breaks out of gVisor into one of its processes finds this, as an unused user without capabilities.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};

use super::bundle::{self, BUNDLE, GUEST, ROOT, RUNSC, STATE};
use super::limits;
use crate::isolate::kernel::Gvisor;
use crate::isolate::mounts::{
    MountError, NO_DEV, NO_EXEC, NO_SUID, READ_ONLY, STAGE, at, attach, bind, pivot, show, take, tmpfs,
    tmpfs_options, tree,
};
use crate::isolate::{Boundary, etc};

/// What the runtime opens.
const DEVICES: [&str; 4] = ["null", "zero", "random", "urandom"];
/// Needed by one platform only.
const KVM: &str = "kvm";

/// Folder of /proc that is covered with an empty one where that is needed.
pub(super) const NETWORK_KEYS: &str = "/proc/sys/net/core";
/// What gVisor takes for the sign of the host's own network namespace.
const SIGN: &str = "/proc/sys/net/core/rmem_default";

/// Whether this kernel shows the sign in every network namespace. To be asked in one that is not the host's.
pub(super) fn shows_sign_everywhere() -> bool {
    Path::new(SIGN).exists()
}

/// What is done about gVisor's check for the host's network namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Check {
    Works,
    /// It takes every network namespace for the host's.
    Misfires,
}

/// Builds both roots and moves into the outer one.
pub(super) fn enter(boundary: &Boundary, gvisor: &Gvisor, check: Check) -> Result<(), MountError> {
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).map_err(at("make the mounts private"))?;
    // Before the stage covers anything: a place of the host may be below it.
    let places = take(&boundary.view)?;
    let program = READ_ONLY | NO_SUID | NO_DEV;
    let runsc = tree(&gvisor.runsc, program).map_err(at("take runsc from the host"))?;
    let guest = tree(&gvisor.guest, program).map_err(at("take the guest program from the host"))?;
    let size = tmpfs_options(limits::RUNTIME_BYTES, limits::RUNTIME_INODES, "0755");
    tmpfs(Path::new(STAGE), MountFlags::empty(), &size).map_err(at("mount the root"))?;
    std::env::set_current_dir(STAGE).map_err(at("enter the root"))?;
    for folder in ["proc", "dev", "tmp", STATE, ROOT] {
        fs::create_dir_all(folder).map_err(at(format_args!("make /{folder}")))?;
    }
    fs::File::create(RUNSC).map_err(at("make /runsc"))?;
    attach(&runsc, Path::new(RUNSC)).map_err(at("show /runsc"))?;
    devices(gvisor)?;
    process_files(check)?;
    for folder in ["tmp", STATE] {
        let size = tmpfs_options(limits::RUNTIME_BYTES, limits::RUNTIME_INODES, "0700");
        tmpfs(Path::new(folder), MountFlags::NOEXEC, &size).map_err(at(format_args!("mount /{folder}")))?;
    }
    let config = serde_json::to_vec(&bundle::config(boundary));
    let config = config.map_err(|error| at("write the bundle")(std::io::Error::from(error)))?;
    fs::write(Path::new(BUNDLE).join("config.json"), config).map_err(at("write the bundle"))?;
    std::env::set_current_dir(ROOT).map_err(at("enter the run's root"))?;
    for folder in ["dev", "proc", "tmp", "work", "etc", "run", "var", "root", "home", "sys"] {
        fs::create_dir_all(folder).map_err(at(format_args!("make the run's /{folder}")))?;
    }
    etc::generate(boundary.guest_ids(), &boundary.ca_pem).map_err(at("generate /etc"))?;
    show(places)?;
    fs::File::create(GUEST).map_err(at("make the guest program's place"))?;
    attach(&guest, Path::new(GUEST)).map_err(at("show the guest program"))?;
    for (link, target) in [("var/tmp", "/tmp"), ("var/run", "/run")] {
        symlink(target, link).map_err(at(format_args!("link the run's /{link}")))?;
    }
    std::env::set_current_dir(STAGE).map_err(at("go back to the root"))?;
    pivot()
}

fn devices(gvisor: &Gvisor) -> Result<(), MountError> {
    let kvm = (gvisor.platform.as_deref() == Some(KVM)).then_some(KVM);
    for name in DEVICES.into_iter().chain(kvm) {
        let place = Path::new("dev").join(name);
        fs::File::create(&place).map_err(at(format_args!("make /dev/{name}")))?;
        bind(&Path::new("/dev").join(name), &place, NO_SUID | NO_EXEC)
            .map_err(at(format_args!("show /dev/{name}")))?;
    }
    Ok(())
}

/// SECURITY: covering the keys only switches off a check that would be wrong here. What it is for, not to take the host's
/// own interfaces, is measured instead: namespace_net and kernel_links of the evidence (test:
/// the_network_is_measured_from_outside).
fn process_files(check: Check) -> Result<(), MountError> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "proc", "proc", flags, None).map_err(at("mount /proc"))?;
    if check == Check::Misfires {
        let place = Path::new(STAGE).join(NETWORK_KEYS.trim_start_matches('/'));
        let nothing = tmpfs_options(4096, 1, "0555");
        tmpfs(&place, MountFlags::RDONLY | MountFlags::NOEXEC, &nothing)
            .map_err(at(format_args!("cover {NETWORK_KEYS}")))?;
    }
    Ok(())
}
