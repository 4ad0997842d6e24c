//! `github-app`: a token of an App's installation, narrowed to repositories and permissions, one for each run.
//!
//! In: the App's key. Out: an installation token. One that reaches more than was asked for is not used.

use std::sync::Arc;
use std::time::Duration;

use freeboard_policy::credential::GithubAppView;
use serde::Deserialize;
use serde_json::json;

use super::asking::{IssuerRequest, unasked};
use super::kind::{Minted, until};
use super::reading::Reading;
use super::{MintError, Minter};
use crate::credential::Secret;
use crate::credential::jwt::{self, JwtShape};
use crate::credential::store::bearer;
use crate::limits::{ASSERTION_BACKDATE, ASSERTION_LIFETIME};

#[derive(Deserialize)]
struct Installation {
    id: u64,
}

#[derive(Deserialize)]
struct TokenAnswer {
    token: String,
    expires_at: String,
    permissions: std::collections::BTreeMap<String, String>,
    #[serde(default)]
    repository_selection: Option<String>,
    #[serde(default)]
    repositories: Option<Vec<Repository>>,
}

#[derive(Deserialize)]
struct Repository {
    name: String,
}

pub(super) async fn mint(
    minter: &Minter,
    view: &GithubAppView,
    reading: &mut Reading,
    now_unix: i64,
) -> Result<Minted, MintError> {
    let key = reading.secret(&view.private_key).await?;
    let assertion = assertion(view, &key, now_unix)?;
    let known = view.installation_id.or(minter.kept().installation);
    let installation = match known {
        Some(id) => id,
        None => find(minter, view, &assertion, now_unix).await?,
    };
    let path = format!("{}/app/installations/{installation}/access_tokens", view.issuer.path);
    let permissions: serde_json::Map<_, _> =
        view.permissions.iter().map(|(name, level)| (name.clone(), json!(level))).collect();
    let body = json!({ "repositories": view.repositories, "permissions": permissions }).to_string();
    let mut request = request("POST", path, &assertion);
    request.body = Some(Secret::new(body.into_bytes()));
    let answer =
        minter.issuers.ask(&Arc::new(view.issuer.as_api(&minter.name)), request).await.map_err(unasked)?;
    if answer.status == 404 {
        // The App was installed anew, or elsewhere: look again next time.
        minter.kept().installation = None;
    }
    let token: TokenAnswer = answer.json(now_unix)?;
    check(view, &token)?;
    // By the issuer's own clock where it tells it: ours may differ.
    let lifetime = until(&token.expires_at, answer.date.unwrap_or(now_unix))?;
    let token = Secret::new(token.token.into_bytes());
    let give_back = Some(Secret::new(token.expose().to_vec()));
    let (attach, scrubber) = bearer(&token).map_err(MintError::Unavailable)?;
    let lifetime = Some(lifetime.min(Duration::from_secs(view.ttl_seconds)));
    Ok(Minted { attach, scrubber, lifetime, give_back })
}

/// Deletes the token that the request itself carries.
pub(super) async fn revoke(
    minter: &Minter,
    view: &GithubAppView,
    token: &Secret,
    now_unix: i64,
) -> Result<(), MintError> {
    let request = request("DELETE", format!("{}/installation/token", view.issuer.path), token);
    let answer =
        minter.issuers.ask(&Arc::new(view.issuer.as_api(&minter.name)), request).await.map_err(unasked)?;
    answer.check(now_unix)
}

/// The installation for the first repository.
async fn find(
    minter: &Minter,
    view: &GithubAppView,
    assertion: &Secret,
    now_unix: i64,
) -> Result<u64, MintError> {
    let repository = view.repositories.first().map_or("", String::as_str);
    let path = format!("{}/repos/{}/{repository}/installation", view.issuer.path, view.owner);
    let request = request("GET", path, assertion);
    let answer =
        minter.issuers.ask(&Arc::new(view.issuer.as_api(&minter.name)), request).await.map_err(unasked)?;
    let found: Installation = answer.json(now_unix)?;
    minter.kept().installation = Some(found.id);
    Ok(found.id)
}

fn request(method: &'static str, path: String, bearer: &Secret) -> IssuerRequest {
    let authorization = Secret::new([b"Bearer ", bearer.expose()].concat());
    let version = Secret::new(b"2022-11-28".to_vec());
    let fields = vec![("authorization", authorization), ("x-github-api-version", version)];
    IssuerRequest { method, path, fields, body: None }
}

fn assertion(view: &GithubAppView, key: &Secret, now_unix: i64) -> Result<Secret, MintError> {
    let shape = JwtShape {
        algorithm: "RS256",
        issuer: Some(&view.app_id),
        audience: None,
        key_id: None,
        scope: None,
        ttl_seconds: ASSERTION_LIFETIME.as_secs(),
    };
    let dated = now_unix.saturating_sub_unsigned(ASSERTION_BACKDATE.as_secs());
    jwt::sign(shape, key, None, dated).map_err(|error| MintError::Unavailable(error.to_string()))
}

/// SECURITY: guarded by `refuses_a_github_token_that_reaches_more_than_was_asked_for`.
fn check(view: &GithubAppView, token: &TokenAnswer) -> Result<(), MintError> {
    let rank = |level: &str| ["read", "write", "admin"].iter().position(|known| *known == level);
    for (name, level) in &token.permissions {
        let asked = view.permissions.iter().find(|(asked, _)| asked == name).map(|(_, level)| level.as_str());
        // GitHub adds the right to read a repository's metadata to every token.
        let asked = asked.or((name == "metadata").then_some("read"));
        let fine = asked.is_some_and(|asked| {
            rank(level).is_some_and(|given| rank(asked).is_some_and(|asked| given <= asked))
        });
        if !fine {
            return Err(MintError::unavailable("GitHub gave a permission that was not asked for"));
        }
    }
    let known = |repository: &Repository| {
        view.repositories.iter().any(|asked| asked.eq_ignore_ascii_case(&repository.name))
    };
    let all = token.repository_selection.as_deref() == Some("all");
    if all || !token.repositories.iter().flatten().all(known) {
        return Err(MintError::unavailable("GitHub gave a repository that was not asked for"));
    }
    Ok(())
}
