//! Pieces of text that were written by strangers, as pieces of a policy file.

use crate::limits::NAME_MAX_BYTES;
use crate::route::pattern::{Decoded, escape_into};
use crate::target::is_unreserved;

/// Characters of a comment that is taken over; more than a line of an editor tells no reviewer more.
const COMMENT_MAX_CHARACTERS: usize = 100;

/// A TOML string. Literal quotes where they save escapes, so that an expression reads as it is.
pub(crate) fn quoted(text: &str) -> String {
    let plain = !text.contains('\'') && !text.chars().any(char::is_control);
    if text.contains(['\\', '"']) && plain {
        return format!("'{text}'");
    }
    let mut out = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            c if c.is_control() => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// One line without control characters. SECURITY: a line break would end the comment and start policy.
pub(crate) fn comment(text: &str) -> String {
    let hidden = |c: char| {
        c.is_control()
            || matches!(c, '\u{2028}' | '\u{2029}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
    };
    let spaced: String = text.chars().map(|c| if hidden(c) { ' ' } else { c }).collect();
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let line = words.join(" ");
    match line.char_indices().nth(COMMENT_MAX_CHARACTERS) {
        Some((at, _)) => format!("{}…", line.get(..at).unwrap_or_default()),
        None => line,
    }
}

/// A name for a definition from a title; `fallback` where nothing is left of it.
pub(crate) fn name(title: &str, fallback: &str) -> String {
    let mut out = String::new();
    for character in title.chars() {
        if out.len() >= NAME_MAX_BYTES {
            break;
        }
        if character.is_ascii_alphanumeric() {
            out.push(character.to_ascii_lowercase());
        } else if !out.is_empty() && !out.ends_with('-') {
            out.push('-');
        }
    }
    let trimmed = out.trim_end_matches('-');
    if trimmed.is_empty() { fallback.to_owned() } else { trimmed.to_owned() }
}

/// Literal text of a path as a route line has it; escapes that are there already mean what they say.
pub(crate) fn path_literal(text: &str) -> String {
    literal(Decoded::of(text.as_bytes()), |byte| b":@$'()+,[]!&=".contains(&byte))
}

/// The name of a parameter as a route line has it.
pub(crate) fn query_literal(text: &str) -> String {
    literal(text.bytes(), |byte| b":@$'(),[]/".contains(&byte))
}

/// Text inside `{a|b}`.
pub(crate) fn alternative(text: &str) -> String {
    literal(text.bytes(), |byte| b":@$,".contains(&byte))
}

fn literal(bytes: impl Iterator<Item = u8>, plain: impl Fn(u8) -> bool) -> String {
    let mut out = String::new();
    for byte in bytes {
        if is_unreserved(byte) || plain(byte) {
            out.push(char::from(byte));
        } else {
            escape_into(&[byte], &mut out);
        }
    }
    out
}

/// `{name}` for a plain segment: a name that nobody takes for a type.
pub(crate) fn placeholder(name: &str) -> String {
    let kept: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' })
        .take(NAME_MAX_BYTES)
        .collect();
    let kept = kept.trim_matches(['_', '-']);
    for candidate in [format!("{{{kept}}}"), format!("{{{kept}_value}}"), format!("{{value_{kept}}}")] {
        // A type would match less, a word that looks like one is refused.
        let (line, _) = crate::route::line::parse(&format!("GET /{candidate}"));
        let plain = line.is_some_and(|line| line.canonical() == "GET /{any}");
        if plain && candidate != "{any}" {
            return candidate;
        }
    }
    "{value}".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_read_back_as_they_were() {
        for text in ["GET /a", r"GET /{re:\d+}", "it's \"so\" \\", "a\nb\tc\u{7f}", ""] {
            let document: toml::Table = format!("x = {}", quoted(text)).parse().unwrap();
            assert_eq!(document["x"].as_str(), Some(text));
        }
    }

    #[test]
    fn a_comment_stays_one_line() {
        assert_eq!(comment("a\r\nb\u{2028}c\u{0}\u{202e} d "), "a b c d");
        assert_eq!(comment(&"x".repeat(200)).chars().count(), 101);
    }

    #[test]
    fn names_are_names() {
        assert_eq!(name("Swagger Petstore - OpenAPI 3.0", "x"), "swagger-petstore-openapi-3-0");
        assert_eq!(name("日本", "imported"), "imported");
        assert!(name(&"ab ".repeat(90), "x").len() <= NAME_MAX_BYTES);
    }

    #[test]
    fn placeholders_are_never_types() {
        for (name, shown) in [
            ("petId", "{petId}"),
            ("hash", "{hash_value}"),
            ("int", "{int_value}"),
            ("any", "{any_value}"),
            ("$top", "{top}"),
            ("9lives", "{value_9lives}"),
            ("…", "{_value}"),
        ] {
            assert_eq!(placeholder(name), shown);
        }
    }
}
