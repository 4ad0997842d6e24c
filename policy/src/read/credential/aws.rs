//! `aws-sigv4`: requests that are signed anew with keys of AWS.

use super::super::table::{Fields, Reader};
use super::{optional, secret, word};
use crate::credential::{AwsKeys, AwsView};
use crate::diagnostic::Code;
use crate::model::CredentialView;

pub(crate) const FIELDS: &[&str] =
    &["kind", "access_key_id", "secret_access_key", "session_token", "credentials", "region", "service"];

pub(super) fn read(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>) -> Option<CredentialView> {
    let keys = keys(reader, fields);
    let lower = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let region = word(reader, fields, "region", "region = \"eu-central-1\"", lower);
    let service = word(reader, fields, "service", "service = \"s3\"", lower);
    Some(CredentialView::Aws(Box::new(AwsView { keys: keys?, region: region?, service: service? })))
}

fn keys(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>) -> Option<AwsKeys> {
    let apart = ["access_key_id", "secret_access_key", "session_token"];
    let is_apart = apart.iter().any(|name| fields.get(name).is_some());
    match (fields.get("credentials"), is_apart) {
        (Some(_), false) => secret(reader, fields, "credentials").map(AwsKeys::Together),
        (None, _) => {
            let access_key_id = secret(reader, fields, "access_key_id");
            let secret_access_key = secret(reader, fields, "secret_access_key");
            let session_token = optional(reader, fields, "session_token");
            Some(AwsKeys::Each {
                access_key_id: access_key_id?,
                secret_access_key: secret_access_key?,
                session_token,
            })
        }
        (Some(value), true) => {
            let help = "`credentials` holds all of them as JSON; use it, or one reference for each";
            reader.error(Code::BadValue, value.span(), "two sources for the keys", help);
            None
        }
    }
}
