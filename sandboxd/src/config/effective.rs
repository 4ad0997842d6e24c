//! What holds: every option with its value and where it came from.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use freeboard_policy::Tier;

use super::load::{ConfigError, Environment};
use super::schema::Schema;
use crate::admission::Limits;
use crate::api::TlsFiles;
use crate::isolate::view::View;
use crate::limits::{
    DEFAULT_CONCURRENT, DEFAULT_RATE_PER_MINUTE, DEFAULT_SESSION_IDLE, DEFAULT_SESSION_LIFETIME,
    MAX_SESSION_TIME,
};
use crate::provider::docker;
use crate::provider::gvisor::Platform;
use crate::provider::{Engines, Kind, NativeView, RunLimits};

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    Default,
    File(PathBuf),
    Variable(&'static str),
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Variable(name) => write!(f, "variable {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// One option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting<T> {
    pub value: T,
    pub from: Origin,
}

/// Options of the command line that lie over the file.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Flags {
    /// Configuration file (default: /etc/freeboard/freeboard.toml, or that of the user)
    #[arg(long, value_name = "FILE", global = true)]
    pub config: Option<PathBuf>,
    /// Providers that may run code: wasm, native, gvisor, microvm, docker
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub provider: Vec<String>,
    /// Weakest tier that any run may have
    #[arg(long, value_name = "TIER")]
    pub min_isolation: Option<String>,
    /// Control socket of the broker
    #[arg(long, value_name = "SOCKET")]
    pub broker: Option<PathBuf>,
    /// Of `serve` alone, which has flags of its own for these two.
    #[arg(skip)]
    pub listen: Option<SocketAddr>,
    #[arg(skip)]
    pub callers: Option<PathBuf>,
}

/// The checked configuration.
#[derive(Debug, Clone)]
pub struct Config {
    pub listen: Setting<SocketAddr>,
    pub providers: Setting<Vec<Kind>>,
    pub min_isolation: Setting<Option<Tier>>,
    pub broker: Setting<Option<PathBuf>>,
    pub callers: Setting<Option<PathBuf>>,
    pub state_folder: Setting<Option<PathBuf>>,
    pub attest_socket: Setting<Option<PathBuf>>,
    pub metrics_listen: Setting<Option<SocketAddr>>,
    pub tls_listen: Setting<Option<SocketAddr>>,
    pub tls_certificate: Setting<Option<PathBuf>>,
    pub tls_key: Setting<Option<PathBuf>>,
    pub tls_client_ca: Setting<Option<PathBuf>>,
    pub max_concurrent: Setting<u32>,
    pub max_concurrent_per_caller: Setting<u32>,
    pub rate_per_minute: Setting<u32>,
    pub total_memory_mib: Setting<u32>,
    pub native_pool: Setting<u32>,
    pub gvisor_pool: Setting<u32>,
    pub microvm_pool: Setting<u32>,
    pub hardened: Setting<bool>,
    pub max_sessions: Setting<u32>,
    pub max_sessions_per_caller: Setting<u32>,
    pub max_sessions_per_owner: Setting<u32>,
    pub session_lifetime_seconds: Setting<u32>,
    pub session_idle_seconds: Setting<u32>,
    pub memory_mib: Setting<u32>,
    pub cpus: Setting<f64>,
    pub pids: Setting<u32>,
    pub disk_mib: Setting<u32>,
    pub native_root: Setting<Option<PathBuf>>,
    pub native_extra_read_only: Setting<Vec<PathBuf>>,
    pub gvisor_runsc: Setting<Option<PathBuf>>,
    pub gvisor_platform: Setting<Option<Platform>>,
    pub microvm_qemu: Setting<Option<PathBuf>>,
    pub microvm_kernel: Setting<Option<PathBuf>>,
    pub microvm_kvm: Setting<Option<PathBuf>>,
    pub docker_image: Setting<Option<String>>,
    pub docker_runtime: Setting<Option<docker::Runtime>>,
    pub docker_socket: Setting<Option<PathBuf>>,
}

/// Lays the layers over each other: the first that is there holds.
struct Layers<'a> {
    file: Option<&'a Path>,
}

impl Layers<'_> {
    fn pick<T>(
        &self,
        flag: Option<(T, &'static str)>,
        variable: Option<(T, &'static str)>,
        file: Option<T>,
        default: T,
    ) -> Setting<T> {
        let file_origin = || self.file.map_or(Origin::Default, |path| Origin::File(path.to_owned()));
        match (flag, variable, file) {
            (Some((value, name)), _, _) => Setting { value, from: Origin::Flag(name) },
            (None, Some((value, name)), _) => Setting { value, from: Origin::Variable(name) },
            (None, None, Some(value)) => Setting { value, from: file_origin() },
            (None, None, None) => Setting { value: default, from: Origin::Default },
        }
    }

    fn file<T>(&self, file: Option<T>, default: T) -> Setting<T> {
        self.pick(None, None, file, default)
    }
}

impl Config {
    pub(super) fn resolve(
        flags: &Flags,
        environment: &Environment,
        schema: &Schema,
        source: Option<&Path>,
    ) -> Result<Self, ConfigError> {
        let layers = Layers { file: source };
        let default_listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 8746));
        let listen = layers.pick(
            flags.listen.map(|address| (address, "--listen")),
            None,
            schema.listen,
            default_listen,
        );
        // SECURITY: the API is clear text with bearer tokens. Guarded by refuses_to_listen_beyond_loopback.
        if !listen.value.ip().is_loopback() {
            return Err(value(
                "listen",
                listen.value,
                "the API is clear text, so it listens on loopback only; put a TLS proxy in front",
            ));
        }
        let from_variable = environment
            .sandbox_provider
            .as_deref()
            .map(|names| names.split(',').map(str::trim).map(str::to_owned).collect());
        let names = layers.pick(
            (!flags.provider.is_empty()).then(|| (flags.provider.clone(), "--provider")),
            from_variable.map(|names: Vec<String>| (names, "SANDBOX_PROVIDER")),
            schema.providers.clone(),
            Vec::new(),
        );
        let floor = layers.pick(
            flags.min_isolation.clone().map(|word| (Some(word), "--min-isolation")),
            environment.sandbox_min_isolation.clone().map(|word| (Some(word), "SANDBOX_MIN_ISOLATION")),
            schema.min_isolation.clone().map(Some),
            None,
        );
        let default_broker = environment
            .runtime_folder()
            .map(|folder| folder.join("control.sock"))
            .filter(|socket| socket.exists());
        let default_callers = environment.config_folder().map(|folder| folder.join("callers.toml"));
        let max_concurrent =
            at_least_one("max_concurrent", layers.file(schema.max_concurrent, DEFAULT_CONCURRENT))?;
        let half = max_concurrent.value.div_ceil(2);
        let max_sessions = layers.file(schema.max_sessions, half);
        let half_of_sessions = max_sessions.value.div_ceil(2);
        let native_root = layers.file(schema.native_root.clone().map(Some), None);
        let native_extra_read_only = layers.file(schema.native_extra_read_only.clone(), Vec::new());
        native_places(native_root.value.as_deref(), &native_extra_read_only.value)?;
        Ok(Self {
            listen,
            providers: providers(names)?,
            min_isolation: tier(floor)?,
            broker: layers.pick(
                flags.broker.clone().map(|path| (Some(path), "--broker")),
                None,
                schema.broker.clone().map(Some),
                default_broker,
            ),
            callers: layers.pick(
                flags.callers.clone().map(|path| (Some(path), "--callers")),
                None,
                schema.callers.clone().map(Some),
                default_callers,
            ),
            // What systemd made for the daemon is a default, unlike the variables that people set.
            state_folder: absolute(
                "state_folder",
                match (&schema.state_folder, &environment.state_directory) {
                    (None, Some(path)) => {
                        Setting { value: Some(path.clone()), from: Origin::Variable("STATE_DIRECTORY") }
                    }
                    (path, _) => layers.file(path.clone().map(Some), None),
                },
            )?,
            attest_socket: absolute(
                "attest_socket",
                layers.file(schema.attest_socket.clone().map(Some), None),
            )?,
            tls_listen: tls_listen(layers.file(schema.tls_listen.map(Some), None), schema)?,
            tls_certificate: absolute(
                "tls_certificate",
                layers.file(schema.tls_certificate.clone().map(Some), None),
            )?,
            tls_key: absolute("tls_key", layers.file(schema.tls_key.clone().map(Some), None))?,
            tls_client_ca: absolute(
                "tls_client_ca",
                layers.file(schema.tls_client_ca.clone().map(Some), None),
            )?,
            metrics_listen: loopback("metrics_listen", layers.file(schema.metrics_listen.map(Some), None))?,
            max_concurrent_per_caller: at_least_one(
                "max_concurrent_per_caller",
                layers.file(schema.max_concurrent_per_caller, half),
            )?,
            max_concurrent,
            rate_per_minute: layers.file(schema.rate_per_minute, DEFAULT_RATE_PER_MINUTE),
            total_memory_mib: layers.file(schema.total_memory_mib, 0),
            native_pool: layers.file(schema.native_pool, 0),
            gvisor_pool: layers.file(schema.gvisor_pool, 0),
            microvm_pool: layers.file(schema.microvm_pool, 0),
            hardened: layers.file(schema.hardened, false),
            max_sessions_per_caller: layers.file(schema.max_sessions_per_caller, half_of_sessions),
            max_sessions,
            max_sessions_per_owner: layers.file(schema.max_sessions_per_owner, 0),
            session_lifetime_seconds: session_time(
                "session_lifetime_seconds",
                at_least_one(
                    "session_lifetime_seconds",
                    layers.file(schema.session_lifetime_seconds, whole_seconds(DEFAULT_SESSION_LIFETIME)),
                )?,
            )?,
            session_idle_seconds: session_time(
                "session_idle_seconds",
                layers.file(schema.session_idle_seconds, whole_seconds(DEFAULT_SESSION_IDLE)),
            )?,
            memory_mib: at_least_one(
                "memory_mib",
                layers.file(schema.memory_mib, RunLimits::USUAL.memory_mib),
            )?,
            cpus: cpus(layers.file(schema.cpus, RunLimits::USUAL.cpus))?,
            pids: at_least_one("pids", layers.file(schema.pids, RunLimits::USUAL.pids))?,
            disk_mib: at_least_one("disk_mib", layers.file(schema.disk_mib, RunLimits::USUAL.disk_mib))?,
            native_root,
            native_extra_read_only,
            gvisor_runsc: absolute("gvisor_runsc", layers.file(schema.gvisor_runsc.clone().map(Some), None))?,
            gvisor_platform: platform(layers.file(schema.gvisor_platform.clone().map(Some), None))?,
            microvm_qemu: absolute("microvm_qemu", layers.file(schema.microvm_qemu.clone().map(Some), None))?,
            microvm_kernel: absolute(
                "microvm_kernel",
                layers.file(schema.microvm_kernel.clone().map(Some), None),
            )?,
            microvm_kvm: absolute("microvm_kvm", layers.file(schema.microvm_kvm.clone().map(Some), None))?,
            docker_image: layers.file(schema.docker_image.clone().map(Some), None),
            docker_runtime: runtime(layers.file(schema.docker_runtime.clone().map(Some), None))?,
            docker_socket: absolute(
                "docker_socket",
                layers.file(schema.docker_socket.clone().map(Some), None),
            )?,
        })
    }

    pub fn admission(&self) -> Limits {
        Limits {
            concurrent: self.places(),
            concurrent_per_caller: self.max_concurrent_per_caller.value,
            rate_per_minute: self.rate_per_minute.value,
        }
    }

    pub fn sessions(&self) -> crate::session::Settings {
        let seconds = |setting: &Setting<u32>| Duration::from_secs(setting.value.into());
        crate::session::Settings {
            most: self.max_sessions.value,
            per_caller: self.max_sessions_per_caller.value,
            per_owner: self.max_sessions_per_owner.value,
            lifetime: seconds(&self.session_lifetime_seconds),
            idle: seconds(&self.session_idle_seconds),
        }
    }

    /// Where the API is served over TLS, and with what.
    pub fn tls(&self) -> Option<(SocketAddr, TlsFiles)> {
        let files = TlsFiles {
            certificate: self.tls_certificate.value.clone()?,
            key: self.tls_key.value.clone()?,
            client_ca: self.tls_client_ca.value.clone(),
        };
        Some((self.tls_listen.value?, files))
    }

    pub fn engines(&self) -> Engines {
        Engines {
            gvisor_runsc: self.gvisor_runsc.value.clone(),
            gvisor_platform: self.gvisor_platform.value,
            microvm_qemu: self.microvm_qemu.value.clone(),
            microvm_kernel: self.microvm_kernel.value.clone(),
            microvm_kvm: self.microvm_kvm.value.clone(),
            docker_socket: self.docker_socket.value.clone(),
            docker_image: self.docker_image.value.clone(),
            docker_runtime: self.docker_runtime.value,
            view: self.native_view(),
        }
    }

    pub fn run_limits(&self) -> RunLimits {
        RunLimits {
            memory_mib: self.memory_mib.value,
            cpus: self.cpus.value,
            pids: self.pids.value,
            disk_mib: self.disk_mib.value,
            concurrent: self.places(),
        }
    }

    /// Runs at once: as many as are configured and as memory is promised for.
    pub fn places(&self) -> u32 {
        match self.total_memory_mib.value {
            0 => self.max_concurrent.value,
            total => {
                let fit = total / self.memory_mib.value.max(1);
                let waiting =
                    self.providers.value.iter().map(|kind| self.pool(*kind)).fold(0, u32::saturating_add);
                self.max_concurrent.value.min(fit.saturating_sub(waiting))
            }
        }
    }

    /// Sandboxes of this kind that stand ready.
    pub fn pool(&self, kind: Kind) -> u32 {
        match kind {
            Kind::Native => self.native_pool.value,
            Kind::Gvisor => self.gvisor_pool.value,
            Kind::Microvm => self.microvm_pool.value,
            // A worker of `wasm` waits anyway; an engine's containers are not built ahead.
            Kind::Wasm | Kind::Docker => 0,
        }
    }

    /// What runs of `native` see.
    pub fn native_view(&self) -> NativeView {
        NativeView {
            root: self.native_root.value.clone(),
            extra_read_only: self.native_extra_read_only.value.clone(),
        }
    }
}

fn value(option: &'static str, value: impl fmt::Display, problem: &'static str) -> ConfigError {
    ConfigError::Value { option, value: value.to_string(), problem }
}

fn at_least_one(option: &'static str, setting: Setting<u32>) -> Result<Setting<u32>, ConfigError> {
    if setting.value == 0 { Err(value(option, 0, "it must be at least 1")) } else { Ok(setting) }
}

/// Of the options for TLS either all that are needed are there, or none.
fn tls_listen(
    setting: Setting<Option<SocketAddr>>,
    schema: &Schema,
) -> Result<Setting<Option<SocketAddr>>, ConfigError> {
    let any = schema.tls_certificate.is_some() || schema.tls_key.is_some() || schema.tls_client_ca.is_some();
    let all = schema.tls_certificate.is_some() && schema.tls_key.is_some();
    match setting.value {
        Some(address) if !all => {
            Err(value("tls_listen", address, "it needs `tls_certificate` and `tls_key`"))
        }
        None if any => Err(value("tls_listen", "", "it is missing: the other `tls_` options are for it")),
        _ => Ok(setting),
    }
}

/// An address that asks nobody who they are.
fn loopback(
    option: &'static str,
    setting: Setting<Option<SocketAddr>>,
) -> Result<Setting<Option<SocketAddr>>, ConfigError> {
    match setting.value {
        Some(address) if !address.ip().is_loopback() => {
            Err(value(option, address, "it is clear text and asks nobody who they are, so loopback only"))
        }
        _ => Ok(setting),
    }
}

fn whole_seconds(time: Duration) -> u32 {
    u32::try_from(time.as_secs()).unwrap_or(u32::MAX)
}

fn session_time(option: &'static str, setting: Setting<u32>) -> Result<Setting<u32>, ConfigError> {
    let most = whole_seconds(MAX_SESSION_TIME);
    if setting.value > most {
        Err(value(option, setting.value, "it must be at most 43200, which is 12 hours"))
    } else {
        Ok(setting)
    }
}

/// What can be said of these places without looking at them; the provider looks at its start.
fn native_places(root: Option<&Path>, extra: &[PathBuf]) -> Result<(), ConfigError> {
    if let Some(root) = root {
        if !is_plain(root) {
            return Err(value(
                "native_root",
                root.display(),
                "it is an absolute path without `..`, and not `/`",
            ));
        }
        if let Some(folder) = extra.first() {
            let problem = "there is nothing to add to `native_root`: put the folder into it";
            return Err(value("native_extra_read_only", folder.display(), problem));
        }
    }
    for (index, folder) in extra.iter().enumerate() {
        let said = |problem| Err(value("native_extra_read_only", folder.display(), problem));
        if !is_plain(folder) {
            return said("it is an absolute path without `..`, and not `/`");
        }
        // SECURITY: a run sees what is shown. Guarded by `refuses_to_show_homes_and_the_hosts_state`.
        if let Some(problem) = View::refuses(folder) {
            return said(problem);
        }
        let nested = |other: &PathBuf| folder.starts_with(other) || other.starts_with(folder);
        if extra.iter().skip(index + 1).any(nested) {
            return said("it is there twice, or inside another one");
        }
    }
    Ok(())
}

fn is_plain(path: &Path) -> bool {
    let mut parts = path.components();
    let absolute = parts.next() == Some(Component::RootDir);
    let names: Vec<_> = parts.collect();
    absolute && !names.is_empty() && names.iter().all(|part| matches!(part, Component::Normal(_)))
}

fn cpus(setting: Setting<f64>) -> Result<Setting<f64>, ConfigError> {
    let good = setting.value.is_finite() && (0.01..=1024.0).contains(&setting.value);
    if good { Ok(setting) } else { Err(value("cpus", setting.value, "it must be between 0.01 and 1024")) }
}

fn providers(names: Setting<Vec<String>>) -> Result<Setting<Vec<Kind>>, ConfigError> {
    let mut kinds = Vec::new();
    for name in &names.value {
        let kind = Kind::from_name(name).ok_or_else(|| {
            value("providers", name, "known are `wasm`, `native`, `gvisor`, `microvm` and `docker`")
        })?;
        if kinds.contains(&kind) {
            return Err(value("providers", name, "it is there twice"));
        }
        kinds.push(kind);
    }
    Ok(Setting { value: kinds, from: names.from })
}

fn absolute(
    option: &'static str,
    setting: Setting<Option<PathBuf>>,
) -> Result<Setting<Option<PathBuf>>, ConfigError> {
    match &setting.value {
        Some(path) if !path.is_absolute() => {
            Err(value(option, path.display(), "it must be an absolute path"))
        }
        _ => Ok(setting),
    }
}

fn platform(word: Setting<Option<String>>) -> Result<Setting<Option<Platform>>, ConfigError> {
    let platform = match &word.value {
        None => None,
        Some(text) => Some(
            Platform::from_word(text)
                .ok_or_else(|| value("gvisor_platform", text, "it is one of ptrace, systrap, kvm"))?,
        ),
    };
    Ok(Setting { value: platform, from: word.from })
}

fn runtime(word: Setting<Option<String>>) -> Result<Setting<Option<docker::Runtime>>, ConfigError> {
    let runtime = match &word.value {
        None => None,
        Some(text) => Some(
            docker::Runtime::from_word(text)
                .ok_or_else(|| value("docker_runtime", text, "it is one of runc, runsc"))?,
        ),
    };
    Ok(Setting { value: runtime, from: word.from })
}

fn tier(word: Setting<Option<String>>) -> Result<Setting<Option<Tier>>, ConfigError> {
    let tier = match &word.value {
        None => None,
        Some(text) => Some(
            Tier::from_word(text)
                .ok_or_else(|| value("min_isolation", text, "it is one of process, container, kernel, vm"))?,
        ),
    };
    Ok(Setting { value: tier, from: word.from })
}

impl fmt::Display for Config {
    /// As TOML, each line with where its value came from.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn line<T>(
            f: &mut fmt::Formatter<'_>,
            name: &str,
            setting: &Setting<T>,
            text: Option<String>,
        ) -> fmt::Result {
            match text {
                Some(text) => writeln!(f, "{name} = {text}  # {}", setting.from),
                None => writeln!(f, "# {name} is not set  # {}", setting.from),
            }
        }
        let quoted = |text: &dyn fmt::Display| format!("{:?}", text.to_string());
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| quoted(&path.display()));
        writeln!(f, "[sandboxd]")?;
        line(f, "listen", &self.listen, Some(quoted(&self.listen.value)))?;
        let names: Vec<&str> = self.providers.value.iter().map(|kind| kind.name()).collect();
        line(f, "providers", &self.providers, Some(format!("{names:?}")))?;
        line(f, "min_isolation", &self.min_isolation, self.min_isolation.value.map(|tier| quoted(&tier)))?;
        line(f, "broker", &self.broker, path(&self.broker.value))?;
        line(f, "callers", &self.callers, path(&self.callers.value))?;
        line(f, "state_folder", &self.state_folder, path(&self.state_folder.value))?;
        line(f, "attest_socket", &self.attest_socket, path(&self.attest_socket.value))?;
        let tls = self.tls_listen.value.map(|address| quoted(&address));
        line(f, "tls_listen", &self.tls_listen, tls)?;
        line(f, "tls_certificate", &self.tls_certificate, path(&self.tls_certificate.value))?;
        line(f, "tls_key", &self.tls_key, path(&self.tls_key.value))?;
        line(f, "tls_client_ca", &self.tls_client_ca, path(&self.tls_client_ca.value))?;
        let metrics = self.metrics_listen.value.map(|address| quoted(&address));
        line(f, "metrics_listen", &self.metrics_listen, metrics)?;
        let numbers = [
            ("max_concurrent", &self.max_concurrent),
            ("max_concurrent_per_caller", &self.max_concurrent_per_caller),
            ("rate_per_minute", &self.rate_per_minute),
            ("total_memory_mib", &self.total_memory_mib),
            ("native_pool", &self.native_pool),
            ("gvisor_pool", &self.gvisor_pool),
            ("microvm_pool", &self.microvm_pool),
            ("max_sessions", &self.max_sessions),
            ("max_sessions_per_caller", &self.max_sessions_per_caller),
            ("max_sessions_per_owner", &self.max_sessions_per_owner),
            ("session_lifetime_seconds", &self.session_lifetime_seconds),
            ("session_idle_seconds", &self.session_idle_seconds),
            ("memory_mib", &self.memory_mib),
            ("pids", &self.pids),
            ("disk_mib", &self.disk_mib),
        ];
        for (name, setting) in numbers {
            line(f, name, setting, Some(setting.value.to_string()))?;
        }
        line(f, "hardened", &self.hardened, Some(self.hardened.value.to_string()))?;
        line(f, "cpus", &self.cpus, Some(format!("{:?}", self.cpus.value)))?;
        line(f, "native_root", &self.native_root, path(&self.native_root.value))?;
        let extra = &self.native_extra_read_only;
        line(f, "native_extra_read_only", extra, Some(format!("{:?}", extra.value)))?;
        line(f, "gvisor_runsc", &self.gvisor_runsc, path(&self.gvisor_runsc.value))?;
        let platform = self.gvisor_platform.value.map(|platform| quoted(&platform.word()));
        line(f, "gvisor_platform", &self.gvisor_platform, platform)?;
        line(f, "microvm_qemu", &self.microvm_qemu, path(&self.microvm_qemu.value))?;
        line(f, "microvm_kernel", &self.microvm_kernel, path(&self.microvm_kernel.value))?;
        line(f, "microvm_kvm", &self.microvm_kvm, path(&self.microvm_kvm.value))?;
        line(
            f,
            "docker_image",
            &self.docker_image,
            self.docker_image.value.as_ref().map(|name| quoted(name)),
        )?;
        let runtime = self.docker_runtime.value.map(|runtime| quoted(&runtime.word()));
        line(f, "docker_runtime", &self.docker_runtime, runtime)?;
        line(f, "docker_socket", &self.docker_socket, path(&self.docker_socket.value))
    }
}

#[cfg(test)]
mod tests {
    use super::super::load;
    use super::*;

    fn user() -> Environment {
        Environment { home: Some("/home/u".into()), ..Environment::default() }
    }

    fn with(text: &str) -> Result<Config, ConfigError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("freeboard.toml");
        std::fs::write(&path, text).unwrap();
        load(&Flags { config: Some(path), ..Flags::default() }, &user())
    }

    #[test]
    fn nothing_runs_by_default() {
        let config = load(&Flags::default(), &Environment { home: None, ..user() }).unwrap();
        assert!(config.providers.value.is_empty());
        assert_eq!(config.providers.from, Origin::Default);
        assert_eq!(config.listen.value.to_string(), "127.0.0.1:8746");
    }

    #[test]
    fn flags_lie_over_variables_over_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("freeboard.toml");
        std::fs::write(
            &path,
            "[broker]\nanything = 1\n[sandboxd]\nproviders = [\"wasm\"]\nmin_isolation = \"process\"\n",
        )
        .unwrap();
        let mut flags = Flags { config: Some(path.clone()), ..Flags::default() };
        let mut environment = user();
        let config = load(&flags, &environment).unwrap();
        assert_eq!(config.providers, Setting { value: vec![Kind::Wasm], from: Origin::File(path) });
        environment.sandbox_provider = Some("native, wasm".into());
        environment.sandbox_min_isolation = Some("container".into());
        let config = load(&flags, &environment).unwrap();
        assert_eq!(config.providers.value, [Kind::Native, Kind::Wasm]);
        assert_eq!(config.min_isolation.value, Some(Tier::Container));
        assert_eq!(config.min_isolation.from, Origin::Variable("SANDBOX_MIN_ISOLATION"));
        flags.provider = vec!["native".into()];
        let config = load(&flags, &environment).unwrap();
        assert_eq!(config.providers, Setting { value: vec![Kind::Native], from: Origin::Flag("--provider") });
        let printed = config.to_string();
        assert!(printed.contains("providers = [\"native\"]  # flag --provider"), "{printed}");
    }

    #[test]
    fn refuses_to_listen_beyond_loopback() {
        assert!(with("[sandboxd]\nlisten = \"0.0.0.0:8746\"\n").is_err());
        assert!(with("[sandboxd]\nlisten = \"[::1]:8746\"\n").is_ok());
    }

    #[test]
    fn refuses_what_it_does_not_know() {
        let bad = [
            "[sandboxd]\nprovider = [\"wasm\"]\n",
            "[sandboxed]\n",
            "listen = 1\n",
            "[sandboxd]\nproviders = [\"podman\"]\n",
            "[sandboxd]\nproviders = [\"wasm\", \"wasm\"]\n",
            "[sandboxd]\ngvisor_platform = \"fast\"\n",
            "[sandboxd]\ngvisor_runsc = \"runsc\"\n",
            "[sandboxd]\ndocker_runtime = \"crun\"\n",
            "[sandboxd]\nmicrovm_kernel = \"vmlinuz-6.1\"\n",
            "[sandboxd]\nmin_isolation = \"Container\"\n",
            "[sandboxd]\nmin_isolation = \"none\"\n",
            "[sandboxd]\nmax_concurrent = 0\n",
            "[sandboxd]\nmax_concurrent = -1\n",
            "[sandboxd]\nmemory_mib = 0\n",
            "[sandboxd]\ncpus = 0\n",
            "[sandboxd]\ncpus = nan\n",
            "[sandboxd]\nlisten = \"8746\"\n",
            "[sandboxd",
        ];
        for text in bad {
            assert!(with(text).is_err(), "{text}");
        }
        let error = with("[sandboxd]\n\nprovider = 1\n").unwrap_err().to_string();
        assert!(error.contains("line 3") && error.contains("provider"), "{error}");
    }

    #[test]
    fn refuses_to_show_homes_and_the_hosts_state() {
        for path in [
            "/",
            "opt/tool",
            "/opt/../root",
            "/home",
            "/home/user",
            "/root/.ssh",
            "/etc",
            "/etc/ssl",
            "/run",
            "/var",
            "/var/run/docker.sock",
            "/var/tmp/x",
            "/proc",
            "/sys/fs",
            "/dev",
            "/tmp/x",
            "/work",
            "/usr/local",
            "/lib",
        ] {
            let text = format!("[sandboxd]\nnative_extra_read_only = [\"{path}\"]\n");
            let refused = with(&text).unwrap_err().to_string();
            assert!(refused.starts_with(&format!("`native_extra_read_only` is `{path}`: ")), "{refused}");
        }
        for (bad, why) in [
            ("native_root = \"images/base\"", "absolute"),
            ("native_root = \"/\"", "absolute"),
            (
                "native_root = \"/srv/base\"\nnative_extra_read_only = [\"/opt/jdk\"]",
                "put the folder into it",
            ),
            ("native_extra_read_only = [\"/opt/jdk\", \"/opt/jdk/lib\"]", "inside another"),
            ("native_extra_read_only = \"/opt/jdk\"", "expected a sequence"),
        ] {
            let refused = with(&format!("[sandboxd]\n{bad}\n")).unwrap_err().to_string();
            assert!(refused.contains(why), "{bad}: {refused}");
        }
        let good = with("[sandboxd]\nnative_extra_read_only = [\"/opt/jdk\", \"/srv/data\"]\n").unwrap();
        assert_eq!(good.native_view().extra_read_only, [PathBuf::from("/opt/jdk"), "/srv/data".into()]);
        assert!(
            good.to_string().contains("native_extra_read_only = [\"/opt/jdk\", \"/srv/data\"]  # /"),
            "{good}"
        );
    }

    #[test]
    fn a_named_file_must_exist() {
        let flags = Flags { config: Some("/nonexistent/freeboard.toml".into()), ..Flags::default() };
        assert!(matches!(load(&flags, &user()), Err(ConfigError::Read { .. })));
    }
}
