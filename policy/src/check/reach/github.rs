//! The repositories and permissions of a GitHub App's token against routes of GitHub's REST API.
//!
//! Which permission an endpoint needs: docs.github.com, "Permissions required for GitHub Apps". Endpoints that are not in the
//! table, such as GraphQL, could need anything: with one of them granted, nothing is said to be too much.

use super::Use;
use crate::credential::GithubAppView;
use crate::diagnostic::Diagnostic;
use crate::draft::DraftRoute;
use crate::route::PathEnd;
use crate::route::pattern::Pattern;

/// What stands after `/repos/OWNER/REPOSITORY/`, and the permissions of which one is enough.
const ENDPOINTS: &[(&str, &[&str])] = &[
    ("actions", &["actions"]),
    ("assignees", &["issues", "pull_requests"]),
    ("branches", &["contents", "administration"]),
    ("check-runs", &["checks"]),
    ("check-suites", &["checks"]),
    ("code-scanning", &["security_events"]),
    ("commits", &["contents", "statuses", "checks", "pull_requests"]),
    ("compare", &["contents"]),
    ("contents", &["contents"]),
    ("deployments", &["deployments"]),
    ("environments", &["environments", "actions", "administration"]),
    ("git", &["contents"]),
    ("hooks", &["repository_hooks"]),
    ("issues", &["issues", "pull_requests"]),
    ("labels", &["issues", "pull_requests"]),
    ("merges", &["contents"]),
    ("milestones", &["issues", "pull_requests"]),
    ("pages", &["pages"]),
    ("pulls", &["pull_requests"]),
    ("readme", &["contents"]),
    ("releases", &["contents"]),
    ("secret-scanning", &["secret_scanning_alerts"]),
    ("statuses", &["statuses"]),
    ("tarball", &["contents"]),
    ("zipball", &["contents"]),
];

/// Every token has it.
const ALWAYS: &str = "metadata";

/// A route of one endpoint in repositories.
struct Route<'d> {
    of: &'d DraftRoute,
    owner: &'d Pattern,
    repository: &'d Pattern,
    /// `None`: not known.
    permissions: Option<&'static [&'static str]>,
}

pub(super) fn compare(used: &Use<'_>, view: &GithubAppView, found: &mut Vec<Diagnostic>) {
    let routes: Vec<Option<Route<'_>>> = used.routes.iter().map(|route| read(view, route)).collect();
    let known: Vec<&Route<'_>> = routes.iter().flatten().collect();
    found.extend(known.iter().filter_map(|route| beyond_repositories(used, view, route)));
    found.extend(known.iter().filter_map(|route| beyond_permissions(used, view, route)));
    if known.len() == routes.len() {
        found.extend(unused_repositories(used, view, &known));
        if known.iter().all(|route| route.permissions.is_some()) {
            found.extend(unused_permissions(used, view, &known));
        }
    }
}

/// `None` for routes that are not of repositories, or not plainly so.
fn read<'d>(view: &GithubAppView, route: &'d DraftRoute) -> Option<Route<'d>> {
    let path = &route.line.path;
    let mut segments = path.segments.iter();
    let base = view.issuer.path.split('/').filter(|segment| !segment.is_empty());
    for expected in base.chain(["repos"]) {
        if !matches!(segments.next()?, Pattern::Literal(literal) if **literal == *expected.as_bytes()) {
            return None;
        }
    }
    let (owner, repository) = (segments.next()?, segments.next()?);
    let permissions = match segments.next() {
        Some(Pattern::Literal(name)) => {
            let of_endpoint = ENDPOINTS.iter().find(|(endpoint, _)| *endpoint.as_bytes() == **name);
            of_endpoint.map(|(_, permissions)| *permissions)
        }
        None if path.end != PathEnd::Rest && !route.line.methods.change_something() => Some(&[ALWAYS][..]),
        _ => None,
    };
    Some(Route { of: route, owner, repository, permissions })
}

impl Route<'_> {
    fn reaches(&self, owner: &str, repository: &str) -> bool {
        self.owner.matches_folded(owner.as_bytes()) && self.repository.matches_folded(repository.as_bytes())
    }

    fn writes(&self) -> bool {
        self.of.line.methods.change_something()
    }
}

/// Repositories that the route lets through and the token does not reach.
fn beyond_repositories(used: &Use<'_>, view: &GithubAppView, route: &Route<'_>) -> Option<Diagnostic> {
    let within = |pattern: &Pattern, names: &[String]| {
        let is_one = |text: &[u8]| names.iter().any(|name| name.as_bytes().eq_ignore_ascii_case(text));
        pattern.literals().is_some_and(|texts| texts.iter().all(|text| is_one(text)))
    };
    if within(route.owner, std::slice::from_ref(&view.owner)) && within(route.repository, &view.repositories)
    {
        return None;
    }
    let name = &used.credential.name.value;
    let message = format!("the route reaches repositories that the token of `{name}` does not");
    let names = match view.repositories.as_slice() {
        [one] => one.clone(),
        several => format!("{{{}}}", several.join("|")),
    };
    let help = format!("write `/repos/{}/{names}/…`, or add the repositories to the credential", view.owner);
    Some(used.grant_is_wider(route.of, message).help(help))
}

/// A permission that the route needs and the token does not have.
fn beyond_permissions(used: &Use<'_>, view: &GithubAppView, route: &Route<'_>) -> Option<Diagnostic> {
    let needed = route.permissions?;
    let enough = |name: &&str| {
        **name == *ALWAYS || level(view, name).is_some_and(|has| has != "read" || !route.writes())
    };
    if needed.iter().any(enough) {
        return None;
    }
    let (first, wanted) = (needed.first()?, if route.writes() { "write" } else { "read" });
    let name = &used.credential.name.value;
    let message =
        format!("the route needs `{first} = \"{wanted}\"`, which the token of `{name}` does not have");
    Some(
        used.grant_is_wider(route.of, message)
            .help("add the permission to the credential, or remove the route"),
    )
}

fn unused_repositories(used: &Use<'_>, view: &GithubAppView, routes: &[&Route<'_>]) -> Option<Diagnostic> {
    let unused: Vec<String> = view
        .repositories
        .iter()
        .filter(|repository| !routes.iter().any(|route| route.reaches(&view.owner, repository)))
        .map(|repository| format!("`{}/{repository}`", view.owner))
        .collect();
    if unused.is_empty() {
        return None;
    }
    let name = &used.credential.name.value;
    let message = format!("the token of `{name}` reaches {}, and no grant does", unused.join(", "));
    Some(used.credential_is_wider(message).help("remove what no grant needs from `repositories`"))
}

fn unused_permissions(used: &Use<'_>, view: &GithubAppView, routes: &[&Route<'_>]) -> Vec<Diagnostic> {
    let name = &used.credential.name.value;
    let granted = view.permissions.iter().filter(|(permission, _)| permission != ALWAYS);
    let too_much = granted.filter_map(|(permission, level)| {
        let needs = |route: &&&Route<'_>| {
            route.permissions.is_some_and(|needed| needed.contains(&permission.as_str()))
        };
        let mut needing = routes.iter().filter(needs).peekable();
        if needing.peek().is_none() {
            let message = format!("no grant needs the permission `{permission}` of `{name}`");
            return Some(used.credential_is_wider(message).help("remove it from `permissions`"));
        }
        if level != "read" && !needing.any(|route| route.writes()) {
            let message = format!("`{name}` has `{permission} = \"{level}\"`, and every grant only reads");
            return Some(used.credential_is_wider(message).help(format!("write `{permission} = \"read\"`")));
        }
        None
    });
    too_much.collect()
}

fn level<'v>(view: &'v GithubAppView, permission: &str) -> Option<&'v str> {
    view.permissions.iter().find(|(name, _)| name == permission).map(|(_, level)| level.as_str())
}
