//! Values of query parameters that look like secrets, replaced before a path is recorded.

use std::borrow::Cow;

/// What stands in place of a value.
pub const REDACTED: &str = "[redacted]";

/// Names, lower case, whose values are secrets by custom. A guest that puts a token of its own into a URL should not find it
/// in a log that many people read (OAuth 2.0 RFC 6750 2.3, AWS presigned URLs, common API keys).
const SECRET_NAMES: &[&str] = &[
    "access_token",
    "refresh_token",
    "id_token",
    "token",
    "auth",
    "authorization",
    "api_key",
    "apikey",
    "api-key",
    "key",
    "secret",
    "client_secret",
    "password",
    "passwd",
    "pwd",
    "code",
    "assertion",
    "client_assertion",
    "signature",
    "sig",
    "x-amz-signature",
    "x-amz-security-token",
    "x-amz-credential",
    "x-goog-signature",
    "x-goog-credential",
    "jwt",
    "session",
    "private_token",
    "job_token",
];

/// `target` with the values of secret parameters replaced: those of `SECRET_NAMES` and those of `more`
/// (the parameter of a query credential). Names are compared percent-decoded and without regard to case.
pub fn redact_query<'a>(target: &'a str, more: &[&str]) -> Cow<'a, str> {
    let Some((path, query)) = target.split_once('?') else { return Cow::Borrowed(target) };
    let secret = |pair: &str| {
        pair.split_once('=').is_some_and(|(name, value)| !value.is_empty() && is_secret(name, more))
    };
    if !query.split('&').any(secret) {
        return Cow::Borrowed(target);
    }
    let mut out = String::with_capacity(target.len());
    out.push_str(path);
    for (index, pair) in query.split('&').enumerate() {
        out.push(if index == 0 { '?' } else { '&' });
        match pair.split_once('=') {
            Some((name, _)) if secret(pair) => {
                out.push_str(name);
                out.push('=');
                out.push_str(REDACTED);
            }
            _ => out.push_str(pair),
        }
    }
    Cow::Owned(out)
}

fn is_secret(name: &str, more: &[&str]) -> bool {
    let name = decode(name).to_ascii_lowercase();
    SECRET_NAMES.contains(&name.as_str()) || more.iter().any(|other| other.eq_ignore_ascii_case(&name))
}

/// Percent escapes decoded once; bytes beyond ASCII do not occur in the names that are compared.
fn decode(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some((before, after)) = rest.split_once('%') {
        out.push_str(before);
        let byte = after.get(..2).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match byte {
            Some(byte) => {
                out.push(char::from(byte));
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                out.push('%');
                rest = after;
            }
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c20_replaces_the_values_of_secret_parameters() {
        for (target, want) in [
            ("/v1/items", "/v1/items"),
            ("/v1?page=2", "/v1?page=2"),
            ("/v1?token=abc", "/v1?token=[redacted]"),
            ("/v1?page=2&Access_Token=abc&x=1", "/v1?page=2&Access_Token=[redacted]&x=1"),
            ("/v1?%74oken=abc", "/v1?%74oken=[redacted]"),
            ("/v1?token", "/v1?token"),
            ("/v1?token=", "/v1?token="),
            ("/v1?a=b?token=x", "/v1?a=b?token=x"),
            ("/v1?X-Amz-Signature=deadbeef", "/v1?X-Amz-Signature=[redacted]"),
        ] {
            assert_eq!(redact_query(target, &[]), want);
        }
        assert_eq!(redact_query("/v1?appid=s3cret", &["appid"]), "/v1?appid=[redacted]");
        assert_eq!(redact_query("/v1?appid=plain", &[]), "/v1?appid=plain");
    }
}
