//! What is fuzzed: bytes in, a panic when something that must hold does not. Used by the tests beside it and by `fuzz/`.

use freeboard_policy::explain::{Request, Verdict};
use freeboard_policy::import::{Naming, Writes, har as log, openapi as description};
use freeboard_policy::{Policy, SourceFile, Target};

/// A policy file.
pub(crate) fn policy(data: &[u8]) {
    let Ok(file) = SourceFile::decode("fuzz.toml", data) else { return };
    match Policy::load(std::slice::from_ref(&file)) {
        Ok(loaded) => {
            let again = Policy::load(&[file]).map(|loaded| loaded.policy.digest().to_string());
            assert_eq!(
                again.ok().as_deref(),
                Some(&**loaded.policy.digest()),
                "the same file has the same digest"
            );
        }
        Err(problems) => {
            assert!(!problems.is_empty(), "a policy that is refused has a problem");
            for problem in problems {
                assert!(!problem.render().is_empty());
            }
        }
    }
}

/// A request target.
pub(crate) fn target(data: &[u8]) {
    let Ok(once) = Target::parse(data) else { return };
    let twice = Target::parse(once.wire().as_bytes());
    assert_eq!(twice.as_ref(), Ok(&once), "the canonical form is its own canonical form");
}

/// A route line, a method and a target.
pub(crate) fn decide(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Some((line, request)) = text.split_once('\n') else { return };
    let (method, target) = request.split_once(' ').unwrap_or(("GET", request));
    let url = format!("https://api.test{target}");
    let verdict = |denied: &str| {
        // A TOML literal string has no escapes; what cannot stand in one is not a line that anybody wrote.
        if line.contains('\'') {
            return None;
        }
        let policy = format!(
            "[api.a]\norigins = [\"https://api.test\"]\n[grant.g]\ncallers = [\"bot\"]\n[[grant.g.allow]]\napi = \"a\"\nroutes = ['{line}']\n{denied}"
        );
        let policy = Policy::load(&[SourceFile::new("fuzz.toml", policy)]).ok()?.policy;
        let explanation = policy.explain(&Request {
            caller: Some("bot"),
            grants: None,
            tier: None,
            method,
            url: &url,
            headers: &Vec::new(),
            body: None,
            websocket: false,
            now_unix: 0,
        });
        assert_eq!(
            explanation.verdict == Verdict::Allow,
            explanation.reason.is_none(),
            "{}",
            explanation.render()
        );
        Some(explanation.verdict)
    };
    let open = verdict("");
    let closed = verdict("[[grant.g.deny]]\napi = \"a\"\nroutes = ['DELETE /**', '* /private/**']\n");
    if closed == Some(Verdict::Allow) {
        assert_eq!(open, Some(Verdict::Allow), "a deny rule allowed something: {text:?}");
    }
}

fn naming() -> Naming {
    Naming { callers: vec!["bot".to_owned()], ..Naming::default() }
}

/// An OpenAPI description.
pub(crate) fn openapi(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let options = description::Options {
        naming: naming(),
        writes: Writes::Include,
        server: Some("https://api.test".to_owned()),
        ..description::Options::default()
    };
    if let Ok(imported) = description::import(text, &options) {
        loads(&imported.policy);
    }
}

/// The log of a browser.
pub(crate) fn har(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let options = log::Options { naming: naming(), writes: Writes::Include, ..log::Options::default() };
    if let Ok(imported) = log::import(text, &options) {
        loads(&imported.policy);
    }
}

fn loads(policy: &str) {
    let loaded = Policy::load(&[SourceFile::new("import.toml", policy)]);
    assert!(loaded.is_ok_and(|loaded| loaded.warnings.is_empty()), "an import is no policy:\n{policy}");
}
