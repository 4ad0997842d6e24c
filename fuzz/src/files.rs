//! Files that people hand over: policy, and descriptions to import.

use freeboard_policy::format::format;
use freeboard_policy::import::{Naming, Writes, har as log, openapi as description, plimsoll as grants};
use freeboard_policy::{Code, Diagnostic, Policy, SourceFile, render_all};

/// A policy file.
pub(crate) fn policy(data: &[u8]) {
    let Ok(file) = SourceFile::decode("fuzz.toml", data) else { return };
    match Policy::load(std::slice::from_ref(&file)) {
        Ok(loaded) => {
            let again = Policy::load(&[file]).map(|loaded| loaded.policy.digest().to_string());
            assert_eq!(
                again.ok().as_deref(),
                Some(&**loaded.policy.digest()),
                "the same file has the same digest"
            );
        }
        Err(problems) => {
            assert!(!problems.is_empty(), "a policy that is refused has a problem");
            for problem in problems {
                assert!(!problem.render().is_empty());
            }
        }
    }
}

/// A policy file in its one layout.
pub(crate) fn fmt(data: &[u8]) {
    let Ok(file) = SourceFile::decode("fuzz.toml", data) else { return };
    let Ok(once) = format(&file) else { return };
    let laid_out = SourceFile::new("fuzz.toml", once.clone());
    assert_eq!(format(&laid_out).ok().as_ref(), Some(&once), "formatting twice changes nothing");
    if let Ok(text) = std::str::from_utf8(data) {
        assert_eq!(comments(&once), comments(text), "every comment stays, in its order");
    }
    assert_eq!(meaning(laid_out), meaning(file), "formatting keeps what the file means:\n{once}");
}

/// The digest of a policy, or what is wrong with it.
fn meaning(file: SourceFile) -> Result<String, Vec<Code>> {
    let loaded = Policy::load(&[file]);
    loaded.map(|loaded| loaded.policy.digest().to_string()).map_err(|problems| {
        let mut codes: Vec<Code> = problems.iter().map(|problem| problem.code).collect();
        codes.sort_unstable();
        codes
    })
}

/// The comments of a TOML file that can be read.
fn comments(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(['#', '"', '\'']) {
        rest = rest.get(at..).unwrap_or_default();
        if let Some(comment) = rest.strip_prefix('#') {
            let end = comment.find('\n').unwrap_or(comment.len());
            found.push(comment.get(..end).unwrap_or_default().trim().to_owned());
            rest = comment.get(end..).unwrap_or_default();
            continue;
        }
        let quote =
            ["\"\"\"", "'''", "\"", "'"].into_iter().find(|quote| rest.starts_with(quote)).unwrap_or("\"");
        rest = after_text(rest.get(quote.len()..).unwrap_or_default(), quote);
    }
    found
}

/// What follows a text that ends with `quote`.
fn after_text<'t>(text: &'t str, quote: &str) -> &'t str {
    let escapes = quote.starts_with('"');
    let mut from = 0;
    loop {
        let rest = text.get(from..).unwrap_or_default();
        let (Some(end), escape) = (rest.find(quote), rest.find('\\').filter(|_| escapes)) else { return "" };
        match escape {
            // The character behind it has one byte, or more that no quote and no escape begins with.
            Some(at) if at < end => from += at + 2,
            _ => {
                let after = rest.get(end + quote.len()..).unwrap_or_default();
                // Up to two more quotes belong to a text in three of them.
                let more = if quote.len() == 3 {
                    after.bytes().take(2).take_while(|byte| quote.as_bytes().first() == Some(byte)).count()
                } else {
                    0
                };
                return after.get(more..).unwrap_or_default();
            }
        }
        while !text.is_char_boundary(from) {
            from += 1;
        }
    }
}

fn naming() -> Naming {
    Naming { callers: vec!["bot".to_owned()], ..Naming::default() }
}

/// An OpenAPI description.
pub(crate) fn openapi(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let options = description::Options {
        naming: naming(),
        writes: Writes::Include,
        server: Some("https://api.test".to_owned()),
        ..description::Options::default()
    };
    if let Ok(imported) = description::import(text, &options) {
        loads(&imported.policy);
    }
}

/// The log of a browser.
pub(crate) fn har(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let options = log::Options { naming: naming(), writes: Writes::Include, ..log::Options::default() };
    if let Ok(imported) = log::import(text, &options) {
        loads(&imported.policy);
    }
}

/// A grants file.
pub(crate) fn plimsoll(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(imported) = grants::import(text) {
        loads_with_warnings(&imported.policy);
    }
}

/// What an import made is a policy without a warning.
fn loads(policy: &str) {
    let warnings = loads_with_warnings(policy);
    assert!(warnings.is_empty(), "an import warns:\n{}\n{policy}", render_all(&warnings));
}

/// What an import made is a policy. What its source says of credentials may be worth a warning.
fn loads_with_warnings(policy: &str) -> Vec<Diagnostic> {
    match Policy::load(&[SourceFile::new("import.toml", policy)]) {
        Ok(loaded) => loaded.warnings,
        Err(problems) => panic!("an import is no policy:\n{}\n{policy}", render_all(&problems)),
    }
}
