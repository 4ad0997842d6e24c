//! What is measured about a gVisor run before its code is released: the live processes of the runtime from outside, and
//! what the guest program sees from inside compared with this host.

use std::io;
use std::path::Path;

use freeboard_control::Evidence;
use freeboard_netns::{GUEST_LINK, inspect};
use freeboard_policy::Tier;

use super::root::NETWORK_KEYS;
use crate::evidence::Expected;
use crate::evidence::container::{Facts, own_namespaces, read_back};
use crate::evidence::process::Process;
use crate::isolate::cgroup::Version;
use crate::isolate::kernel::{Gvisor, Kernel};

/// What the runtime calls its processes.
const KERNEL_PROCESS: &str = "runsc-sandbox";
const FILE_PROCESS: &str = "runsc-gofer";

/// Namespaces that the runtime's kernel has for itself, apart even from the runtime. It shares the process namespace of the
/// child, which is the run's own: its way of intercepting system calls may need that.
const KERNEL_NAMESPACES: [&str; 4] = ["user", "mnt", "ipc", "uts"];

/// What the kernel may keep, over its own user namespace only, in which one id without rights exists: `CAP_SYS_CHROOT` and
/// `CAP_SYS_ADMIN`, with which it made its empty root, and `CAP_SYS_PTRACE`.
const KERNEL_CAPABILITIES: u64 = 1 << 18 | 1 << 21 | 1 << 19;

/// Measures. Facts that are not as required are in the answer with `met: false`.
pub(super) fn measure(expected: &Expected<'_>) -> io::Result<Evidence> {
    let mut facts = Facts::default();
    let child = Process::new(expected.pid);
    own_namespaces(&child, &mut facts)?;
    ids(&child, expected, &mut facts)?;
    runtime(expected, &mut facts)?;
    network(expected, &mut facts)?;
    limits(expected, &mut facts);
    inside(expected, &mut facts)?;
    Ok(Evidence { provider: super::NAME.into(), tier: Tier::Kernel, facts: facts.0 })
}

/// The whole runtime is in a user namespace in which no id is the host's root.
fn ids(child: &Process, expected: &Expected<'_>, facts: &mut Facts) -> io::Result<()> {
    let maps = expected.boundary.maps();
    let one_line = |map: &str| map.trim_end().replace('\n', "; ");
    facts.equal("uid_map", &child.id_map("uid_map")?, &one_line(&maps.uid));
    facts.equal("gid_map", &child.id_map("gid_map")?, &one_line(&maps.gid));
    let status = child.status()?;
    facts.equal("capabilities_effective", status.value("CapEff"), "0000000000000000");
    facts.equal("no_new_privs", status.value("NoNewPrivs"), "1");
    Ok(())
}

/// The runtime's processes are there, run the program that was looked at, and are locked down.
fn runtime(expected: &Expected<'_>, facts: &mut Facts) -> io::Result<()> {
    let Some(Kernel::Gvisor(gvisor)) = &expected.boundary.kernel else {
        facts.add("kernel_process", "none planned", false);
        return Ok(());
    };
    facts.add("runtime", gvisor.runsc.display().to_string(), true);
    facts.add("runtime_sha256", &gvisor.runsc_sha256, !gvisor.runsc_sha256.is_empty());
    let descendants = Process::descendants(expected.pid)?;
    let find = |wanted: &str| {
        descendants.iter().find(|process| process.first_argument().is_ok_and(|word| word == wanted))
    };
    let kernel = find(KERNEL_PROCESS);
    for (name, wanted, found) in
        [("kernel", KERNEL_PROCESS, kernel), ("files", FILE_PROCESS, find(FILE_PROCESS))]
    {
        match found {
            Some(process) => part(name, process, gvisor, facts)?,
            None => facts.add(&format!("{name}_process"), format!("no {wanted}"), false),
        }
    }
    match kernel {
        Some(process) => kernel_alone(process, expected, facts),
        None => Ok(()),
    }
}

/// A process of the runtime: the program that was looked at, behind a filter, as nobody of the host.
fn part(name: &str, process: &Process, gvisor: &Gvisor, facts: &mut Facts) -> io::Result<()> {
    facts.add(&format!("{name}_process"), process.first_argument()?, true);
    let same = gvisor.runsc_file.is(&process.executable()?);
    facts.add(&format!("{name}_program"), if same { "the runtime's" } else { "another file" }, same);
    let status = process.status()?;
    facts.equal(&format!("{name}_seccomp_mode"), status.value("Seccomp"), "2");
    let user = status.value("Uid").split_whitespace().next().unwrap_or_default();
    facts.add(&format!("{name}_host_uid"), user, !user.is_empty() && user != "0");
    Ok(())
}

/// The kernel is apart from the rest of the runtime too, and sees the gate's link only.
fn kernel_alone(process: &Process, expected: &Expected<'_>, facts: &mut Facts) -> io::Result<()> {
    let outer = Process::new(expected.pid);
    for kind in KERNEL_NAMESPACES {
        let own = process.namespace(kind)?;
        facts.add(&format!("kernel_namespace_{kind}"), own.1.to_string(), own != outer.namespace(kind)?);
    }
    let status = process.status()?;
    let capabilities = status.value("CapEff");
    let few = u64::from_str_radix(capabilities, 16).is_ok_and(|set| set & !KERNEL_CAPABILITIES == 0);
    facts.add("kernel_capabilities", capabilities, few);
    let network = inspect::of_process(process.id().unsigned_abs())?;
    let wanted: &[&str] = if expected.boundary.gate.is_some() { &["lo", GUEST_LINK] } else { &["lo"] };
    facts.add("kernel_links", network.link_names(), network.has_only(wanted));
    Ok(())
}

/// The gate, which is the child's own network: one link to the guest, and no way further.
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
    let covered = Process::new(expected.pid).mounts()?.iter().any(|mount| mount.place == NETWORK_KEYS);
    let check = match (joined, covered) {
        (false, _) => "not asked",
        (true, false) => "works",
        (true, true) => "switched off, since this kernel shows net/core/rmem_default in every namespace",
    };
    facts.add("runtime_network_check", check, true);
    Ok(())
}

/// The group around the whole runtime.
fn limits(expected: &Expected<'_>, facts: &mut Facts) {
    let Some(group) = expected.group else {
        facts.add("limits", "no control group, and gVisor's kernel is held by nothing else", false);
        return;
    };
    let version = match group.version {
        Version::V2 => "cgroup v2",
        Version::V1 => "cgroup v1",
    };
    facts.add("limits", version, group.holds(expected.pid));
    read_back(group, &expected.boundary.limits, facts);
}

/// The kernel inside is not this host's, and it shows no link but the gate's.
fn inside(expected: &Expected<'_>, facts: &mut Facts) -> io::Result<()> {
    let host = std::fs::read_to_string(Path::new("/proc/sys/kernel/osrelease"))?;
    let links = if expected.boundary.gate.is_some() { "eth0 lo" } else { "lo" };
    for name in ["guest_kernel", "guest_links", "guest_uid"] {
        if !expected.inside.iter().any(|(known, ..)| known == name) {
            facts.add(name, "not said", false);
        }
    }
    for (name, value, met) in expected.inside {
        let met = match name.as_str() {
            "guest_kernel" => *met && value != host.trim(),
            "guest_links" => *met && value == links,
            _ => *met,
        };
        facts.add(name, value, met);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isolate::namespaces::Identity;
    use crate::isolate::view::View;
    use crate::isolate::{Boundary, Limits};

    fn boundary() -> Boundary {
        Boundary {
            run: "0123456789abcdef".into(),
            identity: Identity { guest_uid: 0, guest_gid: 0, host_uid: 61_000, host_gid: 61_000 },
            view: View { entries: Vec::new() },
            limits: Limits { memory_bytes: 1, pids: 1, cpu_milli: 1, disk_bytes: 1, inodes: 1 },
            gate: None,
            ca_pem: String::new(),
            kernel: Some(Kernel::Gvisor(Gvisor::default())),
        }
    }

    #[test]
    fn f35_a_process_of_the_hosts_kernel_is_no_gvisor() {
        let host = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let inside = vec![("guest_kernel".to_owned(), host.trim().to_owned(), true)];
        let pid = i32::try_from(std::process::id()).unwrap();
        let boundary = boundary();
        let expected = Expected {
            boundary: &boundary,
            pid,
            group: None,
            channel_inode: 0,
            inside: &inside,
            interpreters: 0,
            monitor: None,
        };
        let evidence = measure(&expected).unwrap();
        let names =
            ["kernel_process", "files_process", "guest_kernel", "guest_links", "namespace_pid", "limits"];
        for name in names {
            let fact = evidence.facts.iter().find(|fact| fact.name == name).unwrap();
            assert!(!fact.met, "{name} = {}", fact.value);
        }
    }
}
