//! What is measured about a container before its code is released: what the engine says of it, the live process from
//! outside, and what the guest program sees from inside.

use std::io;

use bollard::models::ContainerInspectResponse;
use freeboard_control::{Evidence, Fact};
use freeboard_netns::inspect;
use freeboard_policy::Tier;

use super::config::Runtime;
use super::container::{CERTIFICATES, GUEST};
use super::engine::Engine;
use crate::evidence::Expected;
use crate::evidence::container::{Facts, read_back};
use crate::evidence::process::{Mount, Process};
use crate::isolate::cgroup::Version;

/// Namespaces that a container has of its own; and the one more of `runc`. gVisor's kernel numbers the processes of a run
/// itself.
const NAMESPACES: [&str; 4] = ["mnt", "net", "ipc", "uts"];
const OF_PROCESSES: &str = "pid";
/// Where a container of `runc` may write.
const WRITABLE: [&str; 5] = ["/tmp", "/work", "/dev", "/dev/shm", CERTIFICATES];
/// File systems of the kernel's own.
const KERNELS: [&str; 6] = ["proc", "devpts", "mqueue", "devtmpfs", "cgroup", "cgroup2"];
/// Where a runtime mounts control groups: root's, and nobody in the container is.
const GROUPS: &str = "/sys/fs/cgroup";

/// What the engine says of the container, once it runs.
pub(super) fn said(engine: &Engine, runtime: Runtime, found: &ContainerInspectResponse) -> Vec<Fact> {
    let mut facts = Facts::default();
    let host = found.host_config.clone().unwrap_or_default();
    facts.add("engine_version", &engine.version, true);
    facts.equal("image", found.image.as_deref().unwrap_or_default(), &engine.image.id);
    facts.equal("engine_runtime", host.runtime.as_deref().unwrap_or_default(), runtime.word());
    facts.equal("engine_network", host.network_mode.as_deref().unwrap_or_default(), "none");
    for (name, value, wanted) in [
        ("engine_root_read_only", host.readonly_rootfs, true),
        ("engine_privileged", host.privileged, false),
        ("engine_removes", host.auto_remove, true),
    ] {
        let value = value.unwrap_or(!wanted);
        facts.add(name, value.to_string(), value == wanted);
    }
    let options = host.security_opt.unwrap_or_default();
    facts.add("engine_security", options.join(" "), options == ["no-new-privileges"]);
    let dropped = host.cap_drop.unwrap_or_default();
    facts.add("engine_capabilities_dropped", dropped.join(" "), dropped == ["ALL"]);
    let binds = host.binds.unwrap_or_default();
    let mounts = host.mounts.unwrap_or_default();
    let ours = |target: Option<&String>| target.is_some_and(|target| target == GUEST);
    let only =
        binds.is_empty() && mounts.len() == 1 && mounts.iter().all(|mount| ours(mount.target.as_ref()));
    let devices = host.devices.unwrap_or_default().len() + host.device_requests.unwrap_or_default().len();
    facts.add(
        "engine_mounts",
        format!("{} mounts, {devices} devices", mounts.len() + binds.len()),
        only && devices == 0,
    );
    facts.0
}

/// Measures. Facts that are not as required are in the answer with `met: false`.
pub(super) fn measure(
    expected: &Expected<'_>,
    engine: &Engine,
    runtime: Runtime,
    said: &[Fact],
) -> io::Result<Evidence> {
    let mut facts = Facts(said.to_vec());
    let process = Process::new(expected.pid);
    facts.add("runtime", engine.runtime.path.display().to_string(), true);
    let digest = engine.runtime.digest()?;
    facts.add(
        "runtime_sha256",
        digest,
        engine.runtime.path.metadata().is_ok_and(|now| engine.runtime.identity.is(&now)),
    );
    let processes = (runtime == Runtime::Runc).then_some(OF_PROCESSES);
    for kind in NAMESPACES.into_iter().chain(processes) {
        let theirs = process.namespace(kind)?;
        facts.add(
            &format!("namespace_{kind}"),
            theirs.1.to_string(),
            theirs != Process::ourselves().namespace(kind)?,
        );
    }
    let status = process.status()?;
    let users: Vec<&str> = status.value("Uid").split_whitespace().collect();
    facts.equal("seccomp_mode", status.value("Seccomp"), "2");
    match runtime {
        Runtime::Runc => {
            let wanted = expected.boundary.identity.host_uid.to_string();
            let all = users.len() == 4 && users.iter().all(|user| *user == wanted) && wanted != "0";
            facts.add("host_uid", users.first().copied().unwrap_or_default(), all);
            facts.equal("no_new_privs", status.value("NoNewPrivs"), "1");
            for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
                facts.equal(
                    &format!("capabilities_{}", &set[3..].to_lowercase()),
                    status.value(set),
                    "0000000000000000",
                );
            }
            let inside = status.value("NSpid").split_whitespace().last().unwrap_or_default().to_owned();
            facts.equal("pid_inside", &inside, "1");
            mounts(&process, &mut facts)?;
        }
        Runtime::Runsc => {
            let same = process.executable().is_ok_and(|file| engine.runtime.identity.is(&file));
            facts.add("kernel_program", if same { "the runtime's" } else { "another file" }, same);
        }
    }
    let network = inspect::of_process(expected.pid.unsigned_abs())?;
    facts.add("network_links", network.link_names(), network.is_loopback_only());
    let gate = if expected.boundary.gate.is_some() { "doors of the broker" } else { "none" };
    facts.add("gate", gate, true);
    limits(expected, &mut facts);
    inside(expected, runtime, &mut facts)?;
    let tier = match runtime {
        Runtime::Runc => Tier::Container,
        Runtime::Runsc => Tier::Kernel,
    };
    Ok(Evidence { provider: super::NAME.into(), tier, facts: facts.0 })
}

/// The root and everything of the host is read-only; what can be written is in memory, with a size.
fn mounts(process: &Process, facts: &mut Facts) -> io::Result<()> {
    let mounts = process.mounts()?;
    let wrong: Vec<&str> =
        mounts.iter().filter(|mount| !is_harmless(mount)).map(|mount| mount.place.as_str()).collect();
    let value = if wrong.is_empty() { mounts.len().to_string() } else { wrong.join(" ") };
    facts.add("mounts", value, wrong.is_empty());
    Ok(())
}

fn is_harmless(mount: &Mount) -> bool {
    let own = mount.kind == "tmpfs" && mount.no_suid && WRITABLE.contains(&mount.place.as_str());
    // Files of /proc that the runtime covers with the null device.
    let covered = mount.kind == "tmpfs" && (mount.place.starts_with("/proc/") || mount.place == GROUPS);
    mount.read_only || own || covered || KERNELS.contains(&mount.kind.as_str())
}

/// The engine's group for this container, as the kernel holds it.
fn limits(expected: &Expected<'_>, facts: &mut Facts) {
    let Some(group) = expected.group else {
        facts.add("limits", "no control group was found", false);
        return;
    };
    let version = match group.version {
        Version::V2 => "cgroup v2",
        Version::V1 => "cgroup v1",
    };
    facts.add("limits", version, group.holds(expected.pid));
    read_back(group, &expected.boundary.limits, facts);
}

fn inside(expected: &Expected<'_>, runtime: Runtime, facts: &mut Facts) -> io::Result<()> {
    let host = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
    for name in ["guest_kernel", "guest_links", "guest_uid"] {
        if !expected.inside.iter().any(|(known, ..)| known == name) {
            facts.add(name, "not said", false);
        }
    }
    for (name, value, met) in expected.inside {
        let met = match name.as_str() {
            "guest_kernel" => *met && (runtime == Runtime::Runc) == (value == host.trim()),
            "guest_links" => *met && value == "lo",
            _ => *met,
        };
        facts.add(name, value, met);
    }
    Ok(())
}
