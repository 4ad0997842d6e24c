//! Route lines: `METHODS PATH[?QUERY]`, one permission each.
//!
//! `line` reads one, `pattern` matches one segment or value, `compare` tells whether one line covers or meets another.

pub(crate) mod compare;
pub(crate) mod line;
pub(crate) mod method;
pub(crate) mod pattern;
pub(crate) mod query;
pub(crate) mod regex;

use std::sync::Arc;

use method::Methods;
use pattern::Pattern;
use query::QueryPattern;

/// A route line that was read.
#[derive(Debug, Clone)]
pub(crate) struct RouteLine {
    /// As the file has it, for people.
    pub(crate) written: Arc<str>,
    pub(crate) methods: Methods,
    pub(crate) path: PathPattern,
    pub(crate) query: QueryPattern,
}

impl RouteLine {
    /// The one spelling of what the line means.
    pub(crate) fn canonical(&self) -> String {
        format!("{} {}{}", self.methods.canonical(), self.path.canonical(), self.query.canonical())
    }
}

/// What a path must look like.
#[derive(Debug, Clone)]
pub(crate) struct PathPattern {
    pub(crate) segments: Vec<Pattern>,
    pub(crate) end: PathEnd,
}

/// What follows the last segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathEnd {
    Nothing,
    Slash,
    /// `**`: nothing, a slash, or any further segments.
    Rest,
}

impl PathPattern {
    pub(crate) fn canonical(&self) -> String {
        let mut out = String::new();
        for segment in &self.segments {
            out.push('/');
            segment.write_canonical(&mut out);
        }
        match self.end {
            PathEnd::Nothing => {}
            PathEnd::Slash => out.push('/'),
            PathEnd::Rest => out.push_str("/**"),
        }
        out
    }
}
