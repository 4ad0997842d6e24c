//! Servers, with their variables, to origins and the path below which the templates stand.

use serde_json::Value;

use super::document::Document;
use super::operation::Operation;
use crate::import::text::{comment, path_literal};
use crate::import::{ImportError, Kind, Report};
use crate::origin::Origin;

/// Places that the variables of one server can name; the rest is reported. An API with more is described in more files.
const PLACES_MAX: usize = 32;

/// Where the templates of an operation stand.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) origin: String,
    /// Empty, or a path that starts with `/` and does not end with one, as a route line has it.
    pub(super) base: String,
}

pub(super) struct Places {
    /// From `--server`.
    given: Option<Place>,
    /// `servers` of the description.
    shared: Vec<Value>,
}

impl Places {
    pub(super) fn new(document: &Document, given: Option<&str>) -> Result<Self, ImportError> {
        let given = given.map(absolute).transpose().map_err(ImportError::Unsuitable)?;
        let shared = document.root().get("servers").and_then(Value::as_array).cloned().unwrap_or_default();
        Ok(Self { given, shared })
    }

    /// No server can come of the description's own list.
    pub(super) fn lacking(&self) -> bool {
        self.given.is_none()
            && !self.shared.iter().any(|server| expand(server).iter().any(|url| absolute(url).is_ok()))
    }

    /// The places of an operation, each once.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) fn of(&self, operation: &Operation<'_>, notes: &mut Report) -> Result<Vec<Place>, String> {
        let servers = operation.servers.unwrap_or(&self.shared);
        let mut places = Vec::new();
        let mut why = "the description names no server".to_owned();
        for url in servers.iter().flat_map(expand) {
            let shown = comment(&url);
            let place = match (&self.given, is_relative(&url)) {
                (Some(given), true) => Ok(Place { origin: given.origin.clone(), base: base(&url) }),
                (Some(given), false) => Ok(given.clone()),
                (None, true) => {
                    Err(format!("the server `{shown}` is relative; name its origin with `--server`"))
                }
                (None, false) => absolute(&url),
            };
            match place {
                Ok(place) if !places.contains(&place) => places.push(place),
                Ok(_) => {}
                Err(reason) => {
                    notes.add(Kind::Note, "", format!("a server is left out: {reason}"));
                    why = reason;
                }
            }
        }
        if servers.is_empty() {
            places.extend(self.given.clone());
        }
        if places.is_empty() { Err(why) } else { Ok(places) }
    }
}

fn is_relative(url: &str) -> bool {
    !url.contains("://")
}

fn absolute(url: &str) -> Result<Place, String> {
    let (scheme, rest) = url.split_once("://").ok_or_else(|| format!("`{}` is not a URL", comment(url)))?;
    let (authority, path) = match rest.find(['/', '?', '#']) {
        Some(at) => (rest.get(..at).unwrap_or_default(), rest.get(at..).unwrap_or_default()),
        None => (rest, ""),
    };
    if path.contains(['?', '#']) {
        return Err(format!("`{}` has a query or a fragment", comment(url)));
    }
    let written = format!("{}://{}", scheme.to_ascii_lowercase(), authority.to_ascii_lowercase());
    let origin = Origin::parse(&written).map_err(|error| error.message)?;
    Ok(Place { origin: origin.url(), base: base(path) })
}

fn base(path: &str) -> String {
    let path = path.trim_end_matches('/').trim_start_matches("./");
    if path.is_empty() {
        return String::new();
    }
    let segments = path.trim_start_matches('/').split('/').map(path_literal);
    format!("/{}", segments.collect::<Vec<_>>().join("/"))
}

/// The URLs of a server: every listed value of its variables, the default where none is listed.
fn expand(server: &Value) -> Vec<String> {
    let url = server.get("url").and_then(Value::as_str).unwrap_or_default();
    let mut urls = vec![url.to_owned()];
    for (name, variable) in server.get("variables").and_then(Value::as_object).into_iter().flatten() {
        let listed = variable.get("enum").and_then(Value::as_array);
        let mut values: Vec<&str> = listed.into_iter().flatten().filter_map(Value::as_str).collect();
        if values.is_empty() {
            values.extend(variable.get("default").and_then(Value::as_str));
        }
        let marker = format!("{{{name}}}");
        urls = urls
            .iter()
            .flat_map(|url| values.iter().map(|value| url.replace(&marker, value)))
            .take(PLACES_MAX)
            .collect();
    }
    urls.dedup();
    urls
}
