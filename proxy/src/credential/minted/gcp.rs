//! `gcp-service-account`: an access token for an assertion signed with the account's key (RFC 7523 2.1).

use std::sync::Arc;

use freeboard_policy::credential::GcpView;
use serde::Deserialize;

use super::asking::{Form, unasked};
use super::kind::Minted;
use super::reading::Reading;
use super::{MintError, Minter, oauth2};
use crate::credential::Secret;
use crate::credential::jwt::{self, JwtShape};
use crate::credential::store::bearer;
use crate::limits::{ASSERTION_BACKDATE, ASSERTION_LIFETIME};

/// What is used of the account's key file. Its addresses are not: where tokens come from is the policy's to say.
#[derive(Deserialize)]
struct KeyFile {
    client_email: String,
    private_key: String,
    private_key_id: Option<String>,
}

pub(super) async fn mint(
    minter: &Minter,
    view: &GcpView,
    reading: &mut Reading,
    now_unix: i64,
) -> Result<Minted, MintError> {
    let file: KeyFile = serde_json::from_slice(reading.secret(&view.key).await?.expose())
        .map_err(|_| MintError::unavailable("the key is not the JSON file of a service account"))?;
    let key = Secret::new(file.private_key.into_bytes());
    let (audience, scope) = (view.issuer.url(), view.scopes.join(" "));
    let shape = JwtShape {
        algorithm: "RS256",
        issuer: Some(&file.client_email),
        audience: Some(&audience),
        key_id: file.private_key_id.as_deref(),
        scope: Some(&scope),
        ttl_seconds: ASSERTION_LIFETIME.as_secs(),
    };
    let dated = now_unix.saturating_sub_unsigned(ASSERTION_BACKDATE.as_secs());
    let assertion = jwt::sign(shape, &key, view.subject.as_deref(), dated)
        .map_err(|error| MintError::Unavailable(error.to_string()))?;
    let mut form = Form::new();
    form.field("grant_type", b"urn:ietf:params:oauth:grant-type:jwt-bearer");
    form.field("assertion", assertion.expose());
    let request = form.request(&view.issuer.path, Vec::new());
    let answer =
        minter.issuers.ask(&Arc::new(view.issuer.as_api(&minter.name)), request).await.map_err(unasked)?;
    let (token, lifetime) = oauth2::token(answer.json(now_unix)?, Some(&scope))?;
    let (attach, scrubber) = bearer(&token).map_err(MintError::Unavailable)?;
    Ok(Minted { attach, scrubber, lifetime: Some(lifetime), give_back: None })
}
