//! The sketch of a policy to a file that passes the checks: lines that another line covers become comments.

use std::collections::{HashMap, HashSet};

use super::report::{Kind, Report};
use super::text::{comment, quoted};
use super::{ImportError, Imported};
use crate::diagnostic::{Code, Diagnostic, Place, Severity};
use crate::format::format;
use crate::limits::{DIAGNOSTICS_MAX, ROUTES_MAX};
use crate::traffic::Traffic;
use crate::{Policy, SourceFile};

/// A policy file in the making.
#[derive(Debug, Default)]
pub(crate) struct Sketch {
    /// Comment lines at the top.
    pub(crate) heading: Vec<String>,
    /// Definitions of credentials as lines of TOML, each already a comment where a person must complete it.
    pub(crate) credentials: Vec<Vec<String>>,
    pub(crate) apis: Vec<SketchApi>,
    pub(crate) grants: Vec<SketchGrant>,
    /// Comment lines at the end.
    pub(crate) closing: Vec<String>,
    /// Files of the folder that the file is for; it is checked together with them. They have no errors.
    pub(crate) beside: Vec<SourceFile>,
}

/// Name of the file while it is checked.
const FILE_NAME: &str = "import.toml";

#[derive(Debug)]
pub(crate) struct SketchApi {
    pub(crate) name: String,
    /// Of TCP `HOST:PORT`, else URLs.
    pub(crate) origins: Vec<String>,
    pub(crate) traffic: Traffic,
    /// Further lines of TOML.
    pub(crate) settings: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct SketchGrant {
    pub(crate) name: String,
    pub(crate) callers: Vec<String>,
    pub(crate) settings: Vec<String>,
    pub(crate) rules: Vec<SketchRule>,
}

/// One `[[grant.NAME.allow]]`.
#[derive(Debug)]
pub(crate) struct SketchRule {
    pub(crate) api: String,
    pub(crate) settings: Vec<String>,
    /// Of an API whose connections are passed on unread: such a rule lists no routes, and those here are comments only.
    pub(crate) connections: bool,
    pub(crate) routes: Vec<SketchRoute>,
    /// Lines of its `json` table.
    pub(crate) conditions: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct SketchRoute {
    pub(crate) line: String,
    pub(crate) comment: String,
    /// What the report calls it.
    pub(crate) subject: String,
    pub(crate) covered_by: Option<String>,
    /// Comment lines above the line.
    pub(crate) above: Vec<String>,
}

/// Where a route stands in the sketch.
type Index = (usize, usize, usize);

impl Sketch {
    /// Writes the file and checks it.
    ///
    /// # Errors
    /// When nothing is allowed by it, or names that were asked for are refused.
    pub(crate) fn finish(mut self, mut report: Report) -> Result<Imported, ImportError> {
        loop {
            self.drop_empty();
            if self.grants.is_empty() {
                report.once_each();
                return Err(ImportError::Nothing(Box::new(report)));
            }
            let (policy, places) = self.render();
            let mut files = self.beside.clone();
            files.push(SourceFile::new(FILE_NAME, policy.as_str()));
            let problems = match Policy::load(&files) {
                Ok(loaded) => loaded.warnings,
                Err(problems) => problems,
            };
            if self.cover(&problems, &places, &mut report)
                || self.separate(&problems, &places, &mut report)
                || self.relax(&problems, &places, &mut report)
            {
                continue;
            }
            if problems.iter().any(|problem| problem.severity == Severity::Error) {
                return Err(ImportError::Refused(problems));
            }
            self.count(&mut report);
            report.once_each();
            // In the layout of `fmt`, so that the first change that somebody makes shows alone.
            return match format(&SourceFile::new(FILE_NAME, policy)) {
                Ok(policy) => Ok(Imported { policy, report }),
                Err(problem) => Err(ImportError::Refused(vec![*problem])),
            };
        }
    }

    fn drop_empty(&mut self) {
        for grant in &mut self.grants {
            grant.rules.retain(|rule| rule.routes.iter().any(|route| route.covered_by.is_none()));
        }
        self.grants.retain(|grant| !grant.rules.is_empty());
        let used: HashSet<String> =
            self.grants.iter().flat_map(|grant| grant.rules.iter().map(|rule| rule.api.clone())).collect();
        self.apis.retain(|api| used.contains(&api.name));
    }

    /// Makes comments of lines that others cover; whether there were any. Each round takes at least one line, so the loop
    /// of `finish` ends.
    fn cover(&mut self, problems: &[Diagnostic], places: &HashMap<u32, Index>, report: &mut Report) -> bool {
        let covering = |problem: &Diagnostic| {
            let covered = matches!(problem.code, Code::DuplicateRule | Code::ShadowedRule);
            let place = problem.place.as_ref().filter(|_| covered)?;
            let other = &problem.related.first()?.place;
            Some((index_of(place, places)?, index_of(other, places)?))
        };
        let pairs: HashMap<Index, Index> =
            problems.iter().take(DIAGNOSTICS_MAX).filter_map(covering).collect();
        let mut sorted: Vec<&Index> = pairs.keys().collect();
        sorted.sort_unstable();
        let mut gone: HashSet<Index> = HashSet::new();
        for index in sorted {
            // Two lines with one meaning cover each other: follow the chain to a line that stays.
            let mut last = pairs.get(index);
            for _ in 0..ROUTES_MAX {
                match last {
                    Some(other) if gone.contains(other) && other != index => last = pairs.get(other),
                    _ => break,
                }
            }
            let Some(other) = last.filter(|other| *other != index) else { continue };
            let Some(covering) = self.route(*other).map(|route| route.line.clone()) else { continue };
            if let Some(route) = self.route(*index) {
                report.add(Kind::Covered, route.subject.as_str(), format!("`{covering}` covers it"));
                route.covered_by = Some(covering);
                gone.insert(*index);
            }
        }
        !gone.is_empty()
    }

    /// Takes out lines that would send one request with two credentials; whether there were any.
    fn separate(
        &mut self,
        problems: &[Diagnostic],
        places: &HashMap<u32, Index>,
        report: &mut Report,
    ) -> bool {
        let ambiguous = problems.iter().filter(|problem| problem.code == Code::AmbiguousCredential);
        let indices = ambiguous.filter_map(|problem| {
            let lines = problem.place.iter().chain(problem.related.iter().map(|related| &related.place));
            // The later of the two, so that the answer does not depend on the order of the problems.
            lines.filter_map(|place| index_of(place, places)).max()
        });
        let indices: HashSet<Index> = indices.collect();
        let mut sorted: Vec<Index> = indices.into_iter().collect();
        sorted.sort_unstable();
        for index in sorted.iter().rev() {
            let (grant, rule, route) = *index;
            let rule = self.grants.get_mut(grant).and_then(|grant| grant.rules.get_mut(rule));
            if let Some(rule) = rule.filter(|rule| route < rule.routes.len()) {
                let lost = rule.routes.remove(route);
                let reason =
                    "a run could name two grants of the file, and the request would have two credentials";
                report.add(Kind::NotExpressed, lost.subject, reason);
            }
        }
        !sorted.is_empty()
    }

    /// Takes away conditions that other rules of the grant, or the language, do not agree with; whether there were any.
    fn relax(&mut self, problems: &[Diagnostic], places: &HashMap<u32, Index>, report: &mut Report) -> bool {
        let mut relaxed = false;
        for problem in problems.iter().filter(|problem| problem.severity == Severity::Error) {
            let lines = problem.place.iter().chain(problem.related.iter().map(|related| &related.place));
            for (grant, rule, _) in lines.filter_map(|place| index_of(place, places)) {
                let rule = self.grants.get_mut(grant).and_then(|grant| grant.rules.get_mut(rule));
                let Some(rule) = rule.filter(|rule| !rule.conditions.is_empty()) else { continue };
                rule.conditions.clear();
                relaxed = true;
                for route in &rule.routes {
                    let reason = match problem.code {
                        Code::AmbiguousRule => "a request can match another route that demands other things",
                        _ => "a condition of its schema has no counterpart",
                    };
                    let reason = format!("the request body is not constrained: {reason}");
                    report.add(Kind::Wider, route.subject.as_str(), reason);
                }
            }
        }
        relaxed
    }

    fn route(&mut self, (grant, rule, route): Index) -> Option<&mut SketchRoute> {
        self.grants.get_mut(grant)?.rules.get_mut(rule)?.routes.get_mut(route)
    }

    fn count(&self, report: &mut Report) {
        let routes = self.grants.iter().flat_map(|grant| &grant.rules).flat_map(|rule| &rule.routes);
        report.routes = routes.filter(|route| route.covered_by.is_none()).count();
    }

    /// The text, and which line of it holds which route.
    fn render(&self) -> (String, HashMap<u32, Index>) {
        let mut out = Lines::default();
        for line in &self.heading {
            out.comment(line);
        }
        for lines in self.credentials.iter().filter(|lines| !lines.is_empty()) {
            out.gap();
            for line in lines {
                out.push(line);
            }
        }
        for api in &self.apis {
            out.gap();
            out.push(&format!("[api.{}]", key(&api.name)));
            let word = if api.traffic == Traffic::Tcp { "tcp" } else { "origins" };
            out.push(&format!("{word} = {}", list(&api.origins)));
            if api.traffic == Traffic::TlsPassthrough {
                out.push("tls = \"passthrough\"");
            }
            for line in &api.settings {
                out.push(line);
            }
        }
        let mut places = HashMap::new();
        for (g, grant) in self.grants.iter().enumerate() {
            out.gap();
            out.push(&format!("[grant.{}]", key(&grant.name)));
            out.push(&format!("callers = {}", list(&grant.callers)));
            for line in &grant.settings {
                out.push(line);
            }
            for (r, rule) in grant.rules.iter().enumerate() {
                out.gap();
                out.push(&format!("[[grant.{}.allow]]", key(&grant.name)));
                out.push(&format!("api = {}", quoted(&rule.api)));
                for line in &rule.settings {
                    out.push(line);
                }
                if !rule.connections {
                    out.push("routes = [");
                }
                for (l, route) in rule.routes.iter().enumerate() {
                    if rule.connections {
                        out.comment(&route.comment);
                    } else {
                        out.route(route);
                    }
                    places.insert(out.number, (g, r, l));
                }
                if !rule.connections {
                    out.push("]");
                }
                if !rule.conditions.is_empty() {
                    out.gap();
                    out.push(&format!("[grant.{}.allow.json]", key(&grant.name)));
                }
                for line in &rule.conditions {
                    out.push(line);
                    // A problem of a condition is one of its rule.
                    places.insert(out.number, (g, r, 0));
                }
            }
        }
        if !self.closing.is_empty() {
            out.gap();
        }
        for line in &self.closing {
            out.comment(line);
        }
        (out.text, places)
    }
}

/// The route that stands at a place, if it is one of the file.
fn index_of(place: &Place, places: &HashMap<u32, Index>) -> Option<Index> {
    places.get(&place.line).copied().filter(|_| *place.file == *FILE_NAME)
}

/// A name as a key of TOML; a bad one is quoted, so that the check names it.
fn key(name: &str) -> String {
    let bare =
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
    if bare { name.to_owned() } else { quoted(name) }
}

fn list(texts: &[String]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
    format!("[{}]", texts.join(", "))
}

#[derive(Default)]
struct Lines {
    text: String,
    /// Lines so far.
    number: u32,
}

impl Lines {
    fn push(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
        self.number += 1;
    }

    fn gap(&mut self) {
        if self.number > 0 {
            self.push("");
        }
    }

    fn comment(&mut self, line: &str) {
        self.push(format!("# {}", comment(line)).trim_end());
    }

    fn route(&mut self, route: &SketchRoute) {
        for line in &route.above {
            self.push(&format!("  # {}", comment(line)));
        }
        let words = comment(&route.comment);
        let line = match &route.covered_by {
            Some(other) => {
                let why = format!("covered by {}", quoted(other));
                let parts: Vec<&str> =
                    [words.as_str(), &why].into_iter().filter(|part| !part.is_empty()).collect();
                format!("  # {},  # {}", quoted(&route.line), parts.join("; "))
            }
            None if words.is_empty() => format!("  {},", quoted(&route.line)),
            None => format!("  {},  # {words}", quoted(&route.line)),
        };
        self.push(&line);
    }
}
