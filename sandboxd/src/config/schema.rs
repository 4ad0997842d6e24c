//! The `[sandboxd]` table of `freeboard.toml` as people write it. The doc comments are the reference text.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::Deserialize;

/// What `sandboxd` reads of `freeboard.toml`.
#[derive(Debug, Clone, Default, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Schema {
    /// Address of the API. Clear text, so only a loopback address is taken; put a TLS proxy in front for others.
    /// Default `127.0.0.1:8746`.
    pub listen: Option<SocketAddr>,
    /// Providers that may run code, in order of preference: `wasm`, `native`, `gvisor`, `microvm`, `docker`. Without one `serve` describes
    /// itself and runs nothing. Default: none. `SANDBOX_PROVIDER` (names separated by commas) takes its place.
    pub providers: Option<Vec<String>>,
    /// The weakest tier that any run may have: `process`, `container`, `kernel` or `vm`. `serve` does not start when no
    /// provider reaches it. Default: none. `SANDBOX_MIN_ISOLATION` takes its place.
    pub min_isolation: Option<String>,
    /// Control socket of the broker. Without one, runs have no network at all and no run can have a grant. Default:
    /// `/run/freeboard/control.sock` (root) or `$XDG_RUNTIME_DIR/freeboard/control.sock`, where that socket exists.
    pub broker: Option<PathBuf>,
    /// File of the callers, made by `sandboxd callers create`. Default `/etc/freeboard/callers.toml` (root) or
    /// `$XDG_CONFIG_HOME/freeboard/callers.toml`.
    pub callers: Option<PathBuf>,
    /// Folder in which started runs (freeboard.v1), their keys and their answers survive the daemon, of this daemon alone and mode
    /// 700; made when it is not there. Default: systemd's `STATE_DIRECTORY`, else none, so that they are forgotten when the daemon
    /// ends.
    pub state_folder: Option<PathBuf>,
    /// Socket of the process that signs the records of started runs (freeboard.v1), `sandboxd attest serve`, as an absolute path. Default:
    /// none, so that they are not signed.
    pub attest_socket: Option<PathBuf>,
    /// Address of the API over TLS, besides `listen`; any address. Needs `tls_certificate` and `tls_key`. Default: none.
    pub tls_listen: Option<SocketAddr>,
    /// PEM of the certificate of `tls_listen`, with what is between it and its authority; an absolute path. Read again when it changes.
    pub tls_certificate: Option<PathBuf>,
    /// PEM of its private key, which only its owner can read; an absolute path.
    pub tls_key: Option<PathBuf>,
    /// PEM of the authority of callers' certificates; an absolute path. Default: none, so that callers need tokens.
    pub tls_client_ca: Option<PathBuf>,
    /// Address of the metrics, for a collector on this host: a loopback address. Default: none, so that there are none.
    pub metrics_listen: Option<SocketAddr>,
    /// Runs at once; one more is refused with `capacity`. Default 8: each may use a whole CPU and its memory limit.
    pub max_concurrent: Option<u32>,
    /// Runs at once of one caller. Default: half of `max_concurrent`, so that one caller cannot lock out the others.
    pub max_concurrent_per_caller: Option<u32>,
    /// Runs per minute of one caller, also the burst; 0 = no limit. Default 120.
    pub rate_per_minute: Option<u32>,
    /// Sessions at once: sandboxes that stay for call after call, each in one of the places of `max_concurrent` until it is idle.
    /// 0 = none are offered. Default: half of `max_concurrent`, so that runs find a place beside them.
    pub max_sessions: Option<u32>,
    /// Sessions at once of one caller; 0 = no cap of its own. Default: half of `max_sessions`.
    pub max_sessions_per_caller: Option<u32>,
    /// Sessions at once of one owner, an end user whom the caller names by an opaque word; one more closes that owner's
    /// session which was idle for longest. 0 = no cap of its own. Default 0.
    pub max_sessions_per_owner: Option<u32>,
    /// Longest life of a session in seconds, 1 to 43200; a request may ask for less. Default 1800.
    pub session_lifetime_seconds: Option<u32>,
    /// A session without a call for so many seconds is suspended: its interpreters end, its files stay, its place is free.
    /// 0 = never, else up to 43200; a request may ask for less. Default 300.
    pub session_idle_seconds: Option<u32>,
    /// Memory in MiB that all runs and sessions together may be promised: `max_concurrent` is lowered to as many as fit. 0 = not
    /// counted. Default 0. `serve` does not start when not even one run fits.
    pub total_memory_mib: Option<u32>,
    /// Sandboxes of `native` that stand ready for runs which are not known yet, each used once; every one has the memory of a run in
    /// `total_memory_mib`. Runs with grants on other ports than 80 and 443, or with less memory, are built by themselves. Default 0: none.
    pub native_pool: Option<u32>,
    /// The same for `gvisor`. Default 0.
    pub gvisor_pool: Option<u32>,
    /// The same for `microvm`. Default 0.
    pub microvm_pool: Option<u32>,
    /// Refuse to serve unless everything that this daemon can check is as strict as it can be; all that is not is said at
    /// once. Default false. `docs/callers.md` lists the rules.
    pub hardened: Option<bool>,
    /// Memory of one run in MiB. Default 256; a run that needs more is killed and ends with 137.
    pub memory_mib: Option<u32>,
    /// CPUs of one run. Default 1.
    pub cpus: Option<f64>,
    /// Processes and threads of one run. Default 256.
    pub pids: Option<u32>,
    /// Size of the work directory of one run in MiB. Default 128; it is kept in memory.
    pub disk_mib: Option<u32>,
    /// A prepared folder that runs of `native`, `gvisor` and `microvm` get as their root instead of the host's tools: read-only, an absolute path. Its
    /// own `/etc` is shown as well, except for the files that are generated for each run. Default: none, so that runs see
    /// the host's `/usr` and what it needs. Everything in the folder can be read by every run.
    pub native_root: Option<PathBuf>,
    /// Folders of the host that runs of `native`, `gvisor` and `microvm` see besides the host's tools, read-only, at the same place; absolute paths, for
    /// example `/opt/jdk`. Default: none. Everything in them can be read by every run, so no home, no `/etc`, `/run`, `/var/run`
    /// and nothing that is shown already; not together with `native_root`.
    pub native_extra_read_only: Option<Vec<PathBuf>>,
    /// gVisor's program for the provider `gvisor`, as an absolute path. Default: `runsc` in /usr/local/bin, /usr/bin and
    /// their kin. Its SHA-256 is in the evidence of each run; after an update sandboxd refuses until it is restarted.
    pub gvisor_runsc: Option<PathBuf>,
    /// How gVisor intercepts system calls: `ptrace`, `systrap` (releases since 2023) or `kvm` (needs /dev/kvm). Default: as
    /// runsc chooses.
    pub gvisor_platform: Option<String>,
    /// QEMU's program for the provider `microvm`, as an absolute path below /usr. Default: `qemu-system-x86_64` in /usr/bin or
    /// /usr/local/bin. Its SHA-256 is in the evidence of each run; after an update sandboxd refuses until it is restarted.
    pub microvm_qemu: Option<PathBuf>,
    /// The kernel that machines of `microvm` boot, as an absolute path that ends with `vmlinuz-RELEASE`; its modules are looked
    /// for in /lib/modules/RELEASE. Default: the newest in /boot that has the modules which a machine needs.
    pub microvm_kernel: Option<PathBuf>,
    /// The device of hardware virtualisation for `microvm`, as an absolute path. Default `/dev/kvm`. Where KVM is there but boots no
    /// machine, a path that does not exist saves each start the 15 seconds of finding out.
    pub microvm_kvm: Option<PathBuf>,
    /// The image of the provider `docker`: a name, `NAME@sha256:…` or `sha256:…`. No default; nothing is pulled. The content that it
    /// names when sandboxd starts is what runs, also when the name means another one later.
    pub docker_image: Option<String>,
    /// The runtime of `docker`: `runc` (tier `container`) or `runsc` (tier `kernel`, without grants). Default `runc`.
    pub docker_runtime: Option<String>,
    /// Socket of the Docker Engine on this host, as an absolute path. Default `/var/run/docker.sock`. Whoever may use it is root of this
    /// host.
    pub docker_socket: Option<PathBuf>,
}
