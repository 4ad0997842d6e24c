//! `oauth2-client`, `oauth2-refresh` and `token-exchange`: tokens from an OAuth 2.0 token endpoint.

use super::super::table::{Fields, Reader};
use super::{issuer, jwt_ttl, optional, plain, reference, secret, signing_key};
use crate::credential::{ClientAuthentication, IssuerView, OAuth2Grant, OAuth2View, SubjectToken};
use crate::diagnostic::{Code, Diagnostic};
use crate::model::CredentialView;
use crate::suggest::nearest;

pub(crate) const CLIENT_FIELDS: &[&str] = &[
    "kind",
    "token_url",
    "client_id",
    "authentication",
    "client_secret",
    "client_key",
    "algorithm",
    "key_id",
    "scope",
    "audience",
    "resource",
    "revocation_url",
    "trust",
    "addresses",
];
pub(crate) const REFRESH_FIELDS: &[&str] = &[
    "kind",
    "token_url",
    "refresh_token",
    "rotated_file",
    "client_id",
    "authentication",
    "client_secret",
    "client_key",
    "algorithm",
    "key_id",
    "scope",
    "audience",
    "resource",
    "trust",
    "addresses",
];
pub(crate) const EXCHANGE_FIELDS: &[&str] = &[
    "kind",
    "token_url",
    "subject_token",
    "subject",
    "subject_token_type",
    "requested_token_type",
    "client_id",
    "authentication",
    "client_secret",
    "client_key",
    "algorithm",
    "key_id",
    "scope",
    "audience",
    "resource",
    "revocation_url",
    "trust",
    "addresses",
];
pub(crate) const SUBJECT_FIELDS: &[&str] = &["algorithm", "key", "key_id", "issuer", "audience", "ttl"];
const AUTHENTICATIONS: &[&str] = &["none", "client_secret_basic", "client_secret_post", "private_key_jwt"];

/// RFC 8693 3.
const ACCESS_TOKEN_TYPE: &str = "urn:ietf:params:oauth:token-type:access_token";
const JWT_TYPE: &str = "urn:ietf:params:oauth:token-type:jwt";

pub(super) fn client(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>) -> Option<CredentialView> {
    let issuer = issuer::read(reader, fields, "token_url", None);
    let client = authentication(reader, fields);
    let client = client.filter(|client| {
        let known = !matches!(client, ClientAuthentication::None { .. });
        if !known {
            let help = "add `client_id` and `client_secret` (or `client_key`): without them anybody could ask for the token";
            reader.error(Code::MissingField, fields.header(), "the client does not say who it is", help);
        }
        known
    });
    Some(finish(reader, fields, issuer?, client?, OAuth2Grant::ClientCredentials))
}

pub(super) fn refresh(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>) -> Option<CredentialView> {
    let issuer = issuer::read(reader, fields, "token_url", None);
    let client = authentication(reader, fields);
    let refresh_token = secret(reader, fields, "refresh_token");
    let rotated_file = fields.text(reader, "rotated_file").map(|path| reference::absolute(reader, path));
    let rotated_file = match rotated_file {
        Some(path) => Some(path?),
        None => None,
    };
    let grant = OAuth2Grant::Refresh { refresh_token: refresh_token?, rotated_file };
    Some(finish(reader, fields, issuer?, client?, grant))
}

pub(super) fn exchange(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>) -> Option<CredentialView> {
    let issuer = issuer::read(reader, fields, "token_url", None);
    let client = authentication(reader, fields);
    let subject = subject(reader, fields);
    let subject_token_type = plain(reader, fields, "subject_token_type");
    let requested_token_type = plain(reader, fields, "requested_token_type");
    let subject = subject?;
    let default = match subject {
        SubjectToken::Reference(_) => ACCESS_TOKEN_TYPE,
        SubjectToken::Jwt { .. } => JWT_TYPE,
    };
    let subject_token_type = subject_token_type.unwrap_or_else(|| default.to_owned());
    let grant = OAuth2Grant::Exchange { subject, subject_token_type, requested_token_type };
    Some(finish(reader, fields, issuer?, client?, grant))
}

fn finish(
    reader: &mut Reader<'_, '_>,
    fields: &Fields<'_, '_>,
    issuer: IssuerView,
    client: ClientAuthentication,
    grant: OAuth2Grant,
) -> CredentialView {
    let (scope, audience) = (scope(reader, fields), plain(reader, fields, "audience"));
    let resource = plain(reader, fields, "resource");
    let revocation_path = issuer::sibling(reader, fields, "revocation_url", &issuer);
    let view = OAuth2View { issuer, client, grant, scope, audience, resource, revocation_path };
    CredentialView::OAuth2(Box::new(view))
}

/// Scopes with one space between them (RFC 6749 3.3).
fn scope(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>) -> Option<String> {
    let scope = fields.text(reader, "scope")?;
    let token =
        |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_graphic() && !b"\"\\".contains(&b));
    if scope.value.split(' ').all(token) {
        return Some(scope.value);
    }
    let help = "scopes are words of visible ASCII with one space between them, for example `\"items:read items:write\"`";
    let message = format!("`{}` is not a scope", scope.value.escape_debug());
    reader.push(Diagnostic::error(Code::BadValue, message).at(scope.place).help(help));
    None
}

fn authentication(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>) -> Option<ClientAuthentication> {
    let client_id = plain(reader, fields, "client_id");
    let named = fields.text(reader, "authentication");
    let method = match &named {
        Some(named) => named.value.as_str(),
        None if fields.get("client_secret").is_some() => "client_secret_basic",
        None if fields.get("client_key").is_some() => "private_key_jwt",
        None => "none",
    };
    if !AUTHENTICATIONS.contains(&method) {
        let help = match nearest(method, AUTHENTICATIONS.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("a client proves itself by one of {}", AUTHENTICATIONS.join(", ")),
        };
        let message = format!("`{}` is not a way to authenticate a client", method.escape_debug());
        let place = named.map_or_else(|| reader.place(fields.header()), |named| named.place);
        reader.push(Diagnostic::error(Code::BadValue, message).at(place).help(help));
        return None;
    }
    unneeded(reader, fields, method);
    if method == "none" {
        return Some(ClientAuthentication::None { client_id });
    }
    let proof = if method == "private_key_jwt" {
        Proof::Key(signing_key(reader, fields, "client_key"))
    } else {
        Proof::Secret(secret(reader, fields, "client_secret"))
    };
    if client_id.is_none() && fields.get("client_id").is_none() {
        fields.missing(reader, "client_id", "client_id = \"freeboard\"");
    }
    let client_id = client_id?;
    Some(match proof {
        Proof::Key(key) => ClientAuthentication::PrivateKeyJwt { client_id, key: key? },
        Proof::Secret(secret) if method == "client_secret_post" => {
            ClientAuthentication::ClientSecretPost { client_id, secret: secret? }
        }
        Proof::Secret(secret) => ClientAuthentication::ClientSecretBasic { client_id, secret: secret? },
    })
}

enum Proof {
    Key(Option<crate::credential::SigningKeyView>),
    Secret(Option<crate::model::SecretReference>),
}

/// A secret that is named and never used is a mistake about which one proves the client.
fn unneeded(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>, method: &str) {
    let unused: &[&str] = match method {
        "private_key_jwt" => &["client_secret"],
        "none" => &["client_secret", "client_key", "algorithm", "key_id"],
        _ => &["client_key", "algorithm", "key_id"],
    };
    for key in fields.keys().filter(|key| unused.contains(&key.get_ref().as_ref())) {
        let message = format!("`{}` is not used with `{method}`", key.get_ref());
        reader.error(Code::BadValue, key.span(), message, "remove it, or choose another `authentication`");
    }
}

fn subject(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>) -> Option<SubjectToken> {
    match (fields.get("subject_token"), fields.get("subject")) {
        (Some(_), None) => optional(reader, fields, "subject_token").map(SubjectToken::Reference),
        (None, Some(value)) => {
            let table = fields.table(reader, "subject")?;
            let subject =
                Fields::new(reader, table, value.span(), "the subject of a credential", SUBJECT_FIELDS);
            let key = signing_key(reader, &subject, "key");
            let (issuer, audience) = (plain(reader, &subject, "issuer"), plain(reader, &subject, "audience"));
            let ttl_seconds = jwt_ttl(reader, &subject);
            Some(SubjectToken::Jwt { key: key?, issuer, audience, ttl_seconds })
        }
        _ => {
            let help = "write `subject_token = { file = \"/path\" }` for one that you have, or `subject = { algorithm = \"ES256\", key = { file = \"/path\" } }` to have one signed for each caller";
            let message = "the credential does not name exactly one subject";
            reader.error(Code::MissingField, fields.header(), message, help);
            None
        }
    }
}
