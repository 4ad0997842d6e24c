//! `aws-sigv4`: keys to sign with, as they are or from a helper that says when they expire.

use std::time::Duration;

use freeboard_policy::credential::{AwsKeys, AwsView};
use serde::Deserialize;

use super::MintError;
use super::kind::{Minted, until};
use super::reading::Reading;
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

pub(super) async fn mint(view: &AwsView, reading: &mut Reading, now_unix: i64) -> Result<Minted, MintError> {
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
    let scrubber = Scrubber::new(&secrets);
    let signer = Signer {
        access_key_id,
        secret_access_key,
        session_token,
        region: view.region.as_str().into(),
        service: view.service.as_str().into(),
    };
    Ok(Minted { attach: Attach::Sign(Box::new(signer)), scrubber, lifetime, give_back: None })
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
