//! What of a log is secret, and what kind of credential was seen in it.

use std::collections::{BTreeMap, HashSet};

use super::entry::{Exchange, split};
use crate::import::text::{comment, quoted};
use crate::route::pattern::Decoded;

/// Headers that never hold a secret: their words may stand in a path, too.
const HARMLESS: [&str; 22] = [
    ":authority",
    ":method",
    ":path",
    ":scheme",
    "accept",
    "accept-encoding",
    "accept-language",
    "cache-control",
    "connection",
    "content-length",
    "content-type",
    "dnt",
    "host",
    "origin",
    "pragma",
    "priority",
    "referer",
    "te",
    "upgrade-insecure-requests",
    "user-agent",
    "range",
    "if-modified-since",
];
/// Parts of names of headers and parameters that carry credentials.
const CREDENTIAL_WORDS: [&str; 9] =
    ["token", "secret", "password", "passwd", "apikey", "api_key", "api-key", "signature", "credential"];
/// Names that carry credentials as a whole.
const CREDENTIAL_NAMES: [&str; 6] = ["key", "auth", "code", "sig", "sid", "session"];
/// Longer names of parameters are read as data.
const NAME_MAX_BYTES: usize = 40;
/// Shorter texts are found in everything.
const KNOWN_MIN_BYTES: usize = 4;

/// How a client showed who it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Credential {
    Bearer,
    Basic,
    Header(String),
    Query(String),
}

/// SECURITY: no `Debug` of the values.
#[derive(Default)]
pub(super) struct Secrets {
    /// Values, and the parts of them between separators.
    values: HashSet<String>,
    /// Origin → what was attached.
    credentials: BTreeMap<String, Credential>,
}

impl Secrets {
    pub(super) fn of(log: &[Exchange]) -> Self {
        let mut secrets = Self::default();
        for exchange in log {
            let request = &exchange.request;
            let place = split(&request.url).ok();
            let origin = place.as_ref().map(|(origin, _)| origin.url());
            for header in &request.headers {
                let name = header.name.to_ascii_lowercase();
                if HARMLESS.contains(&name.as_str()) || name.starts_with("sec-") {
                    continue;
                }
                secrets.learn(&header.value);
                if let (Some(origin), Some(found)) = (&origin, credential_header(&name, &header.value)) {
                    secrets.credentials.entry(origin.clone()).or_insert(found);
                }
            }
            for cookie in &request.cookies {
                secrets.learn(&cookie.value);
            }
            let (_, query) = request.url.split_once('?').unwrap_or_default();
            for pair in query.split(['&', '#']) {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                let name: Vec<u8> = Decoded::form(name.as_bytes()).collect();
                let value: Vec<u8> = Decoded::form(value.as_bytes()).collect();
                let name = String::from_utf8_lossy(&name).into_owned();
                secrets.values.insert(String::from_utf8_lossy(&value).into_owned());
                if let (Some(origin), true) =
                    (&origin, is_plain(&name) && secrets.is_credential_parameter(&name))
                {
                    secrets.credentials.entry(origin.clone()).or_insert(Credential::Query(name));
                }
            }
        }
        secrets
    }

    fn learn(&mut self, value: &str) {
        self.values.insert(value.to_owned());
        let parts = value.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')));
        self.values.extend(parts.map(str::to_owned));
    }

    /// The text is a value that the log has in a secret place.
    pub(super) fn is_known(&self, text: &str) -> bool {
        text.len() >= KNOWN_MIN_BYTES && self.values.contains(text)
    }

    pub(super) fn is_credential_parameter(&self, name: &str) -> bool {
        is_credential_name(&name.to_ascii_lowercase())
    }

    /// Names that an API gives its parameters; a secret can stand in the place of a name, too.
    pub(super) fn is_plain_name(&self, name: &str) -> bool {
        is_plain(name) && !self.is_known(name)
    }

    /// A credential to complete for an API, as comment lines.
    pub(super) fn stub(&self, origin: &str, api: &str) -> Option<Vec<String>> {
        let found = self.credentials.get(origin)?;
        let secret = |field: &str| format!("# {field} = {{ file = \"/etc/freeboard/secrets/{api}\" }}");
        let (says, fields) = match found {
            Credential::Bearer => ("a bearer token", vec!["# kind = \"bearer\"".to_owned(), secret("token")]),
            Credential::Basic => (
                "Basic authentication",
                vec!["# kind = \"basic\"".to_owned(), "# username = \"USER\"".to_owned(), secret("password")],
            ),
            Credential::Header(name) => (
                "a key in a header",
                vec!["# kind = \"header\"".to_owned(), format!("# name = {}", quoted(name)), secret("value")],
            ),
            Credential::Query(name) => (
                "a key in the query",
                vec![
                    "# kind = \"query\"".to_owned(),
                    format!("# parameter = {}", quoted(name)),
                    secret("value"),
                ],
            ),
        };
        let mut lines = vec![
            format!("# The requests to {} had {says}, which is not copied.", comment(origin)),
            format!("# [credential.{api}]"),
        ];
        lines.extend(fields);
        Some(lines)
    }
}

fn credential_header(name: &str, value: &str) -> Option<Credential> {
    let scheme = value.split_whitespace().next().unwrap_or_default().to_ascii_lowercase();
    match (name, scheme.as_str()) {
        ("authorization", "basic") => Some(Credential::Basic),
        ("authorization", _) => Some(Credential::Bearer),
        ("cookie" | "proxy-authorization", _) => None,
        _ => is_credential_name(name).then(|| Credential::Header(name.to_owned())),
    }
}

fn is_plain(name: &str) -> bool {
    name.len() <= NAME_MAX_BYTES
        && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|b| b.is_ascii_alphabetic() || matches!(b, b'_' | b'-' | b'.' | b'[' | b']'))
}

fn is_credential_name(name: &str) -> bool {
    // `page_token` and `next_token` are places in a list.
    let pages = ["page", "next", "continuation", "cursor"].iter().any(|word| name.contains(word));
    !pages && (CREDENTIAL_NAMES.contains(&name) || CREDENTIAL_WORDS.iter().any(|word| name.contains(word)))
}
