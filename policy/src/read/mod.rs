//! Files to definitions: TOML with places, every mistake with its place.

pub(crate) mod allowance;
pub(crate) mod api;
pub(crate) mod condition;
pub(crate) mod credential;
pub(crate) mod grant;
pub(crate) mod placeholder;
mod table;

use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::SourceFile;
use crate::diagnostic::{Code, Diagnostic, Place};
use crate::draft::{At, Draft, Kind};
use crate::limits::{FILE_MAX_BYTES, FILES_MAX, NAME_MAX_BYTES};
use crate::source::Located;
use table::{Fields, Reader};

/// The version of the language that this program reads.
pub(crate) const LANGUAGE_VERSION: i64 = 1;

/// Tables that a file may have.
pub(crate) const FILE_FIELDS: &[&str] =
    &["version", "allow_warning", "defaults", "credential", "api", "group", "grant"];

/// Reads every file. Files are taken in the order of their names, so that the order in which they come does not matter.
pub(crate) fn files(files: &[SourceFile]) -> Draft {
    let mut draft = Draft::default();
    let mut sorted: Vec<&SourceFile> =
        files.iter().filter(|file| !SourceFile::is_cases(&file.name)).collect();
    sorted.sort_by(|a, b| a.name.cmp(&b.name));
    if sorted.is_empty() {
        let help = "a policy folder holds `*.toml` files; an empty one is refused, because a broken copy looks like that";
        draft
            .diagnostics
            .push(Diagnostic::error(Code::Empty, "the policy folder has no policy file").help(help));
    }
    if sorted.len() > FILES_MAX {
        draft
            .diagnostics
            .push(Diagnostic::error(Code::TooLarge, format!("more than {FILES_MAX} policy files")));
        return draft;
    }
    for source in sorted {
        file(source, &mut draft);
    }
    draft
}

fn file(source: &SourceFile, draft: &mut Draft) {
    let located = Located::new(source);
    if located.text.len() > FILE_MAX_BYTES {
        let place = Place::start_of(&source.name);
        draft.diagnostics.push(Diagnostic::error(Code::TooLarge, "the file is larger than 4 MiB").at(place));
        return;
    }
    let (document, errors) = DeTable::parse_recoverable(located.text);
    let (repeated, broken): (Vec<_>, Vec<_>) = errors.iter().partition(|error| is_duplicate(error));
    draft.diagnostics.extend(repeated.iter().map(|error| duplicate(&located, error)));
    if !broken.is_empty() {
        // What the parser makes of the rest of such a file is a guess, and its mistakes would only hide the real one.
        draft.incomplete = true;
        let problems = broken.iter().map(|error| syntax(&located, error));
        let mut problems: Vec<Diagnostic> = problems.collect();
        problems.dedup_by_key(|problem| problem.place.as_ref().map(|place| place.line));
        draft.diagnostics.extend(problems);
        return;
    }
    let mut reader = Reader::new(&located, draft);
    if !reader.version(document.get_ref()) {
        return;
    }
    let fields = Fields::new(&mut reader, document.get_ref(), 0..0, "the file", FILE_FIELDS);
    if !document.get_ref().keys().any(|key| key.get_ref() != "version") {
        let message = "the file defines nothing";
        let help =
            "remove the file, or write its definitions; an empty file is what a broken write leaves behind";
        reader.push(Diagnostic::error(Code::Empty, message).at(Place::start_of(&source.name)).help(help));
    }
    allowance::read(&mut reader, &fields, document.get_ref());
    grant::defaults(&mut reader, &fields);
    let kinds = [Kind::Credential, Kind::Api, Kind::Group, Kind::Grant];
    for (kind, key) in kinds.map(|kind| (kind, kind.word())) {
        if let Some(table) = fields.table(&mut reader, key) {
            definitions(&mut reader, kind, table);
        }
    }
}

fn definitions(reader: &mut Reader<'_, '_>, kind: Kind, table: &DeTable<'_>) {
    for (key, value) in table {
        let before = reader.error_count();
        let name = name(reader, kind, key);
        let complete = match value.get_ref() {
            DeValue::Table(table) => match kind {
                Kind::Credential => credential::read(reader, name.clone(), key, table),
                Kind::Api => api::read(reader, name.clone(), key, table),
                Kind::Grant => grant::read(reader, name.clone(), key, table),
                Kind::Group => grant::group(reader, name.clone(), key, table),
            },
            other => {
                reader.wrong_type(
                    value.span(),
                    &format!("`{}.{}`", kind.word(), key.get_ref()),
                    "a table",
                    other,
                );
                None
            }
        };
        if complete.is_none() || reader.error_count() > before {
            reader.draft.broken.push((kind, key.get_ref().to_string()));
        }
    }
}

/// Checks the name of a definition; a bad one is reported and used all the same, for the sake of further problems.
fn name(reader: &mut Reader<'_, '_>, kind: Kind, key: &Spanned<std::borrow::Cow<'_, str>>) -> At<Arc<str>> {
    let text = key.get_ref();
    let place = reader.place(key.span());
    if !is_name(text) {
        let message = format!("`{}` cannot be the name of {}", text.escape_debug(), kind.with_article());
        let help =
            "a name starts with a letter or digit and has letters, digits, `-`, `_` and `.`; at most 64";
        reader.push(Diagnostic::error(Code::BadName, message).at(place.clone()).help(help));
    }
    At { value: Arc::from(text.as_ref()), place }
}

/// Names stand in audit records, rule ids and command lines: one spelling, no separator that those use.
pub(crate) fn is_name(text: &str) -> bool {
    text.len() <= NAME_MAX_BYTES
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

fn is_duplicate(error: &toml::de::Error) -> bool {
    error.message().contains("duplicate key")
}

fn duplicate(located: &Located<'_>, error: &toml::de::Error) -> Diagnostic {
    let place = located.place(error.span().unwrap_or(0..0));
    let name = place.text.chars().skip(to_usize(place.column).saturating_sub(1)).take(to_usize(place.width));
    let message = format!("`{}` is there twice", name.collect::<String>());
    let help = "write it once; two tables of one name are not merged";
    Diagnostic::error(Code::DuplicateDefinition, message).at(place).help(help)
}

fn to_usize(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn syntax(located: &Located<'_>, error: &toml::de::Error) -> Diagnostic {
    // SECURITY: the broken line may hold a secret; only the part before its value is shown.
    let place = located.place(error.span().unwrap_or(0..0)).without_values();
    let message = error.message().lines().next().unwrap_or("cannot be read").to_owned();
    Diagnostic::error(Code::Syntax, message)
        .at(place)
        .help("the file is TOML 1.1; nothing of it is used until it can be read")
}
