//! Definitions to a policy that is valid: names, references, conflicts, dead and dangerous rules.

mod names;

use crate::diagnostic::Diagnostic;
use crate::draft::Draft;
use crate::limits::DIAGNOSTICS_MAX;

/// Checks everything that takes more than one definition to see, and sorts the definitions by name.
pub(crate) fn definitions(draft: &mut Draft) {
    names::duplicates(draft);
    names::references(draft);
}

/// Problems in the order of files and lines, at most `DIAGNOSTICS_MAX`.
pub(crate) fn sorted(mut diagnostics: Vec<Diagnostic>) -> Vec<Diagnostic> {
    diagnostics.sort_by(|a, b| (&a.place, a.severity, a.code).cmp(&(&b.place, b.severity, b.code)));
    diagnostics.dedup();
    // Errors are what must not be lost: a policy with one is not loaded.
    if diagnostics.len() > DIAGNOSTICS_MAX {
        diagnostics.sort_by_key(|diagnostic| diagnostic.severity);
        diagnostics.truncate(DIAGNOSTICS_MAX);
    }
    diagnostics
}
