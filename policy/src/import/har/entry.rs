//! One request of a log: only what may be copied.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::secret::Secrets;
use super::segment::Segment;
use super::written;
use crate::import::ImportError;
use crate::import::text::comment;
use crate::limits::ROUTE_SEGMENTS_MAX;
use crate::origin::Origin;
use crate::route::method::is_known;
use crate::route::pattern::Decoded;
use crate::{Code, Target};

#[derive(Deserialize)]
struct Archive {
    log: Log,
}

#[derive(Deserialize)]
struct Log {
    entries: Vec<Exchange>,
}

/// An entry as the file has it. SECURITY: no `Debug`: it holds secrets.
#[derive(Deserialize)]
pub(super) struct Exchange {
    pub(super) request: Request,
    #[serde(default)]
    response: Response,
}

#[derive(Deserialize)]
pub(super) struct Request {
    method: String,
    pub(super) url: String,
    #[serde(default)]
    pub(super) headers: Vec<Pair>,
    #[serde(default)]
    pub(super) cookies: Vec<Pair>,
}

#[derive(Deserialize)]
pub(super) struct Pair {
    pub(super) name: String,
    #[serde(default)]
    pub(super) value: String,
}

#[derive(Deserialize, Default)]
struct Response {
    /// Browsers write 0 or a negative number for a request that got no answer.
    #[serde(default)]
    status: i64,
}

pub(super) fn read(text: &str) -> Result<Vec<Exchange>, ImportError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let archive: Archive = serde_json::from_str(text).map_err(ImportError::Json)?;
    Ok(archive.log.entries)
}

/// What a parameter's value looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value {
    Int,
    Uuid,
    Date,
    Flag,
    Text,
}

impl Value {
    fn of(text: &str) -> Self {
        match Segment::of_type(text) {
            Some("int") => Self::Int,
            Some("uuid") => Self::Uuid,
            Some("date") => Self::Date,
            _ if matches!(text, "true" | "false") => Self::Flag,
            _ => Self::Text,
        }
    }

    /// What all of them look like, as a route line has it after the name.
    pub(super) fn of_all(values: &[Self]) -> &'static str {
        match values.first() {
            Some(first) if values.iter().all(|value| value == first) => match first {
                Self::Int => "={int}",
                Self::Uuid => "={uuid}",
                Self::Date => "={date}",
                Self::Flag => "={true|false}",
                Self::Text => "",
            },
            _ => "",
        }
    }
}

/// A request without anything secret.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) method: String,
    pub(super) origin: String,
    pub(super) host: String,
    pub(super) segments: Vec<Segment>,
    trailing_slash: bool,
    pub(super) parameters: BTreeMap<String, Vec<Value>>,
    /// A parameter without a plain name was there.
    pub(super) open_query: bool,
    pub(super) status: u16,
}

impl Entry {
    /// The error is what the report calls it and why it cannot be said.
    pub(super) fn read(exchange: &Exchange, secrets: &Secrets) -> Result<Self, (String, String)> {
        let request = &exchange.request;
        let method = request.method.to_ascii_uppercase();
        let method = if is_known(&method) {
            method
        } else {
            return Err(("a request".to_owned(), "its method is not known".to_owned()));
        };
        let place = split(&request.url);
        let (origin, target) = place.map_err(|reason| (format!("{method} request"), reason))?;
        let host = origin.host.as_str().to_owned();
        let subject = format!("{method} {}", origin.url());
        let target = Target::parse(target.as_bytes())
            .map_err(|error| (subject.clone(), format!("a request has no canonical form: {error}")))?;
        let view = target.view();
        if view.len() > ROUTE_SEGMENTS_MAX {
            return Err((subject, format!("a path has more than {ROUTE_SEGMENTS_MAX} segments")));
        }
        let segments = (0..view.len()).filter_map(|index| view.segment(index));
        let segments = segments.map(|text| Segment::of(text, secrets)).collect();
        let mut entry = Self {
            method,
            origin: origin.url(),
            host,
            segments,
            trailing_slash: view.trailing_slash,
            parameters: BTreeMap::new(),
            open_query: false,
            status: u16::try_from(exchange.response.status).unwrap_or(0),
        };
        entry.query(target.query().unwrap_or_default(), secrets);
        Ok(entry)
    }

    fn query(&mut self, query: &str, secrets: &Secrets) {
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let decoded = |text: &str| {
                let bytes: Vec<u8> = Decoded::form(text.as_bytes()).collect();
                String::from_utf8_lossy(&bytes).into_owned()
            };
            let name = decoded(name);
            if secrets.is_credential_parameter(&name) {
                continue;
            }
            if secrets.is_plain_name(&name) {
                self.parameters.entry(name).or_default().push(Value::of(&decoded(value)));
            } else {
                self.open_query = true;
            }
        }
    }

    pub(super) fn writes(&self) -> bool {
        !matches!(self.method.as_str(), "GET" | "HEAD" | "OPTIONS")
    }

    pub(super) fn path(&self) -> String {
        written(&self.segments, self.trailing_slash)
    }

    pub(super) fn subject(&self) -> String {
        format!("{} {}{}", self.method, self.origin, self.path())
    }
}

/// Origin and origin-form target of a URL. SECURITY: the reasons never quote more than the host.
pub(super) fn split(url: &str) -> Result<(Origin, String), String> {
    let url = url.split('#').next().unwrap_or_default();
    let (scheme, rest) = url.split_once("://").ok_or("its URL is none of HTTP")?;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, target) = rest.split_at(end);
    if authority.contains('@') {
        return Err("its URL has a user name".to_owned());
    }
    let shown = comment(authority);
    if !scheme.eq_ignore_ascii_case("https") {
        return Err(format!("`{shown}` was not asked over HTTPS"));
    }
    let origin = Origin::parse(&format!("https://{}", authority.to_ascii_lowercase()));
    let origin = origin.map_err(|error| match error.code {
        Code::MetadataHost => format!("`{shown}` is a metadata service"),
        _ => format!("`{shown}` is no host name that an origin can have"),
    })?;
    let target = if target.starts_with('/') { target.to_owned() } else { format!("/{target}") };
    Ok((origin, target))
}
