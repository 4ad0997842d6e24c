//! The bundle that the runtime is given: one OCI configuration, made from the boundary. Pure.

use serde_json::{Value, json};

use crate::isolate::kernel::Gvisor;
use crate::isolate::{Boundary, limits};

/// Where things are in the runtime's own root.
pub(super) const RUNSC: &str = "runsc";
pub(super) const BUNDLE: &str = "bundle";
pub(super) const ROOT: &str = "bundle/root";
pub(super) const STATE: &str = "state";
/// The guest program in the run's root. Its name there is all that a run sees of us.
pub(super) const GUEST: &str = "run/freeboard-guest";

/// What the guest program, which is root of the run's own kernel, needs to start steps as another user without any. gVisor
/// lets a process kill and read the first one of its own user, so the two must differ.
const OF_GUEST: [&str; 3] = ["CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP"];

/// The runtime's own arguments, before `run`.
pub(super) fn arguments(boundary: &Boundary, gvisor: &Gvisor) -> Vec<String> {
    let mut arguments = vec![
        // The group is ours: the whole runtime is born in it, so that it holds from the first instruction.
        "--ignore-cgroups".to_owned(),
        format!("--root=/{STATE}"),
        format!("--network={}", if boundary.gate.is_some() { "sandbox" } else { "none" }),
    ];
    if let Some(platform) = &gvisor.platform {
        arguments.push(format!("--platform={platform}"));
    }
    if gvisor.nobody_host_id.is_none() {
        arguments.push("--rootless".to_owned());
    }
    arguments.extend(["run".to_owned(), format!("--bundle=/{BUNDLE}"), boundary.run.clone()]);
    arguments
}

/// `config.json`.
pub(super) fn config(boundary: &Boundary) -> Value {
    let (_, gid) = boundary.guest_ids();
    let none: [&str; 0] = [];
    json!({
        "ociVersion": "1.0.2",
        "hostname": "sandbox",
        "root": { "path": format!("/{ROOT}"), "readonly": true },
        "process": {
            "terminal": false,
            "user": { "uid": 0, "gid": gid },
            "args": [format!("/{GUEST}")],
            "env": none,
            "cwd": "/work",
            "noNewPrivileges": true,
            "capabilities": {
                "bounding": OF_GUEST, "effective": OF_GUEST, "permitted": OF_GUEST, "inheritable": none, "ambient": none,
            },
            "rlimits": [
                { "type": "RLIMIT_NOFILE", "hard": limits::OPEN_FILES, "soft": limits::OPEN_FILES },
                { "type": "RLIMIT_CORE", "hard": 0, "soft": 0 },
                { "type": "RLIMIT_FSIZE", "hard": limits::FILE_BYTES, "soft": limits::FILE_BYTES },
            ],
        },
        "mounts": mounts(boundary),
        "linux": { "namespaces": namespaces(boundary) },
    })
}

fn mounts(boundary: &Boundary) -> Value {
    let (uid, gid) = boundary.guest_ids();
    let temporary = |bytes: u64| vec![format!("size={bytes}"), "mode=1777".into(), "noexec".into()];
    let work = vec![
        format!("size={}", boundary.limits.disk_bytes),
        "mode=0755".to_owned(),
        format!("uid={uid}"),
        format!("gid={gid}"),
    ];
    let place = |place: &str, special: Vec<String>| {
        let mut options = vec!["nosuid".to_owned(), "nodev".to_owned()];
        options.extend(special);
        json!({ "destination": place, "type": "tmpfs", "source": "tmpfs", "options": options })
    };
    json!([
        { "destination": "/proc", "type": "proc", "source": "proc" },
        place("/tmp", temporary(limits::TMP_BYTES)),
        place("/dev/shm", temporary(limits::SHM_BYTES)),
        place("/work", work),
    ])
}

/// The namespaces that the runtime makes around its kernel; the network is the one that the child prepared.
fn namespaces(boundary: &Boundary) -> Value {
    let mut namespaces: Vec<Value> =
        ["pid", "ipc", "uts", "mount"].into_iter().map(|kind| json!({ "type": kind })).collect();
    namespaces.push(match boundary.gate {
        // The runtime's own, which the child entered before it started it.
        Some(_) => json!({ "type": "network", "path": "/proc/self/ns/net" }),
        None => json!({ "type": "network" }),
    });
    Value::Array(namespaces)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isolate::kernel::Kernel;
    use crate::isolate::namespaces::Identity;
    use crate::isolate::view::View;
    use crate::isolate::{GatePorts, Limits};

    fn gvisor() -> Gvisor {
        Gvisor {
            runsc: "/usr/bin/runsc".into(),
            guest: "/g".into(),
            nobody_host_id: Some(61_001),
            ..Gvisor::default()
        }
    }

    fn boundary(gate: bool) -> Boundary {
        Boundary {
            run: "0123456789abcdef0123456789abcdef".into(),
            identity: Identity { guest_uid: 0, guest_gid: 0, host_uid: 61_000, host_gid: 61_000 },
            view: View { entries: Vec::new() },
            limits: Limits {
                memory_bytes: 1 << 28,
                pids: 64,
                cpu_milli: 1000,
                disk_bytes: 1 << 27,
                inodes: 1000,
            },
            gate: gate.then(|| GatePorts { ports: vec![8443] }),
            ca_pem: String::new(),
            kernel: Some(Kernel::Gvisor(gvisor())),
        }
    }

    #[test]
    fn asks_for_nothing_that_weakens_it() {
        insta::assert_snapshot!(serde_json::to_string_pretty(&config(&boundary(true))).unwrap());
    }

    #[test]
    fn the_network_is_the_gate_or_none() {
        let network = |gate| arguments(&boundary(gate), &gvisor()).join(" ");
        assert_eq!(
            network(true),
            "--ignore-cgroups --root=/state --network=sandbox run --bundle=/bundle 0123456789abcdef0123456789abcdef"
        );
        assert!(network(false).contains("--network=none"));
        let own = |gate| config(&boundary(gate))["linux"]["namespaces"][4].clone();
        assert_eq!(own(true)["path"], "/proc/self/ns/net");
        assert_eq!(own(false)["path"], Value::Null);
    }

    #[test]
    fn an_ordinary_user_gets_the_mode_for_ordinary_users() {
        let ordinary = Gvisor { nobody_host_id: None, platform: Some("kvm".into()), ..gvisor() };
        let words = arguments(&boundary(false), &ordinary);
        assert!(words.contains(&"--rootless".to_owned()) && words.contains(&"--platform=kvm".to_owned()));
        let maps = Boundary { kernel: Some(Kernel::Gvisor(ordinary)), ..boundary(false) }.maps();
        assert_eq!(maps.uid, "0 61000 1\n");
        assert_eq!(boundary(false).maps().uid, "0 61000 1\n65534 61001 1\n");
    }
}
