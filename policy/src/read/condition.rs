//! The conditions of a rule: `headers`, `content_type`, `response_content_type`, `json` and their limits.

use std::ops::Range;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::table::{Fields, Reader};
use crate::condition::Terms;
use crate::condition::fields::{HeaderTest, HeaderWant};
use crate::condition::media::MediaRange;
use crate::diagnostic::{Code, Diagnostic};
use crate::draft::Effect;
use crate::limits::{
    APPROVAL_TIMEOUT_DEFAULT_SECONDS, APPROVAL_TIMEOUT_MAX_SECONDS, CONDITIONS_MAX, INSPECT_BYTES_MAX,
    NAME_MAX_BYTES,
};
use crate::model::Approval;
use crate::route::pattern::Pattern;
use crate::route::regex;
use crate::suggest::nearest;
use crate::units::{duration_seconds, size_bytes};

mod git;
mod json;
mod protocols;

#[cfg(test)]
pub(crate) use git::GIT_FIELDS;
#[cfg(test)]
pub(crate) use json::JSON_FIELDS;
#[cfg(test)]
pub(crate) use protocols::{GRAPHQL_FIELDS, GRPC_FIELDS, MCP_FIELDS};

/// Fields of a rule that say what a request must be beside its route.
pub(crate) const CONDITION_FIELDS: &[&str] = &[
    "headers",
    "content_type",
    "response_content_type",
    "json",
    "graphql",
    "mcp",
    "grpc",
    "git",
    "inspect_bytes",
    "calls",
    "approve",
];
pub(crate) const APPROVAL_FIELDS: &[&str] = &["by", "timeout"];
pub(crate) const HEADER_FIELDS: &[&str] = &["enum", "pattern", "absent", "optional"];

/// Headers that a rule cannot look at, and what to use instead.
const NOT_FOR_CONDITIONS: &[(&str, &str)] = &[
    ("host", "the host is the API's origin"),
    (":authority", "the host is the API's origin"),
    ("content-type", "use `content_type`"),
    ("content-length", "use `budget.request_bytes`"),
    ("content-encoding", "the broker decodes what it inspects and refuses what it cannot decode"),
    ("authorization", "the credential of the API replaces it"),
    ("proxy-authorization", "it is for the broker and goes no further"),
    ("connection", "it is for one hop and goes no further"),
    ("transfer-encoding", "it is for one hop and goes no further"),
    ("te", "it is for one hop and goes no further"),
    ("trailer", "it is for one hop and goes no further"),
    ("upgrade", "use `websocket = true`"),
    ("expect", "the broker answers it itself"),
    ("keep-alive", "it is for one hop and goes no further"),
    ("forwarded", "the broker takes it off"),
    ("via", "the broker takes it off"),
    ("x-api-key", "on an API with a credential the broker takes it off"),
    ("api-key", "on an API with a credential the broker takes it off"),
    ("x-auth-token", "on an API with a credential the broker takes it off"),
    ("private-token", "on an API with a credential the broker takes it off"),
    ("accept-encoding", "on an API with a credential the broker sets it"),
    ("grpc-accept-encoding", "on an API with a credential the broker takes it off"),
    ("range", "on an API with a credential the broker takes it off"),
    ("if-range", "on an API with a credential the broker takes it off"),
    ("a-im", "on an API with a credential the broker takes it off"),
    ("sec-websocket-key", "it is part of the handshake itself"),
    ("sec-websocket-version", "it is part of the handshake itself"),
    ("sec-websocket-extensions", "on an API with a credential the broker takes it off"),
];

/// Reads the conditions of one rule; `None` where it has none.
pub(super) fn read(
    reader: &mut Reader<'_, '_>,
    fields: &Fields<'_, '_>,
    effect: Effect,
    websocket: bool,
) -> Option<Arc<Terms>> {
    let before = reader.error_count();
    let mut terms = Terms {
        headers: headers(reader, fields, effect),
        content_type: media(reader, fields, "content_type"),
        response_content_type: media(reader, fields, "response_content_type"),
        calls: fields.count(reader, "calls"),
        inspect_bytes: inspect_bytes(reader, fields),
        approve: approve(reader, fields),
        ..Terms::default()
    };
    terms.body.json = json::read(reader, fields, effect);
    terms.body.graphql = protocols::graphql(reader, fields);
    terms.body.mcp = protocols::mcp(reader, fields, effect);
    terms.grpc = protocols::grpc(reader, fields, effect);
    terms.body.git = git::read(reader, fields, effect);
    for key in ["json", "graphql", "mcp", "grpc", "content_type"] {
        if fields.get("git").is_some() {
            misplaced(reader, fields, key, "the bodies of git are its own");
        }
    }
    if let Some(other) = ["json", "graphql", "mcp"].into_iter().find(|key| fields.get(key).is_some()) {
        misplaced(reader, fields, "grpc", &format!("a gRPC body is not what `{other}` looks at"));
    }
    if fields.get("graphql").is_some() {
        misplaced(reader, fields, "mcp", "a body is GraphQL or JSON-RPC, not both");
    }
    if effect == Effect::Deny {
        for key in ["response_content_type", "calls", "approve"] {
            misplaced(
                reader,
                fields,
                key,
                "a deny rule refuses before there is an answer or a call to count",
            );
        }
    }
    if websocket {
        for key in ["json", "graphql", "mcp", "grpc", "git", "content_type", "response_content_type"] {
            misplaced(reader, fields, key, "a websocket handshake has no body");
        }
    }
    if terms.body.is_empty() && before == reader.error_count() {
        misplaced(reader, fields, "inspect_bytes", "no condition of the rule looks at the body");
    }
    let says_something = CONDITION_FIELDS.iter().any(|key| fields.get(key).is_some());
    says_something.then(|| Arc::new(terms))
}

/// `approve = "human"`, or `{ by = [...], timeout = "10m" }`.
fn approve(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>) -> Option<Approval> {
    let value = fields.get("approve")?;
    let anybody = Approval { by: Vec::new(), timeout_seconds: APPROVAL_TIMEOUT_DEFAULT_SECONDS };
    let table = match value.get_ref() {
        DeValue::String(text) => {
            word(reader, text, value.span(), "a way to approve", &["human"])?;
            return Some(anybody);
        }
        DeValue::Table(table) => table,
        other => {
            reader.wrong_type(value.span(), "`approve`", "`\"human\"` or a table", other);
            return None;
        }
    };
    let inner = Fields::new(reader, table, value.span(), "an approval", APPROVAL_FIELDS);
    let mut by: Vec<Arc<str>> = Vec::new();
    for (text, span) in inner.texts(reader, "by").unwrap_or_default() {
        if text.len() <= NAME_MAX_BYTES && text.bytes().all(|byte| byte.is_ascii_graphic()) {
            by.push(Arc::from(text));
        } else {
            let message = format!("`{}` is not a name of a person", text.escape_debug());
            reader.error(Code::BadName, span, message, "names have no spaces; they are what `--by` is given");
        }
    }
    by.sort_unstable();
    let parse =
        |text: &str| duration_seconds(text).filter(|seconds| *seconds <= APPROVAL_TIMEOUT_MAX_SECONDS);
    let help = "a time such as `\"10m\"`, at most `\"1d\"`; then the request is refused";
    let timeout = inner.measured(reader, "timeout", parse, help);
    Some(Approval { by, timeout_seconds: timeout.unwrap_or(anybody.timeout_seconds) })
}

fn misplaced(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>, key: &str, why: &str) {
    if let Some(value) = fields.get(key) {
        let message = format!("`{key}` has no meaning here: {why}");
        reader.error(Code::BadCondition, value.span(), message, &format!("leave `{key}` out"));
    }
}

fn inspect_bytes(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>) -> Option<u64> {
    let parse = |text: &str| size_bytes(text).filter(|bytes| *bytes <= INSPECT_BYTES_MAX);
    let help = "a size such as `\"256KiB\"`, at most `\"16MiB\"`: so much of one request is held in memory";
    fields.measured(reader, "inspect_bytes", parse, help)
}

fn media(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>, key: &str) -> Vec<MediaRange> {
    let texts = match fields.get(key).map(|value| (value.span(), value.get_ref())) {
        Some((span, DeValue::String(text))) => vec![(text.as_ref(), span)],
        _ => fields.texts(reader, key).unwrap_or_default(),
    };
    let mut ranges: Vec<MediaRange> = Vec::new();
    for (text, span) in texts {
        match MediaRange::parse(&text.to_ascii_lowercase()) {
            Some(range) if ranges.contains(&range) => {
                reader.error(Code::Repeated, span, format!("`{range}` is listed twice"), "list it once");
            }
            Some(range) => ranges.push(range),
            None => {
                let message = format!("`{}` is not a media type", text.escape_debug());
                let help = "write `application/json`, `text/*` or `application/*+json`, without parameters";
                reader.error(Code::BadCondition, span, message, help);
            }
        }
    }
    ranges
}

fn headers(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>, effect: Effect) -> Vec<HeaderTest> {
    let Some(table) = fields.table(reader, "headers") else { return Vec::new() };
    let span = fields.get("headers").map_or(0..0, Spanned::span);
    if !bounded(reader, table, "headers", &span) {
        return Vec::new();
    }
    let mut tests: Vec<HeaderTest> = Vec::new();
    for (key, value) in table {
        let name = key.get_ref().to_ascii_lowercase();
        if let Some(help) = not_for_conditions(&name) {
            let message = format!("a rule cannot look at the header `{}`", name.escape_debug());
            reader.error(Code::BadCondition, key.span(), message, help);
            continue;
        }
        if tests.iter().any(|test| *test.name == *name) {
            let message = format!("`{name}` is there twice; letter case makes no difference");
            reader.error(Code::Repeated, key.span(), message, "write it once");
            continue;
        }
        let want = header(reader, &name, value, effect);
        tests.extend(want.map(|want| HeaderTest { name: name.into(), want }));
    }
    tests.sort_by(|one, other| one.name.cmp(&other.name));
    tests
}

fn not_for_conditions(name: &str) -> Option<&'static str> {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(token) {
        return Some("a header name is letters, digits and `-`");
    }
    if name.starts_with("x-forwarded-") {
        return Some("the broker takes it off");
    }
    NOT_FOR_CONDITIONS.iter().find(|(other, _)| *other == name).map(|(_, help)| *help)
}

/// `"value"`, `["a", "b"]`, `{ pattern = "…" }`, `{ enum = […] }`, `{ absent = true }`.
fn header(
    reader: &mut Reader<'_, '_>,
    name: &str,
    value: &Spanned<DeValue<'_>>,
    effect: Effect,
) -> Option<HeaderWant> {
    let exactly = |pattern| Some(HeaderWant::Value { pattern, optional: false });
    let table = match value.get_ref() {
        DeValue::String(text) => return exactly(literal(reader, text, value.span())?),
        DeValue::Array(items) => return exactly(one_of(reader, items, &value.span(), name)?),
        DeValue::Table(table) => table,
        other => {
            reader.wrong_type(
                value.span(),
                &format!("`{name}`"),
                "a text, a list of texts or a table",
                other,
            );
            return None;
        }
    };
    let fields = Fields::new(reader, table, value.span(), "a header condition", HEADER_FIELDS);
    let (absent, optional) = (fields.flag(reader, "absent"), fields.flag(reader, "optional"));
    let pattern =
        match (fields.get("enum").map(|value| (value.span(), value.get_ref())), fields.get("pattern")) {
            (Some((span, DeValue::Array(items))), None) => one_of(reader, items, &span, name),
            (Some((span, other)), None) => {
                reader.wrong_type(span, "`enum`", "a list of texts", other);
                None
            }
            (None, Some(_)) => pattern(reader, &fields, "pattern"),
            (Some(_), Some(_)) => {
                let help = "an expression can list values: `a|b`";
                reader.error(Code::BadCondition, value.span(), "both `enum` and `pattern`", help);
                None
            }
            (None, None) if absent => return Some(HeaderWant::Absent),
            (None, None) => {
                let help = "write `enum`, `pattern` or `absent = true`";
                reader.error(Code::MissingField, value.span(), format!("`{name}` demands nothing"), help);
                None
            }
        }?;
    if absent || (optional && effect == Effect::Deny) {
        let help = if absent {
            "a header that is absent has no value"
        } else {
            "a deny rule looks at what is there"
        };
        reader.error(Code::BadCondition, value.span(), "conditions that contradict each other", help);
        return None;
    }
    Some(HeaderWant::Value { pattern, optional })
}

fn literal(reader: &mut Reader<'_, '_>, text: &str, span: Range<usize>) -> Option<Pattern> {
    // RFC 9110 5.5: what a field value can hold once it is trimmed.
    let good = text.trim() == text && text.bytes().all(|byte| byte == b'\t' || byte >= b' ' && byte != 0x7f);
    if !good {
        reader.error(
            Code::BadCondition,
            span,
            "no header has such a value",
            "write it without spaces around and control characters",
        );
        return None;
    }
    Some(Pattern::Literal(text.as_bytes().into()))
}

fn one_of(
    reader: &mut Reader<'_, '_>,
    items: &[Spanned<DeValue<'_>>],
    span: &Range<usize>,
    name: &str,
) -> Option<Pattern> {
    if items.is_empty() || items.len() > CONDITIONS_MAX {
        let message = format!("the list of `{name}` has no entry, or more than {CONDITIONS_MAX}");
        reader.error(Code::EmptyList, span.clone(), message, "an empty list allows nothing: list the values");
        return None;
    }
    let mut texts: Vec<Box<[u8]>> = Vec::new();
    for item in items {
        let DeValue::String(text) = item.get_ref() else {
            reader.wrong_type(item.span(), &format!("an entry of `{name}`"), "a text", item.get_ref());
            return None;
        };
        literal(reader, text, item.span())?;
        if texts.iter().any(|before| **before == *text.as_bytes()) {
            let message = format!("`{}` is listed twice", text.escape_debug());
            reader.error(Code::Repeated, item.span(), message, "list each value once");
            return None;
        }
        texts.push(text.as_bytes().into());
    }
    Some(if let [only] = texts.as_slice() { Pattern::Literal(only.clone()) } else { Pattern::one_of(texts) })
}

/// A bounded expression that matches whole texts.
fn pattern(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>, key: &str) -> Option<Pattern> {
    let text = fields.text(reader, key)?;
    let compiled = regex::parse(&text.value).and_then(|hir| Pattern::regex(text.value.clone(), &hir));
    match compiled {
        Ok(pattern) => Some(pattern),
        Err(why) => {
            let diagnostic = Diagnostic::error(Code::BadRegex, why).at(text.place);
            reader.push(diagnostic.help("expressions are bounded and match whole texts; `.` is any byte"));
            None
        }
    }
}

fn bounded(reader: &mut Reader<'_, '_>, table: &DeTable<'_>, key: &str, span: &Range<usize>) -> bool {
    if table.is_empty() {
        reader.error(
            Code::EmptyList,
            span.clone(),
            format!("`{key}` is empty"),
            "leave it out, or add an entry",
        );
    }
    if table.len() > CONDITIONS_MAX {
        let message = format!("`{key}` has more than {CONDITIONS_MAX} entries");
        reader.error(Code::TooLarge, span.clone(), message, "split the rule");
    }
    (1..=CONDITIONS_MAX).contains(&table.len())
}

/// A word of a fixed list.
fn word<'w>(
    reader: &mut Reader<'_, '_>,
    text: &str,
    span: Range<usize>,
    what: &str,
    words: &[&'w str],
) -> Option<&'w str> {
    let found = words.iter().copied().find(|word| *word == text);
    if found.is_none() {
        let help = match nearest(text, words.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("one of {}", words.join(", ")),
        };
        reader.error(Code::BadValue, span, format!("`{}` is not {what}", text.escape_debug()), &help);
    }
    found
}
