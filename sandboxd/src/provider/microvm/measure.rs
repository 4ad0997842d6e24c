//! What is measured about a microVM before its code is released: the live QEMU from outside, what QEMU says of itself, and
//! what the guest program sees from inside.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use freeboard_control::Evidence;
use freeboard_netns::inspect;
use freeboard_policy::Tier;

use super::machine::{INITRAMFS, KERNEL};
use super::monitor::Monitor;
use crate::evidence::Expected;
use crate::evidence::container::{Facts, own_namespaces, read_back};
use crate::evidence::process::{Mount, Process};
use crate::isolate::cgroup::Version;
use crate::isolate::kernel::{Accelerator, Kernel, Microvm};

/// What a process that has made a virtual machine of the host's kernel has open.
const KVM_MACHINE: &str = "anon_inode:kvm-vm";
/// The device of taps, whatever its path is by now: major and minor number (Documentation/admin-guide/devices.txt).
const TAP: (u32, u32) = (10, 200);
/// Where QEMU may write: in memory, with a size.
const WRITABLE: &str = "/tmp";

/// Measures. Facts that are not as required are in the answer with `met: false`.
pub(super) fn measure(expected: &Expected<'_>, initramfs: &[u8]) -> io::Result<Evidence> {
    let mut facts = Facts::default();
    let Some(Kernel::Microvm(machine)) = &expected.boundary.kernel else {
        facts.add("machine_process", "none planned", false);
        return Ok(Evidence { provider: super::NAME.into(), tier: Tier::Process, facts: facts.0 });
    };
    let child = Process::new(expected.pid);
    own_namespaces(&child, &mut facts)?;
    let maps = expected.boundary.maps();
    facts.equal("uid_map", &child.id_map("uid_map")?, maps.uid.trim_end());
    facts.equal("gid_map", &child.id_map("gid_map")?, maps.gid.trim_end());
    facts.add("qemu", machine.qemu.path.display().to_string(), true);
    facts.add("qemu_sha256", &machine.qemu.sha256, !machine.qemu.sha256.is_empty());
    let descendants = Process::descendants(expected.pid)?;
    let qemu =
        descendants.iter().find(|process| process.executable().is_ok_and(|file| machine.qemu.file.is(&file)));
    let tier = match qemu {
        None => {
            facts.add("machine_process", "no process executes the QEMU that was looked at", false);
            Tier::Process
        }
        Some(qemu) => {
            process(qemu, &child, &mut facts)?;
            files(qemu, machine, initramfs, &mut facts)?;
            links(qemu, expected, &mut facts)?;
            accelerator(qemu, machine, expected, &mut facts)?
        }
    };
    network(expected, &mut facts)?;
    limits(expected, &mut facts);
    inside(expected, machine, &mut facts);
    Ok(Evidence { provider: super::NAME.into(), tier, facts: facts.0 })
}

/// QEMU is nobody of the host, without rights, behind its filter, in a root and a network of its own.
fn process(qemu: &Process, child: &Process, facts: &mut Facts) -> io::Result<()> {
    facts.add("machine_process", qemu.first_argument()?, true);
    let status = qemu.status()?;
    facts.equal("machine_seccomp_mode", status.value("Seccomp"), "2");
    facts.equal("machine_no_new_privs", status.value("NoNewPrivs"), "1");
    let user = status.value("Uid").split_whitespace().next().unwrap_or_default();
    facts.add("machine_host_uid", user, !user.is_empty() && user != "0");
    let sets = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];
    let filled: Vec<&str> = sets.into_iter().filter(|set| status.value(set) != "0000000000000000").collect();
    let value = if filled.is_empty() { "none".to_owned() } else { filled.join(" ") };
    facts.add("machine_capabilities", value, filled.is_empty());
    let network = qemu.namespace("net")?;
    let own = network != child.namespace("net")? && network != Process::ourselves().namespace("net")?;
    facts.add("machine_namespace_net", network.1.to_string(), own);
    let of_qemu = inspect::of_process(qemu.id().unsigned_abs())?;
    facts.add("machine_links", of_qemu.link_names(), of_qemu.is_loopback_only());
    let other = qemu.root_device()? != Process::ourselves().root_device()?;
    let mounts = qemu.mounts()?;
    let wrong: Vec<&str> =
        mounts.iter().filter(|mount| !is_harmless(mount)).map(|mount| mount.place.as_str()).collect();
    let value = if wrong.is_empty() { mounts.len().to_string() } else { wrong.join(" ") };
    facts.add("machine_mounts", value, wrong.is_empty() && other);
    Ok(())
}

fn is_harmless(mount: &Mount) -> bool {
    let own = mount.kind == "tmpfs" && mount.place == WRITABLE;
    let kernels = mount.kind == "proc" && mount.place == "/proc" || mount.place.starts_with("/dev/");
    mount.no_suid && (mount.read_only || own || kernels)
}

/// What the machine booted is what was looked at, byte for byte.
fn files(qemu: &Process, machine: &Microvm, initramfs: &[u8], facts: &mut Facts) -> io::Result<()> {
    let root = PathBuf::from(format!("/proc/{}/root", qemu.id()));
    facts.add("kernel", machine.kernel.path.display().to_string(), true);
    let same = machine.kernel.file.is(&std::fs::metadata(root.join(KERNEL))?);
    facts.add("kernel_sha256", &machine.kernel.sha256, same && !machine.kernel.sha256.is_empty());
    let same = std::fs::read(root.join(INITRAMFS))? == initramfs;
    facts.add("initramfs_sha256", &machine.initramfs_sha256, same);
    Ok(())
}

/// The only way to a network that QEMU holds is the gate's tap.
fn links(qemu: &Process, expected: &Expected<'_>, facts: &mut Facts) -> io::Result<()> {
    let is_tap = |number: u32| {
        let file = std::fs::metadata(format!("/proc/{}/fd/{number}", qemu.id()));
        file.is_ok_and(|file| file.rdev() == rustix::fs::makedev(TAP.0, TAP.1))
    };
    let taps = qemu.descriptors()?.iter().filter(|(number, _)| is_tap(*number)).count();
    facts.add("machine_taps", taps.to_string(), taps == usize::from(expected.boundary.gate.is_some()));
    Ok(())
}

/// Who executes the machine's code. Only what QEMU says *and* the host's kernel shows counts as KVM.
fn accelerator(
    qemu: &Process,
    machine: &Microvm,
    expected: &Expected<'_>,
    facts: &mut Facts,
) -> io::Result<Tier> {
    let Some(socket) = expected.monitor else {
        facts.add("qmp", "no line to QEMU's monitor", false);
        return Ok(Tier::Container);
    };
    let mut monitor = Monitor::open(socket)?;
    let status = monitor.ask("query-status")?;
    let word = status.get("status").and_then(serde_json::Value::as_str).unwrap_or_default().to_owned();
    facts.equal("qmp_status", &word, "running");
    let kvm = monitor.ask("query-kvm")?;
    let says = kvm.get("enabled").and_then(serde_json::Value::as_bool).unwrap_or(false);
    let shows = qemu.descriptors()?.iter().any(|(_, target)| target == KVM_MACHINE);
    facts.add("qmp_kvm", if says { "enabled" } else { "not enabled" }, says == shows);
    match &machine.accelerator {
        Accelerator::Kvm { .. } => {
            facts.add("accelerator", "KVM, proved by a boot", true);
            facts.add("kvm_machine", if shows { KVM_MACHINE } else { "none" }, says && shows);
            Ok(if says && shows { Tier::Vm } else { Tier::Container })
        }
        Accelerator::Translated { why, .. } => {
            facts.add("accelerator", format!("QEMU translates, which is no tier `vm`: {why}"), true);
            Ok(Tier::Container)
        }
    }
}

/// The gate, which is the child's own network: one link to the machine, and no way further.
fn network(expected: &Expected<'_>, facts: &mut Facts) -> io::Result<()> {
    let gate = inspect::of_process(expected.pid.unsigned_abs())?;
    let others: Vec<&str> =
        gate.links.iter().map(|link| link.name.as_str()).filter(|name| *name != "lo").collect();
    let joined = expected.boundary.gate.is_some();
    let only = others.len() == usize::from(joined) && others.iter().all(|name| name.starts_with("fb"));
    facts.add("gate_links", gate.link_names(), only);
    let way_out = gate.has_default_route();
    facts.add("routes_out", if way_out { "a default route" } else { "none" }, !way_out);
    facts.add("gate", if joined { "doors of the broker" } else { "none" }, true);
    Ok(())
}

/// The group around QEMU.
fn limits(expected: &Expected<'_>, facts: &mut Facts) {
    let Some(group) = expected.group else {
        facts.add("limits", "no control group, and QEMU is held by nothing else", false);
        return;
    };
    let version = match group.version {
        Version::V2 => "cgroup v2",
        Version::V1 => "cgroup v1",
    };
    facts.add("limits", version, group.holds(expected.pid));
    read_back(group, &expected.boundary.limits, facts);
}

/// The kernel inside is the one that was chosen, and it shows no link but the gate's.
fn inside(expected: &Expected<'_>, machine: &Microvm, facts: &mut Facts) {
    let links = if expected.boundary.gate.is_some() { "eth0 lo" } else { "lo" };
    for name in ["guest_kernel", "guest_links", "guest_uid", "guest_memory_max", "guest_pids_max"] {
        if !expected.inside.iter().any(|(known, ..)| known == name) {
            facts.add(name, "not said", false);
        }
    }
    for (name, value, met) in expected.inside {
        let met = match name.as_str() {
            "guest_kernel" => *met && *value == machine.release,
            "guest_links" => *met && value == links,
            _ => *met,
        };
        facts.add(name, value, met);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isolate::kernel::Known;
    use crate::isolate::namespaces::Identity;
    use crate::isolate::view::View;
    use crate::isolate::{Boundary, Limits};

    #[test]
    fn f35_a_process_that_is_no_qemu_is_no_machine() {
        let machine = Microvm {
            qemu: Known::default(),
            kernel: Known::default(),
            release: "6.1".into(),
            pieces: Vec::new(),
            initramfs_sha256: String::new(),
            tools: View { entries: Vec::new() },
            accelerator: Accelerator::Kvm { device: "/dev/kvm".into() },
            memory_mib: 256,
            processors: 1,
            words: String::new(),
            setup_limit_seconds: None,
        };
        let boundary = Boundary {
            run: "0123456789abcdef".into(),
            identity: Identity { guest_uid: 1000, guest_gid: 1000, host_uid: 61_000, host_gid: 61_000 },
            view: View { entries: Vec::new() },
            limits: Limits { memory_bytes: 1, pids: 1, cpu_milli: 1, disk_bytes: 1, inodes: 1 },
            gate: None,
            ca_pem: String::new(),
            kernel: Some(Kernel::Microvm(Box::new(machine))),
        };
        let expected = Expected {
            boundary: &boundary,
            pid: i32::try_from(std::process::id()).unwrap(),
            group: None,
            channel_inode: 0,
            inside: &[],
            interpreters: 0,
            monitor: None,
        };
        let evidence = measure(&expected, &[]).unwrap();
        assert!(evidence.tier < Tier::Vm);
        for name in ["machine_process", "guest_kernel", "guest_links", "namespace_pid", "limits"] {
            let fact = evidence.facts.iter().find(|fact| fact.name == name).unwrap();
            assert!(!fact.met, "{name} = {}", fact.value);
        }
    }
}
