//! Names: each defined once, each reference to something that is there.

use std::collections::HashMap;
use std::sync::Arc;

use crate::diagnostic::{Code, Diagnostic, Place};
use crate::draft::{At, Draft, Kind};
use crate::suggest::nearest;

/// Reports second definitions and drops them; sorts what is left by name.
pub(super) fn duplicates(draft: &mut Draft) {
    let mut found = Vec::new();
    once(&mut draft.credentials, Kind::Credential, |item| &item.name, &mut found);
    once(&mut draft.apis, Kind::Api, |item| &item.name, &mut found);
    once(&mut draft.groups, Kind::Group, |item| &item.name, &mut found);
    once(&mut draft.grants, Kind::Grant, |item| &item.name, &mut found);
    draft.diagnostics.extend(found);
}

fn once<T>(items: &mut Vec<T>, kind: Kind, name: impl Fn(&T) -> &At<Arc<str>>, found: &mut Vec<Diagnostic>) {
    // A stable sort: of two definitions the first of the first file stays first.
    items.sort_by(|a, b| name(a).value.cmp(&name(b).value));
    let mut first: HashMap<Arc<str>, Place> = HashMap::new();
    items.retain(|item| {
        let At { value, place } = name(item);
        match first.get(value) {
            None => {
                first.insert(Arc::clone(value), place.clone());
                true
            }
            Some(before) => {
                let message = format!("{} `{value}` is defined twice", kind.word());
                let diagnostic = Diagnostic::error(Code::DuplicateDefinition, message).at(place.clone());
                found.push(
                    diagnostic
                        .related(before.clone(), "first defined here")
                        .help("rename one of them, or merge them; definitions of several files are never merged silently"),
                );
                false
            }
        }
    });
}

/// Reports references to what no file defines.
pub(super) fn references(draft: &mut Draft) {
    let mut found = Vec::new();
    let credentials: Vec<&str> = draft.credentials.iter().map(|credential| &*credential.name.value).collect();
    let apis: Vec<&str> = draft.apis.iter().map(|api| &*api.name.value).collect();
    let broken =
        |kind: Kind, name: &str| draft.broken.iter().any(|(of, broken)| *of == kind && broken == name);
    let mut check = |kind: Kind, known: &[&str], reference: &At<Arc<str>>| {
        let name = &*reference.value;
        if known.contains(&name) || broken(kind, name) {
            return;
        }
        let help = match nearest(name, known.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("define `[{}.{name}]` in a file of the folder", kind.word()),
        };
        let message = format!("no file defines {} `{}`", kind.word(), name.escape_debug());
        found.push(Diagnostic::error(Code::UnknownReference, message).at(reference.place.clone()).help(help));
    };
    for reference in draft.apis.iter().filter_map(|api| api.credential.as_ref()) {
        check(Kind::Credential, &credentials, reference);
    }
    for rule in draft.grants.iter().flat_map(|grant| &grant.rules) {
        check(Kind::Api, &apis, &rule.api);
    }
    draft.diagnostics.extend(found);
}
