//! `exec`: a helper prints a token and when it expires.

use std::time::Duration;

use freeboard_policy::credential::ExecView;
use serde::Deserialize;

use super::MintError;
use super::kind::{Minted, attach, until};
use crate::credential::{Secret, source};
use crate::limits::TOKEN_LIFETIME_MAX;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Printed {
    token: String,
    #[serde(default)]
    expires_in: Option<u64>,
    #[serde(default)]
    expires_at: Option<String>,
}

pub(super) async fn mint(view: &ExecView, now_unix: i64) -> Result<Minted, MintError> {
    let printed =
        source::run_helper(&view.command).await.map_err(|error| MintError::Unavailable(error.to_string()))?;
    let printed: Printed = serde_json::from_slice(printed.expose()).map_err(|_| {
        MintError::unavailable("the helper did not print `token` and `expires_in` or `expires_at` as JSON")
    })?;
    let lifetime = match (printed.expires_in, &printed.expires_at) {
        (Some(seconds @ 1..), None) => Duration::from_secs(seconds).min(TOKEN_LIFETIME_MAX),
        (None, Some(time)) => until(time, now_unix)?,
        _ => return Err(MintError::unavailable("the helper did not say when its token expires")),
    };
    let token = Secret::new(printed.token.into_bytes());
    let (attach, scrubber) = attach(view.header.as_deref(), &token)?;
    Ok(Minted { attach, scrubber, lifetime: Some(lifetime), give_back: None })
}
