//! Imports: what comes out is a policy, says what the description says, and reports the rest.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    reason = "a test reads its cases from files and fails by panicking"
)]

mod har;
mod openapi;
mod plimsoll;

use std::path::Path;

use freeboard_policy::explain::{Explanation, Request, Verdict};
use freeboard_policy::import::{ImportError, Imported, Naming};
use freeboard_policy::{Policy, SourceFile, render_all};

pub(crate) const CALLER: &str = "bot";

pub(crate) fn fixture(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/import").join(name)).unwrap()
}

pub(crate) fn naming() -> Naming {
    Naming { callers: vec![CALLER.to_owned()], ..Naming::default() }
}

/// Policy and report as one text, for snapshots.
pub(crate) fn shown(imported: &Imported) -> String {
    format!("{}\n==== report\n{}", imported.policy, imported.report.render())
}

/// The policy of an import, which must load without one warning.
pub(crate) fn loaded(text: &str) -> Policy {
    let loaded = Policy::load(&[SourceFile::new("import.toml", text)])
        .unwrap_or_else(|problems| panic!("{}\n{text}", render_all(&problems)));
    assert!(loaded.warnings.is_empty(), "{}\n{text}", render_all(&loaded.warnings));
    loaded.policy
}

pub(crate) fn ask(policy: &Policy, method: &str, url: &str) -> Explanation {
    policy.explain(&Request {
        caller: Some(CALLER),
        grants: None,
        tier: None,
        method,
        url,
        headers: &Vec::new(),
        body: None,
        websocket: false,
        now_unix: 0,
    })
}

pub(crate) fn allows(policy: &Policy, method: &str, url: &str) -> bool {
    ask(policy, method, url).verdict == Verdict::Allow
}

pub(crate) fn message(result: Result<Imported, ImportError>) -> String {
    result.map_or_else(|error| error.to_string(), |imported| panic!("imported:\n{}", imported.policy))
}
