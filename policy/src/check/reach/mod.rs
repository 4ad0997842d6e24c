//! What credentials can do against what grants let through: neither should reach further than the other.
//!
//! In: credentials that say what they are good for, and the allow routes of the APIs that use them. Out: warnings. What a
//! route needs of an API is only known for some; where it is not, nothing is claimed. Sessions of AWS roles are narrowed here.

mod aws;
mod github;
mod scope;

use super::apis::family;
use crate::credential::{OAuth2Grant, OAuth2View};
use crate::diagnostic::{Code, Diagnostic};
use crate::draft::{Draft, DraftApi, DraftCredential, DraftRoute, Effect};
use crate::model::CredentialView;

/// A credential with everything that it is used for.
struct Use<'d> {
    credential: &'d DraftCredential,
    apis: Vec<&'d DraftApi>,
    /// Allow routes of all grants.
    routes: Vec<&'d DraftRoute>,
    /// The same with the API that each is for.
    places: Vec<(&'d DraftApi, &'d DraftRoute)>,
}

/// Compares every credential with the grants that lead to it.
pub(super) fn compare(draft: &mut Draft) {
    let (mut found, mut sessions) = (Vec::new(), Vec::new());
    for (at, credential) in draft.credentials.iter().enumerate() {
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
            CredentialView::Aws(view) => {
                found.extend(aws::region(&used, view));
                sessions.push((at, aws::session_policy(&used, view, &mut found)));
            }
            _ => {}
        }
    }
    draft.diagnostics.extend(found);
    for (at, policy) in sessions {
        if let Some(CredentialView::Aws(view)) =
            draft.credentials.get_mut(at).map(|credential| &mut credential.view)
            && let Some(role) = &mut view.role
        {
            role.session_policy = policy;
        }
    }
}

impl<'d> Use<'d> {
    fn of(draft: &'d Draft, credential: &'d DraftCredential) -> Self {
        let name = &credential.name.value;
        let uses = |api: &&DraftApi| api.credential.as_ref().is_some_and(|used| used.value == *name);
        let apis: Vec<&DraftApi> = draft.apis.iter().filter(uses).collect();
        let rules = draft.grants.iter().flat_map(|grant| &grant.rules);
        let rules = rules.filter(|rule| rule.effect == Effect::Allow).filter_map(|rule| {
            let api = apis.iter().copied().find(|api| api.name.value == rule.api.value)?;
            Some((api, rule))
        });
        let places: Vec<_> =
            rules.flat_map(|(api, rule)| rule.routes.iter().map(move |route| (api, route))).collect();
        let routes = places.iter().map(|(_, route)| *route).collect();
        Self { credential, apis, routes, places }
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
