//! The root that QEMU lives in, and in it the root of the run, which the machine mounts. Runs in the child's own mount
//! namespace.
//!
//! ```text
//! /              read-only; the host's programs and libraries, which QEMU is made of
//! ├─ machine     kernel, initramfs
//! ├─ proc        of the child's process namespace
//! ├─ dev         null, zero, random, urandom, and kvm where it is used
//! ├─ tmp         what QEMU writes, in memory
//! └─ root        the run's: read-only view of the host's tools, generated /etc
//! ```
//!
//! Whoever breaks out of the machine into QEMU finds this, as an unused user without capabilities.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};

use super::machine::{INITRAMFS, KERNEL, ROOT};
use super::{initramfs, limits};
use crate::isolate::kernel::{Accelerator, Microvm};
use crate::isolate::mounts::{
    MountError, NO_DEV, NO_EXEC, NO_SUID, READ_ONLY, STAGE, at, attach, bind, pivot, show, take, tmpfs,
    tmpfs_options, tree,
};
use crate::isolate::{Boundary, etc};

const DEVICES: [&str; 4] = ["null", "zero", "random", "urandom"];

/// Builds both roots and moves into the outer one.
pub(super) fn enter(boundary: &Boundary, machine: &Microvm) -> Result<(), MountError> {
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).map_err(at("make the mounts private"))?;
    // Before the stage covers anything: a place of the host may be below it.
    let (tools, places) = (take(&machine.tools)?, take(&boundary.view)?);
    let kernel =
        tree(&machine.kernel.path, READ_ONLY | NO_SUID | NO_DEV | NO_EXEC).map_err(at("take the kernel"))?;
    let initramfs = initramfs::build(&machine.pieces).map_err(at("read what the initramfs is made of"))?;
    let kvm = match &machine.accelerator {
        Accelerator::Kvm { device } => {
            Some(tree(device, NO_SUID | NO_EXEC).map_err(at("take the KVM device"))?)
        }
        Accelerator::Translated { .. } => None,
    };
    let size = tmpfs_options(limits::ROOT_BYTES, limits::ROOT_INODES, "0755");
    tmpfs(Path::new(STAGE), MountFlags::empty(), &size).map_err(at("mount the root"))?;
    std::env::set_current_dir(STAGE).map_err(at("enter the root"))?;
    for folder in ["proc", "dev", "tmp", "machine", ROOT] {
        fs::create_dir_all(folder).map_err(at(format_args!("make /{folder}")))?;
    }
    show(tools)?;
    fs::File::create(KERNEL).map_err(at("make the kernel's place"))?;
    attach(&kernel, Path::new(KERNEL)).map_err(at("show the kernel"))?;
    fs::write(INITRAMFS, initramfs).map_err(at("write the initramfs"))?;
    for name in DEVICES {
        let place = Path::new("dev").join(name);
        fs::File::create(&place).map_err(at(format_args!("make /dev/{name}")))?;
        bind(&Path::new("/dev").join(name), &place, NO_SUID | NO_EXEC)
            .map_err(at(format_args!("show /dev/{name}")))?;
    }
    if let Some(kvm) = kvm {
        fs::File::create("dev/kvm").map_err(at("make /dev/kvm"))?;
        attach(&kvm, Path::new("dev/kvm")).map_err(at("show /dev/kvm"))?;
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "proc", "proc", flags, None).map_err(at("mount /proc"))?;
    let size = tmpfs_options(limits::TMP_BYTES, limits::ROOT_INODES, "0700");
    tmpfs(Path::new("tmp"), MountFlags::NOEXEC, &size).map_err(at("mount /tmp"))?;
    std::env::set_current_dir(ROOT).map_err(at("enter the run's root"))?;
    for folder in ["dev", "proc", "tmp", "work", "etc", "run", "var", "root", "home", "sys"] {
        fs::create_dir_all(folder).map_err(at(format_args!("make the run's /{folder}")))?;
    }
    etc::generate(boundary.guest_ids(), &boundary.ca_pem).map_err(at("generate /etc"))?;
    show(places)?;
    for (link, target) in [("var/tmp", "/tmp"), ("var/run", "/run")] {
        symlink(target, link).map_err(at(format_args!("link the run's /{link}")))?;
    }
    std::env::set_current_dir(STAGE).map_err(at("go back to the root"))?;
    pivot()
}
