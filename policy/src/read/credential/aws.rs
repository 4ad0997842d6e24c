//! `aws-sigv4`: requests that are signed anew with keys of AWS.

use super::super::table::{Fields, Reader};
use super::{issuer, optional, secret, word};
use crate::credential::{AwsKeys, AwsRoleView, AwsView};
use crate::diagnostic::Code;
use crate::model::CredentialView;
use crate::units::duration_seconds;

pub(crate) const FIELDS: &[&str] = &[
    "kind",
    "access_key_id",
    "secret_access_key",
    "session_token",
    "credentials",
    "region",
    "service",
    "role_arn",
    "ttl",
    "sts_url",
    "trust",
    "addresses",
];

/// STS hands out sessions from a quarter of an hour; of a role that is assumed with keys of another one up to an hour.
const SESSION_SECONDS: std::ops::RangeInclusive<u64> = 900..=3600;

pub(super) fn read(reader: &mut Reader<'_, '_>, fields: &Fields<'_, '_>) -> Option<CredentialView> {
    let keys = keys(reader, fields);
    let lower = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let region = word(reader, fields, "region", "region = \"eu-central-1\"", lower);
    let service = word(reader, fields, "service", "service = \"s3\"", lower);
    let role = role(reader, fields, region.as_deref());
    Some(CredentialView::Aws(Box::new(AwsView {
        keys: keys?,
        region: region?,
        service: service?,
        role: role.ok()?,
    })))
}

/// It is wrong, and said so already.
struct Reported;

fn role(
    reader: &mut Reader<'_, '_>,
    fields: &Fields<'_, '_>,
    region: Option<&str>,
) -> Result<Option<AwsRoleView>, Reported> {
    let Some(value) = fields.get("role_arn") else {
        for name in ["ttl", "sts_url", "trust", "addresses"] {
            if let Some(value) = fields.get(name) {
                let message = format!("`{name}` without `role_arn`");
                reader.error(
                    Code::BadValue,
                    value.span(),
                    message,
                    "it is about the sessions of a role; leave it out",
                );
                return Err(Reported);
            }
        }
        return Ok(None);
    };
    let span = value.span();
    let arn = fields.text(reader, "role_arn").ok_or(Reported)?.value;
    if !is_role(&arn) {
        let help = "for example `arn:aws:iam::123456789012:role/reports`";
        reader.error(Code::BadValue, span, "`role_arn` is not the ARN of a role", help);
        return Err(Reported);
    }
    let ttl = fields.measured(
        reader,
        "ttl",
        |text| duration_seconds(text).filter(|seconds| SESSION_SECONDS.contains(seconds)),
        "from a quarter of an hour to an hour, for example `\"15m\"`",
    );
    let default = format!("https://sts.{}.amazonaws.com/", region.unwrap_or("us-east-1"));
    let issuer = issuer::read(reader, fields, "sts_url", Some(&default)).ok_or(Reported)?;
    let ttl_seconds = ttl.unwrap_or(*SESSION_SECONDS.end());
    Ok(Some(AwsRoleView { issuer, arn, ttl_seconds, session_policy: None }))
}

/// `arn:PARTITION:iam::ACCOUNT:role/PATH`.
fn is_role(arn: &str) -> bool {
    let parts: Vec<&str> = arn.splitn(6, ':').collect();
    let ["arn", partition, "iam", "", account, name] = parts.as_slice() else { return false };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"+=,.@_/-".contains(&byte);
    (*partition == "aws" || partition.starts_with("aws-"))
        && account.len() == 12
        && account.bytes().all(|byte| byte.is_ascii_digit())
        && name.strip_prefix("role/").is_some_and(|name| !name.is_empty() && name.bytes().all(plain))
        && arn.len() <= 2048
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
