//! A HAR file (the log of a browser or proxy) to a grant for the requests in it: paths generalised to typed segments, with counts.
//!
//! SECURITY: a HAR is full of secrets. Only methods, hosts, words of paths, names of parameters and statuses are copied; values of
//! parameters, headers, cookies and bodies never are, and a path segment that could be a secret becomes a type. What decides is
//! in `secret`.

mod entry;
mod generalise;
mod secret;
mod segment;

use std::collections::BTreeMap;

use super::text::{comment, name, query_literal};
use super::write::{Sketch, SketchApi, SketchGrant, SketchRoute, SketchRule};
use super::{ImportError, Imported, Kind, Naming, Report, Writes};
use crate::limits::IMPORT_HAR_MAX_BYTES;
use crate::suggest::nearest;
use entry::{Entry, Value};
use secret::Secrets;
pub(crate) use segment::Segment;

/// Which part of a log is taken, and how it is called.
#[derive(Debug, Clone, Default)]
pub struct Options {
    pub naming: Naming,
    pub writes: Writes,
    /// Take only requests to these hosts; empty takes all.
    pub hosts: Vec<String>,
}

/// Reads a log and writes the policy for what it shows.
///
/// # Errors
/// When the text is no such log, or nothing of it can be taken.
pub fn import(text: &str, options: &Options) -> Result<Imported, ImportError> {
    if text.len() > IMPORT_HAR_MAX_BYTES {
        return Err(ImportError::TooLarge);
    }
    let log = entry::read(text)?;
    let secrets = Secrets::of(&log);
    let mut report = Report::default();
    let mut rows = Vec::new();
    for request in log {
        match Entry::read(&request, &secrets) {
            Ok(entry) => rows.push(entry),
            Err((subject, reason)) => report.add(Kind::NotExpressed, subject, reason),
        }
    }
    let rows = choose(rows, options, &mut report)?;
    let rows = generalise::siblings(rows, &mut report);
    sketch(rows, options, &secrets, &mut report).finish(report)
}

fn choose(rows: Vec<Entry>, options: &Options, report: &mut Report) -> Result<Vec<Entry>, ImportError> {
    let hosts: Vec<&str> = rows.iter().map(|row| row.host.as_str()).collect();
    if let Some(missing) = options.hosts.iter().find(|host| !hosts.contains(&host.as_str())) {
        let meant = nearest(missing, hosts.iter().copied()).map(|near| format!("; did you mean `{near}`?"));
        let message = format!("no request goes to `{}`{}", missing.escape_debug(), meant.unwrap_or_default());
        return Err(ImportError::Unsuitable(message));
    }
    let mut others = 0;
    let mut kept = Vec::new();
    for row in rows {
        if !options.hosts.is_empty() && !options.hosts.contains(&row.host) {
            others += 1;
        } else if options.writes == Writes::LeaveOut && row.writes() {
            report.add(Kind::LeftOut, row.subject(), "it writes, and only reading was asked for");
        } else {
            kept.push(row);
        }
    }
    if others > 0 {
        report.add(Kind::LeftOut, "", format!("{others} requests to other hosts"));
    }
    Ok(kept)
}

/// Requests that one line allows.
#[derive(Default)]
struct Seen {
    count: usize,
    statuses: BTreeMap<u16, usize>,
    /// Name → every value seen, as what it looks like.
    parameters: BTreeMap<String, Vec<Value>>,
    open_query: bool,
    repeated: Vec<String>,
}

fn sketch(rows: Vec<Entry>, options: &Options, secrets: &Secrets, report: &mut Report) -> Sketch {
    // Origin → method and path → what was seen.
    let mut origins: BTreeMap<String, BTreeMap<(String, String), Seen>> = BTreeMap::new();
    let mut first_host = String::new();
    for row in rows {
        first_host = if first_host.is_empty() { row.host.clone() } else { first_host };
        let seen = origins.entry(row.origin.clone()).or_default();
        seen.entry((row.path(), row.method.clone())).or_default().add(row);
    }
    let base = options.naming.api.clone().unwrap_or_else(|| name(&first_host, "imported"));
    let several = origins.len() > 1;
    let mut sketch = Sketch {
        heading: vec![
            "Imported from the log of a browser or proxy (HAR).".to_owned(),
            "Remove the lines that are not needed: what stands here, the code of the callers can do."
                .to_owned(),
        ],
        ..Sketch::default()
    };
    let mut rules = Vec::new();
    for (origin, routes) in origins {
        let host = origin.trim_start_matches("https://");
        let api = match &options.naming.api {
            Some(given) if several => name(&format!("{given} {host}"), given),
            Some(given) => given.clone(),
            None => name(host, "imported"),
        };
        let stub = secrets.stub(&origin, &api);
        let settings = stub.iter().map(|_| format!("# credential = \"{api}\"")).collect();
        if stub.is_some() {
            report.add(Kind::Note, "", "complete the credential in the file, and remove the `#` before it");
        }
        sketch.credentials.extend(stub);
        sketch.apis.push(SketchApi {
            name: api.clone(),
            origins: vec![origin.clone()],
            traffic: crate::Traffic::Requests,
            settings,
        });
        let routes =
            routes.into_iter().filter_map(|((path, method), seen)| seen.route(&method, &path, report));
        rules.push(SketchRule {
            connections: false,
            api,
            settings: Vec::new(),
            routes: routes.collect(),
            conditions: Vec::new(),
        });
    }
    let naming = &options.naming;
    sketch.grants.push(SketchGrant {
        name: naming.grant.clone().unwrap_or(base),
        callers: naming.callers.clone(),
        settings: Vec::new(),
        rules,
    });
    sketch
}

impl Seen {
    fn add(&mut self, row: Entry) {
        self.count += 1;
        *self.statuses.entry(row.status).or_default() += 1;
        self.open_query |= row.open_query;
        for (name, values) in row.parameters {
            if values.len() > 1 && !self.repeated.contains(&name) {
                self.repeated.push(name.clone());
            }
            self.parameters.entry(name).or_default().extend(values);
        }
    }

    fn route(self, method: &str, path: &str, report: &mut Report) -> Option<SketchRoute> {
        let subject = format!("{method} {path}");
        if self.statuses.keys().all(|status| *status == 0 || *status >= 400) {
            report.add(Kind::LeftOut, subject, "only failures were seen");
            return None;
        }
        let query = self.query(&subject, report);
        let line = format!("{subject}{query}");
        if let (None, problems) = crate::route::line::parse(&line) {
            let reason = problems.into_iter().next().map_or_else(String::new, |problem| problem.message);
            report.add(Kind::NotExpressed, subject, reason);
            return None;
        }
        let statuses: Vec<String> =
            self.statuses.iter().map(|(status, count)| format!("{status} ×{count}")).collect();
        let requests = if self.count == 1 { "1 request" } else { &format!("{} requests", self.count) };
        let comment = comment(&format!("{requests}: {}", statuses.join(", ")));
        Some(SketchRoute { line, comment, subject, covered_by: None, above: Vec::new() })
    }

    fn query(&self, subject: &str, report: &mut Report) -> String {
        if self.open_query {
            report.add(Kind::Wider, subject, "a parameter has no plain name: any query is allowed");
            return "?*".to_owned();
        }
        for name in &self.repeated {
            let reason = format!("`{name}` was there several times in one request; it is taken once");
            report.add(Kind::Narrower, subject, reason);
        }
        let parameters: Vec<String> = self
            .parameters
            .iter()
            .map(|(name, values)| format!("{}{}", query_literal(name), Value::of_all(values)))
            .collect();
        if parameters.is_empty() { String::new() } else { format!("?{}", parameters.join("&")) }
    }
}

/// A path of segments as a route line has it.
fn written(segments: &[Segment], trailing_slash: bool) -> String {
    let mut out = String::new();
    for segment in segments {
        out.push('/');
        out.push_str(&segment.written());
    }
    if trailing_slash || segments.is_empty() {
        out.push('/');
    }
    out
}
