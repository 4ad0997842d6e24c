//! Reads `freeboard.toml` and the few variables that count. Unknown fields are errors with their place.

use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::effective::{Config, Flags};
use super::schema::Schema;
use crate::limits::MAX_CONFIG_BYTES;

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read the configuration `{path}`")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("the configuration `{path}` does not parse: {message}")]
    Parse { path: PathBuf, message: String },
    #[error("`{option}` is `{value}`: {problem}")]
    Value { option: &'static str, value: String, problem: &'static str },
    #[error("no {what}: neither root nor an environment with {variable}; name a path with a flag")]
    NoFolder { what: &'static str, variable: &'static str },
}

/// The whole file: two daemons share it, each reads its own table and knows that the other exists.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(rename = "broker")]
    _broker: Option<IgnoredAny>,
    sandboxd: Option<Schema>,
}

/// The variables that count, read once in `main`.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    pub sandbox_provider: Option<String>,
    pub sandbox_min_isolation: Option<String>,
    pub home: Option<PathBuf>,
    pub xdg_config_home: Option<PathBuf>,
    pub xdg_runtime_dir: Option<PathBuf>,
    /// What the service manager made for this daemon's state.
    pub state_directory: Option<PathBuf>,
    pub is_root: bool,
}

impl Environment {
    /// Reads the process's environment and user.
    pub fn read() -> Self {
        let text = |name| std::env::var(name).ok().filter(|value: &String| !value.is_empty());
        // The base directory specification: a relative path is ignored.
        let path = |name| text(name).map(PathBuf::from).filter(|path| path.is_absolute());
        Self {
            sandbox_provider: text("SANDBOX_PROVIDER"),
            sandbox_min_isolation: text("SANDBOX_MIN_ISOLATION"),
            home: path("HOME"),
            xdg_config_home: path("XDG_CONFIG_HOME"),
            xdg_runtime_dir: path("XDG_RUNTIME_DIR"),
            state_directory: path("STATE_DIRECTORY"),
            is_root: rustix::process::geteuid().is_root(),
        }
    }

    /// Folder of configuration files.
    pub fn config_folder(&self) -> Option<PathBuf> {
        if self.is_root {
            return Some(PathBuf::from("/etc/freeboard"));
        }
        let home = || self.home.as_ref().map(|home| home.join(".config"));
        Some(self.xdg_config_home.clone().or_else(home)?.join("freeboard"))
    }

    /// Folder of sockets.
    pub fn runtime_folder(&self) -> Option<PathBuf> {
        if self.is_root {
            return Some(PathBuf::from("/run/freeboard"));
        }
        Some(self.xdg_runtime_dir.as_ref()?.join("freeboard"))
    }
}

/// Reads the file (a missing one counts only when it was named), checks it, and lays flags over variables over the
/// file over defaults.
pub fn load(flags: &Flags, environment: &Environment) -> Result<Config, ConfigError> {
    let default = environment.config_folder().map(|folder| folder.join("freeboard.toml"));
    let (path, named) = match (&flags.config, default) {
        (Some(path), _) => (Some(path.clone()), true),
        (None, default) => (default, false),
    };
    let schema = match &path {
        Some(path) => read(path, named)?,
        None => None,
    };
    let source = schema.is_some().then_some(path).flatten();
    Config::resolve(flags, environment, &schema.unwrap_or_default(), source.as_deref())
}

fn read(path: &Path, named: bool) -> Result<Option<Schema>, ConfigError> {
    let failed = |source| ConfigError::Read { path: path.to_owned(), source };
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if !named && error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let mut text = String::new();
    file.take(MAX_CONFIG_BYTES).read_to_string(&mut text).map_err(failed)?;
    let file: File = toml::from_str(&text)
        .map_err(|error| ConfigError::Parse { path: path.to_owned(), message: error.to_string() })?;
    Ok(Some(file.sandboxd.unwrap_or_default()))
}
