//! `[[allow_warning]]`: a warning that somebody looked at, and why it may stay.

use std::collections::HashSet;

use toml::de::{DeTable, DeValue};

use super::table::{Fields, Reader};
use crate::diagnostic::{Code, Diagnostic, Place};
use crate::draft::{At, DraftAllowance, Kind};
use crate::pages::Page;

pub(crate) const ALLOWANCE_FIELDS: &[&str] = &["code", "at", "reason"];

/// The allowances of one file. `document` is the whole of it.
pub(super) fn read(reader: &mut Reader<'_, '_>, file: &Fields<'_, '_>, document: &DeTable<'_>) {
    let Some(value) = file.get("allow_warning") else { return };
    let DeValue::Array(items) = value.get_ref() else {
        let help = "allowances are a list of tables: `[[allow_warning]]` with two brackets";
        reader.error(Code::WrongType, value.span(), "`allow_warning` is not a list of tables", help);
        return;
    };
    for item in items {
        match item.get_ref() {
            DeValue::Table(table) => {
                let fields = Fields::new(reader, table, item.span(), "an allowance", ALLOWANCE_FIELDS);
                if let Some(allowance) = one(reader, &fields, document) {
                    reader.draft.allowances.push(allowance);
                }
            }
            other => reader.wrong_type(item.span(), "an entry of `allow_warning`", "a table", other),
        }
    }
}

fn one(
    reader: &mut Reader<'_, '_>,
    fields: &Fields<'_, '_>,
    document: &DeTable<'_>,
) -> Option<DraftAllowance> {
    let written = fields.required_text(reader, "code", "code = \"E0507\"");
    let reason = fields.required_text(reader, "reason", "reason = \"why it may stay\"");
    let at = fields.text(reader, "at");
    let written = written?;
    let code = warning(reader, &written)?;
    let lines = match at {
        Some(at) => Some(lines(reader, &at, document)?),
        None => None,
    };
    Some(DraftAllowance { code, lines, reason: reason?.value.into(), place: written.place })
}

/// The code, if it is one of a warning.
fn warning(reader: &mut Reader<'_, '_>, written: &At<String>) -> Option<Code> {
    let mut refuse = |message: String, help: String| {
        let problem = Diagnostic::error(Code::BadAllowance, message).at(written.place.clone());
        reader.push(problem.help(help));
        None
    };
    match Page::find(&written.value) {
        Ok(page) if page.code.may_be_allowed() => Some(page.code),
        Ok(page) => refuse(
            format!("{} ({}) is an error: it cannot be allowed", page.short(), page.words()),
            "a policy with an error is not loaded; mend it".to_owned(),
        ),
        Err(near) => refuse(
            format!("no problem has the code `{}`", written.value.escape_debug()),
            match near {
                Some(near) => format!("did you mean `{near}`?"),
                None => "the code stands in brackets before each problem, for example `E0507`".to_owned(),
            },
        ),
    }
}

/// The lines of a definition of the file, named as `grant.NAME`.
fn lines(reader: &mut Reader<'_, '_>, at: &At<String>, document: &DeTable<'_>) -> Option<HashSet<u32>> {
    let kinds = [Kind::Credential, Kind::Api, Kind::Group, Kind::Grant];
    let named = at.value.split_once('.').filter(|(kind, _)| kinds.iter().any(|known| known.word() == *kind));
    let found = named.and_then(|(kind, name)| match document.get(kind).map(toml::Spanned::get_ref) {
        Some(DeValue::Table(table)) => table.get_key_value(name),
        _ => None,
    });
    let Some((key, value)) = found else {
        let message = format!("the file has no `{}`", at.value.escape_debug());
        let help = "`at` names a definition of this file: `credential.NAME`, `api.NAME`, `group.NAME` or `grant.NAME`";
        reader.push(Diagnostic::error(Code::BadAllowance, message).at(at.place.clone()).help(help));
        return None;
    };
    let mut lines = HashSet::from([reader.place(key.span()).line]);
    collect(reader, value.get_ref(), &mut lines);
    Some(lines)
}

/// The lines on which keys and values stand.
fn collect(reader: &Reader<'_, '_>, value: &DeValue<'_>, lines: &mut HashSet<u32>) {
    let line = |span| -> u32 {
        let place: Place = reader.place(span);
        place.line
    };
    match value {
        DeValue::Table(table) => {
            for (key, value) in table {
                lines.extend([line(key.span()), line(value.span())]);
                collect(reader, value.get_ref(), lines);
            }
        }
        DeValue::Array(items) => {
            for item in items {
                lines.insert(line(item.span()));
                collect(reader, item.get_ref(), lines);
            }
        }
        _ => {}
    }
}
