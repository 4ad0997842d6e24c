//! One segment of a path, or one value of a query: what texts it matches. Texts are decoded once.

use std::sync::{Arc, LazyLock};

use regex_syntax::hir::Hir;

use super::regex::{self, Regex};
use crate::target::{hex_value, is_unreserved};

/// What one text must look like.
#[derive(Debug, Clone)]
pub(crate) enum Pattern {
    /// This very text, byte for byte.
    Literal(Box<[u8]>),
    /// One of these, sorted.
    OneOf(Arc<[Box<[u8]>]>),
    Kind(Kind),
    Regex(Arc<Compiled>),
    /// Any text but the empty one.
    Any,
    /// Any text (query values only).
    AnyOrEmpty,
}

/// The built-in types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// 1 to 20 digits.
    Int,
    /// `8-4-4-4-12` hex digits.
    Uuid,
    /// Hex digits.
    Hex,
    /// Letters, digits, `-` and `_`, not starting with `-`.
    Slug,
    /// `YYYY-MM-DD`, month 01 to 12, day 01 to 31.
    Date,
}

/// An expression with the text it came from.
#[derive(Debug)]
pub(crate) struct Compiled {
    /// The one spelling of it.
    text: Box<str>,
    regex: Regex,
    /// Whether some text with a slash may match.
    may_hold_slash: bool,
}

impl Kind {
    pub(crate) const ALL: [Self; 5] = [Self::Int, Self::Uuid, Self::Hex, Self::Slug, Self::Date];

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Int => "int",
            Self::Uuid => "uuid",
            Self::Hex => "hex",
            Self::Slug => "slug",
            Self::Date => "date",
        }
    }

    pub(crate) fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }

    pub(crate) const fn expression(self) -> &'static str {
        match self {
            Self::Int => "[0-9]{1,20}",
            Self::Uuid => "[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}",
            Self::Hex => "[0-9A-Fa-f]+",
            Self::Slug => "[0-9A-Za-z_][0-9A-Za-z_-]*",
            Self::Date => "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])",
        }
    }

    /// Hand-made, because it is on the hot path; a test compares it with `expression`.
    fn matches(self, text: &[u8]) -> bool {
        match self {
            Self::Int => (1..=20).contains(&text.len()) && text.iter().all(u8::is_ascii_digit),
            Self::Uuid => {
                text.len() == 36
                    && text.iter().enumerate().all(|(at, byte)| match at {
                        8 | 13 | 18 | 23 => *byte == b'-',
                        _ => byte.is_ascii_hexdigit(),
                    })
            }
            Self::Hex => !text.is_empty() && text.iter().all(u8::is_ascii_hexdigit),
            Self::Slug => {
                text.first().is_some_and(|byte| *byte != b'-')
                    && text.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
            }
            Self::Date => match text {
                [y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2] => {
                    [y1, y2, y3, y4, m1, m2, d1, d2].into_iter().all(u8::is_ascii_digit)
                        && matches!((m1, m2), (b'0', b'1'..=b'9') | (b'1', b'0'..=b'2'))
                        && matches!((d1, d2), (b'0', b'1'..=b'9') | (b'1' | b'2', _) | (b'3', b'0' | b'1'))
                }
                _ => false,
            },
        }
    }

    fn regex(self) -> Option<&'static Regex> {
        static ALL: LazyLock<[Option<Regex>; 5]> =
            LazyLock::new(|| Kind::ALL.map(|kind| Regex::compile(&regex::builtin(kind.expression())).ok()));
        let at = Self::ALL.iter().position(|kind| *kind == self)?;
        ALL.get(at)?.as_ref()
    }
}

impl Pattern {
    pub(crate) fn one_of(mut texts: Vec<Box<[u8]>>) -> Self {
        texts.sort_unstable();
        Self::OneOf(texts.into())
    }

    /// # Errors
    /// When the expression is too large.
    pub(crate) fn regex(text: String, hir: &Hir) -> Result<Self, String> {
        let regex = Regex::compile(hir)?;
        let may_hold_slash = regex::may_hold(hir, b'/');
        Ok(Self::Regex(Arc::new(Compiled { text: text.into_boxed_str(), regex, may_hold_slash })))
    }

    pub(crate) fn matches(&self, text: &[u8]) -> bool {
        match self {
            Self::Literal(literal) => **literal == *text,
            Self::OneOf(texts) => texts.binary_search_by(|candidate| (**candidate).cmp(text)).is_ok(),
            Self::Kind(kind) => kind.matches(text),
            Self::Regex(compiled) => compiled.regex.matches(text.iter().copied()),
            Self::Any => !text.is_empty(),
            Self::AnyOrEmpty => true,
        }
    }

    /// Like `matches` for a text that is decoded while it is read.
    pub(crate) fn matches_decoded(&self, text: impl Iterator<Item = u8> + Clone) -> bool {
        match self {
            Self::Literal(literal) => literal.iter().copied().eq(text),
            Self::OneOf(texts) => texts.iter().any(|candidate| candidate.iter().copied().eq(text.clone())),
            // No built-in type has a character that stays escaped; a copy on the stack is enough for the longest.
            Self::Kind(kind) => {
                let copy: smallvec::SmallVec<[u8; 64]> = text.collect();
                kind.matches(&copy)
            }
            Self::Regex(compiled) => compiled.regex.matches(text),
            Self::Any => text.clone().next().is_some(),
            Self::AnyOrEmpty => true,
        }
    }

    /// Like `matches`, but letter case of literal texts does not matter: for deny rules.
    pub(crate) fn matches_folded(&self, text: &[u8]) -> bool {
        match self {
            Self::Literal(literal) => literal.eq_ignore_ascii_case(text),
            Self::OneOf(texts) => texts.iter().any(|candidate| candidate.eq_ignore_ascii_case(text)),
            _ => self.matches(text),
        }
    }

    /// The texts, where there are finitely many by construction.
    pub(crate) fn literals(&self) -> Option<&[Box<[u8]>]> {
        match self {
            Self::Literal(literal) => Some(std::slice::from_ref(literal)),
            Self::OneOf(texts) => Some(texts),
            _ => None,
        }
    }

    /// Whether some text with a slash may match: in a path an escaped one. Yes too often, never no.
    pub(crate) fn may_hold_slash(&self) -> bool {
        match self {
            Self::Literal(text) => text.contains(&b'/'),
            Self::OneOf(texts) => texts.iter().any(|text| text.contains(&b'/')),
            Self::Kind(_) => false,
            Self::Regex(compiled) => compiled.may_hold_slash,
            Self::Any | Self::AnyOrEmpty => true,
        }
    }

    /// The compiled automaton of a pattern that has one.
    pub(crate) fn automaton(&self) -> Option<&Regex> {
        match self {
            Self::Kind(kind) => kind.regex(),
            Self::Regex(compiled) => Some(&compiled.regex),
            _ => None,
        }
    }

    /// The expression that a part of a mixed segment becomes.
    pub(crate) fn hir(&self) -> Option<Hir> {
        let literal = |text: &[u8]| Hir::literal(text.to_vec());
        match self {
            Self::Literal(text) => Some(literal(text)),
            Self::OneOf(texts) => Some(Hir::alternation(texts.iter().map(|text| literal(text)).collect())),
            Self::Kind(kind) => Some(regex::builtin(kind.expression())),
            Self::Any => Some(regex::builtin("(?s:.)+")),
            Self::Regex(_) | Self::AnyOrEmpty => None,
        }
    }

    pub(crate) fn write_canonical(&self, out: &mut String) {
        match self {
            Self::Literal(text) => escape_into(text, out),
            Self::OneOf(texts) => {
                out.push('{');
                for (at, text) in texts.iter().enumerate() {
                    if at > 0 {
                        out.push('|');
                    }
                    escape_into(text, out);
                }
                out.push('}');
            }
            Self::Kind(kind) => {
                out.push('{');
                out.push_str(kind.word());
                out.push('}');
            }
            Self::Regex(compiled) => out.push_str(&compiled.text),
            Self::Any => out.push_str("{any}"),
            Self::AnyOrEmpty => {}
        }
    }
}

/// Two patterns with the same spelling match the same texts.
impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Literal(a), Self::Literal(b)) => a == b,
            (Self::OneOf(a), Self::OneOf(b)) => a == b,
            (Self::Kind(a), Self::Kind(b)) => a == b,
            (Self::Regex(a), Self::Regex(b)) => a.text == b.text,
            (Self::Any, Self::Any) | (Self::AnyOrEmpty, Self::AnyOrEmpty) => true,
            _ => false,
        }
    }
}

/// Writes a decoded text with every byte escaped that is not unreserved.
pub(crate) fn escape_into(text: &[u8], out: &mut String) {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F'];
    for &byte in text {
        if is_unreserved(byte) {
            out.push(char::from(byte));
        } else {
            let digit = |value: u8| DIGITS.get(usize::from(value)).copied().unwrap_or('0');
            out.push('%');
            out.push(digit(byte >> 4));
            out.push(digit(byte & 15));
        }
    }
}

/// Decodes percent escapes while reading. Canonical texts have well-formed escapes only; anything else passes as it is.
#[derive(Debug, Clone)]
pub(crate) struct Decoded<'a> {
    rest: &'a [u8],
    plus_is_space: bool,
}

impl<'a> Decoded<'a> {
    pub(crate) fn of(text: &'a [u8]) -> Self {
        Self { rest: text, plus_is_space: false }
    }

    /// As form decoders read a query.
    pub(crate) fn form(text: &'a [u8]) -> Self {
        Self { rest: text, plus_is_space: true }
    }
}

impl Iterator for Decoded<'_> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        let (&byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        if byte == b'+' && self.plus_is_space {
            return Some(b' ');
        }
        if byte == b'%'
            && let [high, low, after @ ..] = rest
            && let (Some(high), Some(low)) = (hex_value(*high), hex_value(*low))
        {
            self.rest = after;
            return Some(high * 16 + low);
        }
        Some(byte)
    }
}

#[cfg(test)]
mod tests {
    use super::{Kind, Pattern};
    use proptest::prelude::*;

    #[test]
    fn types_match_what_they_say() {
        for (kind, yes, no) in [
            (
                Kind::Int,
                vec!["0", "007", "18446744073709551615"],
                vec!["", "-1", "1.0", "1a", "184467440737095516150", "١"],
            ),
            (
                Kind::Uuid,
                vec!["123e4567-e89b-12d3-a456-426614174000", "123E4567-E89B-12D3-A456-426614174000"],
                vec![
                    "123e4567e89b12d3a456426614174000",
                    "123e4567-e89b-12d3-a456-42661417400",
                    "g23e4567-e89b-12d3-a456-426614174000",
                ],
            ),
            (Kind::Hex, vec!["0", "deadBEEF"], vec!["", "0x1", "g"]),
            (Kind::Slug, vec!["a", "A_b-9", "_x"], vec!["", "-a", "a.b", "a/b", "é"]),
            (
                Kind::Date,
                vec!["2027-01-31"],
                vec!["2027-1-31", "2027-13-01", "2027-00-10", "2027-01-32", "2027-01-00", "20270131"],
            ),
        ] {
            for text in yes {
                assert!(Pattern::Kind(kind).matches(text.as_bytes()), "{kind:?} {text}");
            }
            for text in no {
                assert!(!Pattern::Kind(kind).matches(text.as_bytes()), "{kind:?} {text}");
            }
        }
    }

    proptest! {
        #[test]
        fn hand_made_types_agree_with_their_expressions(text in "[0-9a-gA-G_-]{0,38}|[0-9]{4}-[0-3][0-9]-[0-3][0-9]|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}") {
            for kind in Kind::ALL {
                let by_expression = kind.regex().unwrap().matches(text.bytes());
                prop_assert_eq!(kind.matches(text.as_bytes()), by_expression, "{:?} {}", kind, text);
            }
        }
    }
}
