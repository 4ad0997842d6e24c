//! Targets of requests, against another reading of them: path, query, and both against any route line.

use std::sync::LazyLock;

use freeboard_policy::explain::{Request, Verdict};
use freeboard_policy::{Policy, SourceFile, Target};

const POLICY: &str = r#"
[api.a]
origins = ["https://api.test"]
[grant.g]
callers = ["bot"]
[[grant.g.allow]]
api = "a"
routes = [
  "GET /files/{name}",
  "GET /numbers/{int}/",
  "GET /pairs/a%2Fb",
  "GET /rest/**",
  "GET /q?a={int}&b!={slug}&c={x|y%20z}&d",
]
[[grant.g.deny]]
api = "a"
routes = ["* /files/secret", "* /rest/x/y"]
"#;

static LOADED: LazyLock<Option<Policy>> =
    LazyLock::new(|| Policy::load(&[SourceFile::new("p.toml", POLICY)]).ok().map(|loaded| loaded.policy));

fn allows(policy: &Policy, method: &str, url: &str) -> bool {
    let explanation = policy.explain(&Request {
        caller: Some("bot"),
        grants: None,
        tier: None,
        method,
        url,
        headers: &Vec::new(),
        body: None,
        websocket: false,
        now_unix: 0,
    });
    let allowed = explanation.verdict == Verdict::Allow;
    assert_eq!(allowed, explanation.reason.is_none(), "{}", explanation.render());
    allowed
}

fn granted(target: &Target) -> bool {
    let policy = LOADED.as_ref();
    assert!(policy.is_some(), "the policy of the targets loads");
    policy.is_some_and(|policy| allows(policy, "GET", &format!("https://api.test{}", target.wire())))
}

/// A request target.
pub(crate) fn path(data: &[u8]) {
    let Ok(once) = Target::parse(data) else { return };
    let twice = Target::parse(once.wire().as_bytes());
    assert_eq!(twice.as_ref(), Ok(&once), "the canonical form is its own canonical form");
    let path = once.path();
    assert!(!path.contains("//") && !path.contains([';', '\\', '#']), "{path}");
    let segments: Vec<String> =
        path.split('/').skip(1).map(|segment| decoded(segment, Plus::Stays)).collect();
    let pieces: Vec<&str> = segments.iter().flat_map(|segment| segment.split('/')).collect();
    assert!(!pieces.iter().any(|piece| [".", ".."].contains(piece)), "{path} climbs");
    if once.query().is_none() {
        assert_eq!(granted(&once), path_is_granted(&segments, &pieces), "{path}");
    }
}

/// What `POLICY` says of a path, read segment by segment, and by an upstream that decodes first.
fn path_is_granted(segments: &[String], pieces: &[&str]) -> bool {
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    let is_denied = |path: &[&str]| {
        let path = if let [path @ .., ""] = path { path } else { path };
        let is = |of: &[&str]| {
            path.len() == of.len() && path.iter().zip(of).all(|(one, other)| one.eq_ignore_ascii_case(other))
        };
        is(&["files", "secret"]) || is(&["rest", "x", "y"])
    };
    let is_number =
        |text: &str| (1..=20).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_allowed = match segments.as_slice() {
        ["files", name] => !name.is_empty(),
        ["numbers", number, ""] => is_number(number),
        ["pairs", pair] => *pair == "a/b",
        ["rest", ..] => true,
        _ => false,
    };
    is_allowed && !is_denied(&segments) && !is_denied(pieces)
}

/// A query.
pub(crate) fn query(data: &[u8]) {
    let target = [b"/q?", data].concat();
    let Ok(target) = Target::parse(&target) else { return };
    let query = target.query().unwrap_or_default();
    assert_eq!(granted(&target), query_is_granted(query), "{query}");
}

/// What `POLICY` says of a query, as form decoders read it.
fn query_is_granted(query: &str) -> bool {
    let pairs: Vec<(String, String)> = query
        .split('&')
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(name, Plus::IsSpace), decoded(value, Plus::IsSpace))
        })
        .collect();
    let value_fits = |name: &str, value: &str| match name {
        "a" => (1..=20).contains(&value.len()) && value.bytes().all(|byte| byte.is_ascii_digit()),
        "b" => {
            !value.is_empty()
                && !value.starts_with('-')
                && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        }
        "c" => ["x", "y z"].contains(&value),
        "d" => true,
        _ => false,
    };
    let is_once = |name: &str| pairs.iter().filter(|pair| pair.0 == name).count() == 1;
    !query.contains(';')
        && is_once("b")
        && pairs.iter().all(|(name, value)| is_once(name) && value_fits(name, value))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Plus {
    Stays,
    IsSpace,
}

/// Decodes escapes once. A canonical target has no broken ones, and is UTF-8 then.
fn decoded(text: &str, plus: Plus) -> String {
    let mut bytes = text.bytes();
    let mut out = Vec::new();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => {
                let digits: String = bytes.by_ref().take(2).map(char::from).collect();
                u8::from_str_radix(&digits, 16).unwrap_or_else(|_| panic!("`{text}` has a broken escape"))
            }
            b'+' if plus == Plus::IsSpace => b' ',
            byte => byte,
        });
    }
    String::from_utf8(out).unwrap_or_else(|_| panic!("`{text}` is not UTF-8 once decoded"))
}

/// A route line, a line break, a method and a target.
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
        Some(allows(&policy, method, &url))
    };
    let open = verdict("");
    let closed = verdict("[[grant.g.deny]]\napi = \"a\"\nroutes = ['DELETE /**', '* /private/**']\n");
    if closed == Some(true) {
        assert_eq!(open, Some(true), "a deny rule allowed something: {text:?}");
    }
}
