//! What tier `container` requires of a run on the host's kernel, measured on its first process.

use std::io;
use std::os::fd::OwnedFd;

use freeboard_control::{Evidence, Fact};
use freeboard_netns::inspect;
use freeboard_policy::Tier;

use super::process::{Mount, Process, Status};
use crate::isolate::cgroup::Group;
use crate::isolate::{Boundary, Limits, namespaces, privileges};

/// What was planned for the run, to compare with.
#[derive(Debug)]
pub struct Expected<'a> {
    pub boundary: &'a Boundary,
    pub pid: i32,
    pub group: Option<&'a Group>,
    /// Inode of the child's end of the channel: the only descriptor that it may have besides 0, 1 and 2.
    pub channel_inode: u64,
    /// What the inside said; only about things that no outside view shows.
    pub inside: &'a [(String, String, bool)],
    /// Interpreters of a session that wait for their next cell: the first process has a handle of,
    /// a line and two pipes to each.
    pub interpreters: usize,
    /// On which a machine is asked about itself.
    pub monitor: Option<&'a OwnedFd>,
}

/// The name of the fact that changes with the interpreters of a session.
pub(crate) const DESCRIPTORS: &str = "descriptors";
/// Descriptors of the first process for each interpreter: the process itself, a line, output and errors.
const LINES: usize = 4;
/// What those lead to.
const LINE_KINDS: [&str; 3] = ["=socket:[", "=pipe:[", "=anon_inode:[pidfd]"];

/// Kinds of mount that are the run's own and may be written.
const WRITABLE: [&str; 3] = ["/tmp", "/dev/shm", "/work"];

/// Measures. Facts that are not as required are in the answer with `met: false`; an error means that something could not
/// be read at all, which counts as not met.
pub fn measure(expected: &Expected<'_>) -> io::Result<Evidence> {
    let process = Process::new(expected.pid);
    let mut facts = Facts(Vec::new());
    own_namespaces(&process, &mut facts)?;
    let status = process.status()?;
    user(&process, &status, expected, &mut facts)?;
    privileges(&status, &mut facts);
    mounts(&process, &mut facts)?;
    network(expected, &mut facts)?;
    descriptors(&process, expected, &mut facts)?;
    limits(&process, expected, &mut facts)?;
    for (name, value, met) in expected.inside {
        facts.add(name, value, *met);
    }
    Ok(Evidence { provider: "native".into(), tier: Tier::Container, facts: facts.0 })
}

/// Facts while they are collected.
#[derive(Debug, Default)]
pub(crate) struct Facts(pub(crate) Vec<Fact>);

impl Facts {
    pub(crate) fn add(&mut self, name: &str, value: impl Into<String>, met: bool) {
        self.0.push(Fact { name: name.into(), value: value.into(), met });
    }

    /// A value that must be exactly this.
    pub(crate) fn equal(&mut self, name: &str, value: &str, wanted: &str) {
        self.add(name, value, value == wanted);
    }
}

/// Each namespace is another one than ours.
pub(crate) fn own_namespaces(process: &Process, facts: &mut Facts) -> io::Result<()> {
    let ours = Process::ourselves();
    for (kind, _) in namespaces::KINDS {
        let theirs = process.namespace(kind)?;
        let differs = theirs != ours.namespace(kind)?;
        facts.add(&format!("namespace_{kind}"), theirs.1.to_string(), differs);
    }
    Ok(())
}

/// One user, who is not root on the host.
fn user(process: &Process, status: &Status, expected: &Expected<'_>, facts: &mut Facts) -> io::Result<()> {
    let identity = expected.boundary.identity;
    facts.equal("uid_map", &process.id_map("uid_map")?, identity.uid_map().trim_end());
    facts.equal("gid_map", &process.id_map("gid_map")?, identity.gid_map().trim_end());
    // As our own namespace numbers it: real, effective, saved and file system id.
    for (name, line, wanted) in
        [("host_uid", "Uid", identity.host_uid), ("host_gid", "Gid", identity.host_gid)]
    {
        let ids: Vec<&str> = status.value(line).split_whitespace().collect();
        let wanted = wanted.to_string();
        let all = ids.len() == 4 && ids.iter().all(|id| *id == wanted);
        facts.add(name, ids.first().copied().unwrap_or_default(), all && wanted != "0");
    }
    Ok(())
}

/// No capability anywhere, no way to new ones, the system call filter in force.
fn privileges(status: &Status, facts: &mut Facts) {
    for (name, line) in [
        ("capabilities_effective", "CapEff"),
        ("capabilities_permitted", "CapPrm"),
        ("capabilities_inheritable", "CapInh"),
        ("capabilities_bounding", "CapBnd"),
        ("capabilities_ambient", "CapAmb"),
    ] {
        facts.equal(name, status.value(line), "0000000000000000");
    }
    facts.equal("no_new_privs", status.value("NoNewPrivs"), "1");
    facts.equal("seccomp_mode", status.value("Seccomp"), "2");
    let filters = status.value("Seccomp_filters");
    // Kernels before 5.9 have no such line; the mode has said that one is there.
    facts.add("seccomp_filters", filters, filters != "0");
    facts.equal("pid_inside", status.value("NSpid").split_whitespace().last().unwrap_or_default(), "1");
}

/// The root is our tmpfs; what can be written is ours; nothing of the host can be.
fn mounts(process: &Process, facts: &mut Facts) -> io::Result<()> {
    let mounts = process.mounts()?;
    let root = mounts.iter().find(|mount| mount.place == "/");
    let ours = root.is_some_and(|root| root.kind == "tmpfs" && root.read_only);
    let other_device = process.root_device()? != Process::ourselves().root_device()?;
    facts.add("root", root.map_or("none", |root| root.kind.as_str()), ours && other_device);
    let wrong: Vec<&str> =
        mounts.iter().filter(|mount| !is_harmless(mount)).map(|mount| mount.place.as_str()).collect();
    let value = if wrong.is_empty() { mounts.len().to_string() } else { wrong.join(" ") };
    facts.add("mounts", value, wrong.is_empty());
    let own_proc =
        mounts.iter().any(|mount| mount.place == "/proc" && mount.kind == "proc" && mount.read_only);
    facts.add("proc", if own_proc { "own, read-only" } else { "none" }, own_proc);
    Ok(())
}

/// Read-only, or one of the run's own writable places, or a device node or terminal; never honouring set-user-id.
fn is_harmless(mount: &Mount) -> bool {
    let own = mount.kind == "tmpfs" && mount.no_dev && WRITABLE.contains(&mount.place.as_str());
    let device = mount.place.starts_with("/dev/");
    mount.no_suid && (mount.read_only || own || device)
}

/// Only `lo`, and no route that leaves it.
fn network(expected: &Expected<'_>, facts: &mut Facts) -> io::Result<()> {
    let network = inspect::of_process(expected.pid.unsigned_abs())?;
    facts.add("network_links", network.link_names(), network.is_loopback_only());
    let beyond: Vec<&str> = network.routes_beyond_loopback.iter().map(|route| route.link.as_str()).collect();
    let value = if beyond.is_empty() { "none".into() } else { beyond.join(" ") };
    facts.add("routes_out", value, beyond.is_empty());
    let gate = if expected.boundary.gate.is_some() { "doors of the broker" } else { "none" };
    facts.add("gate", gate, true);
    Ok(())
}

/// 0, 1 and 2 lead to /dev/null, and there is the channel to us; nothing was inherited.
fn descriptors(process: &Process, expected: &Expected<'_>, facts: &mut Facts) -> io::Result<()> {
    let channel = format!("socket:[{}]", expected.channel_inode);
    let descriptors = process.descriptors()?;
    let unknown: Vec<String> = descriptors
        .iter()
        .filter(|(number, target)| match number {
            0..=2 => target != "/dev/null",
            _ => *target != channel && target != "/work",
        })
        .map(|(number, target)| format!("{number}={target}"))
        .collect();
    let is_line = |text: &&String| LINE_KINDS.iter().any(|kind| text.contains(kind));
    let lines = unknown.iter().filter(is_line).count();
    let known = unknown.is_empty() || lines == unknown.len() && lines <= expected.interpreters * LINES;
    let value = if known { descriptors.len().to_string() } else { unknown.join(" ") };
    facts.add(DESCRIPTORS, value, known);
    Ok(())
}

/// Limits of the run: a control group where there is one, else of each process.
fn limits(process: &Process, expected: &Expected<'_>, facts: &mut Facts) -> io::Result<()> {
    let wanted = &expected.boundary.limits;
    let processes = process.limit("Max processes")?;
    let most = privileges::processes(wanted, expected.group.is_some());
    facts.add("rlimit_processes", &processes, processes.parse::<u64>().is_ok_and(|set| set <= most));
    let Some(group) = expected.group else {
        facts.add("limits", "rlimits: memory per process, no processor quota", true);
        let data = process.limit("Max data size")?;
        let met = data.parse::<u64>().is_ok_and(|set| set <= wanted.memory_bytes);
        facts.add("rlimit_data_bytes", data, met);
        return Ok(());
    };
    let version = match group.version {
        crate::isolate::cgroup::Version::V2 => "cgroup v2",
        crate::isolate::cgroup::Version::V1 => "cgroup v1",
    };
    facts.add("limits", version, group.holds(expected.pid));
    read_back(group, wanted, facts);
    Ok(())
}

/// The limits as the kernel holds them are none wider than asked for.
pub(crate) fn read_back(group: &Group, wanted: &Limits, facts: &mut Facts) {
    for (name, value) in group.read_back() {
        let bound = match name {
            "memory" => wanted.memory_bytes,
            "pids" => wanted.pids,
            _ => wanted.cpu_milli * crate::isolate::limits::CPU_PERIOD_US / 1000,
        };
        let met = value.parse::<u64>().is_ok_and(|set| set <= bound);
        facts.add(&format!("cgroup_{name}"), value, met);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(place: &str, kind: &str, read_only: bool, no_suid: bool) -> Mount {
        Mount { place: place.into(), kind: kind.into(), read_only, no_suid, no_dev: true }
    }

    #[test]
    fn harmless_is_read_only_or_ours() {
        assert!(is_harmless(&mount("/usr", "ext4", true, true)));
        assert!(is_harmless(&mount("/work", "tmpfs", false, true)));
        assert!(is_harmless(&mount("/dev/null", "devtmpfs", false, true)));
        assert!(!is_harmless(&mount("/usr", "ext4", false, true)), "writable view of the host");
        assert!(!is_harmless(&mount("/usr", "ext4", true, false)), "set-user-id programs");
        assert!(!is_harmless(&mount("/work", "ext4", false, true)), "a writable place of the host");
    }

    #[test]
    fn our_own_process_is_no_container() {
        let identity =
            namespaces::Identity { guest_uid: 1000, guest_gid: 1000, host_uid: 61_000, host_gid: 61_000 };
        let limits = Limits { memory_bytes: 1, pids: 1, cpu_milli: 1, disk_bytes: 1, inodes: 1 };
        let view = crate::isolate::view::View { entries: Vec::new() };
        let boundary = Boundary {
            run: String::new(),
            identity,
            view,
            limits,
            gate: None,
            ca_pem: String::new(),
            kernel: None,
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
        let evidence = measure(&expected).unwrap();
        for name in ["namespace_pid", "namespace_net", "seccomp_mode", "uid_map", "root", "mounts"] {
            let fact = evidence.facts.iter().find(|fact| fact.name == name).unwrap();
            assert!(!fact.met, "{name} = {}", fact.value);
        }
    }
}
