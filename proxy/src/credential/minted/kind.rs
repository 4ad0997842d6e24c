//! What each kind mints, and who shares one token.

use std::time::Duration;

use freeboard_policy::CredentialView;
use freeboard_policy::credential::{OAuth2Grant, SubjectToken, VaultEngine};

use super::reading::Reading;
use super::{MintError, Minter, aws, exec, gcp, github, mtls, oauth2, vault};
use crate::credential::store::{bearer, header};
use crate::credential::{Attach, Scrubber, Secret};
use crate::limits::SECRET_EXEC_MAX_AGE;

/// A token, or another thing to attach.
pub(super) struct Minted {
    pub(super) attach: Attach,
    pub(super) scrubber: Scrubber,
    /// `None`: until its sources change.
    pub(super) lifetime: Option<Duration>,
    /// What the issuer takes back at the end of the run.
    pub(super) give_back: Option<Secret>,
}

/// Who gets the same token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sharing {
    All,
    Caller,
    Run,
}

/// True for kinds that are fetched, signed with or presented, false for those that are read and attached as they are.
pub(super) fn is_minted(view: &CredentialView) -> bool {
    match view {
        CredentialView::Bearer { .. }
        | CredentialView::Header { .. }
        | CredentialView::Basic { .. }
        | CredentialView::Query { .. }
        | CredentialView::Jwt { .. } => false,
        CredentialView::OAuth2(_)
        | CredentialView::Aws(_)
        | CredentialView::GithubApp(_)
        | CredentialView::Gcp(_)
        | CredentialView::Exec(_)
        | CredentialView::Vault(_)
        | CredentialView::Mtls(_) => true,
    }
}

/// What an issuer takes back belongs to one run; what says who calls belongs to one caller.
pub(super) fn sharing(view: &CredentialView) -> Sharing {
    match view {
        CredentialView::OAuth2(view) => match &view.grant {
            _ if view.revocation_path.is_some() => Sharing::Run,
            OAuth2Grant::Exchange { subject: SubjectToken::Jwt { .. }, .. } => Sharing::Caller,
            _ => Sharing::All,
        },
        CredentialView::Aws(view) if view.role.is_some() => Sharing::Caller,
        CredentialView::GithubApp(_) => Sharing::Run,
        CredentialView::Vault(view) if view.engine == VaultEngine::Dynamic => Sharing::Run,
        _ => Sharing::All,
    }
}

pub(super) async fn mint(
    minter: &Minter,
    reading: &mut Reading,
    caller: Option<&str>,
    now_unix: i64,
) -> Result<Minted, MintError> {
    let mut minted = match &minter.view {
        CredentialView::OAuth2(view) => oauth2::mint(minter, view, reading, caller, now_unix).await,
        CredentialView::Aws(view) => aws::mint(minter, view, reading, caller, now_unix).await,
        CredentialView::GithubApp(view) => github::mint(minter, view, reading, now_unix).await,
        CredentialView::Gcp(view) => gcp::mint(minter, view, reading, now_unix).await,
        CredentialView::Exec(view) => exec::mint(view, now_unix).await,
        CredentialView::Vault(view) => vault::mint(minter, view, reading, now_unix).await,
        CredentialView::Mtls(view) => mtls::mint(view, reading, now_unix).await,
        _ => Err(MintError::unavailable("it is not minted")),
    }?;
    if minted.lifetime.is_none() && reading.ages() {
        // A helper that does not say how long its answer is good is asked again now and then.
        minted.lifetime = Some(SECRET_EXEC_MAX_AGE);
    }
    Ok(minted)
}

/// Tells the issuer that a token is not needed any more.
pub(super) async fn give_back(minter: &Minter, token: &Secret, now_unix: i64) -> Result<(), MintError> {
    match &minter.view {
        CredentialView::OAuth2(view) => oauth2::revoke(minter, view, token, now_unix).await,
        CredentialView::GithubApp(view) => github::revoke(minter, view, token, now_unix).await,
        CredentialView::Vault(view) => vault::revoke(minter, view, token, now_unix).await,
        _ => Ok(()),
    }
}

/// In a header of the API's own, or as a bearer token.
pub(super) fn attach(name: Option<&str>, secret: &Secret) -> Result<(Attach, Scrubber), MintError> {
    let made = match name {
        Some(name) => header(name, secret),
        None => bearer(secret),
    };
    made.map_err(MintError::Unavailable)
}

/// How long it is until a time as in RFC 3339.
pub(super) fn until(time: &str, now_unix: i64) -> Result<Duration, MintError> {
    let time: jiff::Timestamp =
        time.parse().map_err(|_| MintError::unavailable("the time of expiry is not as in RFC 3339"))?;
    let left = u64::try_from(time.as_second().saturating_sub(now_unix)).ok().filter(|left| *left > 0);
    left.map(Duration::from_secs).ok_or_else(|| MintError::unavailable("it has expired already"))
}
