//! A grants file of plimsoll (`{"profiles": {NAME: …}}`) to grants, one for each profile.
//!
//! Its tokens are references to the environment and stay references. What only its own client and advisor read is reported.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::text::{comment, name, path_literal, quoted};
use super::write::{Sketch, SketchApi, SketchGrant, SketchRoute, SketchRule};
use super::{ImportError, Imported, Kind, Report};
use crate::limits::{IMPORT_MAX_BYTES, NAME_MAX_BYTES};
use crate::origin::Origin;
use crate::read::is_name;

/// Calls of one run where a profile says nothing or 0.
const CALLS_DEFAULT: u64 = 256;
/// Seconds that a minted token lives where a profile says nothing.
const TTL_DEFAULT_SECONDS: u64 = 60;
/// The longest life of a minted token here.
const TTL_MAX_SECONDS: u64 = 3600;
/// What its `*` stands for: a whole segment of unreserved characters (RFC 3986 2.3).
const ANY_SEGMENT: &str = "{re:[0-9A-Za-z._~-]+}";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    profiles: BTreeMap<String, Profile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Profile {
    base_url: String,
    #[serde(default)]
    allow: Vec<String>,
    #[serde(default)]
    scopes: Vec<String>,
    allowed_callers: Vec<String>,
    token: Option<Token>,
    global: Option<Value>,
    preamble: Option<Value>,
    preamble_file: Option<Value>,
    #[serde(default)]
    max_calls: u64,
    #[serde(default)]
    route_max_calls: BTreeMap<String, u64>,
    #[serde(default)]
    allow_in_sessions: bool,
    health_check: Option<String>,
    catalog: Option<Value>,
    batch_of: Option<Value>,
    advice: Option<Value>,
    advice_retention: Option<Value>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Token {
    #[serde(rename = "type")]
    kind: Option<String>,
    env: Option<String>,
    secret_env: Option<String>,
    ttl_sec: Option<u64>,
    issuer: Option<String>,
    audience: Option<String>,
    key_id: Option<String>,
}

/// Reads a grants file and writes the policy for it.
///
/// # Errors
/// When the text is no such file, or nothing of it can be taken.
pub fn import(text: &str) -> Result<Imported, ImportError> {
    if text.len() > IMPORT_MAX_BYTES {
        return Err(ImportError::TooLarge);
    }
    let file: File = serde_json::from_str(text).map_err(ImportError::Json)?;
    let mut report = Report::default();
    let mut sketch = Sketch {
        heading: vec!["Imported from the grants file of plimsoll.".to_owned()],
        ..Sketch::default()
    };
    let mut taken: Vec<String> = Vec::new();
    for (written, profile) in &file.profiles {
        let name = fitting(written, &taken, &mut report);
        match profile.take(&name, &mut sketch, &mut report) {
            Ok(()) => taken.push(name),
            Err(reason) => report.add(Kind::NotExpressed, comment(written), reason),
        }
    }
    let lost: Vec<_> = report.of(Kind::NotExpressed).collect();
    if !lost.is_empty() {
        sketch.closing.push("Not expressed:".to_owned());
    }
    sketch.closing.extend(lost.iter().map(|lost| format!("- {}: {}", lost.subject, lost.reason)));
    sketch.finish(report)
}

/// The name of the profile, changed where it is no name here.
fn fitting(written: &str, taken: &[String], report: &mut Report) -> String {
    let base = if is_name(written) { written.to_owned() } else { name(written, "profile") };
    let short: String = base.chars().take(NAME_MAX_BYTES - 4).collect();
    let mut numbered = (2..1000).map(|number| format!("{short}-{number}"));
    let fits = |candidate: &String| !taken.contains(candidate);
    let found = if fits(&base) { base } else { numbered.find(fits).unwrap_or(short) };
    if found != written {
        report.add(Kind::Note, comment(written), format!("the grant is called `{found}`"));
    }
    found
}

impl Profile {
    fn take(&self, name: &str, sketch: &mut Sketch, report: &mut Report) -> Result<(), String> {
        let origin = Origin::parse(self.base_url.trim_end_matches('/')).map_err(|error| error.message)?;
        if self.allow.is_empty() {
            return Err("it allows nothing".to_owned());
        }
        let credential = self.token.as_ref().map(|token| self.credential(token, name, report)).transpose()?;
        let mut rules = vec![SketchRule {
            connections: false,
            api: name.to_owned(),
            settings: Vec::new(),
            routes: Vec::new(),
            conditions: Vec::new(),
        }];
        for route in &self.allow {
            let subject = format!("{name}: {}", comment(route));
            match line(route) {
                Ok(line) => {
                    if line.starts_with("GET ") {
                        report.add(Kind::Wider, "", "GET allows HEAD, too");
                    }
                    let route = SketchRoute {
                        line,
                        comment: String::new(),
                        subject,
                        covered_by: None,
                        above: Vec::new(),
                    };
                    if let Some(rule) = rules.first_mut() {
                        rule.routes.push(route);
                    }
                }
                Err(reason) => report.add(Kind::NotExpressed, subject, reason),
            }
        }
        let settings = credential.iter().map(|_| format!("credential = {}", quoted(name))).collect();
        sketch.credentials.extend(credential);
        sketch.apis.push(SketchApi {
            name: name.to_owned(),
            origins: vec![origin.url()],
            traffic: crate::Traffic::Requests,
            settings,
        });
        sketch.grants.push(SketchGrant {
            name: name.to_owned(),
            callers: self.allowed_callers.clone(),
            settings: self.settings(),
            rules,
        });
        self.notes(name, report);
        Ok(())
    }

    fn settings(&self) -> Vec<String> {
        let sessions = self.allow_in_sessions.then(|| "sessions = true".to_owned());
        sessions.into_iter().chain([self.budget()]).collect()
    }

    /// The bounds of a run there; its sizes and concurrency are not configurable.
    fn budget(&self) -> String {
        let calls = if self.max_calls == 0 { CALLS_DEFAULT } else { self.max_calls };
        format!(
            "budget = {{ calls = {calls}, concurrent = 16, request_bytes = \"1MiB\", response_bytes = \"4MiB\" }}"
        )
    }

    fn credential(&self, token: &Token, name: &str, report: &mut Report) -> Result<Vec<String>, String> {
        let mut lines = vec![format!("[credential.{}]", key(name))];
        let environment = |variable: &Option<String>| {
            let variable = variable.as_deref().filter(|variable| !variable.is_empty());
            let variable = variable.ok_or("its token names no environment variable")?;
            Ok::<_, String>(format!("{{ env = {} }}", quoted(variable)))
        };
        match token.kind.as_deref() {
            None | Some("static") => {
                lines.push("kind = \"bearer\"".to_owned());
                lines.push(format!("token = {}", environment(&token.env)?));
                if !self.scopes.is_empty() {
                    let reason =
                        "the scopes of a static token are what its issuer gave it; they are not written";
                    report.add(Kind::Note, name, reason);
                }
            }
            Some("jwt") => {
                lines.push("kind = \"jwt\"".to_owned());
                lines.push("algorithm = \"HS256\"".to_owned());
                lines.push(format!("key = {}", environment(&token.secret_env)?));
                let ttl = token.ttl_sec.filter(|ttl| *ttl > 0).unwrap_or(TTL_DEFAULT_SECONDS);
                if ttl > TTL_MAX_SECONDS {
                    report.add(Kind::Narrower, name, "minted tokens live an hour at most");
                }
                lines.push(format!("ttl = \"{}s\"", ttl.min(TTL_MAX_SECONDS)));
                let scope = Some(self.scopes.join(" ")).filter(|scope| !scope.is_empty());
                let fields = [
                    ("issuer", token.issuer.clone()),
                    ("audience", token.audience.clone()),
                    ("key_id", token.key_id.clone()),
                    ("scope", scope),
                ];
                for (field, value) in fields {
                    lines.extend(value.map(|value| format!("{field} = {}", quoted(&value))));
                }
            }
            Some(other) => return Err(format!("its token has the type `{}`", comment(other))),
        }
        Ok(lines)
    }

    /// What has no place in a policy.
    fn notes(&self, name: &str, report: &mut Report) {
        let client =
            [("global", &self.global), ("preamble", &self.preamble), ("preamble_file", &self.preamble_file)];
        let advisor = [
            ("catalog", &self.catalog),
            ("batch_of", &self.batch_of),
            ("advice", &self.advice),
            ("advice_retention", &self.advice_retention),
        ];
        for (field, _) in client.iter().filter(|(_, value)| value.is_some()) {
            let reason = format!("`{field}`: guests call the API itself, no client is injected");
            report.add(Kind::NotExpressed, name, reason);
        }
        for (field, _) in advisor.iter().filter(|(_, value)| value.is_some()) {
            report.add(
                Kind::NotExpressed,
                name,
                format!("`{field}`: it grants nothing and there is no advisor"),
            );
        }
        for (route, calls) in &self.route_max_calls {
            let reason = format!("`{}` has no limit of {calls} calls of its own", comment(route));
            report.add(Kind::Wider, name, reason);
        }
        if let Some(route) = &self.health_check {
            report.add(Kind::NotExpressed, name, format!("`health_check` `{}`", comment(route)));
        }
    }
}

/// A name as a key of TOML.
fn key(name: &str) -> String {
    if name.contains('.') { quoted(name) } else { name.to_owned() }
}

/// `METHOD /path` with `*` for whole segments.
fn line(route: &str) -> Result<String, String> {
    let (method, path) = route.split_once(' ').ok_or("it is not `METHOD /path`")?;
    let method = method.to_ascii_uppercase();
    if !matches!(method.as_str(), "GET" | "PUT" | "POST" | "DELETE" | "PATCH") {
        return Err(format!("`{}` is no method of a profile", comment(&method)));
    }
    let path = path.trim();
    if path.contains(['%', '?', '#', ';', '\\', '{', '}']) {
        return Err("the path has a character that no profile may have".to_owned());
    }
    let segments = path.split('/').map(|segment| match segment {
        "*" => ANY_SEGMENT.to_owned(),
        text => path_literal(text),
    });
    let line = format!("{method} {}", segments.collect::<Vec<_>>().join("/"));
    match crate::route::line::parse(&line) {
        (Some(_), _) => Ok(line),
        (None, problems) => Err(problems
            .into_iter()
            .next()
            .map_or_else(|| "it cannot be read".to_owned(), |problem| problem.message)),
    }
}
