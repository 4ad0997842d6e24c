//! The configuration as it holds: flags over the file over the defaults, and where each value came from.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use freeboard_policy::Host;

use super::load::{self, ConfigError, FileValues, Problem};
use super::options::{OPTIONS, OptionSpec, Standard, Value};
use crate::confine::Wanted;
use crate::record::LogSettings;
use crate::upstream::chain::{Chain, Resolving};

/// What the command line says.
#[derive(Debug, Clone, Default)]
pub struct Flags {
    pub config: Option<PathBuf>,
    /// Option and value.
    pub set: Vec<(String, String)>,
}

/// The variables that count, read once.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    pub home: Option<PathBuf>,
    pub xdg_config_home: Option<PathBuf>,
    pub xdg_state_home: Option<PathBuf>,
    pub xdg_runtime_dir: Option<PathBuf>,
    pub is_root: bool,
}

/// A run that is known by its token on the explicit proxy, not by a gate. Its tier is `process`, and nothing measured it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplicitRun {
    pub id: String,
    pub caller: Option<String>,
    pub grants: Vec<String>,
    /// File with the SHA-256 of the token, 64 hex digits (`printf %s TOKEN | sha256sum`).
    pub token_sha256_file: PathBuf,
}

/// The door for sandboxes on other machines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Guard {
    pub listen: Option<SocketAddr>,
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
}

/// Where `/metrics` is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metrics {
    pub listen: Option<SocketAddr>,
    /// Somebody asked for this address.
    pub wanted: bool,
}

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    Default,
    File { path: PathBuf, line: usize },
    Flag,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Flag => f.write_str("command line"),
        }
    }
}

/// What the broker runs with.
#[derive(Debug, Clone)]
pub struct Config {
    pub policy: PathBuf,
    pub ca_certificate: PathBuf,
    pub ca_key: PathBuf,
    pub control_socket: PathBuf,
    pub control_uids: Vec<u32>,
    pub user: String,
    pub confine: Wanted,
    pub workers: usize,
    pub max_gates: usize,
    pub grace: Duration,
    pub reload_every: Option<Duration>,
    pub explicit_listen: Option<SocketAddr>,
    pub guard: Guard,
    pub metrics: Metrics,
    pub otlp_collector: Option<SocketAddr>,
    pub explicit_runs: Vec<ExplicitRun>,
    pub hosts: HashMap<Host, Vec<IpAddr>>,
    /// The proxy that upstreams are reached through.
    pub upstream_proxy: Option<Chain>,
    pub audit: LogSettings,
    shown: Vec<(&'static str, String, Origin)>,
}

impl Environment {
    /// Reads the process's environment and user.
    pub fn read() -> Self {
        // XDG base directory specification: a relative path is ignored.
        let path = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        Self {
            home: path("HOME"),
            xdg_config_home: path("XDG_CONFIG_HOME"),
            xdg_state_home: path("XDG_STATE_HOME"),
            xdg_runtime_dir: path("XDG_RUNTIME_DIR"),
            is_root: rustix::process::geteuid().is_root(),
        }
    }

    fn config_folder(&self) -> Option<PathBuf> {
        self.folder("/etc/freeboard", self.xdg_config_home.as_ref(), Some(".config"))
    }

    fn state_folder(&self) -> Option<PathBuf> {
        self.folder("/var/lib/freeboard", self.xdg_state_home.as_ref(), Some(".local/state"))
    }

    fn runtime_folder(&self) -> Option<PathBuf> {
        self.folder("/run/freeboard", self.xdg_runtime_dir.as_ref(), None)
    }

    fn folder(&self, root: &str, xdg: Option<&PathBuf>, below_home: Option<&str>) -> Option<PathBuf> {
        if self.is_root {
            return Some(PathBuf::from(root));
        }
        let home = || Some(self.home.as_ref()?.join(below_home?));
        Some(xdg.cloned().or_else(home)?.join("freeboard"))
    }

    /// The text of an option's default.
    fn standard(&self, option: &OptionSpec) -> Result<String, ConfigError> {
        let (folder, below, what, variable) = match option.standard {
            Standard::Fixed(text) => return Ok(text.to_owned()),
            Standard::Config(below) => (self.config_folder(), below, "configuration folder", "HOME"),
            Standard::State(below) => (self.state_folder(), below, "state folder", "HOME"),
            Standard::Runtime(below) => (self.runtime_folder(), below, "runtime folder", "XDG_RUNTIME_DIR"),
        };
        let folder = folder.ok_or(ConfigError::NoFolder { what, variable, option: option.key })?;
        Ok(folder.join(below).display().to_string())
    }
}

impl Config {
    /// Reads the file and lays the flags over it. Reports every problem of the file, or every problem of the flags.
    pub fn load(flags: &Flags, environment: &Environment) -> Result<Self, ConfigError> {
        let standard = environment.config_folder().map(|folder| folder.join("freeboard.toml"));
        let path = flags.config.clone().or(standard);
        let file = match &path {
            Some(path) => load::read(path, flags.config.is_some())?,
            None => FileValues::default(),
        };
        let mut values = Values::default();
        let mut problems = flag_problems(flags);
        for option in OPTIONS {
            let flag = flags.set.iter().rev().find(|(key, _)| key == option.key);
            let (value, text, origin) = match (flag, file.values.get(option.key)) {
                (Some((_, text)), _) => match option.kind.read(text) {
                    Some(value) => (value, text.clone(), Origin::Flag),
                    None => {
                        let message = format!("`{}={text}` is not {}", option.key, option.kind.words());
                        problems.push(Problem { message, place: None, help: None });
                        continue;
                    }
                },
                (None, Some((value, text, line))) => {
                    let path = path.clone().unwrap_or_default();
                    (value.clone(), text.clone(), Origin::File { path, line: *line })
                }
                (None, None) => {
                    let text = environment.standard(option)?;
                    let Some(value) = option.kind.read(&text) else { continue };
                    (value, text, Origin::Default)
                }
            };
            values.shown.push((option.key, text, origin));
            values.by_key.insert(option.key, value);
        }
        if !problems.is_empty() {
            return Err(ConfigError::Problems(problems));
        }
        Ok(values.into_config(file))
    }

    /// The values with their origins, as `--print-config` shows them: TOML with a comment each.
    pub fn print(&self) -> String {
        let mut out = String::from("[broker]\n");
        for (key, text, origin) in &self.shown {
            let plain = text.starts_with('[') || text.bytes().all(|byte| byte.is_ascii_digit());
            let shown = if plain { text.clone() } else { format!("{text:?}") };
            out.push_str(&format!("{key} = {shown}  # {origin}\n"));
        }
        for run in &self.explicit_runs {
            out.push_str(&format!(
                "# explicit run `{}`: caller {:?}, grants {:?}, token [secret], its hash in {}\n",
                run.id,
                run.caller.as_deref().unwrap_or("-"),
                run.grants,
                run.token_sha256_file.display()
            ));
        }
        let mut hosts: Vec<_> = self.hosts.iter().collect();
        hosts.sort_by_key(|(host, _)| *host);
        for (host, addresses) in hosts {
            out.push_str(&format!("hosts.\"{host}\" = {addresses:?}\n"));
        }
        out
    }
}

fn flag_problems(flags: &Flags) -> Vec<Problem> {
    let unknown = flags.set.iter().filter(|(key, _)| super::options::find(key).is_none());
    unknown
        .map(|(key, _)| Problem {
            message: format!("unknown option `{key}`"),
            place: None,
            help: Some("`freeboard serve --print-config` lists the options".to_owned()),
        })
        .collect()
}

#[derive(Default)]
struct Values {
    by_key: HashMap<&'static str, Value>,
    shown: Vec<(&'static str, String, Origin)>,
}

impl Values {
    fn into_config(mut self, file: FileValues) -> Config {
        let keep = self.count("audit.keep_files");
        let upstream_proxy = self.upstream_proxy();
        let guard = Guard {
            listen: self.address("guard_listen"),
            certificate: self.path_or_none("guard_certificate"),
            key: self.path_or_none("guard_key"),
        };
        Config {
            policy: self.path("policy"),
            ca_certificate: self.path("ca_certificate"),
            ca_key: self.path("ca_key"),
            control_socket: self.path("control_socket"),
            control_uids: match self.by_key.remove("control_uids") {
                Some(Value::Uids(uids)) => uids,
                _ => Vec::new(),
            },
            user: match self.by_key.remove("user") {
                Some(Value::Text(text)) => text,
                _ => String::new(),
            },
            confine: match self.by_key.remove("confine") {
                Some(Value::Text(word)) => Wanted::read(&word).unwrap_or(Wanted::Required),
                _ => Wanted::Required,
            },
            workers: self.count("workers"),
            max_gates: self.count("max_gates"),
            grace: self.time("grace").unwrap_or_default(),
            reload_every: self.time("reload_every"),
            explicit_listen: self.address("explicit_listen"),
            guard,
            metrics: Metrics {
                listen: self.address("metrics_listen"),
                wanted: self
                    .shown
                    .iter()
                    .any(|(key, _, origin)| *key == "metrics_listen" && *origin != Origin::Default),
            },
            otlp_collector: self.address("otlp_collector"),
            explicit_runs: file.explicit_runs,
            hosts: file.hosts.into_iter().collect(),
            upstream_proxy,
            audit: LogSettings {
                folder: self.path("audit.folder"),
                file_bytes: match self.by_key.remove("audit.file_size") {
                    Some(Value::Bytes(bytes)) => bytes,
                    _ => u64::MAX,
                },
                keep_files: Some(keep).filter(|keep| *keep > 0),
                sync_every: self.time("audit.sync").unwrap_or_default(),
            },
            shown: self.shown,
        }
    }

    fn upstream_proxy(&mut self) -> Option<Chain> {
        let Some(Value::Proxy(Some(proxy))) = self.by_key.remove("upstream_proxy.address") else {
            return None;
        };
        let resolving = match self.by_key.remove("upstream_proxy.resolve") {
            Some(Value::Text(word)) if word == "proxy" => Resolving::Proxy,
            _ => Resolving::Check,
        };
        let credential_file = self.path_or_none("upstream_proxy.credential_file");
        let direct = match self.by_key.remove("upstream_proxy.direct") {
            Some(Value::Names(names)) => names.into_iter().collect(),
            _ => HashSet::new(),
        };
        Some(Chain { proxy, credential_file, resolving, direct })
    }

    fn path_or_none(&mut self, key: &str) -> Option<PathBuf> {
        match self.by_key.remove(key) {
            Some(Value::PathOrNone(path)) => path,
            _ => None,
        }
    }

    fn path(&mut self, key: &str) -> PathBuf {
        match self.by_key.remove(key) {
            Some(Value::Path(path)) => path,
            _ => PathBuf::new(),
        }
    }

    fn address(&mut self, key: &str) -> Option<SocketAddr> {
        match self.by_key.remove(key) {
            Some(Value::Address(address)) => address,
            _ => None,
        }
    }

    fn count(&mut self, key: &str) -> usize {
        match self.by_key.remove(key) {
            Some(Value::Count(count)) => usize::try_from(count).unwrap_or(usize::MAX),
            _ => 0,
        }
    }

    fn time(&mut self, key: &str) -> Option<Duration> {
        match self.by_key.remove(key) {
            Some(Value::Time(time)) => time,
            _ => None,
        }
    }
}
