//! One segment of a path that was seen: a word to be copied, or a type.

use super::secret::Secrets;
use crate::import::text::path_literal;
use crate::route::pattern::{Kind, Pattern};

/// Letters of a word in a path. Longer ones are read as data.
const WORD_MAX_BYTES: usize = 32;
/// Hex digits that are no longer read as a word or a number.
const HEX_MIN_BYTES: usize = 8;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Segment {
    Word(String),
    /// One of the types of route lines, by its word.
    Type(&'static str),
    /// Any text.
    Any,
}

impl Segment {
    /// SECURITY: only what reads as a word of an API is copied. Guarded by the property test of HAR imports.
    pub(super) fn of(text: &[u8], secrets: &Secrets) -> Self {
        let Ok(text) = std::str::from_utf8(text) else { return Self::Any };
        match Self::of_type(text) {
            Some(kind) => Self::Type(kind),
            None if is_word(text) && !secrets.is_known(text) => Self::Word(text.to_owned()),
            None if Pattern::Kind(Kind::Slug).matches(text.as_bytes()) => Self::Type("slug"),
            None => Self::Any,
        }
    }

    /// The narrow type of a text that is clearly data.
    pub(crate) fn of_type(text: &str) -> Option<&'static str> {
        let is = |kind: Kind| Pattern::Kind(kind).matches(text.as_bytes());
        if is(Kind::Int) {
            return Some("int");
        }
        if is(Kind::Uuid) {
            return Some("uuid");
        }
        if is(Kind::Date) {
            return Some("date");
        }
        let digits = text.bytes().any(|byte| byte.is_ascii_digit());
        (is(Kind::Hex) && text.len() >= HEX_MIN_BYTES && digits).then_some("hex")
    }

    pub(super) fn written(&self) -> String {
        match self {
            Self::Word(word) => path_literal(word),
            Self::Type(kind) => format!("{{{kind}}}"),
            Self::Any => "{value}".to_owned(),
        }
    }
}

/// Letters with `-`, `_` and `.` between them, or a version such as `v2` and `v1.1`. Digits among letters are how keys, tokens and
/// passwords look, and so are changes of case in the middle.
fn is_word(text: &str) -> bool {
    let version = text.strip_prefix('v').is_some_and(|rest| {
        rest.len() <= 5
            && rest.starts_with(|c: char| c.is_ascii_digit())
            && rest.bytes().all(|b| b.is_ascii_digit() || b == b'.')
    });
    let letters = text.len() <= WORD_MAX_BYTES
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphabetic() || matches!(byte, b'-' | b'_' | b'.'));
    version || (letters && !looks_random(text))
}

/// More than a few words in camel case change their case: so do keys.
fn looks_random(text: &str) -> bool {
    let bytes = text.as_bytes();
    let turns = bytes
        .windows(2)
        .filter(|pair| matches!(pair, [a, b] if a.is_ascii_lowercase() && b.is_ascii_uppercase()));
    let vowels = bytes.iter().filter(|byte| b"aeiouyAEIOUY".contains(byte)).count();
    turns.count() > 3 || (text.len() >= 8 && vowels * 8 < text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_copied_and_data_is_not() {
        let secrets = Secrets::default();
        for (text, written) in [
            ("repos", "repos"),
            ("listOrders", "listOrders"),
            ("robots.txt", "robots.txt"),
            ("v2", "v2"),
            ("v1.1", "v1.1"),
            ("42", "{int}"),
            ("2027-01-31", "{date}"),
            ("123e4567-e89b-12d3-a456-426614174000", "{uuid}"),
            ("deadbeef01", "{hex}"),
            ("hunter2", "{slug}"),
            ("sk_live_abc123", "{slug}"),
            ("xqzwrtplkj", "{slug}"),
            ("aBcDeFgHiJ", "{slug}"),
            ("someone@example.com", "{value}"),
            ("a b", "{value}"),
            ("über", "{value}"),
        ] {
            assert_eq!(Segment::of(text.as_bytes(), &secrets).written(), written, "{text}");
        }
    }
}
