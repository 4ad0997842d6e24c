//! One route line from text to meaning, with every problem and where in the line it is.

use std::ops::Range;
use std::sync::Arc;

use regex_syntax::hir::Hir;

use super::method::{self, Methods};
use super::pattern::{Decoded, Kind, Pattern};
use super::query::{Listed, Parameter, QueryPattern};
use super::{PathEnd, PathPattern, RouteLine, border, regex};
use crate::diagnostic::{Code, Severity};
use crate::limits::{QUERY_PARAMETERS_MAX, ROUTE_LINE_MAX_BYTES, ROUTE_SEGMENTS_MAX};
use crate::suggest::nearest;
use crate::target::{hex_value, is_unreserved};

/// A problem with its byte range in the line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) code: Code,
    pub(crate) severity: Severity,
    pub(crate) span: Range<usize>,
    pub(crate) message: String,
    pub(crate) help: Option<String>,
}

/// Reads a line. The line is `None` when some problem is an error.
pub(crate) fn parse(text: &str) -> (Option<RouteLine>, Vec<Problem>) {
    let mut reader = Reader { problems: Vec::new() };
    let line = reader.line(text);
    let failed = reader.problems.iter().any(|problem| problem.severity == Severity::Error);
    (line.filter(|_| !failed), reader.problems)
}

struct Reader {
    problems: Vec<Problem>,
}

/// A piece of the line with its offset in it.
#[derive(Clone, Copy)]
struct Piece<'a> {
    text: &'a str,
    at: usize,
}

impl Piece<'_> {
    fn span(self) -> Range<usize> {
        self.at..self.at + self.text.len()
    }

    fn slice(self, range: Range<usize>) -> Self {
        Self { text: self.text.get(range.clone()).unwrap_or_default(), at: self.at + range.start }
    }

    /// Splits at a separator that stands outside braces.
    fn split(self, separator: u8) -> Vec<Self> {
        let mut pieces = Vec::new();
        let mut start = 0;
        for (at, byte, depth) in with_depth(self.text) {
            if byte == separator && depth == 0 {
                pieces.push(self.slice(start..at));
                start = at + 1;
            }
        }
        pieces.push(self.slice(start..self.text.len()));
        pieces
    }

    fn find(self, wanted: u8) -> Option<usize> {
        with_depth(self.text).find(|(_, byte, depth)| *byte == wanted && *depth == 0).map(|(at, _, _)| at)
    }
}

/// Every byte with its position and how deep in braces it stands. `\` takes the next byte's meaning (inside `{re:…}`).
pub(super) fn with_depth(text: &str) -> impl Iterator<Item = (usize, u8, usize)> {
    let mut depth: usize = 0;
    let mut escaped = false;
    text.bytes().enumerate().map(move |(at, byte)| {
        let before = depth;
        if escaped {
            escaped = false;
            return (at, byte, depth);
        }
        match byte {
            b'\\' if depth > 0 => escaped = true,
            b'{' => depth += 1,
            b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        (at, byte, before)
    })
}

impl Reader {
    fn error(&mut self, code: Code, span: Range<usize>, message: impl Into<String>, help: Option<String>) {
        self.problems.push(Problem { code, severity: Severity::Error, span, message: message.into(), help });
    }

    fn warning(&mut self, code: Code, span: Range<usize>, message: impl Into<String>, help: Option<String>) {
        self.problems.push(Problem {
            code,
            severity: Severity::Warning,
            span,
            message: message.into(),
            help,
        });
    }

    fn bad(&mut self, span: Range<usize>, message: impl Into<String>, help: &str) {
        self.error(Code::BadRoute, span, message, Some(help.to_owned()));
    }

    fn line(&mut self, text: &str) -> Option<RouteLine> {
        if text.len() > ROUTE_LINE_MAX_BYTES {
            self.bad(
                0..1,
                format!("the route line is longer than {ROUTE_LINE_MAX_BYTES} bytes"),
                "split it into several lines",
            );
            return None;
        }
        let start = text.len() - text.trim_start().len();
        let whole = Piece { text: text.trim(), at: start };
        let Some(gap) = whole.text.find([' ', '\t']) else {
            self.bad(whole.span(), "a route line is `METHODS PATH`", "for example `GET /v1/items/{int}`");
            return None;
        };
        let methods = self.methods(whole.slice(0..gap));
        let rest = whole.slice(gap..whole.text.len());
        let target = rest.slice(rest.text.len() - rest.text.trim_start().len()..rest.text.len());
        let (path, query) = match target.find(b'?') {
            Some(at) => (target.slice(0..at), Some(target.slice(at + 1..target.text.len()))),
            None => (target, None),
        };
        let others = border::readings(path.text).into_iter().filter_map(|text| {
            // One that no request has (`//`) is none.
            Reader { problems: Vec::new() }.path(Piece { text: &text, at: 0 })
        });
        let others = others.collect();
        let path = self.path(path);
        let query = match query {
            Some(query) => self.query(query),
            None => Some(QueryPattern::None),
        };
        Some(RouteLine {
            written: Arc::from(whole.text),
            methods: methods?,
            path: path?,
            others,
            query: query?,
        })
    }

    fn methods(&mut self, piece: Piece<'_>) -> Option<Methods> {
        if piece.text == "*" {
            return Some(Methods::every());
        }
        let names = piece.split(b'|');
        let mut good = true;
        for name in &names {
            good &= self.method(*name);
        }
        for (at, name) in names.iter().enumerate() {
            if names.iter().take(at).any(|before| before.text == name.text) {
                self.bad(name.span(), format!("`{}` is named twice", name.text), "name each method once");
                good = false;
            }
        }
        good.then(|| Methods::listed(names.iter().map(|name| name.text)))
    }

    fn method(&mut self, name: Piece<'_>) -> bool {
        let text = name.text;
        let upper = text.to_ascii_uppercase();
        if method::FORBIDDEN.contains(&upper.as_str()) {
            self.error(
                Code::ForbiddenMethod,
                name.span(),
                format!("`{text}` is never granted"),
                Some("it opens tunnels or echoes the injected credential; leave it out".to_owned()),
            );
            return false;
        }
        let token = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-');
        if !token {
            let help = if method::is_known(&upper) {
                format!("method names are upper case: `{upper}`")
            } else {
                "a line starts with `*` or with methods such as `GET` or `GET|HEAD`".to_owned()
            };
            self.error(Code::BadRoute, name.span(), format!("`{text}` is not a method"), Some(help));
            return false;
        }
        if !method::is_known(text) {
            let help = nearest(text, method::known()).map(|near| format!("did you mean `{near}`?"));
            self.warning(
                Code::UnknownMethod,
                name.span(),
                format!("no registry knows the method `{text}`"),
                help,
            );
        }
        true
    }

    fn path(&mut self, piece: Piece<'_>) -> Option<PathPattern> {
        let Some(below) = piece.text.strip_prefix('/') else {
            self.bad(
                piece.span(),
                "the path does not start with `/`",
                "a line is `METHODS PATH`, for example `GET /v1/items`",
            );
            return None;
        };
        let mut pieces = Piece { text: below, at: piece.at + 1 }.split(b'/');
        if pieces.len() > ROUTE_SEGMENTS_MAX {
            self.bad(
                piece.span(),
                format!("the path has more than {ROUTE_SEGMENTS_MAX} segments"),
                "end it with `**`",
            );
            return None;
        }
        let end = match pieces.last().map(|last| last.text) {
            Some("**") => PathEnd::Rest,
            Some("") => PathEnd::Slash,
            _ => PathEnd::Nothing,
        };
        if end != PathEnd::Nothing {
            pieces.pop();
        }
        let segments: Vec<_> = pieces.iter().map(|segment| self.segment(*segment)).collect();
        Some(PathPattern { segments: segments.into_iter().collect::<Option<_>>()?, end })
    }

    fn segment(&mut self, piece: Piece<'_>) -> Option<Pattern> {
        match piece.text {
            "" => {
                self.bad(
                    piece.at..piece.at + 1,
                    "the path has an empty segment",
                    "no request has one; remove the second `/`",
                );
                return None;
            }
            "." | ".." => {
                self.bad(
                    piece.span(),
                    "the path has a dot segment",
                    "no request has one; write the path without it",
                );
                return None;
            }
            "**" => {
                self.bad(piece.span(), "`**` is not the last segment", "use `*` for one segment");
                return None;
            }
            _ => {}
        }
        let pattern = self.text(piece, Where::Path)?;
        let climbs = |text: &[u8]| text.split(|byte| *byte == b'/').any(|part| part == b"." || part == b"..");
        if pattern.literals().is_some_and(|texts| texts.iter().any(|text| climbs(text))) {
            self.bad(
                piece.span(),
                "the path has a dot segment",
                "no request has one; write the path without it",
            );
            return None;
        }
        Some(pattern)
    }

    fn query(&mut self, piece: Piece<'_>) -> Option<QueryPattern> {
        if piece.text == "*" {
            return Some(QueryPattern::Any);
        }
        if piece.text.is_empty() {
            self.bad(
                piece.at.saturating_sub(1)..piece.at,
                "the query is empty",
                "leave out the `?`, or list parameters",
            );
            return None;
        }
        let pieces = piece.split(b'&');
        let others = pieces.last().is_some_and(|last| last.text == "*");
        let listed = pieces.get(..pieces.len() - usize::from(others)).unwrap_or_default();
        if listed.len() > QUERY_PARAMETERS_MAX {
            self.bad(piece.span(), format!("more than {QUERY_PARAMETERS_MAX} parameters"), "use `?*`");
            return None;
        }
        let parsed: Vec<_> = listed.iter().map(|parameter| self.parameter(*parameter)).collect();
        let mut parameters = parsed.into_iter().collect::<Option<Vec<_>>>()?;
        for (at, parameter) in parameters.iter().enumerate() {
            if parameters.iter().take(at).any(|before| before.name == parameter.name) {
                let span = listed.get(at).map_or(piece.span(), |piece| piece.span());
                self.bad(span, "the parameter is listed twice", "list each parameter once");
            }
        }
        parameters.sort_by(|a, b| a.name.cmp(&b.name));
        Some(QueryPattern::Listed(Listed { parameters, others }))
    }

    fn parameter(&mut self, piece: Piece<'_>) -> Option<Parameter> {
        let (name, value) = match piece.find(b'=') {
            Some(at) => (piece.slice(0..at), Some(piece.slice(at + 1..piece.text.len()))),
            None => (piece, None),
        };
        let (name, required) = match name.text.strip_suffix('!') {
            Some(_) => (name.slice(0..name.text.len() - 1), true),
            None => (name, false),
        };
        if let Some(value) = value
            && value.text.ends_with('!')
            && value.text.len() > 1
        {
            self.bad(
                value.at + value.text.len() - 1..value.at + value.text.len(),
                "`!` stands after the name",
                "a required parameter is written `name!={int}`",
            );
            return None;
        }
        if name.text.is_empty() || name.text.contains('*') {
            self.bad(
                piece.span(),
                "a parameter without a plain name",
                "a query is `?a={int}&b`, or `?*` for any",
            );
            return None;
        }
        let decoded = self.literal(name, Where::Query)?;
        let value = match value {
            None => Pattern::AnyOrEmpty,
            Some(value) if value.text.is_empty() => Pattern::Literal(Box::from([])),
            Some(value) => self.text(value, Where::Query)?,
        };
        Some(Parameter { name: decoded, value, required })
    }

    /// A segment or a value: literal text and `{…}`, mixed.
    fn text(&mut self, piece: Piece<'_>, place: Where) -> Option<Pattern> {
        let mut parts = Vec::new();
        let mut rest = 0;
        while rest < piece.text.len() {
            let tail = piece.slice(rest..piece.text.len());
            let part = match tail.text.as_bytes().first() {
                Some(b'*') => tail.slice(0..1),
                Some(b'{') => match closing_brace(tail.text) {
                    Some(at) => tail.slice(0..at + 1),
                    None => {
                        self.bad(tail.span(), "the `{` is not closed", "close it with `}`");
                        return None;
                    }
                },
                _ => tail.slice(0..tail.text.find(['{', '*']).unwrap_or(tail.text.len())),
            };
            rest += part.text.len();
            parts.push(part);
        }
        if parts.windows(2).any(|pair| matches!(pair, [a, b] if a.text == "*" && b.text == "*")) {
            self.bad(
                piece.span(),
                "`**` stands for whole segments only",
                "use `*` for any text inside one segment",
            );
            return None;
        }
        if let [only] = parts.as_slice() {
            return self.part(*only, place).and_then(|part| self.finish(part, *only));
        }
        let hirs: Vec<_> =
            parts.iter().map(|part| self.part(*part, place).map(|read| (read, *part))).collect();
        self.mixed(hirs.into_iter().collect::<Option<_>>()?, piece)
    }

    fn mixed(&mut self, parts: Vec<(Part, Piece<'_>)>, piece: Piece<'_>) -> Option<Pattern> {
        let mut text = String::new();
        let mut hirs = Vec::new();
        for (part, source) in parts {
            match part {
                Part::Pattern(pattern) => {
                    pattern.write_canonical(&mut text);
                    hirs.push(pattern.hir()?);
                }
                Part::Regex(hir) => {
                    text.push_str(source.text);
                    hirs.push(hir);
                }
            }
        }
        self.compile(text, &Hir::concat(hirs), piece)
    }

    fn finish(&mut self, part: Part, piece: Piece<'_>) -> Option<Pattern> {
        match part {
            Part::Pattern(pattern) => Some(pattern),
            Part::Regex(hir) => self.compile(piece.text.to_owned(), &hir, piece),
        }
    }

    fn compile(&mut self, text: String, hir: &Hir, piece: Piece<'_>) -> Option<Pattern> {
        match Pattern::regex(text, hir) {
            Ok(pattern) => Some(pattern),
            Err(message) => {
                self.error(
                    Code::BadRegex,
                    piece.span(),
                    message,
                    Some("use a simpler expression".to_owned()),
                );
                None
            }
        }
    }

    fn part(&mut self, piece: Piece<'_>, place: Where) -> Option<Part> {
        if piece.text == "*" {
            return Some(Part::Pattern(Pattern::Any));
        }
        if !piece.text.starts_with('{') {
            return self.literal(piece, place).map(|text| Part::Pattern(Pattern::Literal(text)));
        }
        let inner = piece.slice(1..piece.text.len() - 1);
        if inner.text.starts_with("re:") {
            return self.expression(inner.slice(3..inner.text.len()));
        }
        if inner.text.contains('|') {
            return self.alternatives(inner, place);
        }
        self.named(inner).map(Part::Pattern)
    }

    fn expression(&mut self, piece: Piece<'_>) -> Option<Part> {
        match regex::parse(piece.text) {
            Ok(hir) => Some(Part::Regex(hir)),
            Err(message) => {
                let help = "expressions are ASCII, without look-around and back references".to_owned();
                self.error(Code::BadRegex, piece.span(), format!("bad expression: {message}"), Some(help));
                None
            }
        }
    }

    fn alternatives(&mut self, piece: Piece<'_>, place: Where) -> Option<Part> {
        let pieces = piece.split(b'|');
        let mut texts: Vec<Box<[u8]>> = Vec::new();
        for alternative in pieces {
            if alternative.text.is_empty() {
                self.bad(
                    piece.span(),
                    "an alternative is empty",
                    "write two lines, or an optional parameter",
                );
                return None;
            }
            let text = self.literal(alternative, place)?;
            if texts.contains(&text) {
                self.bad(
                    alternative.span(),
                    format!("`{}` is listed twice", alternative.text),
                    "list each text once",
                );
                return None;
            }
            texts.push(text);
        }
        Some(Part::Pattern(Pattern::one_of(texts)))
    }

    fn named(&mut self, piece: Piece<'_>) -> Option<Pattern> {
        /// Words that people write for a type; as a plain name they would match any segment.
        const LOOK_LIKE_TYPES: [(&str, &str); 12] = [
            ("integer", "int"),
            ("number", "int"),
            ("num", "int"),
            ("digits", "int"),
            ("uint", "int"),
            ("i64", "int"),
            ("u64", "int"),
            ("guid", "uuid"),
            ("datetime", "date"),
            ("day", "date"),
            ("sha", "hex"),
            ("hash", "hex"),
        ];
        let text = piece.text;
        if text == "any" {
            return Some(Pattern::Any);
        }
        if let Some(kind) = Kind::from_word(text) {
            return Some(Pattern::Kind(kind));
        }
        let lower = text.to_ascii_lowercase();
        let meant = LOOK_LIKE_TYPES.iter().find(|(word, _)| *word == lower).map(|(_, kind)| *kind);
        let meant =
            meant.or_else(|| Kind::from_word(&lower).map(Kind::word)).or((lower == "any").then_some("any"));
        if let Some(meant) = meant {
            let message = format!("`{{{text}}}` is a plain name and would match any segment");
            let help = format!("write `{{{meant}}}` for the type, or choose another name");
            self.error(Code::NotAType, piece.span(), message, Some(help));
            return None;
        }
        let name = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
        if !name {
            let help = "braces hold a name, a type (int, uuid, hex, slug, date, any), `a|b|c` or `re:…`";
            self.bad(piece.at - 1..piece.at + text.len() + 1, format!("`{{{text}}}` is none of these"), help);
            return None;
        }
        Some(Pattern::Any)
    }

    /// Literal text, decoded once: what a canonical target can have.
    fn literal(&mut self, piece: Piece<'_>, place: Where) -> Option<Box<[u8]>> {
        let bytes = piece.text.as_bytes();
        if let Some((at, character)) = piece.text.char_indices().find(|(_, c)| !place.takes(*c)) {
            let span = piece.at + at..piece.at + at + character.len_utf8();
            let mut escaped = String::new();
            super::pattern::escape_into(character.to_string().as_bytes(), &mut escaped);
            let (message, help) = match character {
                '}' => ("the `}` has no `{`".to_owned(), "write `%7D` for the character".to_owned()),
                '\\' | ';' => (
                    format!("`{character}` is in no canonical target"),
                    "no request can match; leave it out".to_owned(),
                ),
                ' ' | '\t' => ("a space in the path".to_owned(), "write `%20` for the character".to_owned()),
                '#' => ("a fragment is never sent".to_owned(), "leave it out".to_owned()),
                c => (format!("`{}` must be escaped", c.escape_default()), format!("write `{escaped}`")),
            };
            self.error(Code::BadRoute, span, message, Some(help));
            return None;
        }
        if let Some(at) = bad_escape(bytes) {
            let help = "an escape is `%` and two hex digits; write `%25` for a percent sign";
            self.bad(piece.at + at..piece.at + (at + 3).min(bytes.len()), "a malformed percent escape", help);
            return None;
        }
        let text: Vec<u8> = match place {
            Where::Path => Decoded::of(bytes).collect(),
            Where::Query => Decoded::form(bytes).collect(),
        };
        let never =
            |byte: &u8| matches!(byte, 0x00..=0x1f | 0x7f | b'\\') || (place == Where::Path && *byte == b';');
        if text.iter().any(never) || std::str::from_utf8(&text).is_err() {
            self.bad(
                piece.span(),
                "an escape that no canonical target has",
                "no request can match; leave it out",
            );
            return None;
        }
        Some(text.into_boxed_slice())
    }
}

enum Part {
    Pattern(Pattern),
    Regex(Hir),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Where {
    Path,
    Query,
}

impl Where {
    fn takes(self, character: char) -> bool {
        let Ok(byte) = u8::try_from(character) else { return false };
        let common = is_unreserved(byte)
            || matches!(byte, b'%' | b':' | b'@' | b'$' | b'\'' | b'(' | b')' | b'+' | b',' | b'[' | b']');
        match self {
            Self::Path => common || matches!(byte, b'!' | b'&' | b'='),
            Self::Query => common || matches!(byte, b'/' | b'?' | b'='),
        }
    }
}

fn closing_brace(text: &str) -> Option<usize> {
    with_depth(text).find(|(_, byte, depth)| *byte == b'}' && *depth == 1).map(|(at, _, _)| at)
}

fn bad_escape(bytes: &[u8]) -> Option<usize> {
    let percents = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'%').map(|(at, _)| at);
    let digit = |at: usize| bytes.get(at).copied().and_then(hex_value).is_some();
    percents.into_iter().find(|at| !digit(at + 1) || !digit(at + 2))
}

#[cfg(test)]
mod tests;
