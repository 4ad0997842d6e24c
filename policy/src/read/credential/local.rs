//! `exec`, `vault` and `mtls`: secrets of a helper, of a vault, and certificates.

use toml::de::DeValue;

use super::super::table::{Fields, Reader};
use super::{header_name, issuer, plain, reference, secret, word};
use crate::credential::{ExecView, MtlsView, VaultEngine, VaultLogin, VaultView};
use crate::diagnostic::{Code, Diagnostic};
use crate::model::CredentialView;
use crate::units::duration_seconds;

pub(crate) const EXEC_FIELDS: &[&str] = &["kind", "command", "header"];
pub(crate) const VAULT_FIELDS: &[&str] = &[
    "kind",
    "address",
    "namespace",
    "token",
    "role_id",
    "secret_id",
    "engine",
    "path",
    "field",
    "header",
    "ttl",
    "trust",
    "addresses",
];
pub(crate) const MTLS_FIELDS: &[&str] = &["kind", "certificate", "key"];

/// Seconds after which a secret without a lease is read again where the policy says nothing.
const VAULT_TTL_DEFAULT_SECONDS: u64 = 300;
const VAULT_TTL_MAX_SECONDS: u64 = 86_400;

pub(super) fn exec(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>) -> Option<CredentialView> {
    if fields.get("command").is_none() {
        fields.missing(reader, "command", "command = [\"/usr/local/bin/print-token\"]");
    }
    let command = reference::command(reader, fields, "command");
    let header = header_name(reader, fields, "header");
    Some(CredentialView::Exec(Box::new(ExecView { command: command?, header: header.ok()? })))
}

pub(super) fn vault(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>) -> Option<CredentialView> {
    let issuer = issuer::base(reader, fields, "address", None);
    let namespace = plain(reader, fields, "namespace");
    let login = login(reader, fields);
    let engine = engine(reader, fields);
    let path_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
    let path = word(reader, fields, "path", "path = \"secret/data/app\"", path_byte);
    let field = fields.required_text(reader, "field", "field = \"token\"");
    let header = header_name(reader, fields, "header");
    let ttl = fields.measured(
        reader,
        "ttl",
        |text| duration_seconds(text).filter(|seconds| (1..=VAULT_TTL_MAX_SECONDS).contains(seconds)),
        "at most a day, for example `\"5m\"`",
    );
    let path = path.filter(|path| {
        let fine = path.split('/').all(|part| !matches!(part, "" | "." | ".."));
        if !fine {
            let help = "write it as in `vault read`, without a `/` at either end";
            reader.error(Code::BadValue, fields.header(), "`path` has an empty or a dot segment", help);
        }
        fine
    });
    Some(CredentialView::Vault(Box::new(VaultView {
        issuer: issuer?,
        namespace,
        login: login?,
        engine: engine?,
        path: path?,
        field: field?.value,
        header: header.ok()?,
        ttl_seconds: ttl.unwrap_or(VAULT_TTL_DEFAULT_SECONDS),
    })))
}

fn login(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>) -> Option<VaultLogin> {
    let approle = fields.get("role_id").is_some() || fields.get("secret_id").is_some();
    match (fields.get("token").is_some(), approle) {
        (true, false) => secret(reader, fields, "token").map(VaultLogin::Token),
        (false, true) => {
            let role_id = fields.required_text(reader, "role_id", "role_id = \"…\"");
            let secret_id = secret(reader, fields, "secret_id");
            Some(VaultLogin::AppRole { role_id: role_id?.value, secret_id: secret_id? })
        }
        _ => {
            let help = "write `token = { file = \"/path\" }`, or `role_id` and `secret_id`";
            reader.error(
                Code::MissingField,
                fields.header(),
                "the credential does not name exactly one way to log in",
                help,
            );
            None
        }
    }
}

fn engine(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>) -> Option<VaultEngine> {
    match fields.get("engine").map(toml::Spanned::get_ref) {
        None => Some(VaultEngine::Kv2),
        Some(DeValue::String(text)) if text == "kv2" => Some(VaultEngine::Kv2),
        Some(DeValue::String(text)) if text == "dynamic" => Some(VaultEngine::Dynamic),
        Some(_) => {
            let place = fields.text(reader, "engine")?.place;
            let message = "`engine` is neither `kv2` nor `dynamic`";
            let help = "`kv2` is the key-value store, version 2; `dynamic` is every engine that makes a secret with a lease";
            reader.push(Diagnostic::error(Code::BadValue, message).at(place).help(help));
            None
        }
    }
}

pub(super) fn mtls(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>) -> Option<CredentialView> {
    let certificate = secret(reader, fields, "certificate");
    let key = secret(reader, fields, "key");
    Some(CredentialView::Mtls(Box::new(MtlsView { certificate: certificate?, key: key? })))
}
