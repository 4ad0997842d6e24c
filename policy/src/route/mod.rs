//! Route lines: `METHODS PATH[?QUERY]`, one permission each.
//!
//! `line` reads one, `pattern` matches one segment or value, `compare` tells whether one line covers or meets another.

mod border;
pub(crate) mod compare;
pub(crate) mod line;
pub(crate) mod method;
pub(crate) mod pattern;
pub(crate) mod query;
pub(crate) mod regex;

use std::sync::Arc;

use compare::Reading;
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
    /// The path with escaped slashes of its own as borders of segments: deny rules match these too.
    pub(crate) others: Arc<[PathPattern]>,
    pub(crate) query: QueryPattern,
}

impl RouteLine {
    /// The line of a rule about connections, which has no routes of its own: `CONNECT /`, which no file can say and no request
    /// can ask for. So whatever compares rules (`automata`, `diff`) compares these too.
    pub(crate) fn connection() -> Self {
        Self {
            written: Arc::from("every connection"),
            methods: Methods::listed([method::CONNECTION]),
            path: PathPattern { segments: Vec::new(), end: PathEnd::Slash },
            others: Arc::from([]),
            query: QueryPattern::None,
        }
    }

    /// Every path that the line is about.
    pub(crate) fn paths(&self, reading: Reading) -> impl Iterator<Item = &PathPattern> {
        let others = match reading {
            Reading::Allow => [].as_slice(),
            Reading::Deny => &self.others,
        };
        std::iter::once(&self.path).chain(others)
    }

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
    fn denies(&self, view: crate::target::PathView<'_>) -> bool {
        let mut pairs = self.segments.iter().enumerate();
        pairs.all(|(index, pattern)| view.segment(index).is_some_and(|text| pattern.matches_folded(text)))
            && (self.end == PathEnd::Rest || view.len() == self.segments.len())
    }

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

/// Where a route line and a request part ways: the first difference, path before method before query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mismatch {
    /// Segments that agree; a whole path that agrees counts one more, a method another one.
    pub(crate) agreed: usize,
    pub(crate) why: String,
}

impl RouteLine {
    /// Why the line, as an allow rule, does not match a request; `None` when it does. Slow and plain on purpose: what it
    /// says is compared with the compiled form.
    pub(crate) fn mismatch(&self, method: &str, target: &crate::Target) -> Option<Mismatch> {
        let view = target.view();
        let (agreed, path) = self.path_mismatch(view);
        if let Some(why) = path {
            return Some(Mismatch { agreed, why });
        }
        if !self.methods.allow(method::Asked::new(method)) {
            let why = format!("the method `{}` is not `{}`", method.escape_debug(), self.methods.canonical());
            return Some(Mismatch { agreed: agreed + 1, why });
        }
        let why = self.query.mismatch(target.query())?;
        Some(Mismatch { agreed: agreed + 2, why })
    }

    fn path_mismatch(&self, view: crate::target::PathView<'_>) -> (usize, Option<String>) {
        for (index, pattern) in self.path.segments.iter().enumerate() {
            let mut wanted = String::new();
            pattern.write_canonical(&mut wanted);
            match view.segment(index) {
                None => return (index, Some(format!("the path ends before `{wanted}`"))),
                Some(segment) if !pattern.matches(segment) => {
                    let shown = shown(segment);
                    return (index, Some(format!("segment {} `{shown}` is not `{wanted}`", index + 1)));
                }
                Some(_) => {}
            }
        }
        let agreed = self.path.segments.len();
        let why = match self.path.end {
            PathEnd::Rest => None,
            _ if view.len() > agreed => {
                let next = view.segment(agreed).map(shown).unwrap_or_default();
                Some(format!("the path goes on with `{next}`"))
            }
            PathEnd::Nothing if view.trailing_slash => Some("the path ends with a slash".to_owned()),
            PathEnd::Slash if !view.trailing_slash => Some("the path does not end with a slash".to_owned()),
            _ => None,
        };
        (agreed, why)
    }

    /// Whether the line, as a deny rule, matches a request; as slow and plain.
    pub(crate) fn denies(&self, method: &str, target: &crate::Target) -> bool {
        let split = target.split_at_escaped_slashes();
        let views = [Some(target.view()), split.as_ref().map(|split| split.view())];
        let denies = |path: &PathPattern| views.into_iter().flatten().any(|view| path.denies(view));
        self.paths(Reading::Deny).any(denies)
            && self.methods.deny(method::Asked::new(method))
            && self.query.deny(target.query())
    }
}

fn shown(segment: &[u8]) -> String {
    let mut out = String::new();
    pattern::escape_into(segment, &mut out);
    out
}
