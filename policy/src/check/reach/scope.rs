//! OAuth 2.0 scopes against methods. Scopes are words that an API makes up; only what they plainly say is used.

use super::Use;
use crate::diagnostic::Diagnostic;
use crate::route::method::Asked;

/// Words of a scope that say more than reading.
const WRITING: &[&str] = &["write", "readwrite", "admin", "delete", "manage", "full", "all", "control"];
const READING: &[&str] = &["read", "readonly", "view", "viewer"];
/// Of Google: every API of the project.
const EVERYTHING: &str = "https://www.googleapis.com/auth/cloud-platform";

/// Methods that change something by definition; POST is also how some APIs are asked.
const CHANGING: &[&str] = &["PUT", "PATCH", "DELETE"];

pub(super) fn compare<'s>(
    used: &Use<'_>,
    scopes: impl Iterator<Item = &'s str>,
    found: &mut Vec<Diagnostic>,
) {
    let scopes: Vec<&str> = scopes.collect();
    let name = &used.credential.name.value;
    if !used.routes.iter().any(|route| route.line.methods.change_something()) {
        found.extend(scopes.iter().find(|scope| writes(scope)).map(|scope| {
            let message = format!("the scope `{scope}` of `{name}` can change things, and no grant lets it");
            used.credential_is_wider(message)
                .help("ask for a scope that only reads, or grant the routes that write")
        }));
    }
    if !scopes.is_empty() && scopes.iter().all(|scope| reads(scope)) {
        let changes =
            |method: &&&str, route: &crate::draft::DraftRoute| route.line.methods.allow(Asked::new(method));
        let refused = used.routes.iter().find_map(|route| {
            CHANGING.iter().find(|method| changes(method, route)).map(|method| (route, method))
        });
        found.extend(refused.map(|(route, method)| {
            let message = format!("{method} is granted, and the scope of `{name}` only reads");
            used.grant_is_wider(route, message)
                .help("remove the method, or ask for a scope that may change things")
        }));
    }
}

fn writes(scope: &str) -> bool {
    scope == EVERYTHING || words(scope).any(|word| WRITING.iter().any(|one| one.eq_ignore_ascii_case(word)))
}

fn reads(scope: &str) -> bool {
    !writes(scope) && words(scope).any(|word| READING.iter().any(|one| one.eq_ignore_ascii_case(word)))
}

fn words(scope: &str) -> impl Iterator<Item = &str> {
    scope.split(|character: char| !character.is_ascii_alphanumeric())
}
