//! `aws-sigv4`: keys to sign with, as they are, from a helper that says when they expire, or of a session of a role.
//!
//! A session is asked of STS (AssumeRole) with the keys of the credential. It is narrowed to the policy that the routes of the
//! grants came to, and carries the caller's name, which stands in AWS's own log then.

use std::sync::Arc;
use std::time::Duration;

use freeboard_policy::credential::{AwsKeys, AwsRoleView, AwsView};
use serde::Deserialize;

use super::asking::{Form, unasked};
use super::kind::{Minted, until};
use super::reading::Reading;
use super::{MintError, Minter};
use crate::credential::sigv4::Signer;
use crate::credential::{Attach, Scrubber, Secret};

/// The output of a credential process, as AWS documents it for its tools.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Together {
    #[serde(default)]
    version: Option<u32>,
    access_key_id: String,
    secret_access_key: String,
    #[serde(default)]
    session_token: Option<String>,
    #[serde(default)]
    expiration: Option<String>,
}

pub(super) async fn mint(
    minter: &Minter,
    view: &AwsView,
    reading: &mut Reading,
    caller: Option<&str>,
    now_unix: i64,
) -> Result<Minted, MintError> {
    let (access_key_id, secret_access_key, session_token, lifetime) = match &view.keys {
        AwsKeys::Each { access_key_id, secret_access_key, session_token } => {
            let id = reading.text(access_key_id).await?;
            let key = reading.text(secret_access_key).await?;
            let token = match session_token {
                Some(token) => Some(reading.text(token).await?),
                None => None,
            };
            (id, key, token, None)
        }
        AwsKeys::Together(reference) => together(&reading.secret(reference).await?, now_unix)?,
    };
    let id = access_key_id.expose();
    if !(16..=128).contains(&id.len()) || !id.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
    {
        return Err(MintError::unavailable("the access key id does not look like one"));
    }
    let mut secrets = vec![secret_access_key.expose()];
    secrets.extend(session_token.as_ref().map(Secret::expose));
    if secrets.iter().any(|secret| !secret.iter().all(u8::is_ascii_graphic)) {
        return Err(MintError::unavailable("a key has bytes that are not visible ASCII"));
    }
    drop(secrets);
    let keys = (access_key_id, secret_access_key, session_token, lifetime);
    let (access_key_id, secret_access_key, session_token, lifetime) = match &view.role {
        Some(role) => assume(minter, view, role, keys, caller, now_unix).await?,
        None => keys,
    };
    let mut secrets = vec![secret_access_key.expose()];
    secrets.extend(session_token.as_ref().map(Secret::expose));
    let scrubber = Scrubber::new(&secrets);
    let signer = signer((access_key_id, secret_access_key, session_token), &view.region, &view.service);
    Ok(Minted { attach: Attach::Sign(Box::new(signer)), scrubber, lifetime, give_back: None })
}

fn signer(
    (access_key_id, secret_access_key, session_token): (Secret, Secret, Option<Secret>),
    region: &str,
    service: &str,
) -> Signer {
    Signer { access_key_id, secret_access_key, session_token, region: region.into(), service: service.into() }
}

/// A session of the role, asked for with `keys`.
async fn assume(
    minter: &Minter,
    view: &AwsView,
    role: &AwsRoleView,
    keys: Keys,
    caller: Option<&str>,
    now_unix: i64,
) -> Result<Keys, MintError> {
    let (id, key, token, keys_lifetime) = keys;
    let mut form = Form::new();
    form.field("Action", b"AssumeRole");
    form.field("Version", b"2011-06-15");
    form.field("RoleArn", role.arn.as_bytes());
    form.field("RoleSessionName", session_name(caller).as_bytes());
    form.field("DurationSeconds", role.ttl_seconds.to_string().as_bytes());
    form.optional("Policy", role.session_policy.as_deref());
    let mut request = form.request(&role.issuer.path, Vec::new());
    let api = Arc::new(role.issuer.as_api(&minter.name));
    let authority = match role.issuer.port {
        443 => role.issuer.host.to_string(),
        port => format!("{}:{port}", role.issuer.host),
    };
    let body = request.body.as_ref().map(Secret::expose).unwrap_or_default();
    let sts = signer((id, key, token), &view.region, "sts");
    let signed = sts.sign_form(&role.issuer.path, &authority, body, now_unix).map_err(unasked)?;
    request.fields.extend(signed);
    let answer = minter.issuers.ask(&api, request).await.map_err(unasked)?;
    answer.check(now_unix)?;
    let session = session(answer.body.expose(), now_unix)?;
    let lifetime = keys_lifetime.map_or(session.lifetime, |of_keys| of_keys.min(session.lifetime));
    Ok((session.access_key_id, session.secret_access_key, Some(session.session_token), Some(lifetime)))
}

struct Given {
    access_key_id: Secret,
    secret_access_key: Secret,
    session_token: Secret,
    lifetime: Duration,
}

/// AWS answers in JSON where that is what the question accepts, others that speak its protocol in XML whatever it says.
fn session(answer: &[u8], now_unix: i64) -> Result<Given, MintError> {
    if answer.starts_with(b"{") {
        let answer: JsonAnswer = serde_json::from_slice(answer).map_err(|_| no_session())?;
        let Credentials { access_key_id, secret_access_key, session_token, expiration } =
            answer.assume_role_response.assume_role_result.credentials;
        let lifetime = match expiration {
            Expiration::Seconds(end) => seconds_until(end, now_unix)?,
            Expiration::Text(time) => until(&time, now_unix)?,
        };
        let secret = |text: String| Secret::new(text.into_bytes());
        let (access_key_id, secret_access_key) = (secret(access_key_id), secret(secret_access_key));
        return Ok(Given {
            access_key_id,
            secret_access_key,
            session_token: secret(session_token),
            lifetime,
        });
    }
    let document = std::str::from_utf8(answer).map_err(|_| no_session())?;
    let field = |name: &str| element(document, name).ok_or_else(no_session);
    let secret = |name: &str| field(name).map(|text| Secret::new(text.as_bytes().to_vec()));
    Ok(Given {
        access_key_id: secret("AccessKeyId")?,
        secret_access_key: secret("SecretAccessKey")?,
        session_token: secret("SessionToken")?,
        lifetime: until(field("Expiration")?, now_unix)?,
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct JsonAnswer {
    assume_role_response: AssumeRoleResponse,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AssumeRoleResponse {
    assume_role_result: AssumeRoleResult,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AssumeRoleResult {
    credentials: Credentials,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Credentials {
    access_key_id: String,
    secret_access_key: String,
    session_token: String,
    expiration: Expiration,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Expiration {
    /// Since 1970, and it may have a fraction.
    Seconds(f64),
    Text(String),
}

fn seconds_until(end: f64, now_unix: i64) -> Result<Duration, MintError> {
    // A second more or less does not matter, and what is no time is no lifetime.
    #[expect(clippy::cast_precision_loss, reason = "seconds since 1970 are exact in an f64")]
    let left = Duration::try_from_secs_f64((end - now_unix as f64).floor());
    left.ok().filter(|left| !left.is_zero()).ok_or_else(|| MintError::unavailable("it has expired already"))
}

fn no_session() -> MintError {
    MintError::unavailable("the issuer's answer is not that of AssumeRole")
}

/// The text of the only element of this name. Keys and times have no character that XML escapes.
fn element<'x>(document: &'x str, name: &str) -> Option<&'x str> {
    let (_, rest) = document.split_once(&format!("<{name}>"))?;
    let (text, rest) = rest.split_once(&format!("</{name}>"))?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=-_.:".contains(&byte);
    let is_only = !rest.contains(&format!("<{name}>"));
    (is_only && !text.is_empty() && text.bytes().all(plain)).then_some(text)
}

/// Letters, digits and `=,.@-_`, at most 64 (API reference of AssumeRole).
fn session_name(caller: Option<&str>) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "=,.@-_".contains(c) { c } else { '_' };
    let caller = caller.map(|caller| format!("-{caller}")).unwrap_or_default();
    format!("freeboard{caller}").chars().map(plain).take(64).collect()
}

type Keys = (Secret, Secret, Option<Secret>, Option<Duration>);

fn together(document: &Secret, now_unix: i64) -> Result<Keys, MintError> {
    let document: Together = serde_json::from_slice(document.expose())
        .map_err(|_| MintError::unavailable("the keys are not the JSON of a credential process"))?;
    if document.version.is_some_and(|version| version != 1) {
        return Err(MintError::unavailable("the keys are of another version than 1"));
    }
    let lifetime = match &document.expiration {
        Some(expiration) => Some(until(expiration, now_unix)?),
        None => None,
    };
    let secret = |text: String| Secret::new(text.into_bytes());
    let token = document.session_token.map(secret);
    Ok((secret(document.access_key_id), secret(document.secret_access_key), token, lifetime))
}
