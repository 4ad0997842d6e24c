//! `[credential.NAME]`: how a secret is attached, and where it comes from.

mod aws;
mod cloud;
mod issuer;
mod local;
mod oauth2;
mod reference;

use std::borrow::Cow;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::table::{Fields, Reader};
use crate::credential::SigningKeyView;
use crate::diagnostic::{Code, Diagnostic};
use crate::draft::{At, DraftCredential};
use crate::model::CredentialView;
use crate::suggest::nearest;
use crate::units::duration_seconds;
#[cfg(test)]
pub(crate) use oauth2::SUBJECT_FIELDS;
#[cfg(test)]
pub(crate) use reference::REFERENCES;
pub(super) use reference::absolute;
use reference::{optional, secret};

/// Every kind with its fields, in the order of the reference page.
pub(crate) const KINDS: &[(&str, &[&str])] = &[
    ("bearer", &["kind", "token"]),
    ("header", &["kind", "name", "value"]),
    ("basic", &["kind", "username", "password"]),
    ("query", &["kind", "parameter", "value"]),
    ("jwt", &["kind", "algorithm", "key", "issuer", "audience", "key_id", "scope", "ttl"]),
    ("oauth2-client", oauth2::CLIENT_FIELDS),
    ("oauth2-refresh", oauth2::REFRESH_FIELDS),
    ("token-exchange", oauth2::EXCHANGE_FIELDS),
    ("aws-sigv4", aws::FIELDS),
    ("github-app", cloud::GITHUB_FIELDS),
    ("gcp-service-account", cloud::GCP_FIELDS),
    ("exec", local::EXEC_FIELDS),
    ("vault", local::VAULT_FIELDS),
    ("mtls", local::MTLS_FIELDS),
];
pub(crate) const ALGORITHMS: &[&str] = &["HS256", "ES256", "EdDSA", "RS256"];

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
    let (kind, known) = kind(reader, key, table)?;
    let fields = Fields::new(reader, table, key.span(), format!("a `{kind}` credential"), known);
    let view = match kind {
        "bearer" => CredentialView::Bearer { token: secret(reader, &fields, "token")? },
        "header" => header(reader, &fields)?,
        "basic" => basic(reader, &fields)?,
        "query" => query(reader, &fields)?,
        "oauth2-client" => oauth2::client(reader, &fields)?,
        "oauth2-refresh" => oauth2::refresh(reader, &fields)?,
        "token-exchange" => oauth2::exchange(reader, &fields)?,
        "aws-sigv4" => aws::read(reader, &fields)?,
        "github-app" => cloud::github(reader, &fields)?,
        "gcp-service-account" => cloud::gcp(reader, &fields)?,
        "exec" => local::exec(reader, &fields)?,
        "vault" => local::vault(reader, &fields)?,
        "mtls" => local::mtls(reader, &fields)?,
        _ => jwt(reader, &fields)?,
    };
    reader.draft.credentials.push(DraftCredential { name, view });
    Some(())
}

fn kind(
    reader: &mut Reader<'_, '_>,
    key: &Spanned<Cow<'_, str>>,
    table: &DeTable<'_>,
) -> Option<(&'static str, &'static [&'static str])> {
    let list = KINDS.iter().map(|(kind, _)| *kind).collect::<Vec<_>>().join(", ");
    let Some(value) = table.get("kind") else {
        let help = format!("add `kind = \"bearer\"`; kinds are {list}");
        reader.error(Code::MissingField, key.span(), "the credential has no `kind`", &help);
        return None;
    };
    let DeValue::String(text) = value.get_ref() else {
        reader.wrong_type(value.span(), "`kind`", "a text", value.get_ref());
        return None;
    };
    let found = KINDS.iter().copied().find(|(kind, _)| kind == text);
    if found.is_none() {
        let help = match nearest(text, KINDS.iter().map(|(kind, _)| *kind)) {
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
    if fields.get("name").is_none() {
        fields.missing(reader, "name", "name = \"x-api-key\"");
    }
    let name = header_name(reader, fields, "name");
    let value = secret(reader, fields, "value");
    Some(CredentialView::Header { name: name.ok()??, value: value? })
}

/// A mistake that was reported.
struct Reported;

/// A header that can hold a credential, in lower case; `None` where the field is left out.
fn header_name(
    reader: &mut Reader<'_, '_>,
    fields: &Fields<'_, '_>,
    key: &str,
) -> Result<Option<String>, Reported> {
    if fields.get(key).is_none() {
        return Ok(None);
    }
    let name = fields.text(reader, key).ok_or(Reported)?;
    let lower = name.value.to_ascii_lowercase();
    let token = lower.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte));
    if !token || RESERVED_HEADERS.contains(&lower.as_str()) {
        let message = format!("`{}` is not a header that can hold a credential", name.value.escape_debug());
        let help = "use a header of the API such as `x-api-key`; `kind = \"bearer\"` and `\"basic\"` set Authorization";
        reader.push(Diagnostic::error(Code::BadValue, message).at(name.place).help(help));
        return Err(Reported);
    }
    Ok(Some(lower))
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
    let key = signing_key(reader, fields, "key");
    let issuer = plain(reader, fields, "issuer");
    let audience = plain(reader, fields, "audience");
    let scope = plain(reader, fields, "scope");
    let ttl_seconds = jwt_ttl(reader, fields);
    let SigningKeyView { algorithm, key, key_id } = key?;
    Some(CredentialView::Jwt { algorithm, key, issuer, audience, key_id, scope, ttl_seconds })
}

/// `algorithm`, the key under `name`, and `key_id`.
fn signing_key(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>, name: &str) -> Option<SigningKeyView> {
    let algorithm = fields.required_text(reader, "algorithm", "algorithm = \"ES256\"");
    let key = secret(reader, fields, name);
    let key_id = plain(reader, fields, "key_id");
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
    Some(SigningKeyView { algorithm: algorithm.value, key: key?, key_id })
}

fn jwt_ttl(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>) -> u64 {
    let ttl = fields.measured(
        reader,
        "ttl",
        |text| duration_seconds(text).filter(|seconds| *seconds <= JWT_TTL_MAX_SECONDS),
        "a token lives at most an hour: a whole number and `s`, `m` or `h`, for example `\"5m\"`",
    );
    ttl.unwrap_or(JWT_TTL_DEFAULT_SECONDS)
}

/// A text whose place is of no interest.
fn plain(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>, key: &str) -> Option<String> {
    fields.text(reader, key).map(|text| text.value)
}

/// A text that is there and has these bytes only.
fn word(
    reader: &mut Reader<'_, '_>,
    fields: &Fields<'_, '_>,
    key: &str,
    example: &str,
    fit: impl Fn(u8) -> bool,
) -> Option<String> {
    let text = fields.required_text(reader, key, example)?;
    if text.value.bytes().all(fit) {
        return Some(text.value);
    }
    let message = format!("`{}` cannot be `{key}`", text.value.escape_debug());
    let help = format!("for example `{example}`");
    reader.push(Diagnostic::error(Code::BadValue, message).at(text.place).help(help));
    None
}
