//! What credentials can do against what grants let through: neither should reach further than the other.
//!
//! In: credentials that say what they are good for, and the allow routes of the APIs that use them. Out: warnings. What a
//! route needs of an API is only known for some; where it is not, nothing is claimed.

mod github;
mod scope;

use super::apis::family;
use crate::credential::{AwsView, OAuth2Grant, OAuth2View};
use crate::diagnostic::{Code, Diagnostic};
use crate::draft::{Draft, DraftApi, DraftCredential, DraftRoute, Effect};
use crate::model::CredentialView;

/// A credential with everything that it is used for.
struct Use<'d> {
    credential: &'d DraftCredential,
    apis: Vec<&'d DraftApi>,
    /// Allow routes of all grants.
    routes: Vec<&'d DraftRoute>,
}

/// Compares every credential with the grants that lead to it.
pub(super) fn compare(draft: &mut Draft) {
    let mut found = Vec::new();
    for credential in &draft.credentials {
        let used = Use::of(draft, credential);
        if used.routes.is_empty() {
            continue;
        }
        match &credential.view {
            CredentialView::GithubApp(view) => github::compare(&used, view, &mut found),
            CredentialView::OAuth2(view) => {
                scope::compare(&used, view.scope.iter().flat_map(|scope| scope.split(' ')), &mut found);
                found.extend(audience(&used, view));
            }
            CredentialView::Jwt { scope, .. } => {
                scope::compare(&used, scope.iter().flat_map(|scope| scope.split(' ')), &mut found);
            }
            CredentialView::Gcp(view) => {
                scope::compare(&used, view.scopes.iter().map(String::as_str), &mut found);
            }
            CredentialView::Aws(view) => found.extend(region(&used, view)),
            _ => {}
        }
    }
    draft.diagnostics.extend(found);
}

impl<'d> Use<'d> {
    fn of(draft: &'d Draft, credential: &'d DraftCredential) -> Self {
        let name = &credential.name.value;
        let uses = |api: &&DraftApi| api.credential.as_ref().is_some_and(|used| used.value == *name);
        let apis: Vec<&DraftApi> = draft.apis.iter().filter(uses).collect();
        let rules = draft.grants.iter().flat_map(|grant| &grant.rules);
        let rules = rules.filter(|rule| {
            rule.effect == Effect::Allow && apis.iter().any(|api| api.name.value == rule.api.value)
        });
        let routes = rules.flat_map(|rule| &rule.routes).collect();
        Self { credential, apis, routes }
    }

    /// The credential can do what no grant lets through.
    fn credential_is_wider(&self, message: String) -> Diagnostic {
        Diagnostic::warning(Code::CredentialBeyondGrants, message).at(self.credential.name.place.clone())
    }

    /// A grant lets through what the credential cannot do.
    fn grant_is_wider(&self, route: &DraftRoute, message: String) -> Diagnostic {
        let diagnostic = Diagnostic::warning(Code::GrantBeyondCredential, message).at(route.place.clone());
        diagnostic.related(self.credential.name.place.clone(), "the credential")
    }
}

/// A token that was exchanged for another place than the one it is sent to, or for no place in particular.
fn audience(used: &Use<'_>, view: &OAuth2View) -> Option<Diagnostic> {
    let name = &used.credential.name.value;
    let said = view.audience.iter().chain(&view.resource).next();
    let Some(said) = said else {
        let is_exchanged = matches!(view.grant, OAuth2Grant::Exchange { .. });
        return (is_exchanged && view.scope.is_none()).then(|| {
            let message = format!("the credential `{name}` asks for a token without saying for what");
            used.credential_is_wider(message)
                .help("add `audience` (or `resource`) with the API that it is for, and a `scope`")
        });
    };
    let host = said.strip_prefix("https://")?.split(['/', ':', '?']).next()?;
    let mut origins = used.apis.iter().flat_map(|api| &api.origins);
    if origins.clone().any(|origin| family(origin.value.host.as_str()) == family(host)) {
        return None;
    }
    let origin = origins.next()?;
    let message = format!("the credential `{name}` is for `{host}` and goes to `{}`", origin.value.host);
    let diagnostic = Diagnostic::warning(Code::GrantBeyondCredential, message).at(origin.place.clone());
    let diagnostic = diagnostic.related(used.credential.name.place.clone(), "the credential");
    Some(diagnostic.help("whoever gets it there can use it at the other; ask for one with this audience"))
}

/// Signatures hold for one region: AWS refuses every request that is signed for another one.
fn region(used: &Use<'_>, view: &AwsView) -> Option<Diagnostic> {
    let mut origins = used.apis.iter().flat_map(|api| &api.origins);
    let (origin, region) = origins.find_map(|origin| {
        let labels = origin.value.host.as_str().strip_suffix(".amazonaws.com")?;
        let region = labels.rsplit('.').next().filter(|label| is_region(label))?;
        (region != view.region).then_some((origin, region))
    })?;
    let name = &used.credential.name.value;
    let message = format!("the credential `{name}` signs for `{}`, the origin is in `{region}`", view.region);
    let diagnostic = Diagnostic::warning(Code::GrantBeyondCredential, message).at(origin.place.clone());
    let diagnostic = diagnostic.related(used.credential.name.place.clone(), "the credential");
    Some(
        diagnostic
            .help(format!("write `region = \"{region}\"`, or give each region a credential of its own")),
    )
}

/// `eu-central-1`, `us-gov-west-1`.
fn is_region(label: &str) -> bool {
    let words: Vec<&str> = label.split('-').collect();
    let (Some(first), Some(last)) = (words.first(), words.last()) else { return false };
    words.len() >= 3 && first.len() == 2 && last.bytes().all(|byte| byte.is_ascii_digit()) && !last.is_empty()
}
