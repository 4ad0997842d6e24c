//! The container of a run, as the engine is asked for it. Pure.

use std::collections::HashMap;

use bollard::models::{
    ContainerCreateBody, HostConfig, HostConfigCgroupnsModeEnum, HostConfigLogConfig, Mount, MountType,
    ResourcesUlimits, RestartPolicy, RestartPolicyNameEnum,
};

use super::config::Runtime;
use super::limits;
use crate::isolate::Limits;
use crate::isolate::limits as places;

/// The guest program in the container.
pub(super) const GUEST: &str = "/run/freeboard-guest";
/// Marks our containers, with the daemon that they belong to.
pub(super) const OWNER: &str = "freeboard.owner";
/// Where the certificates are put.
pub(super) const CERTIFICATES: &str = "/etc/ssl";

/// What the guest program, which is root of gVisor's kernel, needs to start steps as another user without any.
const OF_GUEST: [&str; 3] = ["SETUID", "SETGID", "SETPCAP"];

/// What is asked for.
#[derive(Debug, Clone)]
pub(super) struct Wish<'a> {
    pub(super) runtime: Runtime,
    pub(super) image: &'a str,
    /// Our guest program on the host.
    pub(super) guest: &'a str,
    pub(super) owner: &'a str,
    /// The steps' user.
    pub(super) user: u32,
    pub(super) limits: Limits,
}

/// The request.
pub(super) fn body(wish: &Wish<'_>) -> ContainerCreateBody {
    let user = match wish.runtime {
        Runtime::Runc => format!("{0}:{0}", wish.user),
        // gVisor lets a process kill and read the first one of its own user, so that one is another.
        Runtime::Runsc => format!("0:{}", wish.user),
    };
    ContainerCreateBody {
        image: Some(wish.image.to_owned()),
        hostname: Some("sandbox".into()),
        user: Some(user),
        // Our guest program, whatever the image would start: it waits until it is told what to run.
        entrypoint: Some(vec![GUEST.into()]),
        cmd: Some(Vec::new()),
        env: Some(Vec::new()),
        working_dir: Some("/work".into()),
        tty: Some(false),
        attach_stdin: Some(true),
        attach_stdout: Some(true),
        attach_stderr: Some(false),
        open_stdin: Some(true),
        // When our end is gone, so is its input, and the guest program ends with it.
        stdin_once: Some(true),
        labels: Some([(OWNER.to_owned(), wish.owner.to_owned())].into()),
        host_config: Some(host_config(wish)),
        ..ContainerCreateBody::default()
    }
}

fn host_config(wish: &Wish<'_>) -> HostConfig {
    let Limits { memory_bytes, pids, cpu_milli, .. } = wish.limits;
    let signed = |value: u64| Some(i64::try_from(value).unwrap_or(i64::MAX));
    HostConfig {
        runtime: Some(wish.runtime.word().into()),
        network_mode: Some("none".into()),
        readonly_rootfs: Some(true),
        privileged: Some(false),
        cap_drop: Some(vec!["ALL".into()]),
        cap_add: (wish.runtime == Runtime::Runsc).then(|| OF_GUEST.map(str::to_owned).to_vec()),
        security_opt: Some(vec!["no-new-privileges".into()]),
        ipc_mode: Some("private".into()),
        cgroupns_mode: Some(HostConfigCgroupnsModeEnum::PRIVATE),
        memory: signed(memory_bytes),
        // As much as the memory: none of it is swap.
        memory_swap: signed(memory_bytes),
        nano_cpus: signed(cpu_milli.saturating_mul(1_000_000)),
        pids_limit: signed(pids),
        oom_kill_disable: Some(false),
        ulimits: Some(ulimits()),
        tmpfs: Some(tmpfs(wish)),
        shm_size: signed(places::SHM_BYTES),
        mounts: Some(vec![Mount {
            target: Some(GUEST.into()),
            source: Some(wish.guest.to_owned()),
            typ: Some(MountType::BIND),
            read_only: Some(true),
            ..Mount::default()
        }]),
        // The gate answers every address; the host's own name servers stay unknown.
        dns: Some(vec!["198.18.0.1".into()]),
        dns_options: Some(vec!["timeout:2".into(), "attempts:2".into()]),
        log_config: Some(HostConfigLogConfig { typ: Some("none".into()), config: None }),
        restart_policy: Some(RestartPolicy {
            name: Some(RestartPolicyNameEnum::NO),
            maximum_retry_count: None,
        }),
        init: Some(false),
        auto_remove: Some(true),
        ..HostConfig::default()
    }
}

fn ulimits() -> Vec<ResourcesUlimits> {
    let limit = |name: &str, most: u64| {
        let most = i64::try_from(most).ok();
        ResourcesUlimits { name: Some(name.into()), soft: most, hard: most }
    };
    vec![
        limit("nofile", places::OPEN_FILES),
        limit("core", 0),
        limit("fsize", places::FILE_BYTES),
        limit("memlock", places::LOCKED_MEMORY_BYTES),
    ]
}

/// Where a run may write.
fn tmpfs(wish: &Wish<'_>) -> HashMap<String, String> {
    let Limits { disk_bytes, inodes, .. } = wish.limits;
    let owner = match wish.runtime {
        Runtime::Runc => wish.user,
        Runtime::Runsc => crate::isolate::namespaces::GUEST_ID,
    };
    let own = format!("uid={owner},gid={owner}");
    let temporary = format!(
        "rw,nosuid,nodev,noexec,mode=1777,size={},nr_inodes={}",
        places::TMP_BYTES,
        places::TMP_INODES
    );
    let work = format!("rw,nosuid,nodev,exec,mode=0755,size={disk_bytes},nr_inodes={inodes},{own}");
    let certificates =
        format!("rw,nosuid,nodev,noexec,mode=0755,size={},nr_inodes=256,{own}", limits::CERTIFICATE_BYTES);
    [("/tmp", temporary), ("/work", work), (CERTIFICATES, certificates)]
        .map(|(place, options)| (place.to_owned(), options))
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(runtime: Runtime) -> Wish<'static> {
        let limits =
            Limits { memory_bytes: 1 << 28, pids: 64, cpu_milli: 1500, disk_bytes: 1 << 27, inodes: 1000 };
        Wish { runtime, image: "sha256:0a", guest: "/g", owner: "1-2", user: 61_000, limits }
    }

    #[test]
    fn asks_for_nothing_that_weakens_it() {
        // As a value: a map of JSON is sorted, the engine's own types are not.
        let request = serde_json::to_value(body(&wish(Runtime::Runc))).unwrap();
        insta::assert_snapshot!(serde_json::to_string_pretty(&request).unwrap());
    }

    #[test]
    fn only_gvisors_first_process_has_rights() {
        let of = |runtime| body(&wish(runtime)).host_config.unwrap().cap_add;
        assert_eq!(of(Runtime::Runc), None);
        assert_eq!(of(Runtime::Runsc).unwrap(), ["SETUID", "SETGID", "SETPCAP"]);
    }
}
