//! Descriptions of an API in other forms, to a policy that somebody reviews: text in, policy text and a report out.
//!
//! What comes out has passed the checks of `Policy::load`. What the language cannot say, and where a line allows more or less
//! than the description, stands in the report: nothing is dropped silently. No import enables anything by itself.

pub mod har;
pub mod openapi;
pub mod plimsoll;
mod report;
pub(crate) mod text;
pub(crate) mod write;
mod yaml;

use crate::diagnostic::{Diagnostic, render_all};

pub use report::{Finding, Kind, Report};
pub use yaml::YamlError;

/// What an import made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// A policy file.
    pub policy: String,
    pub report: Report,
}

/// What the imported definitions are called, and who may use the grant.
#[derive(Debug, Clone, Default)]
pub struct Naming {
    /// Left out: the name of the API.
    pub grant: Option<String>,
    /// Left out: a name made from the title of the description.
    pub api: Option<String>,
    pub callers: Vec<String>,
}

/// Whether requests that change something are taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Writes {
    /// GET, HEAD and OPTIONS only; the others are reported.
    #[default]
    LeaveOut,
    Include,
}

/// Why nothing came of it.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error("the description is larger than {} MiB", crate::limits::IMPORT_MAX_BYTES / 1024 / 1024)]
    TooLarge,
    #[error("not JSON")]
    Json(#[source] serde_json::Error),
    #[error("not YAML")]
    Yaml(#[source] YamlError),
    /// It can be read, but is no such description.
    #[error("{0}")]
    Unsuitable(String),
    /// Nothing is left to write; the report says why.
    #[error("no route comes of it")]
    Nothing(Box<Report>),
    /// Names or callers that were asked for do not fit the language.
    #[error("the policy would not be valid:\n{}", render_all(.0))]
    Refused(Vec<Diagnostic>),
}
