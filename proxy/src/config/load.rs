//! Reads `freeboard.toml` and finds every mistake in `[broker]` with its place.
//!
//! In: the text of a file. Out: the values by key, hosts and explicit runs, or all problems. `[sandboxd]` is the other
//! daemon's and is not looked into; any other table is a mistake.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};

use freeboard_policy::Host;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::effective::ExplicitRun;
use super::options::{self, Kind, RENAMED, Value};
use crate::limits::CONFIG_FILE_MAX_BYTES;

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read the configuration `{}`", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("the configuration has {} problems:\n{}", .0.len(), render(.0))]
    Problems(Vec<Problem>),
    #[error("no {what}: this user has no {variable}; name a path with --set {option}=PATH")]
    NoFolder { what: &'static str, variable: &'static str, option: &'static str },
}

/// One mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub message: String,
    /// File, line, column and the line itself; absent for flags.
    pub place: Option<Place>,
    pub help: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub file: String,
    pub line: usize,
    pub column: usize,
    pub text: String,
}

fn render(problems: &[Problem]) -> String {
    problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n")
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "error: {}", self.message)?;
        if let Some(place) = &self.place {
            write!(f, "\n  --> {}:{}:{}", place.file, place.line, place.column)?;
            write!(f, "\n   | {}", freeboard_audit::printable(place.text.trim_end()))?;
        }
        match &self.help {
            Some(help) => write!(f, "\n   = help: {help}"),
            None => Ok(()),
        }
    }
}

/// What a file says.
#[derive(Debug, Default)]
pub struct FileValues {
    /// Value, its text, and the line it stands on.
    pub values: BTreeMap<&'static str, (Value, String, usize)>,
    pub hosts: Vec<(Host, Vec<IpAddr>)>,
    pub explicit_runs: Vec<ExplicitRun>,
}

/// Reads a file. A missing one is only an error when it was named.
pub fn read(path: &Path, named: bool) -> Result<FileValues, ConfigError> {
    use std::io::Read as _;
    let failed = |source| ConfigError::Read { path: path.to_owned(), source };
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if !named && error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(FileValues::default());
        }
        Err(error) => return Err(failed(error)),
    };
    let mut text = String::new();
    file.take(CONFIG_FILE_MAX_BYTES).read_to_string(&mut text).map_err(failed)?;
    parse(&path.display().to_string(), &text)
}

/// Reads the text of a file.
pub fn parse(name: &str, text: &str) -> Result<FileValues, ConfigError> {
    let mut reader = Reader { name, text, problems: Vec::new(), out: FileValues::default() };
    match DeTable::parse(text) {
        Ok(table) => reader.file(table.get_ref()),
        Err(error) => {
            let span = error.span().unwrap_or_default();
            reader.problem(&span, error.message().to_owned(), None);
        }
    }
    // Tables are read in the order of their keys; people read from the top.
    reader.problems.sort_by_key(|problem| problem.place.as_ref().map(|place| (place.line, place.column)));
    if reader.problems.is_empty() { Ok(reader.out) } else { Err(ConfigError::Problems(reader.problems)) }
}

struct Reader<'a> {
    name: &'a str,
    text: &'a str,
    problems: Vec<Problem>,
    out: FileValues,
}

impl Reader<'_> {
    fn file(&mut self, table: &DeTable<'_>) {
        for (key, value) in table {
            match (key.get_ref().as_ref(), value.get_ref()) {
                ("broker", DeValue::Table(broker)) => self.table("", broker),
                ("broker", _) => self.problem(&value.span(), "`broker` is a table".to_owned(), None),
                ("sandboxd", _) => {}
                (other, _) => {
                    let help = "the tables are [broker] and [sandboxd]".to_owned();
                    self.problem(&key.span(), format!("unknown table `{other}`"), Some(help));
                }
            }
        }
    }

    fn table(&mut self, prefix: &str, table: &DeTable<'_>) {
        for (key, value) in table {
            let full = format!("{prefix}{}", key.get_ref());
            match (full.as_str(), value.get_ref()) {
                ("audit", DeValue::Table(inner)) => self.table("audit.", inner),
                ("upstream_proxy", DeValue::Table(inner)) => self.table("upstream_proxy.", inner),
                ("hosts", DeValue::Table(inner)) => self.hosts(inner),
                ("explicit_run", DeValue::Array(runs)) => {
                    for run in runs {
                        self.explicit_run(run);
                    }
                }
                ("audit" | "upstream_proxy" | "hosts" | "explicit_run", _) => {
                    self.problem(&value.span(), format!("`{full}` has the wrong shape"), Some(shape(&full)));
                }
                _ => self.option(&full, key, value),
            }
        }
    }

    fn option<K>(&mut self, full: &str, key: &Spanned<K>, value: &Spanned<DeValue<'_>>) {
        let Some(option) = options::find(full) else {
            self.problem(&key.span(), format!("unknown option `{full}`"), help_for(full));
            return;
        };
        let read =
            text_of(value.get_ref(), option.kind).and_then(|text| Some((option.kind.read(&text)?, text)));
        match read {
            Some((value_read, text)) => {
                let line = self.line_of(value.span().start);
                self.out.values.insert(option.key, (value_read, text, line));
            }
            None => {
                self.problem(&value.span(), format!("`{full}` is not {}", option.kind.words()), None);
            }
        }
    }

    fn hosts(&mut self, table: &DeTable<'_>) {
        for (key, value) in table {
            let name = key.get_ref().as_ref();
            let host = match Host::parse(name) {
                Ok(host) => host,
                Err(error) => {
                    self.problem(&key.span(), error.to_string(), None);
                    continue;
                }
            };
            let texts: Option<Vec<String>> = match value.get_ref() {
                DeValue::String(one) => Some(vec![one.to_string()]),
                DeValue::Array(many) => many.iter().map(|item| text_of(item.get_ref(), Kind::Text)).collect(),
                _ => None,
            };
            let addresses: Option<Vec<IpAddr>> =
                texts.and_then(|texts| texts.iter().map(|text| text.parse().ok()).collect());
            match addresses.filter(|addresses| !addresses.is_empty()) {
                Some(addresses) => self.out.hosts.push((host, addresses)),
                None => {
                    self.problem(&value.span(), format!("`{name}` needs IP addresses"), Some(shape("hosts")));
                }
            }
        }
    }

    fn explicit_run(&mut self, run: &Spanned<DeValue<'_>>) {
        let DeValue::Table(table) = run.get_ref() else {
            return self.problem(
                &run.span(),
                "`explicit_run` has the wrong shape".to_owned(),
                Some(shape("explicit_run")),
            );
        };
        let (mut id, mut caller, mut token, mut grants) = (None, None, None, None);
        for (key, value) in table {
            let text = text_of(value.get_ref(), Kind::Text).filter(|text| !text.is_empty());
            let name = key.get_ref().as_ref();
            let good = match name {
                "id" => set(&mut id, text.filter(|text| is_run_id(text))),
                "caller" => set(&mut caller, text),
                "token_sha256_file" => {
                    set(&mut token, text.map(PathBuf::from).filter(|path| path.is_absolute()))
                }
                "grants" => set(&mut grants, texts_of(value.get_ref())),
                _ => {
                    let help = "an explicit run has id, caller, grants and token_sha256_file".to_owned();
                    self.problem(&key.span(), format!("unknown field `{name}`"), Some(help));
                    continue;
                }
            };
            if !good {
                self.problem(
                    &value.span(),
                    format!("`{name}` has the wrong value"),
                    Some(shape("explicit_run")),
                );
            }
        }
        match (id, grants, token) {
            (Some(id), Some(grants), Some(token_sha256_file)) => {
                if self.out.explicit_runs.iter().any(|other| other.id == id) {
                    self.problem(&run.span(), format!("the explicit run `{id}` is there twice"), None);
                }
                self.out.explicit_runs.push(ExplicitRun { id, caller, grants, token_sha256_file });
            }
            _ if self.problems.is_empty() => {
                self.problem(
                    &run.span(),
                    "an explicit run lacks a field".to_owned(),
                    Some(shape("explicit_run")),
                );
            }
            _ => {}
        }
    }

    fn problem(&mut self, span: &Range<usize>, message: String, help: Option<String>) {
        let line = self.line_of(span.start);
        let text = self.text.lines().nth(line - 1).unwrap_or_default().to_owned();
        let line_start =
            self.text.get(..span.start).and_then(|before| before.rfind('\n')).map_or(0, |at| at + 1);
        let column = self.text.get(line_start..span.start).map_or(0, |before| before.chars().count()) + 1;
        let place = Place { file: self.name.to_owned(), line, column, text };
        self.problems.push(Problem { message, place: Some(place), help });
    }

    fn line_of(&self, at: usize) -> usize {
        self.text.get(..at).map_or(0, |before| before.matches('\n').count()) + 1
    }
}

fn set<T>(place: &mut Option<T>, value: Option<T>) -> bool {
    *place = value;
    place.is_some()
}

/// An id as proxies carry it in a user name: letters, digits, `-`, `_`; at most 64.
fn is_run_id(text: &str) -> bool {
    text.len() <= 64 && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

fn shape(key: &str) -> String {
    match key {
        "audit" => "[broker.audit] with folder, file_size, keep_files, sync",
        "upstream_proxy" => "[broker.upstream_proxy] with address, credential_file, resolve, direct",
        "hosts" => "[broker.hosts] with lines such as \"api.internal\" = [\"10.0.0.7\"]",
        _ => {
            "[[broker.explicit_run]] with id = \"ci-1\", caller = \"ci\", grants = [\"triage\"], \
             token_sha256_file = \"/etc/freeboard/ci-1.sha256\""
        }
    }
    .to_owned()
}

/// The text of a TOML value where it can be one of this kind.
fn text_of(value: &DeValue<'_>, kind: Kind) -> Option<String> {
    match (value, kind) {
        (DeValue::Integer(number), Kind::Count(..)) => Some(number.to_string()),
        (DeValue::Array(items), Kind::Uids) => {
            let texts: Option<Vec<String>> = items
                .iter()
                .map(|item| match item.get_ref() {
                    DeValue::Integer(number) => Some(number.to_string()),
                    _ => None,
                })
                .collect();
            texts.map(|texts| format!("[{}]", texts.join(", ")))
        }
        (DeValue::Array(items), Kind::Names) => {
            let names: Option<Vec<String>> = items
                .iter()
                .map(|item| match item.get_ref() {
                    DeValue::String(name) => Some(format!("\"{name}\"")),
                    _ => None,
                })
                .collect();
            names.map(|names| format!("[{}]", names.join(", ")))
        }
        (DeValue::String(text), kind) if !matches!(kind, Kind::Count(..) | Kind::Uids | Kind::Names) => {
            Some(text.to_string())
        }
        _ => None,
    }
}

fn texts_of(value: &DeValue<'_>) -> Option<Vec<String>> {
    let DeValue::Array(items) = value else { return None };
    items.iter().map(|item| text_of(item.get_ref(), Kind::Text)).collect()
}

/// The new name of a renamed option, or the nearest one.
fn help_for(full: &str) -> Option<String> {
    if let Some((_, new)) = RENAMED.iter().find(|(old, _)| *old == full) {
        return Some(format!("this option is called `{new}`"));
    }
    let nearest = options::OPTIONS.iter().map(|option| (distance(full, option.key), option.key)).min()?;
    (nearest.0 <= 3).then(|| format!("did you mean `{}`?", nearest.1))
}

/// Levenshtein distance.
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.bytes().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        let mut next = vec![left];
        for (b, above) in other.bytes().zip(row.iter().skip(1)) {
            let cost = (diagonal + usize::from(a != b)).min(above + 1).min(left + 1);
            diagonal = *above;
            left = cost;
            next.push(cost);
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}
