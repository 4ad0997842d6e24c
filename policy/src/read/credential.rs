//! `[credential.NAME]`: how a secret is attached, and where it comes from.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::table::{Fields, Reader};
use crate::diagnostic::{Code, Diagnostic};
use crate::draft::{At, DraftCredential};
use crate::model::{CredentialView, SecretReference};
use crate::suggest::nearest;
use crate::units::duration_seconds;

pub(crate) const KINDS: &[&str] = &["bearer", "header", "basic", "query", "jwt"];
pub(crate) const BEARER_FIELDS: &[&str] = &["kind", "token"];
pub(crate) const HEADER_FIELDS: &[&str] = &["kind", "name", "value"];
pub(crate) const BASIC_FIELDS: &[&str] = &["kind", "username", "password"];
pub(crate) const QUERY_FIELDS: &[&str] = &["kind", "parameter", "value"];
pub(crate) const JWT_FIELDS: &[&str] =
    &["kind", "algorithm", "key", "issuer", "audience", "key_id", "scope", "ttl"];
pub(crate) const ALGORITHMS: &[&str] = &["HS256", "ES256", "EdDSA", "RS256"];
pub(crate) const REFERENCES: &[&str] = &["file", "env", "exec", "systemd"];

/// Seconds that a minted token lives where the policy says nothing: long enough for clock differences and slow calls,
/// short enough that a token in somebody's log is stale when it is read.
const JWT_TTL_DEFAULT_SECONDS: u64 = 300;
/// A longer life is a static secret in disguise.
const JWT_TTL_MAX_SECONDS: u64 = 3600;

/// Headers that carry framing, routing or the proxy's own meaning: a credential there would change the request.
const RESERVED_HEADERS: &[&str] = &[
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "upgrade",
    "expect",
    "proxy-authorization",
    "proxy-connection",
    "content-type",
    "content-encoding",
    "accept-encoding",
    "range",
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "via",
];

pub(super) fn read(
    reader: &mut Reader<'_, '_>,
    name: At<Arc<str>>,
    key: &Spanned<Cow<'_, str>>,
    table: &DeTable<'_>,
) -> Option<()> {
    let kind = kind(reader, key, table)?;
    let known = match kind {
        "bearer" => BEARER_FIELDS,
        "header" => HEADER_FIELDS,
        "basic" => BASIC_FIELDS,
        "query" => QUERY_FIELDS,
        _ => JWT_FIELDS,
    };
    let fields = Fields::new(reader, table, key.span(), format!("a `{kind}` credential"), known);
    let view = match kind {
        "bearer" => CredentialView::Bearer { token: secret(reader, &fields, "token")? },
        "header" => header(reader, &fields)?,
        "basic" => basic(reader, &fields)?,
        "query" => query(reader, &fields)?,
        _ => jwt(reader, &fields)?,
    };
    reader.draft.credentials.push(DraftCredential { name, view });
    Some(())
}

fn kind(
    reader: &mut Reader<'_, '_>,
    key: &Spanned<Cow<'_, str>>,
    table: &DeTable<'_>,
) -> Option<&'static str> {
    let list = KINDS.join(", ");
    let Some(value) = table.get("kind") else {
        let help = format!("add `kind = \"bearer\"`; kinds are {list}");
        reader.error(Code::MissingField, key.span(), "the credential has no `kind`", &help);
        return None;
    };
    let DeValue::String(text) = value.get_ref() else {
        reader.wrong_type(value.span(), "`kind`", "a text", value.get_ref());
        return None;
    };
    let found = KINDS.iter().copied().find(|kind| kind == text);
    if found.is_none() {
        let help = match nearest(text, KINDS.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("kinds are {list}"),
        };
        reader.error(
            Code::BadValue,
            value.span(),
            format!("`{}` is not a kind of credential", text.escape_debug()),
            &help,
        );
    }
    found
}

fn header(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>) -> Option<CredentialView> {
    let name = fields.required_text(reader, "name", "name = \"x-api-key\"");
    let value = secret(reader, fields, "value");
    let name = name?;
    let lower = name.value.to_ascii_lowercase();
    let token = lower.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte));
    if !token || RESERVED_HEADERS.contains(&lower.as_str()) {
        let message = format!("`{}` is not a header that can hold a credential", name.value.escape_debug());
        let help = "use a header of the API such as `x-api-key`; `kind = \"bearer\"` and `\"basic\"` set Authorization";
        reader.push(Diagnostic::error(Code::BadValue, message).at(name.place).help(help));
        return None;
    }
    Some(CredentialView::Header { name: lower, value: value? })
}

fn basic(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>) -> Option<CredentialView> {
    let username = fields.required_text(reader, "username", "username = \"bot\"");
    let password = secret(reader, fields, "password");
    let username = username?;
    // RFC 7617 2: the first colon ends the user name.
    if username.value.contains(':') || username.value.chars().any(char::is_control) {
        let help = "Basic authentication ends the user name at the first colon";
        let message = "a user name with a colon or a control character";
        reader.push(Diagnostic::error(Code::BadValue, message).at(username.place).help(help));
        return None;
    }
    Some(CredentialView::Basic { username: username.value, password: password? })
}

fn query(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>) -> Option<CredentialView> {
    let parameter = fields.required_text(reader, "parameter", "parameter = \"key\"");
    let value = secret(reader, fields, "value");
    let parameter = parameter?;
    let plain = parameter
        .value
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
    if !plain {
        let help = "a parameter name has letters, digits, `-`, `_` and `.`";
        let message = format!("`{}` is not a parameter name", parameter.value.escape_debug());
        reader.push(Diagnostic::error(Code::BadValue, message).at(parameter.place).help(help));
        return None;
    }
    Some(CredentialView::Query { parameter: parameter.value, value: value? })
}

fn jwt(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>) -> Option<CredentialView> {
    let algorithm = fields.required_text(reader, "algorithm", "algorithm = \"ES256\"");
    let key = secret(reader, fields, "key");
    let text = |reader: &mut Reader<'_, '_>, name: &str| fields.text(reader, name).map(|text| text.value);
    let (issuer, audience) = (text(reader, "issuer"), text(reader, "audience"));
    let (key_id, scope) = (text(reader, "key_id"), text(reader, "scope"));
    let ttl = fields.measured(
        reader,
        "ttl",
        |text| duration_seconds(text).filter(|seconds| *seconds <= JWT_TTL_MAX_SECONDS),
        "a token lives at most an hour: a whole number and `s`, `m` or `h`, for example `\"5m\"`",
    );
    let algorithm = algorithm?;
    if !ALGORITHMS.contains(&algorithm.value.as_str()) {
        let help = match nearest(&algorithm.value, ALGORITHMS.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("algorithms are {}", ALGORITHMS.join(", ")),
        };
        let message = format!("`{}` is not an algorithm", algorithm.value.escape_debug());
        reader.push(Diagnostic::error(Code::BadValue, message).at(algorithm.place).help(help));
        return None;
    }
    Some(CredentialView::Jwt {
        algorithm: algorithm.value,
        key: key?,
        issuer,
        audience,
        key_id,
        scope,
        ttl_seconds: ttl.unwrap_or(JWT_TTL_DEFAULT_SECONDS),
    })
}

/// `{ file = "…" }`, `{ env = "…" }`, `{ exec = ["…"] }` or `{ systemd = "…" }`.
fn secret(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>, key: &str) -> Option<SecretReference> {
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
        "exec" => exec(reader, &reference).map(SecretReference::Exec),
        _ => systemd(reader, &reference).map(SecretReference::Systemd),
    }
}

fn file(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>) -> Option<String> {
    let path = fields.text(reader, "file")?;
    absolute(reader, path)
}

pub(super) fn absolute(reader: &mut Reader<'_, '_>, path: At<String>) -> Option<String> {
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

fn exec(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>) -> Option<Vec<String>> {
    let items = match fields.get("exec").map(Spanned::get_ref) {
        Some(DeValue::Array(items)) => items,
        Some(_) => {
            let span = fields.header();
            reader.error(
                Code::WrongType,
                span,
                "`exec` is not a list",
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
            reader.error(Code::BadValue, span, "`exec` does not start with the path of a program", help);
            None
        }
    }
}

fn systemd(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>) -> Option<String> {
    let name = fields.text(reader, "systemd")?;
    if super::is_name(&name.value) {
        return Some(name.value);
    }
    let help = "write the name after `LoadCredential=`; the file is looked up in $CREDENTIALS_DIRECTORY";
    let message = format!("`{}` is not a credential name", name.value.escape_debug());
    reader.push(Diagnostic::error(Code::BadValue, message).at(name.place).help(help));
    None
}
