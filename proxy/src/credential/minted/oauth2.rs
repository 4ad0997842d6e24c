//! `oauth2-client`, `oauth2-refresh` and `token-exchange`: tokens from an OAuth 2.0 token endpoint.
//!
//! In: the credential, its secrets, the caller. Out: a bearer token. A token with more scopes than were asked for is not
//! used: it could do what nobody reviewed.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use freeboard_policy::credential::{
    ClientAuthentication, OAuth2Grant, OAuth2View, SigningKeyView, SubjectToken,
};
use percent_encoding::percent_encode;
use serde::Deserialize;

use super::asking::{Form, unasked};
use super::kind::Minted;
use super::reading::Reading;
use super::{MintError, Minter, rotated};
use crate::credential::Secret;
use crate::credential::jwt::{self, JwtShape};
use crate::credential::scrub::UNRESERVED;
use crate::credential::store::bearer;
use crate::limits::{ASSERTION_BACKDATE, ASSERTION_LIFETIME, TOKEN_LIFETIME_UNSAID};

const CLIENT_ASSERTION: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
const EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";

/// RFC 6749 5.1, RFC 8693 2.2.1.
#[derive(Deserialize)]
pub(super) struct TokenAnswer {
    access_token: String,
    #[serde(default)]
    token_type: Option<String>,
    /// A number; some issuers write it in quotes.
    #[serde(default)]
    expires_in: Option<serde_json::Value>,
    #[serde(default)]
    scope: Option<String>,
    #[serde(default)]
    refresh_token: Option<String>,
}

pub(super) async fn mint(
    minter: &Minter,
    view: &OAuth2View,
    reading: &mut Reading,
    caller: Option<&str>,
    now_unix: i64,
) -> Result<Minted, MintError> {
    let mut form = Form::new();
    let mut first_refresh_token = None;
    match &view.grant {
        OAuth2Grant::ClientCredentials => form.field("grant_type", b"client_credentials"),
        OAuth2Grant::Refresh { refresh_token, rotated_file } => {
            form.field("grant_type", b"refresh_token");
            let first = reading.text(refresh_token).await?;
            rotated::with_current(minter, &first, rotated_file.as_deref(), |token| {
                form.field("refresh_token", token.expose());
            });
            first_refresh_token = Some(first);
        }
        OAuth2Grant::Exchange { subject, subject_token_type, requested_token_type } => {
            form.field("grant_type", EXCHANGE.as_bytes());
            let token = subject_token(view, subject, reading, caller, now_unix).await?;
            form.field("subject_token", token.expose());
            form.field("subject_token_type", subject_token_type.as_bytes());
            form.optional("requested_token_type", requested_token_type.as_deref());
        }
    }
    form.optional("scope", view.scope.as_deref());
    form.optional("audience", view.audience.as_deref());
    form.optional("resource", view.resource.as_deref());
    let fields = authenticate(view, &mut form, reading, now_unix).await?;
    let issuer = std::sync::Arc::new(view.issuer.as_api(&minter.name));
    let request = form.request(&view.issuer.path, fields);
    let answer = minter.issuers.ask(&issuer, request).await.map_err(unasked)?;
    let mut answer: TokenAnswer = answer.json(now_unix)?;
    if let (Some(first), Some(next), OAuth2Grant::Refresh { rotated_file, .. }) =
        (first_refresh_token, answer.refresh_token.take(), &view.grant)
    {
        // Kept before anything can fail: the issuer may have dropped the one before already.
        rotated::keep(minter, &first, Secret::new(next.into_bytes()), rotated_file.as_deref());
    }
    let (token, lifetime) = token(answer, view.scope.as_deref())?;
    let give_back = view.revocation_path.is_some().then(|| Secret::new(token.expose().to_vec()));
    let (attach, scrubber) = bearer(&token).map_err(MintError::Unavailable)?;
    Ok(Minted { attach, scrubber, lifetime: Some(lifetime), give_back })
}

/// The token and how long it is good, where both are what was asked for.
pub(super) fn token(answer: TokenAnswer, scope: Option<&str>) -> Result<(Secret, Duration), MintError> {
    let token = Secret::new(answer.access_token.into_bytes());
    if answer.token_type.is_some_and(|kind| !kind.eq_ignore_ascii_case("bearer")) {
        return Err(MintError::unavailable("the issuer gave a token that is not a bearer token"));
    }
    check_scope(scope, answer.scope.as_deref())?;
    Ok((token, lifetime(answer.expires_in.as_ref())?))
}

/// RFC 7009 2.1. An issuer that does not know the token any more answers 200 as well.
pub(super) async fn revoke(
    minter: &Minter,
    view: &OAuth2View,
    token: &Secret,
    now_unix: i64,
) -> Result<(), MintError> {
    let Some(path) = &view.revocation_path else { return Ok(()) };
    let mut form = Form::new();
    form.field("token", token.expose());
    form.field("token_type_hint", b"access_token");
    let fields = authenticate(view, &mut form, &mut Reading::default(), now_unix).await?;
    let issuer = std::sync::Arc::new(view.issuer.as_api(&minter.name));
    let answer = minter.issuers.ask(&issuer, form.request(path, fields)).await.map_err(unasked)?;
    answer.check(now_unix)
}

/// Adds what proves the client, in the form or as a field.
async fn authenticate(
    view: &OAuth2View,
    form: &mut Form,
    reading: &mut Reading,
    now_unix: i64,
) -> Result<Vec<(&'static str, Secret)>, MintError> {
    match &view.client {
        ClientAuthentication::None { client_id } => form.optional("client_id", client_id.as_deref()),
        ClientAuthentication::ClientSecretPost { client_id, secret } => {
            form.field("client_id", client_id.as_bytes());
            form.field("client_secret", reading.text(secret).await?.expose());
        }
        ClientAuthentication::ClientSecretBasic { client_id, secret } => {
            // RFC 6749 2.3.1: both are form-encoded before they are joined.
            let encoded = |bytes: &[u8]| percent_encode(bytes, UNRESERVED).to_string();
            let secret = reading.text(secret).await?;
            let pair = Secret::new(
                format!("{}:{}", encoded(client_id.as_bytes()), encoded(secret.expose())).into_bytes(),
            );
            let value = Secret::new(format!("Basic {}", STANDARD.encode(pair.expose())).into_bytes());
            return Ok(vec![("authorization", value)]);
        }
        ClientAuthentication::PrivateKeyJwt { client_id, key } => {
            let audience = view.issuer.url();
            let shape = assertion(key, Some(client_id), &audience, ASSERTION_LIFETIME.as_secs());
            let assertion = sign(shape, &reading.secret(&key.key).await?, Some(client_id), now_unix)?;
            form.field("client_id", client_id.as_bytes());
            form.field("client_assertion_type", CLIENT_ASSERTION.as_bytes());
            form.field("client_assertion", assertion.expose());
        }
    }
    Ok(Vec::new())
}

async fn subject_token(
    view: &OAuth2View,
    subject: &SubjectToken,
    reading: &mut Reading,
    caller: Option<&str>,
    now_unix: i64,
) -> Result<Secret, MintError> {
    match subject {
        SubjectToken::Reference(reference) => reading.text(reference).await,
        SubjectToken::Jwt { key, issuer, audience, ttl_seconds } => {
            // SECURITY: nobody in particular has no token of his own; an empty `sub` may mean everything somewhere.
            let caller =
                caller.ok_or_else(|| MintError::unavailable("the run has no caller to speak for"))?;
            let audience = audience.clone().unwrap_or_else(|| view.issuer.url());
            let shape = assertion(key, issuer.as_deref(), &audience, *ttl_seconds);
            sign(shape, &reading.secret(&key.key).await?, Some(caller), now_unix)
        }
    }
}

fn assertion<'a>(
    key: &'a SigningKeyView,
    issuer: Option<&'a str>,
    audience: &'a str,
    ttl_seconds: u64,
) -> JwtShape<'a> {
    JwtShape {
        algorithm: &key.algorithm,
        issuer,
        audience: Some(audience),
        key_id: key.key_id.as_deref(),
        scope: None,
        ttl_seconds,
    }
}

/// Dated back a little, for issuers whose clock is behind ours.
fn sign(
    shape: JwtShape<'_>,
    key: &Secret,
    subject: Option<&str>,
    now_unix: i64,
) -> Result<Secret, MintError> {
    let dated = now_unix.saturating_sub_unsigned(ASSERTION_BACKDATE.as_secs());
    jwt::sign(shape, key, subject, dated).map_err(|error| MintError::Unavailable(error.to_string()))
}

/// RFC 6749 5.1: a scope that is not said is the one that was asked for.
fn check_scope(asked: Option<&str>, given: Option<&str>) -> Result<(), MintError> {
    let (Some(asked), Some(given)) = (asked, given) else { return Ok(()) };
    let asked: Vec<&str> = asked.split(' ').collect();
    // SECURITY: guarded by `refuses_a_token_with_more_scopes_than_were_asked_for`.
    match given.split_whitespace().find(|scope| !asked.contains(scope)) {
        Some(more) => {
            let more: String = more.chars().filter(char::is_ascii_graphic).take(64).collect();
            Err(MintError::Unavailable(format!("the issuer gave a scope that was not asked for: `{more}`")))
        }
        None => Ok(()),
    }
}

fn lifetime(expires_in: Option<&serde_json::Value>) -> Result<Duration, MintError> {
    let seconds = match expires_in {
        None | Some(serde_json::Value::Null) => return Ok(TOKEN_LIFETIME_UNSAID),
        Some(serde_json::Value::String(text)) => text.parse().ok(),
        Some(value) => value.as_u64(),
    };
    match seconds {
        Some(0) => Err(MintError::unavailable("the issuer gave a token that is expired already")),
        Some(seconds) => Ok(Duration::from_secs(seconds.min(crate::limits::TOKEN_LIFETIME_MAX.as_secs()))),
        None => Err(MintError::unavailable("the issuer's `expires_in` is not a number of seconds")),
    }
}
