//! Regular expressions of JSON Schema (ECMA-262, found anywhere in the text) to those of route lines (whole texts).

use crate::route::regex::{self, Regex};

/// The expression for whole texts.
///
/// # Errors
/// Why it cannot be taken over.
pub(super) fn translated(pattern: &str) -> Result<String, String> {
    let refuse = |why: &str| Err(format!("the pattern {why}: any text is allowed"));
    let alternatives = match scan(pattern) {
        Ok(alternatives) => alternatives,
        Err(why) => return refuse(why),
    };
    let whole = pattern.strip_prefix('^').and_then(|rest| rest.strip_suffix('$'));
    let expression = match whole {
        Some(inner) if !alternatives && !inner.ends_with('\\') => inner.to_owned(),
        _ => format!("(?s:.*)(?:{pattern})(?s:.*)"),
    };
    if !is_usable(&expression) {
        return refuse("is too large or has what route lines do not have");
    }
    Ok(expression)
}

pub(super) fn is_usable(expression: &str) -> bool {
    regex::parse(expression).is_ok_and(|hir| Regex::compile(&hir).is_ok())
}

/// A text as an expression that matches only it.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::new();
    for character in text.chars() {
        if character.is_ascii() && !character.is_ascii_alphanumeric() {
            out.push('\\');
        }
        out.push(character);
    }
    out
}

/// Whether alternatives stand outside every group; an error for what the two languages read differently.
fn scan(pattern: &str) -> Result<bool, &'static str> {
    if !pattern.is_ascii() {
        return Err("has characters outside ASCII");
    }
    let (mut groups, mut alternatives) = (0_usize, false);
    let mut class: Option<usize> = None;
    let mut rest = pattern;
    while let Some(character) = rest.chars().next() {
        match (character, class) {
            ('\\', _) => {
                rest = rest.get(2..).unwrap_or_default();
                class = class.map(|length| length + 1);
                continue;
            }
            // An empty class, or `]` as the first character of one, depends on the language.
            (']', Some(0)) => return Err("has an empty class"),
            (']', Some(_)) => class = None,
            ('^', Some(0)) => {}
            ('[' | '{' | '}', Some(_)) => return Err("has brackets or braces in a class"),
            ('&' | '~' | '-', Some(_)) if rest.get(..2) == Some(&character.to_string().repeat(2)) => {
                return Err("has a class that is read differently");
            }
            (_, Some(length)) => class = Some(length + 1),
            ('[', None) => class = Some(0),
            ('(', None) if rest.starts_with("(?") && !rest.starts_with("(?:") => {
                return Err("has a group that route lines do not have");
            }
            ('(', None) => groups += 1,
            (')', None) => groups = groups.saturating_sub(1),
            ('|', None) if groups == 0 => alternatives = true,
            _ => {}
        }
        rest = rest.get(1..).unwrap_or_default();
    }
    Ok(alternatives)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_become_expressions_for_whole_texts() {
        for (pattern, expression) in [
            ("^[a-z]+$", "[a-z]+"),
            (r"^v\d{1,3}$", r"v\d{1,3}"),
            ("^a|b$", "(?s:.*)(?:^a|b$)(?s:.*)"),
            ("^(a|b)$", "(a|b)"),
            ("abc", "(?s:.*)(?:abc)(?s:.*)"),
            (r"^a\$", r"(?s:.*)(?:^a\$)(?s:.*)"),
            ("^[|(]$", "[|(]"),
        ] {
            assert_eq!(translated(pattern).as_deref(), Ok(expression), "{pattern}");
        }
    }

    #[test]
    fn what_the_languages_read_differently_is_refused() {
        for pattern in [
            "^[a[b]]$", "^[a&&b]$", "^[]a]$", "^[^]$", "(?=a)b", r"^(a)\1$", "(?<n>a)", "^[a--b]$", "é",
            r"^\p{L}$", "^[{]a$", "(", "^$",
        ] {
            assert!(translated(pattern).is_err(), "{pattern}: {:?}", translated(pattern));
        }
        assert!(translated(&format!("^{}$", "a".repeat(300))).is_err());
    }

    #[test]
    fn texts_are_escaped_whole() {
        for text in ["a.b", "a+b|c", "(x)", "[y]", "a-b_c d"] {
            let expression = escaped(text);
            let compiled = Regex::compile(&regex::parse(&expression).unwrap()).unwrap();
            assert!(compiled.matches(text.bytes()), "{expression}");
            assert!(!compiled.matches("axb".bytes()));
        }
    }
}
