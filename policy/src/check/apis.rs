//! APIs against each other: aliases, shared origins, credentials that nobody uses or that reach too far.

use std::collections::BTreeMap;

use crate::diagnostic::{Code, Diagnostic};
use crate::draft::{Draft, DraftApi};
use crate::origin::Origin;

/// An alias is a host of its own: no origin and no other alias has its name.
pub(super) fn aliases(draft: &mut Draft) {
    let mut found = Vec::new();
    for (index, api) in draft.apis.iter().enumerate() {
        let Some(alias) = &api.alias else { continue };
        let origins = draft.apis.iter().flat_map(|other| &other.origins);
        let taken =
            origins.filter(|origin| origin.value.host == alias.value).map(|origin| &origin.place).next();
        let aliased = draft.apis.iter().take(index).filter_map(|other| other.alias.as_ref());
        let taken = taken
            .or_else(|| aliased.filter(|other| other.value == alias.value).map(|other| &other.place).next());
        if let Some(place) = taken {
            let message = format!("the alias `{}` is the name of another host", alias.value);
            let diagnostic = Diagnostic::error(Code::BadAlias, message).at(alias.place.clone());
            let help = "choose a name that nothing else has, for example one under `.internal`";
            found.push(diagnostic.related(place.clone(), "the other one").help(help));
        }
    }
    draft.diagnostics.extend(found);
}

/// A connection to an origin is made before it is known which API a request belongs to.
pub(super) fn shared_origins(draft: &mut Draft) {
    let mut found = Vec::new();
    let mut first: BTreeMap<&Origin, &DraftApi> = BTreeMap::new();
    for api in &draft.apis {
        for origin in &api.origins {
            let Some(before) = first.insert(&origin.value, api) else { continue };
            let (a, b) = (&before.view, &api.view);
            let what = if a.traffic != b.traffic {
                "what they carry"
            } else if a.ca_file != b.ca_file || a.pin_sha256 != b.pin_sha256 {
                "`trust`"
            } else if a.addresses != b.addresses {
                "`addresses`"
            } else if a.hidden != b.hidden {
                "`hidden`"
            } else {
                continue;
            };
            if a.traffic != b.traffic {
                let message = format!(
                    "APIs `{}` and `{}` share `{}:{}`, which one of them passes on unread",
                    a.name, b.name, origin.value.host, origin.value.port
                );
                let help = "a connection is read or passed on; give one of them another host or port";
                let diagnostic = Diagnostic::error(Code::OriginConflict, message).at(origin.place.clone());
                found.push(diagnostic.related(before.name.place.clone(), "the other API").help(help));
                continue;
            }
            let message = format!("APIs `{}` and `{}` share an origin but differ in {what}", a.name, b.name);
            let help = format!("give both the same {what}: the connection is the same");
            let diagnostic = Diagnostic::error(Code::OriginConflict, message).at(origin.place.clone());
            found.push(diagnostic.related(before.name.place.clone(), "the other API").help(help));
        }
    }
    draft.diagnostics.extend(found);
}

/// Definitions that nothing refers to.
pub(super) fn unused(draft: &mut Draft) {
    let mut found = Vec::new();
    for credential in &draft.credentials {
        let name = &credential.name;
        if !draft.apis.iter().any(|api| api.credential.as_ref().is_some_and(|used| used.value == name.value))
        {
            let message = format!("no API uses the credential `{}`", name.value);
            let help = format!("add `credential = \"{}\"` to an API, or remove the credential", name.value);
            found
                .push(Diagnostic::warning(Code::UnusedCredential, message).at(name.place.clone()).help(help));
        }
    }
    for api in &draft.apis {
        let mut rules = draft.grants.iter().flat_map(|grant| &grant.rules);
        if !rules.any(|rule| rule.api.value == api.name.value) {
            let message = format!("no grant uses the API `{}`", api.name.value);
            let help = "add a rule with it to a grant, or remove the API";
            found.push(Diagnostic::warning(Code::UnusedApi, message).at(api.name.place.clone()).help(help));
        }
    }
    draft.diagnostics.extend(found);
}

/// A credential that is sent to hosts of different owners is known to all of them.
pub(super) fn spread(draft: &mut Draft) {
    let mut found = Vec::new();
    for credential in &draft.credentials {
        let name = &credential.name.value;
        let using =
            draft.apis.iter().filter(|api| api.credential.as_ref().is_some_and(|used| used.value == *name));
        let mut origins = using.flat_map(|api| &api.origins);
        let Some(first) = origins.next() else { continue };
        let family = family(first.value.host.as_str());
        if let Some(other) = origins.find(|origin| self::family(origin.value.host.as_str()) != family) {
            let message = format!(
                "the credential `{name}` goes to `{}` and to `{}`",
                first.value.host, other.value.host
            );
            let diagnostic = Diagnostic::warning(Code::CredentialSpread, message).at(other.place.clone());
            let help =
                "each of them could use it at the other; define one credential for each owner of a host";
            found.push(diagnostic.related(first.place.clone(), "the first one").help(help));
        }
    }
    draft.diagnostics.extend(found);
}

/// The last two labels: a rough idea of who owns a host, good enough for a warning.
pub(super) fn family(host: &str) -> &str {
    match host.rmatch_indices('.').nth(1) {
        Some((at, _)) => host.get(at + 1..).unwrap_or(host),
        None => host,
    }
}
