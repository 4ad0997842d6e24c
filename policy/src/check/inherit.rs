//! What grants have from elsewhere: callers of groups, rules and settings of the grant that they extend, defaults.

use std::collections::HashMap;
use std::sync::Arc;

use crate::Tier;
use crate::diagnostic::{Code, Diagnostic};
use crate::draft::{Draft, DraftGrant, GrantDefaults, Kind};
use crate::model::GrantView;
use crate::suggest::nearest;

/// Fills every grant in. Definitions are unique and sorted by name.
pub(super) fn fill(draft: &mut Draft) {
    groups(draft);
    extends(draft);
    defaults(draft);
}

fn unknown(draft: &Draft, kind: Kind, name: &str, known: &[&str]) -> Option<(String, String)> {
    let broken = draft.incomplete || draft.broken.iter().any(|(of, broken)| *of == kind && broken == name);
    let help = match nearest(name, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("define `[{}.{name}]` in a file of the folder", kind.word()),
    };
    (!broken).then(|| (format!("no file defines {} `{}`", kind.word(), name.escape_debug()), help))
}

fn groups(draft: &mut Draft) {
    let known: HashMap<Arc<str>, Vec<Arc<str>>> =
        draft.groups.iter().map(|group| (Arc::clone(&group.name.value), group.callers.clone())).collect();
    let names: Vec<&str> = known.keys().map(|name| &**name).collect();
    let mut found = Vec::new();
    for reference in draft.grants.iter().flat_map(|grant| &grant.groups) {
        if known.contains_key(&reference.value) {
            continue;
        }
        if let Some((message, help)) = unknown(draft, Kind::Group, &reference.value, &names) {
            found.push(
                Diagnostic::error(Code::UnknownReference, message).at(reference.place.clone()).help(help),
            );
        }
    }
    for group in &draft.groups {
        if !draft.grants.iter().any(|grant| grant.groups.iter().any(|used| used.value == group.name.value)) {
            let message = format!("no grant uses the group `{}`", group.name.value);
            let help = format!("add `groups = [\"{}\"]` to a grant, or remove the group", group.name.value);
            found.push(
                Diagnostic::warning(Code::UnusedGroup, message).at(group.name.place.clone()).help(help),
            );
        }
    }
    for grant in &mut draft.grants {
        let more = grant.groups.iter().filter_map(|group| known.get(&group.value)).flatten();
        grant.callers.extend(more.cloned());
        grant.callers.sort_unstable();
        grant.callers.dedup();
    }
    draft.diagnostics.extend(found);
}

fn extends(draft: &mut Draft) {
    let mut found = Vec::new();
    let names: Vec<&str> = draft.grants.iter().map(|grant| &*grant.name.value).collect();
    let default_floor = draft.defaults.first().and_then(|defaults| defaults.value.floor);
    let mut bases: Vec<(usize, usize)> = Vec::new();
    for (index, grant) in draft.grants.iter().enumerate() {
        let Some(extends) = &grant.extends else { continue };
        match draft.grants.iter().position(|base| base.name.value == extends.value) {
            Some(base) if draft.grants.get(base).is_some_and(|base| base.extends.is_some()) => {
                let message = format!("grant `{}` extends one that extends another", grant.name.value);
                let help = "one level only: whoever reads a grant has to open one other at most";
                found.push(Diagnostic::error(Code::BadExtends, message).at(extends.place.clone()).help(help));
            }
            Some(base) => bases.push((index, base)),
            None => {
                if let Some((message, help)) = unknown(draft, Kind::Grant, &extends.value, &names) {
                    let diagnostic = Diagnostic::error(Code::UnknownReference, message);
                    found.push(diagnostic.at(extends.place.clone()).help(help));
                }
            }
        }
    }
    for (index, base) in bases {
        let Some(base) = draft.grants.get(base).map(|base| (base.view.clone(), base.rules.clone())) else {
            continue;
        };
        if let Some(grant) = draft.grants.get_mut(index) {
            inherit(grant, &base.0, default_floor);
            grant.rules.extend(base.1);
        }
    }
    draft.diagnostics.extend(found);
}

fn inherit(grant: &mut DraftGrant, base: &GrantView, default_floor: Option<Tier>) {
    let view = &mut grant.view;
    // A floor is the weakest boundary that is accepted: the stronger of the two holds.
    view.floor = view.floor.max(base.floor.or(default_floor));
    view.ttl_seconds = view.ttl_seconds.or(base.ttl_seconds);
    view.not_before_unix = view.not_before_unix.max(base.not_before_unix);
    // The earlier end holds: extending a grant does not lengthen it.
    view.expires_unix = [view.expires_unix, base.expires_unix].into_iter().flatten().min();
    if view.schedule.is_empty() {
        view.schedule.clone_from(&base.schedule);
    }
    view.calls = view.calls.or(base.calls);
    view.per_minute = view.per_minute.or(base.per_minute);
    view.caller_per_minute = view.caller_per_minute.or(base.caller_per_minute);
    view.concurrent = view.concurrent.or(base.concurrent);
    view.request_bytes = view.request_bytes.or(base.request_bytes);
    view.response_bytes = view.response_bytes.or(base.response_bytes);
}

fn defaults(draft: &mut Draft) {
    let mut all = draft.defaults.iter();
    let Some(first) = all.next() else { return };
    let more: Vec<Diagnostic> = all
        .map(|other| {
            let diagnostic = Diagnostic::error(Code::DuplicateDefinition, "`defaults` is there twice");
            diagnostic
                .at(other.place.clone())
                .related(first.place.clone(), "first here")
                .help("defaults hold for every grant of the folder: write them once")
        })
        .collect();
    let GrantDefaults { floor, ttl_seconds, budget } = first.value.clone();
    for grant in &mut draft.grants {
        let view = &mut grant.view;
        view.floor = view.floor.or(floor);
        view.ttl_seconds = view.ttl_seconds.or(ttl_seconds);
        view.calls = view.calls.or(budget.calls);
        view.per_minute = view.per_minute.or(budget.per_minute);
        view.caller_per_minute = view.caller_per_minute.or(budget.caller_per_minute);
        view.concurrent = view.concurrent.or(budget.concurrent);
        view.request_bytes = view.request_bytes.or(budget.request_bytes);
        view.response_bytes = view.response_bytes.or(budget.response_bytes);
    }
    draft.diagnostics.extend(more);
}
