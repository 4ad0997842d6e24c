//! Media types: what a rule lists, and what a `Content-Type` field says (RFC 9110 8.3).

use std::fmt;

use super::fields::HeaderFields;
use crate::draft::Effect;

/// One entry of `content_type`: `application/json`, `text/*`, `application/*+json`. Lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MediaRange {
    kind: Box<str>,
    subtype: Subtype,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Subtype {
    Exact(Box<str>),
    Any,
    /// `*+json`: without the plus.
    Suffix(Box<str>),
}

/// A `Content-Type` that has one reading. Lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Media {
    kind: String,
    subtype: String,
    charset: Option<String>,
}

impl MediaRange {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (kind, subtype) = text.split_once('/')?;
        let subtype = match subtype.strip_prefix('*') {
            None => Subtype::Exact(token(subtype)?.into()),
            Some("") => Subtype::Any,
            Some(suffix) => Subtype::Suffix(token(suffix.strip_prefix('+')?)?.into()),
        };
        Some(Self { kind: token(kind)?.into(), subtype })
    }

    fn matches(&self, kind: &str, subtype: &str) -> bool {
        *self.kind == *kind
            && match &self.subtype {
                Subtype::Exact(exact) => **exact == *subtype,
                Subtype::Any => true,
                Subtype::Suffix(suffix) => {
                    subtype.rsplit_once('+').is_some_and(|(_, found)| *found == **suffix)
                }
            }
    }

    /// Whether every media type of `other` is in this range, as far as that is plain.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        self == other
            || (self.kind == other.kind && self.subtype == Subtype::Any)
            || matches!(&other.subtype, Subtype::Exact(exact) if self.matches(&other.kind, exact))
    }

    /// Whether some media type is in both; may say yes too often for suffixes.
    pub(crate) fn meets(&self, other: &Self) -> bool {
        self.kind == other.kind
            && match (&self.subtype, &other.subtype) {
                (Subtype::Exact(_), Subtype::Exact(_)) => self == other,
                (Subtype::Exact(exact), _) => other.matches(&other.kind, exact),
                (_, Subtype::Exact(exact)) => self.matches(&self.kind, exact),
                _ => true,
            }
    }

    /// Whether an answer of this type may pass.
    pub(crate) fn takes(&self, value: &[u8]) -> bool {
        Media::parse(value).is_some_and(|media| self.matches(&media.kind, &media.subtype))
    }
}

impl fmt::Display for MediaRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.subtype {
            Subtype::Exact(exact) => write!(f, "{}/{exact}", self.kind),
            Subtype::Any => write!(f, "{}/*", self.kind),
            Subtype::Suffix(suffix) => write!(f, "{}/*+{suffix}", self.kind),
        }
    }
}

impl Media {
    /// Reads a field value; `None` for what two readers could read differently.
    pub(crate) fn parse(value: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(value).ok()?;
        let mut parts = text.split(';');
        let (kind, subtype) = parts.next()?.trim().split_once('/')?;
        let mut media = Self { kind: token(kind)?, subtype: token(subtype)?, charset: None };
        for part in parts {
            let part = part.trim();
            if part.is_empty() {
                continue;
            }
            let (name, value) = part.split_once('=')?;
            let unquoted = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(value);
            if unquoted.contains(['"', '\\', ',']) {
                return None;
            }
            if token(name)? == "charset" && media.charset.replace(unquoted.to_ascii_lowercase()).is_some() {
                return None;
            }
        }
        Some(media)
    }

    /// The one field of a request, where there is exactly one and it has one reading.
    pub(crate) fn of(fields: &dyn HeaderFields) -> Option<Self> {
        let (mut count, mut media) = (0, None);
        fields.each_value("content-type", &mut |value| {
            count += 1;
            media = Self::parse(value);
        });
        media.filter(|_| count == 1)
    }

    /// JSON in UTF-8, by its own word (RFC 8259 8.1 and 11, RFC 6839 3.1).
    pub(crate) fn is_json(&self) -> bool {
        let utf8 = self.charset.as_deref().is_none_or(|charset| charset == "utf-8");
        utf8 && self.kind == "application" && (self.subtype == "json" || self.subtype.ends_with("+json"))
    }

    pub(crate) fn is(&self, kind: &str, subtype: &str) -> bool {
        self.kind == kind && self.subtype == subtype
    }

    /// `application/grpc` and its variants (`+proto`, `+json`), but not gRPC-Web.
    pub(crate) fn is_grpc(&self) -> bool {
        self.kind == "application" && (self.subtype == "grpc" || self.subtype.starts_with("grpc+"))
    }
}

/// Why the request's type is none of `ranges`; an empty list takes everything.
pub(crate) fn miss(ranges: &[MediaRange], effect: Effect, fields: &dyn HeaderFields) -> Option<String> {
    if ranges.is_empty() {
        return None;
    }
    let listed = || {
        let texts: Vec<String> = ranges.iter().map(ToString::to_string).collect();
        texts.join(" or ")
    };
    if effect == Effect::Deny {
        let mut any = false;
        fields.each_value("content-type", &mut |value| any |= widely(ranges, value));
        return (!any).then(|| format!("the content type is not {}", listed()));
    }
    match Media::of(fields) {
        Some(media) if ranges.iter().any(|range| range.matches(&media.kind, &media.subtype)) => None,
        Some(media) => {
            Some(format!("the content type is {}/{}, not {}", media.kind, media.subtype, listed()))
        }
        None => Some(format!("the request has no content type with one reading; it must be {}", listed())),
    }
}

/// For deny rules: whatever some reader may take for a type of the list.
fn widely(ranges: &[MediaRange], value: &[u8]) -> bool {
    let text = String::from_utf8_lossy(value).to_ascii_lowercase();
    text.split([',', ';'])
        .filter_map(|part| part.trim().split_once('/'))
        .any(|(kind, subtype)| ranges.iter().any(|range| range.matches(kind.trim(), subtype.trim())))
}

/// RFC 9110 5.6.2, lower-cased.
fn token(text: &str) -> Option<String> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'+-.^_`|~".contains(&byte);
    (!text.is_empty() && text.bytes().all(good)).then(|| text.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_take_what_they_say() {
        for (range, value, taken) in [
            ("application/json", "application/json", true),
            ("application/json", "Application/JSON; charset=UTF-8", true),
            ("application/json", "application/jsonp", false),
            ("application/*+json", "application/vnd.api+json", true),
            ("application/*+json", "application/json", false),
            ("text/*", "text/plain", true),
            ("text/*", "texty/plain", false),
            ("text/plain", "text/plain, application/json", false),
            ("text/plain", "text/plain;charset=a;charset=b", false),
            ("text/plain", "", false),
        ] {
            assert_eq!(MediaRange::parse(range).unwrap().takes(value.as_bytes()), taken, "{range} {value}");
        }
        for text in ["json", "*/*", "*/json", "a/", "/b", "a/*b", "a/*+", "a/b;c=d", "a b/c"] {
            assert_eq!(MediaRange::parse(text), None, "{text}");
        }
    }

    #[test]
    fn json_is_utf_8_and_says_so() {
        for (value, json) in [
            ("application/json", true),
            ("application/json;charset=utf-8", true),
            ("application/json; charset=\"UTF-8\"", true),
            ("application/problem+json", true),
            ("application/json; charset=utf-16", false),
            ("text/json", false),
            ("text/plain", false),
            ("application/x-www-form-urlencoded", false),
        ] {
            assert_eq!(Media::parse(value.as_bytes()).is_some_and(|media| media.is_json()), json, "{value}");
        }
    }

    #[test]
    fn a_deny_rule_reads_a_type_widely_and_an_allow_rule_wants_one() {
        let ranges = [MediaRange::parse("text/html").unwrap()];
        let fields = |values: &[&str]| -> Vec<(String, String)> {
            values.iter().map(|value| ("Content-Type".to_owned(), (*value).to_owned())).collect()
        };
        for (values, allowed, denied) in [
            (&["text/html"][..], true, true),
            (&["TEXT/HTML ;x"], false, true),
            (&["text/plain", "text/html"], false, true),
            (&["text/plain, text/html"], false, true),
            (&["text/plain"], false, false),
            (&[], false, false),
        ] {
            assert_eq!(miss(&ranges, Effect::Allow, &fields(values)).is_none(), allowed, "{values:?}");
            assert_eq!(miss(&ranges, Effect::Deny, &fields(values)).is_none(), denied, "{values:?}");
        }
    }
}
