//! `{ file = "…" }`, `{ env = "…" }`, `{ exec = ["…"] }` or `{ systemd = "…" }`: where a secret comes from.

use std::ops::Range;

use toml::Spanned;
use toml::de::DeValue;

use crate::diagnostic::{Code, Diagnostic};
use crate::draft::At;
use crate::model::SecretReference;
use crate::read::table::{Fields, Reader};

pub(crate) const REFERENCES: &[&str] = &["file", "env", "exec", "systemd"];

/// Reads the reference under `key` where there is one.
pub(super) fn optional(
    reader: &mut Reader<'_, '_>,
    fields: &Fields<'_, '_>,
    key: &str,
) -> Option<SecretReference> {
    fields.get(key).and_then(|_| secret(reader, fields, key))
}

/// Reads the reference under `key`, which must be there.
pub(super) fn secret(
    reader: &mut Reader<'_, '_>,
    fields: &Fields<'_, '_>,
    key: &str,
) -> Option<SecretReference> {
    let Some(value) = fields.get(key) else {
        fields.missing(reader, key, &format!("{key} = {{ file = \"/etc/freeboard/secrets/NAME\" }}"));
        return None;
    };
    let table = match value.get_ref() {
        DeValue::Table(table) => table,
        DeValue::String(_) => {
            // SECURITY: diagnostics go to logs; the line is shown without the secret. Guarded by ATTACKS G21.
            let place = reader.place(value.span()).without_values();
            let help = format!(
                "policy files are read by many; write `{key} = {{ file = \"/path\" }}` (or env, exec, systemd), and change the secret that stood here"
            );
            reader.push(
                Diagnostic::error(Code::LiteralSecret, format!("`{key}` is a secret in plain text"))
                    .at(place)
                    .help(help),
            );
            return None;
        }
        other => {
            reader.wrong_type(value.span(), &format!("`{key}`"), "a reference to a secret", other);
            return None;
        }
    };
    let reference = Fields::new(reader, table, value.span(), "a reference to a secret", REFERENCES);
    let mut kinds = reference.keys().filter(|name| REFERENCES.contains(&name.get_ref().as_ref()));
    let (Some(kind), None) = (kinds.next(), kinds.next()) else {
        let message = format!("`{key}` does not name exactly one source");
        reader.error(Code::BadValue, value.span(), message, "write one of file, env, exec and systemd");
        return None;
    };
    match kind.get_ref().as_ref() {
        "file" => file(reader, &reference).map(SecretReference::File),
        "env" => env(reader, &reference).map(SecretReference::Env),
        "exec" => command(reader, &reference, "exec").map(SecretReference::Exec),
        _ => systemd(reader, &reference).map(SecretReference::Systemd),
    }
}

fn file(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>) -> Option<String> {
    let path = fields.text(reader, "file")?;
    absolute(reader, path)
}

pub(in crate::read) fn absolute(reader: &mut Reader<'_, '_>, path: At<String>) -> Option<String> {
    if path.value.starts_with('/') && !path.value.contains('\0') {
        return Some(path.value);
    }
    let help = "write the whole path, from `/` on; the daemon's working folder is no part of a policy";
    let message = format!("`{}` is not an absolute path", path.value.escape_debug());
    reader.push(Diagnostic::error(Code::BadValue, message).at(path.place).help(help));
    None
}

fn env(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>) -> Option<String> {
    let name = fields.text(reader, "env")?;
    let good = name.value.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.value.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if good {
        return Some(name.value);
    }
    let help = "write the bare name, for example `{ env = \"GITHUB_TOKEN\" }`; `${…}` is not expanded";
    let place = name.place.without_values();
    reader.push(
        Diagnostic::error(Code::BadValue, "not a name of an environment variable").at(place).help(help),
    );
    None
}

/// Program and arguments under `key`.
pub(super) fn command(
    reader: &mut Reader<'_, '_>,
    fields: &Fields<'_, '_>,
    key: &str,
) -> Option<Vec<String>> {
    let items = match fields.get(key).map(Spanned::get_ref) {
        Some(DeValue::Array(items)) => items,
        Some(_) => {
            let span = fields.header();
            reader.error(
                Code::WrongType,
                span,
                format!("`{key}` is not a list"),
                "write program and arguments: `[\"/usr/bin/pass\", \"show\", \"x\"]`",
            );
            return None;
        }
        None => return None,
    };
    let words: Option<Vec<String>> =
        items.iter().map(|item| item.get_ref().as_str().map(str::to_owned)).collect();
    let span: Range<usize> = fields.header();
    match words {
        Some(words) if words.first().is_some_and(|program| program.starts_with('/')) => Some(words),
        _ => {
            let help = "a list of texts, the first one the whole path of a program; no shell reads it";
            reader.error(
                Code::BadValue,
                span,
                format!("`{key}` does not start with the path of a program"),
                help,
            );
            None
        }
    }
}

fn systemd(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>) -> Option<String> {
    let name = fields.text(reader, "systemd")?;
    if crate::read::is_name(&name.value) {
        return Some(name.value);
    }
    let help = "write the name after `LoadCredential=`; the file is looked up in $CREDENTIALS_DIRECTORY";
    let message = format!("`{}` is not a credential name", name.value.escape_debug());
    reader.push(Diagnostic::error(Code::BadValue, message).at(name.place).help(help));
    None
}
