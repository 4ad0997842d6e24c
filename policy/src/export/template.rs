//! The path of a route line as it was written, taken apart: texts, and variables with their names.

use crate::route::line;
use crate::route::pattern::{Kind, Pattern, escape_into};

pub(super) struct Path {
    pub(super) parts: Vec<Part>,
}

pub(super) enum Part {
    /// As it stands in a URL.
    Text(String),
    Variable {
        name: String,
        pattern: Pattern,
    },
    /// `**`
    Rest,
}

/// Method and target of a written line apart.
fn target(written: &str) -> &str {
    written.trim().split_once([' ', '\t']).map_or("", |(_, target)| target.trim_start())
}

/// The target for people.
pub(super) fn shown(written: &str) -> &str {
    target(written)
}

/// Takes the path of a line that was read before.
pub(super) fn path(written: &str) -> Path {
    let mut parts = Vec::new();
    let mut word = String::new();
    for token in tokens(target(written)) {
        match token {
            Token::Query => break,
            Token::Text(text) => {
                // The last whole word before a variable gives it a name where it has none.
                let last = text.split('/').rfind(|word| !word.is_empty()).map(str::to_owned);
                word = last.unwrap_or(word);
                parts.push(Part::Text(literal(text)));
            }
            Token::Rest => parts.push(Part::Rest),
            Token::Variable(text) => {
                let pattern = read(text);
                // `{a|b}` of one text, and what cannot be read again, stays as it is.
                let name = name(text, &pattern, &word);
                parts.push(Part::Variable { name, pattern });
            }
        }
    }
    Path { parts }
}

impl Path {
    /// The words of a name for the route.
    pub(super) fn words(&self) -> Vec<String> {
        let mut words: Vec<String> = Vec::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => {
                    words.extend(text.split('/').filter(|word| !word.is_empty()).map(str::to_owned));
                }
                Part::Variable { name, .. } => words.extend(["by".to_owned(), name.clone()]),
                Part::Rest => words.push("any".to_owned()),
            }
        }
        words
    }
}

enum Token<'t> {
    Text(&'t str),
    /// `{…}` or `*`
    Variable(&'t str),
    Rest,
    /// The query begins.
    Query,
}

fn tokens(target: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = target;
    while !rest.is_empty() {
        let end = rest.find(['{', '*', '?']).unwrap_or(rest.len());
        let (text, after) = rest.split_at(end);
        if !text.is_empty() {
            tokens.push(Token::Text(text));
        }
        if after.starts_with("**") {
            tokens.push(Token::Rest);
            rest = after.get(2..).unwrap_or_default();
        } else if after.starts_with('{') {
            let (variable, behind) = after.split_at(closed(after));
            tokens.push(Token::Variable(variable));
            rest = behind;
        } else if after.starts_with('*') {
            tokens.push(Token::Variable("*"));
            rest = after.get(1..).unwrap_or_default();
        } else {
            if !after.is_empty() {
                tokens.push(Token::Query);
            }
            break;
        }
    }
    tokens
}

/// The length of `{…}` at the start, braces and escapes inside it included.
fn closed(text: &str) -> usize {
    let (mut depth, mut escaped) = (0_usize, false);
    for (at, character) in text.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '{' => depth += 1,
            '}' if depth == 1 => return at + 1,
            '}' => depth -= 1,
            _ => {}
        }
    }
    text.len()
}

fn read(text: &str) -> Pattern {
    let (line, _) = line::parse(&format!("GET /{text}"));
    line.and_then(|line| line.path.segments.into_iter().next()).unwrap_or(Pattern::Any)
}

fn name(text: &str, pattern: &Pattern, word: &str) -> String {
    let inner = text.trim_start_matches('{').trim_end_matches('}');
    let named = matches!(pattern, Pattern::Any) && !matches!(inner, "*" | "any");
    if named {
        return inner.to_owned();
    }
    let what = match pattern {
        Pattern::Kind(Kind::Date) => "date",
        Pattern::Kind(_) => "id",
        Pattern::OneOf(_) => "choice",
        _ => "value",
    };
    if word.is_empty() { what.to_owned() } else { format!("{word}_{what}") }
}

/// Text of a path with everything escaped that a template or a URL reads differently.
fn literal(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/%:@$'(),[]!&=+".contains(&byte) {
            out.push(char::from(byte));
        } else {
            escape_into(&[byte], &mut out);
        }
    }
    out
}
