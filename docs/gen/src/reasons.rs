//! `reasons.md`: every reason why something is refused or fails, as guests, callers and the audit log see it.

use freeboard_policy::{Fault, Reason};

use crate::NOTICE;
use crate::source::{cell, items};

pub(crate) fn page() -> String {
    let mut page = format!(
        "{NOTICE}\n# Reasons\n\nThe code is what a refused guest reads, what the audit log holds and what callers get. It does not change its meaning.\n\n\
         | code | answer | whose fault | meaning |\n|---|---|---|---|\n"
    );
    let documented = items(include_str!("../../../policy/src/decision.rs"), "");
    for reason in Reason::ALL {
        let quoted = format!("\"{}\"", reason.code());
        let meaning = documented.iter().find(|item| item.code.contains(&quoted));
        let fault = match reason.fault() {
            Fault::Client => "the guest's",
            Fault::Policy => "policy",
            Fault::Upstream => "the upstream's",
            Fault::Ours => "ours",
        };
        let meaning = meaning.map(|item| cell(&item.doc)).unwrap_or_default();
        page.push_str(&format!("| `{}` | {} | {fault} | {meaning} |\n", reason.code(), reason.status()));
    }
    page
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_reason_has_a_meaning() {
        assert!(!super::page().contains("|  |"), "{}", super::page());
    }
}
