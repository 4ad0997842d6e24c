//! `freeboard policy import`: descriptions of an API to a policy file on stdout, and what to know about it on stderr.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use freeboard_policy::import::{ImportError, Imported, Naming, Writes, har, openapi, plimsoll};
use freeboard_policy::limits::{IMPORT_HAR_MAX_BYTES, IMPORT_MAX_BYTES};
use serde_json::json;

use super::Format;
use crate::cli::{Exit, exit, terminal};

#[derive(Debug, Subcommand)]
pub(super) enum Import {
    /// From an OpenAPI 3.0 or 3.1 description
    Openapi(Openapi),
    /// From the log of a browser or proxy (HAR); secrets in it are not copied
    Har(Har),
    /// From a grants file of plimsoll
    Plimsoll(Plimsoll),
}

/// How what comes out is called, and who may use it.
#[derive(Debug, Args)]
struct Names {
    /// Caller that may use the grant; may be repeated
    #[arg(long = "caller", value_name = "NAME", required = true)]
    callers: Vec<String>,
    /// Name of the grant [default: that of the API]
    #[arg(long, value_name = "NAME")]
    grant: Option<String>,
    /// Name of the API [default: made from the title or the host]
    #[arg(long, value_name = "NAME")]
    api: Option<String>,
}

impl From<Names> for Naming {
    fn from(names: Names) -> Self {
        Self { grant: names.grant, api: names.api, callers: names.callers }
    }
}

#[derive(Debug, Args)]
pub(super) struct Openapi {
    /// The description, JSON or YAML; `-` for stdin
    #[arg(value_name = "SPEC")]
    file: PathBuf,
    #[command(flatten)]
    names: Names,
    /// The URL that stands for the description's servers; relative servers are resolved against it
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// Take operations that write, too
    #[arg(long)]
    write: bool,
    /// Take only the operation with this id; may be repeated
    #[arg(long = "operation", value_name = "ID")]
    operations: Vec<String>,
    /// Take only operations with this tag; may be repeated
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// Take only operations whose path starts so; may be repeated
    #[arg(long = "path-prefix", value_name = "PATH")]
    path_prefixes: Vec<String>,
    /// `json` prints policy and report as one object
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

#[derive(Debug, Args)]
pub(super) struct Har {
    /// The log; `-` for stdin
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    names: Names,
    /// Take only requests to this host; may be repeated
    #[arg(long = "host", value_name = "HOST")]
    hosts: Vec<String>,
    /// Take requests that write, too
    #[arg(long)]
    write: bool,
    /// `json` prints policy and report as one object
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

#[derive(Debug, Args)]
pub(super) struct Plimsoll {
    /// The grants file; `-` for stdin
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// `json` prints policy and report as one object
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

impl Import {
    pub(super) fn run(self) -> Exit {
        match self {
            Self::Openapi(openapi) => openapi.run(),
            Self::Har(har) => har.run(),
            Self::Plimsoll(file) => finish(&file.file, IMPORT_MAX_BYTES, file.format, plimsoll::import),
        }
    }
}

impl Openapi {
    fn run(self) -> Exit {
        let options = openapi::Options {
            naming: self.names.into(),
            server: self.server,
            writes: writes(self.write),
            operations: self.operations,
            tags: self.tags,
            path_prefixes: self.path_prefixes,
        };
        finish(&self.file, IMPORT_MAX_BYTES, self.format, |text| openapi::import(text, &options))
    }
}

impl Har {
    fn run(self) -> Exit {
        let options =
            har::Options { naming: self.names.into(), writes: writes(self.write), hosts: self.hosts };
        finish(&self.file, IMPORT_HAR_MAX_BYTES, self.format, |text| har::import(text, &options))
    }
}

fn writes(asked: bool) -> Writes {
    if asked { Writes::Include } else { Writes::LeaveOut }
}

/// Why a description cannot be read.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error("cannot read `{}`", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("`{}` is larger than {} MiB", path.display(), max_bytes / 1024 / 1024)]
    TooLarge { path: PathBuf, max_bytes: usize },
    #[error("`{}` is not UTF-8", path.display())]
    Encoding { path: PathBuf },
}

fn read(path: &Path, max_bytes: usize) -> Result<String, ReadError> {
    let failed = |source| ReadError::Io { path: path.to_owned(), source };
    let source: Box<dyn io::Read> = if path == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        Box::new(std::fs::File::open(path).map_err(failed)?)
    };
    let mut bytes = Vec::new();
    // One byte more than there may be, so that more is seen.
    let limit = u64::try_from(max_bytes).unwrap_or(u64::MAX).saturating_add(1);
    source.take(limit).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() > max_bytes {
        return Err(ReadError::TooLarge { path: path.to_owned(), max_bytes });
    }
    String::from_utf8(bytes).map_err(|_| ReadError::Encoding { path: path.to_owned() })
}

fn finish(
    path: &Path,
    max_bytes: usize,
    format: Format,
    import: impl FnOnce(&str) -> Result<Imported, ImportError>,
) -> Exit {
    let text = match read(path, max_bytes) {
        Ok(text) => text,
        Err(error) => return exit::report(Exit::Usage, &error),
    };
    match (import(&text), format) {
        (Ok(imported), Format::Text) => {
            eprint!("{}", imported.report.render());
            terminal::print(&imported.policy)
        }
        (Ok(imported), Format::Json) => {
            terminal::print(&json!({ "policy": imported.policy, "report": imported.report }).to_string())
        }
        (Err(error), _) => {
            if let ImportError::Nothing(report) = &error {
                eprint!("{}", report.render());
            }
            exit::report(Exit::Problems, &error)
        }
    }
}
