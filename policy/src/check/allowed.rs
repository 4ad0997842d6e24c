//! Warnings that the files allow: taken out, with the reason that stands there. Errors cannot be allowed.

use crate::Allowed;
use crate::diagnostic::{Code, Diagnostic, Severity};
use crate::draft::DraftAllowance;

/// Parts what is allowed from what is to be shown. An allowance that allows nothing is a warning itself.
pub(crate) fn part(
    diagnostics: Vec<Diagnostic>,
    allowances: &[DraftAllowance],
) -> (Vec<Diagnostic>, Vec<Allowed>) {
    let failed = diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error);
    let mut used = vec![false; allowances.len()];
    let (mut shown, mut allowed) = (Vec::new(), Vec::new());
    for diagnostic in diagnostics {
        let mut by = None;
        for (allowance, used) in allowances.iter().zip(&mut used) {
            if allowance.is_about(&diagnostic) {
                *used = true;
                by = by.or(Some(allowance));
            }
        }
        match by {
            Some(allowance) => {
                allowed.push(Allowed { warning: diagnostic, reason: allowance.reason.clone() });
            }
            None => shown.push(diagnostic),
        }
    }
    // While there are errors, some warnings are not looked for.
    let idle = allowances.iter().zip(&used).filter(|(_, used)| !failed && !**used);
    shown.extend(idle.map(|(allowance, _)| {
        let message = format!("no warning {} is here to be allowed", allowance.code.id());
        let help = "remove the allowance: it would hide the next warning of that kind";
        Diagnostic::warning(Code::UnusedAllowance, message).at(allowance.place.clone()).help(help)
    }));
    (shown, allowed)
}

impl DraftAllowance {
    fn is_about(&self, diagnostic: &Diagnostic) -> bool {
        let Some(place) = &diagnostic.place else { return false };
        diagnostic.severity == Severity::Warning
            && diagnostic.code == self.code
            && place.file == self.place.file
            && self.lines.as_ref().is_none_or(|lines| lines.contains(&place.line))
    }
}
