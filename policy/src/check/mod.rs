//! Definitions to a policy that is valid: names, references, conflicts, dead and dangerous rules.

mod allowed;
mod ambiguous;
mod apis;
mod connections;
mod inherit;
mod names;
mod places;
mod reach;
mod rules;

pub(crate) use allowed::part;

use crate::compiled::Compiled;
use crate::diagnostic::{Code, Diagnostic, Severity};
use crate::draft::Draft;
use crate::limits::DIAGNOSTICS_MAX;

/// Checks everything that takes more than one definition to see, and sorts the definitions by name.
pub(crate) fn definitions(draft: &mut Draft) {
    names::duplicates(draft);
    connections::rules(draft);
    inherit::fill(draft);
    if !draft.incomplete {
        names::references(draft);
    }
    apis::aliases(draft);
    apis::shared_origins(draft);
    apis::unused(draft);
    apis::spread(draft);
    if !draft.incomplete {
        reach::compare(draft);
    }
}

/// Checks rules against each other. What only a whole policy can show (an idle deny) is left out while it has errors.
pub(crate) fn rules(compiled: &Compiled, diagnostics: &mut Vec<Diagnostic>) {
    let whole = !diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error);
    let places = places::Places::new(compiled);
    for grant in &compiled.grants {
        rules::of_grant(&places, grant, diagnostics);
        ambiguous::terms(&places, grant, diagnostics);
        if whole {
            rules::idle_denies(&places, grant, diagnostics);
        }
    }
    ambiguous::credentials(&places, diagnostics);
    ambiguous::approvals(&places, diagnostics);
}

/// Problems in the order of files and lines, at most `DIAGNOSTICS_MAX`.
pub(crate) fn sorted(mut diagnostics: Vec<Diagnostic>) -> Vec<Diagnostic> {
    diagnostics.sort_by(|a, b| (&a.place, a.severity, a.code).cmp(&(&b.place, b.severity, b.code)));
    diagnostics.dedup();
    if diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error) {
        // Not used, because what uses it is broken: no second problem.
        let only_whole = [
            Code::UnusedApi,
            Code::UnusedCredential,
            Code::UnusedGroup,
            Code::NothingAllowed,
            Code::CredentialBeyondGrants,
        ];
        diagnostics.retain(|diagnostic| !only_whole.contains(&diagnostic.code));
    }
    // Errors are what must not be lost: a policy with one is not loaded.
    if diagnostics.len() > DIAGNOSTICS_MAX {
        diagnostics.sort_by_key(|diagnostic| diagnostic.severity);
        diagnostics.truncate(DIAGNOSTICS_MAX);
    }
    diagnostics
}
