//! OpenAPI 3.0 and 3.1 to a grant: servers become origins, operations become route lines with typed segments and listed
//! parameters, security schemes become a credential to complete.
//!
//! Instances of a path template are allowed by its line and nothing else is, as far as the schemas say so; where a line is
//! wider or narrower than its operation, the report names the operation and why.

mod body;
mod document;
mod expression;
mod operation;
mod parameter;
mod path;
mod query;
mod security;
mod server;
mod shape;

use std::collections::BTreeMap;

use super::text::{comment, name};
use super::write::{Sketch, SketchApi, SketchGrant, SketchRoute, SketchRule};
use super::{ImportError, Imported, Kind, Naming, Report, Writes};
use crate::Severity;
use crate::limits::{IMPORT_MAX_BYTES, IMPORT_OPERATIONS_MAX};
use crate::route::line;
use crate::suggest::nearest;
use document::Document;
use operation::Operation;
use server::Place;

/// Which part of a description is taken, and how it is called.
#[derive(Debug, Clone, Default)]
pub struct Options {
    pub naming: Naming,
    /// The URL that stands for the servers of the description; relative servers are resolved against it.
    pub server: Option<String>,
    pub writes: Writes,
    /// Take only operations with one of these ids, …
    pub operations: Vec<String>,
    /// … with one of these tags, …
    pub tags: Vec<String>,
    /// … and with a path template that starts with one of these. Empty lists choose everything.
    pub path_prefixes: Vec<String>,
}

/// Reads a description, JSON or YAML, and writes the policy for it.
///
/// # Errors
/// When the text is no such description, or nothing of it can be taken.
pub fn import(text: &str, options: &Options) -> Result<Imported, ImportError> {
    if text.len() > IMPORT_MAX_BYTES {
        return Err(ImportError::TooLarge);
    }
    let document = Document::parse(text)?;
    let mut report = Report::default();
    let operations = operation::all(&document, &mut report);
    if operations.len() > IMPORT_OPERATIONS_MAX {
        let message = format!("the description has more than {IMPORT_OPERATIONS_MAX} operations");
        return Err(ImportError::Unsuitable(message));
    }
    let chosen = choose(&operations, options, &mut report)?;
    let places = server::Places::new(&document, options.server.as_deref())?;
    let mut taken = Taken::new(&document, options);
    for operation in chosen {
        if let Err(reason) = taken.take(operation, &places, &mut report) {
            report.add(Kind::NotExpressed, operation.subject(), reason);
        }
    }
    if taken.apis.is_empty() && places.lacking() {
        let message = "the description names no HTTPS server; name one with `--server https://HOST`";
        return Err(ImportError::Unsuitable(message.to_owned()));
    }
    taken.sketch(&mut report).finish(report)
}

/// The operations that the filters leave.
fn choose<'o, 'd>(
    operations: &'o [Operation<'d>],
    options: &Options,
    report: &mut Report,
) -> Result<Vec<&'o Operation<'d>>, ImportError> {
    let ids: Vec<&str> = operations.iter().filter_map(|operation| operation.id).collect();
    known("operation", &options.operations, &ids)?;
    let tags: Vec<&str> = operations.iter().flat_map(|operation| operation.tags.iter().copied()).collect();
    known("tag", &options.tags, &tags)?;
    let wanted = |operation: &&Operation<'_>| {
        let listed = |list: &[String], text: &str| list.iter().any(|wanted| wanted == text);
        (options.operations.is_empty() || operation.id.is_some_and(|id| listed(&options.operations, id)))
            && (options.tags.is_empty() || operation.tags.iter().any(|tag| listed(&options.tags, tag)))
            && (options.path_prefixes.is_empty()
                || options.path_prefixes.iter().any(|prefix| operation.template.starts_with(prefix.as_str())))
    };
    let chosen: Vec<_> = operations.iter().filter(wanted).collect();
    let others = operations.len() - chosen.len();
    if others > 0 {
        report.add(Kind::LeftOut, "", format!("{others} of {} operations by the filters", operations.len()));
    }
    Ok(chosen)
}

/// A filter that matches nothing is a mistake.
fn known(what: &str, wanted: &[String], there: &[&str]) -> Result<(), ImportError> {
    let Some(missing) = wanted.iter().find(|wanted| !there.contains(&wanted.as_str())) else { return Ok(()) };
    let meant = match nearest(missing, there.iter().copied()) {
        Some(near) => format!("; did you mean `{near}`?"),
        None => String::new(),
    };
    let missing = missing.escape_debug();
    Err(ImportError::Unsuitable(format!("the description has no {what} `{missing}`{meant}")))
}

/// A route, and what it demands of a body.
type Constrained = (SketchRoute, Vec<String>);

/// What was taken so far.
struct Taken<'d, 'o> {
    document: &'d Document,
    options: &'o Options,
    api_name: String,
    /// One API for each set of origins, in the order in which they came up.
    apis: Vec<(Vec<String>, Vec<Constrained>)>,
    security: security::Wanted,
    title: String,
}

impl<'d, 'o> Taken<'d, 'o> {
    fn new(document: &'d Document, options: &'o Options) -> Self {
        let title = format!("{} {}", document.title(), document.version());
        let api_name = options.naming.api.clone().unwrap_or_else(|| name(document.title(), "imported"));
        let security = security::Wanted::default();
        Self { document, options, api_name, apis: Vec::new(), security, title }
    }

    /// Writes the lines of one operation; the error is why it cannot be said.
    fn take(
        &mut self,
        operation: &Operation<'_>,
        places: &server::Places,
        report: &mut Report,
    ) -> Result<(), String> {
        if operation.method == "TRACE" {
            return Err("TRACE is never granted: it echoes the injected credential".to_owned());
        }
        if operation.writes() && self.options.writes == Writes::LeaveOut {
            report.add(Kind::LeftOut, operation.subject(), "it writes, and only reading was asked for");
            return Ok(());
        }
        let mut notes = Report::default();
        let parameters = parameter::of(self.document, operation)?;
        let target = path::written(self.document, operation, &parameters, &mut notes)?;
        let query = query::written(self.document, operation, &parameters, &mut notes)?;
        let mut by_origins: BTreeMap<&str, Vec<&Place>> = BTreeMap::new();
        let servers = places.of(operation, &mut notes)?;
        for place in &servers {
            by_origins.entry(&place.base).or_default().push(place);
        }
        let mut written = Vec::new();
        for (base, places) in by_origins {
            let line = format!("{} {base}{target}{query}", operation.method);
            checked(&line)?;
            let origins: Vec<String> = places.iter().map(|place| place.origin.clone()).collect();
            written.push((origins, line));
        }
        let conditions = match body::conditions(self.document, operation) {
            Ok(None) => Vec::new(),
            Ok(Some(body)) => {
                if body.body_demanded {
                    notes.add(Kind::Narrower, operation.subject(), "a request without a body is refused");
                }
                body.conditions
            }
            Err(reason) => {
                let reason = format!("the request body is not constrained: {reason}");
                notes.add(Kind::Wider, operation.subject(), reason);
                Vec::new()
            }
        };
        for (origins, line) in written {
            self.push(origins, line, &conditions, operation);
        }
        report.findings.extend(notes.findings);
        self.security.add(self.document, operation, report);
        Ok(())
    }

    fn push(&mut self, origins: Vec<String>, line: String, conditions: &[String], operation: &Operation<'_>) {
        let route = SketchRoute {
            line,
            comment: operation.comment(),
            subject: operation.subject(),
            covered_by: None,
            above: Vec::new(),
        };
        let route = (route, conditions.to_vec());
        match self.apis.iter_mut().find(|(known, _)| *known == origins) {
            Some((_, routes)) => routes.push(route),
            None => self.apis.push((origins, vec![route])),
        }
    }

    fn sketch(self, report: &mut Report) -> Sketch {
        let stubs = self.security.stubs(&self.api_name);
        let mut sketch = Sketch {
            heading: vec![
                format!("Imported from the OpenAPI description \"{}\".", comment(&self.title)),
                "Remove the lines that are not needed: what stands here, the code of the callers can do."
                    .to_owned(),
            ],
            credentials: stubs.iter().map(|stub| stub.lines.clone()).collect(),
            ..Sketch::default()
        };
        let settings: Vec<String> =
            stubs.iter().take(1).map(|stub| format!("# credential = \"{}\"", stub.name)).collect();
        if !stubs.is_empty() {
            let reason = "complete the credential in the file, and remove the `#` before it";
            report.add(Kind::Note, "", reason);
        }
        let mut rules = Vec::new();
        for (index, (origins, routes)) in self.apis.into_iter().enumerate() {
            let api =
                if index == 0 { self.api_name.clone() } else { format!("{}-{}", self.api_name, index + 1) };
            sketch.apis.push(SketchApi {
                name: api.clone(),
                origins,
                traffic: crate::Traffic::Requests,
                settings: settings.clone(),
            });
            let (open, constrained): (Vec<_>, Vec<_>) =
                routes.into_iter().partition(|(_, conditions)| conditions.is_empty());
            let rule = |routes: Vec<SketchRoute>, conditions: Vec<String>| SketchRule {
                connections: false,
                api: api.clone(),
                settings: Vec::new(),
                routes,
                conditions,
            };
            rules.push(rule(open.into_iter().map(|(route, _)| route).collect(), Vec::new()));
            rules.extend(constrained.into_iter().map(|(route, conditions)| rule(vec![route], conditions)));
        }
        let naming = &self.options.naming;
        sketch.grants.push(SketchGrant {
            name: naming.grant.clone().unwrap_or(self.api_name),
            callers: naming.callers.clone(),
            settings: Vec::new(),
            rules,
        });
        let lost: Vec<_> = report.of(Kind::NotExpressed).collect();
        if !lost.is_empty() {
            sketch.closing.push("Not expressed:".to_owned());
        }
        sketch.closing.extend(lost.iter().map(|lost| format!("- {}: {}", lost.subject, lost.reason)));
        sketch
    }
}

/// The reader of the language has the last word on each line.
fn checked(text: &str) -> Result<(), String> {
    let (line, problems) = line::parse(text);
    match problems.into_iter().find(|problem| problem.severity == Severity::Error) {
        Some(problem) => Err(problem.message),
        None if line.is_none() => Err("the line cannot be read".to_owned()),
        None => Ok(()),
    }
}
