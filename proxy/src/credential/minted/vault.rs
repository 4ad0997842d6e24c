//! `vault`: a secret from Vault's HTTP API.
//!
//! In: a way to log in and a path. Out: one field of the secret. A secret that Vault made for us is given back at the end of
//! the run: with its lease, or with the login that it belongs to.

use std::sync::Arc;
use std::time::Duration;

use freeboard_policy::credential::{VaultEngine, VaultLogin, VaultView};
use serde::Deserialize;
use serde_json::{Value, json};

use super::asking::{IssuerAnswer, IssuerRequest, unasked};
use super::kind::{Minted, attach};
use super::reading::Reading;
use super::{MintError, Minter};
use crate::credential::Secret;
use crate::limits::TOKEN_LIFETIME_MAX;

#[derive(Deserialize)]
struct LoginAnswer {
    auth: Auth,
}

#[derive(Deserialize)]
struct Auth {
    client_token: String,
    #[serde(default)]
    lease_duration: u64,
}

#[derive(Deserialize)]
struct SecretAnswer {
    #[serde(default)]
    lease_id: String,
    #[serde(default)]
    lease_duration: u64,
    data: Value,
}

pub(super) async fn mint(
    minter: &Minter,
    view: &VaultView,
    reading: &mut Reading,
    now_unix: i64,
) -> Result<Minted, MintError> {
    let (token, token_life) = login(minter, view, reading, now_unix).await?;
    let path = format!("{}/v1/{}", view.issuer.path, view.path);
    let answer = ask(minter, view, "GET", path, Some(&token), None).await?;
    let secret: SecretAnswer = answer.json(now_unix)?;
    let logged_in = matches!(view.login, VaultLogin::AppRole { .. });
    let (data, lifetime, give_back) = match view.engine {
        VaultEngine::Kv2 => {
            if logged_in {
                // Nothing hangs on this login any more. Best effort: it expires by itself.
                let _ = revoke_login(minter, view, &token, now_unix).await;
            }
            (secret.data.get("data"), view.ttl_seconds, None)
        }
        VaultEngine::Dynamic => {
            let lease = if secret.lease_duration == 0 { view.ttl_seconds } else { secret.lease_duration };
            // What Vault made ends with the login that asked for it.
            let life = token_life.map_or(lease, |life| lease.min(life));
            let give_back = if logged_in { token } else { Secret::new(secret.lease_id.into_bytes()) };
            (Some(&secret.data), life, Some(give_back).filter(|id| !id.expose().is_empty()))
        }
    };
    let value = data.and_then(|data| data.get(&view.field)).and_then(Value::as_str);
    let value =
        value.ok_or_else(|| MintError::Unavailable(format!("the secret has no text `{}`", view.field)))?;
    let (attach, scrubber) = attach(view.header.as_deref(), &Secret::new(value.as_bytes().to_vec()))?;
    let lifetime = Some(Duration::from_secs(lifetime).min(TOKEN_LIFETIME_MAX));
    Ok(Minted { attach, scrubber, lifetime, give_back })
}

/// Gives back a lease, or a login with everything that hangs on it.
pub(super) async fn revoke(
    minter: &Minter,
    view: &VaultView,
    given: &Secret,
    now_unix: i64,
) -> Result<(), MintError> {
    match &view.login {
        VaultLogin::AppRole { .. } => revoke_login(minter, view, given, now_unix).await,
        VaultLogin::Token(token) => {
            let token = Reading::default().text(token).await?;
            let lease = String::from_utf8_lossy(given.expose());
            let body = json!({ "lease_id": lease }).to_string();
            let path = format!("{}/v1/sys/leases/revoke", view.issuer.path);
            ask(minter, view, "PUT", path, Some(&token), Some(body)).await?.check(now_unix)
        }
    }
}

async fn revoke_login(
    minter: &Minter,
    view: &VaultView,
    token: &Secret,
    now_unix: i64,
) -> Result<(), MintError> {
    let path = format!("{}/v1/auth/token/revoke-self", view.issuer.path);
    ask(minter, view, "POST", path, Some(token), None).await?.check(now_unix)
}

/// A Vault token, and how many seconds it lives where that is known.
async fn login(
    minter: &Minter,
    view: &VaultView,
    reading: &mut Reading,
    now_unix: i64,
) -> Result<(Secret, Option<u64>), MintError> {
    match &view.login {
        VaultLogin::Token(token) => Ok((reading.text(token).await?, None)),
        VaultLogin::AppRole { role_id, secret_id } => {
            let secret_id = reading.text(secret_id).await?;
            let secret_id = String::from_utf8_lossy(secret_id.expose());
            let body = json!({ "role_id": role_id, "secret_id": secret_id }).to_string();
            let path = format!("{}/v1/auth/approle/login", view.issuer.path);
            let answer = ask(minter, view, "POST", path, None, Some(body)).await?;
            let LoginAnswer { auth } = answer.json(now_unix)?;
            let life = Some(auth.lease_duration).filter(|seconds| *seconds > 0);
            Ok((Secret::new(auth.client_token.into_bytes()), life))
        }
    }
}

async fn ask(
    minter: &Minter,
    view: &VaultView,
    method: &'static str,
    path: String,
    token: Option<&Secret>,
    body: Option<String>,
) -> Result<IssuerAnswer, MintError> {
    let copy = |bytes: &[u8]| Secret::new(bytes.to_vec());
    // Vault refuses requests that a browser could be tricked into without it.
    let mut fields = vec![("x-vault-request", copy(b"true"))];
    fields.extend(token.map(|token| ("x-vault-token", copy(token.expose()))));
    fields.extend(view.namespace.as_ref().map(|name| ("x-vault-namespace", copy(name.as_bytes()))));
    let body = body.map(|body| Secret::new(body.into_bytes()));
    let body = body.or_else(|| (method != "GET").then(|| copy(b"")));
    let request = IssuerRequest { method, path, fields, body };
    minter.issuers.ask(&Arc::new(view.issuer.as_api(&minter.name)), request).await.map_err(unasked)
}
