//! One TOML table with its known fields: types, missing and unknown fields, each mistake with its place.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::LANGUAGE_VERSION;
use crate::diagnostic::{Code, Diagnostic, Place, Severity};
use crate::draft::{At, Draft};
use crate::source::Located;
use crate::suggest::nearest;

/// One file being read into the draft.
pub(super) struct Reader<'d, 'f> {
    pub(super) file: &'d Located<'f>,
    pub(super) draft: &'d mut Draft,
}

impl<'d, 'f> Reader<'d, 'f> {
    pub(super) fn new(file: &'d Located<'f>, draft: &'d mut Draft) -> Self {
        Self { file, draft }
    }

    pub(super) fn place(&self, span: Range<usize>) -> Place {
        self.file.place(span)
    }

    pub(super) fn push(&mut self, diagnostic: Diagnostic) {
        self.draft.diagnostics.push(diagnostic);
    }

    pub(super) fn error(&mut self, code: Code, span: Range<usize>, message: impl Into<String>, help: &str) {
        let place = self.place(span);
        self.push(Diagnostic::error(code, message).at(place).help(help));
    }

    pub(super) fn warning(&mut self, code: Code, span: Range<usize>, message: impl Into<String>, help: &str) {
        let place = self.place(span);
        self.push(Diagnostic::warning(code, message).at(place).help(help));
    }

    pub(super) fn error_count(&self) -> usize {
        self.draft.diagnostics.iter().filter(|diagnostic| diagnostic.severity == Severity::Error).count()
    }

    pub(super) fn wrong_type(&mut self, span: Range<usize>, what: &str, wanted: &str, found: &DeValue<'_>) {
        let help = match (wanted, found) {
            (_, DeValue::Datetime(_)) => {
                "a date is written without quotes where a date is wanted, in quotes elsewhere"
            }
            ("a text", DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_)) => "put it in quotes",
            ("a list of texts", DeValue::String(_)) => "put it in brackets: `[\"…\"]`",
            ("a date", DeValue::String(_)) => "write the date without quotes: `2027-01-31`",
            ("true or false", _) => "write `true` or `false` without quotes",
            ("a number", _) => "write the number without quotes",
            ("a table", _) => "a table is `{ field = value }`, or a header `[…]` with the fields below it",
            _ => "see the reference of policy files",
        };
        self.error(Code::WrongType, span, format!("{what} is {}, not {}", kind_of(found), wanted), help);
    }

    /// Reads `version`; `false` when the file is of another version and nothing else of it is worth reporting.
    pub(super) fn version(&mut self, table: &DeTable<'_>) -> bool {
        let Some(value) = table.get("version") else { return true };
        let found = match value.get_ref() {
            DeValue::Integer(integer) => i64::from_str_radix(integer.as_str(), integer.radix()).ok(),
            other => {
                self.wrong_type(value.span(), "`version`", "a number", other);
                return true;
            }
        };
        if found == Some(LANGUAGE_VERSION) {
            return true;
        }
        let asked =
            found.map_or_else(|| "another version".to_owned(), |version| format!("version {version}"));
        let message = format!(
            "the file is written for {asked} of the policy language; this program reads version {LANGUAGE_VERSION}"
        );
        self.error(
            Code::Version,
            value.span(),
            message,
            "use a Freeboard that reads it, or convert the file; nothing of it is used",
        );
        false
    }
}

fn kind_of(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// The fields of one table.
pub(super) struct Fields<'t, 'i> {
    table: &'t DeTable<'i>,
    /// Where a missing field is reported.
    header: Range<usize>,
    what: String,
}

impl<'t, 'i> Fields<'t, 'i> {
    /// Reports every field that is not in `known`.
    pub(super) fn new(
        reader: &mut Reader<'_, '_>,
        table: &'t DeTable<'i>,
        header: Range<usize>,
        what: impl Into<String>,
        known: &[&str],
    ) -> Self {
        let fields = Self { table, header, what: what.into() };
        for key in table.keys().filter(|key| !known.contains(&key.get_ref().as_ref())) {
            let help = match nearest(key.get_ref(), known.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("{} has: {}", fields.what, known.join(", ")),
            };
            let message = format!("unknown field `{}`", key.get_ref().escape_debug());
            let place = reader.place(key.span());
            // SECURITY: a misspelt field of a credential may hold the secret itself. Guarded by ATTACKS G21.
            let place = if fields.what.contains("credential") || fields.what.contains("secret") {
                place.without_values()
            } else {
                place
            };
            reader.push(Diagnostic::error(Code::UnknownField, message).at(place).help(help));
        }
        fields
    }

    pub(super) fn get(&self, key: &str) -> Option<&'t Spanned<DeValue<'i>>> {
        self.table.get(key)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &'t Spanned<Cow<'i, str>>> {
        self.table.keys()
    }

    pub(super) fn header(&self) -> Range<usize> {
        self.header.clone()
    }

    pub(super) fn missing(&self, reader: &mut Reader<'_, '_>, key: &str, example: &str) {
        let message = format!("{} has no `{key}`", self.what);
        reader.error(Code::MissingField, self.header.clone(), message, &format!("add `{example}`"));
    }

    pub(super) fn text(&self, reader: &mut Reader<'_, '_>, key: &str) -> Option<At<String>> {
        let value = self.get(key)?;
        match value.get_ref() {
            DeValue::String(text) if text.is_empty() => {
                reader.error(
                    Code::BadValue,
                    value.span(),
                    format!("`{key}` is empty"),
                    "leave the field out, or give it a value",
                );
                None
            }
            DeValue::String(text) => Some(At { value: text.to_string(), place: reader.place(value.span()) }),
            other => {
                reader.wrong_type(value.span(), &format!("`{key}`"), "a text", other);
                None
            }
        }
    }

    pub(super) fn required_text(
        &self,
        reader: &mut Reader<'_, '_>,
        key: &str,
        example: &str,
    ) -> Option<At<String>> {
        if self.get(key).is_none() {
            self.missing(reader, key, example);
        }
        self.text(reader, key)
    }

    pub(super) fn flag(&self, reader: &mut Reader<'_, '_>, key: &str) -> bool {
        match self.get(key).map(|value| (value, value.get_ref())) {
            Some((_, DeValue::Boolean(flag))) => *flag,
            Some((value, other)) => {
                reader.wrong_type(value.span(), &format!("`{key}`"), "true or false", other);
                false
            }
            None => false,
        }
    }

    pub(super) fn table(&self, reader: &mut Reader<'_, '_>, key: &str) -> Option<&'t DeTable<'i>> {
        let value = self.get(key)?;
        match value.get_ref() {
            DeValue::Table(table) => Some(table),
            other => {
                reader.wrong_type(value.span(), &format!("`{key}`"), "a table", other);
                None
            }
        }
    }

    /// A list of texts that is there, has an entry and no entry twice. Each entry comes with its span.
    pub(super) fn texts(
        &self,
        reader: &mut Reader<'_, '_>,
        key: &str,
    ) -> Option<Vec<(&'t str, Range<usize>)>> {
        let value = self.get(key)?;
        let DeValue::Array(items) = value.get_ref() else {
            reader.wrong_type(value.span(), &format!("`{key}`"), "a list of texts", value.get_ref());
            return None;
        };
        if items.is_empty() {
            let help = "an empty list allows nothing; leave out what it belongs to, or add an entry";
            reader.error(Code::EmptyList, value.span(), format!("`{key}` is empty"), help);
            return None;
        }
        let mut texts: Vec<(&str, Range<usize>)> = Vec::new();
        let mut seen = std::collections::HashMap::new();
        for item in items {
            let DeValue::String(text) = item.get_ref() else {
                reader.wrong_type(item.span(), &format!("an entry of `{key}`"), "a text", item.get_ref());
                continue;
            };
            if let Some(before) = seen.insert(text.as_ref(), item.span()) {
                let (first, second) = (reader.place(before), reader.place(item.span()));
                let diagnostic =
                    Diagnostic::error(Code::Repeated, format!("`{}` is listed twice", text.escape_debug()));
                reader.push(diagnostic.at(second).related(first, "first here"));
                continue;
            }
            texts.push((text.as_ref(), item.span()));
        }
        Some(texts)
    }

    pub(super) fn required_texts(
        &self,
        reader: &mut Reader<'_, '_>,
        key: &str,
        example: &str,
    ) -> Option<Vec<(&'t str, Range<usize>)>> {
        if self.get(key).is_none() {
            self.missing(reader, key, example);
        }
        self.texts(reader, key)
    }

    /// A whole number above zero.
    pub(super) fn count(&self, reader: &mut Reader<'_, '_>, key: &str) -> Option<u64> {
        let value = self.get(key)?;
        let DeValue::Integer(integer) = value.get_ref() else {
            reader.wrong_type(value.span(), &format!("`{key}`"), "a number", value.get_ref());
            return None;
        };
        let number = u64::from_str_radix(integer.as_str(), integer.radix())
            .ok()
            .filter(|number| *number > 0 && i64::try_from(*number).is_ok());
        if number.is_none() {
            let help = "leave the field out for the default; a grant that must not be used is removed";
            reader.error(
                Code::BadValue,
                value.span(),
                format!("`{key}` is not a whole number above 0"),
                help,
            );
        }
        number
    }

    /// A value with a unit, such as `"15m"` or `"1MiB"`.
    pub(super) fn measured(
        &self,
        reader: &mut Reader<'_, '_>,
        key: &str,
        parse: impl Fn(&str) -> Option<u64>,
        help: &str,
    ) -> Option<u64> {
        let value = self.get(key)?;
        let text = match value.get_ref() {
            DeValue::String(text) => text.as_ref(),
            DeValue::Integer(_) | DeValue::Float(_) => {
                reader.error(Code::WrongType, value.span(), format!("`{key}` has no unit"), help);
                return None;
            }
            other => {
                reader.wrong_type(value.span(), &format!("`{key}`"), "a text", other);
                return None;
            }
        };
        let number = parse(text).filter(|number| i64::try_from(*number).is_ok());
        if number.is_none() {
            reader.error(Code::BadValue, value.span(), format!("`{key}` is `{}`", text.escape_debug()), help);
        }
        number
    }
}

/// The text as an `Arc`, with its place.
pub(super) fn shared(text: At<String>) -> At<Arc<str>> {
    At { value: Arc::from(text.value), place: text.place }
}
