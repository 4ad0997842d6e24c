//! Checks of rules that look at all requests, each with a request that shows what is meant.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use freeboard_policy::{Code, Diagnostic, Policy, SourceFile};

const APIS: &str = r#"
[credential.k]
kind = "bearer"
token = { file = "/k" }
[api.a]
origins = ["https://a.test"]
[api.b]
origins = ["https://a.test", "https://b.test:8443"]
[api.c]
origins = ["https://a.test"]
credential = "k"
"#;

/// Problems of rules: code, the line that it is about, the request.
fn problems(rules: &str) -> Vec<(Code, String, Option<String>)> {
    let found = match Policy::load(&[SourceFile::new("p.toml", format!("{APIS}{rules}"))]) {
        Ok(loaded) => loaded.warnings,
        Err(problems) => problems,
    };
    let of_rules = |problem: &&Diagnostic| {
        !matches!(
            problem.code,
            Code::UnusedApi | Code::UnusedCredential | Code::WideRule | Code::CredentialSpread
        )
    };
    let shown = |problem: &Diagnostic| {
        let place = problem.place.as_ref().unwrap();
        let skipped = usize::try_from(place.column - 1).unwrap();
        let line = place.text.chars().skip(skipped).take(usize::try_from(place.width).unwrap());
        (problem.code, line.collect::<String>().trim_matches(['"', '\'']).to_owned(), problem.request.clone())
    };
    found.iter().filter(of_rules).map(shown).collect()
}

/// Rules of one grant for API `a`.
fn grant(allow: &[&str], deny: &[&str]) -> String {
    let mut text = "[grant.g]\ncallers = [\"x\"]\n".to_owned();
    text.push_str(&format!("[[grant.g.allow]]\napi = \"a\"\nroutes = {allow:?}\n"));
    if !deny.is_empty() {
        text.push_str(&format!("[[grant.g.deny]]\napi = \"a\"\nroutes = {deny:?}\n"));
    }
    text
}

#[test]
fn g12_covered_and_dead_rules_are_found_exactly() {
    use Code::{IdleDeny, ShadowedRule, UnreachableRule};
    for (allow, deny, expected) in [
        // Several rules cover one together.
        (
            &["GET|POST /a/{x}", "GET /a/{int}", "POST /a/{int}"][..],
            &[][..],
            vec![
                (ShadowedRule, "GET /a/{int}", "GET https://a.test/a/0"),
                (ShadowedRule, "POST /a/{int}", "POST https://a.test/a/0"),
            ],
        ),
        (
            &["GET /a?p={int}", "GET /a?q={int}", "GET /a?p={int}&q={int}"],
            &[],
            vec![
                (ShadowedRule, "GET /a?p={int}", "GET https://a.test/a"),
                (ShadowedRule, "GET /a?q={int}", "GET https://a.test/a"),
            ],
        ),
        (
            &["GET /a/{re:[ab]}", "GET /a/{b|c}", "GET /a/{a|c}"],
            &[],
            vec![(ShadowedRule, "GET /a/{a|c}", "GET https://a.test/a/a")],
        ),
        (&["GET /a/{re:[abx]}", "GET /a/{b|c}", "GET /a/{a|d}"], &[], vec![]),
        // What is left of a rule beside a deny rule is what another one says.
        (
            &["GET /a/{b|c}", "GET /a/b"],
            &["* /a/c"],
            vec![(ShadowedRule, "GET /a/b", "GET https://a.test/a/b")],
        ),
        // Several deny rules refuse everything together.
        (
            &["GET /a/{b|c}", "GET /z"],
            &["* /a/b", "GET /A/c"],
            vec![(UnreachableRule, "GET /a/{b|c}", "GET https://a.test/a/b")],
        ),
        (&["GET /a/{b|c}", "GET /z"], &["* /a/b"], vec![]),
        // A deny rule covers what others cover together.
        (
            &["GET|POST /a/{x}"],
            &["GET /a/b", "POST /a/b", "* /a/B/"],
            vec![
                (ShadowedRule, "GET /a/b", "GET https://a.test/a/b"),
                (ShadowedRule, "POST /a/b", "POST https://a.test/a/b"),
            ],
        ),
        // A deny rule reads an escaped slash as a border too.
        (
            &["GET /a%2Fb", "GET /z"],
            &["* /a/b"],
            vec![(UnreachableRule, "GET /a%2Fb", "GET https://a.test/a%2Fb")],
        ),
        (&["GET /{x}"], &["* /a/b"], vec![]),
        // And so its own: `a%2Fb` and `a/b` are one thing to many an upstream.
        (
            &["GET /a/b", "GET /z"],
            &["* /{x|A%2Fb}"],
            vec![(UnreachableRule, "GET /a/b", "GET https://a.test/a/b")],
        ),
        (
            &["GET /{x}/{y}", "GET /a/b"],
            &["* /a%2f*"],
            vec![(UnreachableRule, "GET /a/b", "GET https://a.test/a/b")],
        ),
        (&["GET /{int}"], &["* /a/b"], vec![(IdleDeny, "* /a/b", "POST https://a.test/a/b")]),
        // One digit and a letter: no text is both.
        (
            &["GET /a/{re:[0-9]}"],
            &["* /a/{re:[a-z]}"],
            vec![(IdleDeny, "* /a/{re:[a-z]}", "POST https://a.test/a/a")],
        ),
    ] {
        let expected: Vec<_> = expected
            .into_iter()
            .map(|(code, line, request): (Code, &str, &str)| {
                (code, line.to_owned(), Some(request.to_owned()))
            })
            .collect();
        assert_eq!(problems(&grant(allow, deny)), expected, "{allow:?} {deny:?}");
    }
}

#[test]
fn a_deny_rule_of_another_api_on_the_same_origins_makes_a_rule_dead() {
    let rules = |allow: &str, deny: &str| {
        format!(
            "[grant.g]\ncallers = [\"x\"]\n[[grant.g.allow]]\napi = \"{allow}\"\nroutes = [\"GET /a\"]\n\
             [[grant.g.deny]]\napi = \"{deny}\"\nroutes = [\"* /a\"]\n"
        )
    };
    let dead = (Code::UnreachableRule, "GET /a".to_owned(), Some("GET https://a.test/a".to_owned()));
    assert_eq!(problems(&rules("a", "b")), [dead]);
    // `b` has an origin at which no rule of `a` holds.
    assert_eq!(problems(&rules("b", "a")), []);
}

#[test]
fn ambiguity_is_shown_with_a_request_and_only_where_there_is_one() {
    use Code::{AmbiguousCredential, AmbiguousRule};
    let rule = |grant: &str, kind: &str, api: &str, route: &str, more: &str| {
        format!("[[grant.{grant}.{kind}]]\napi = \"{api}\"\nroutes = ['{route}']\n{more}\n")
    };
    let callers =
        "[grant.g]\ncallers = [\"x\"]\n[grant.h]\ncallers = [\"x\", \"y\"]\n[grant.i]\ncallers = [\"z\"]\n";
    let approve = "approve = { by = [\"lead\"] }";
    for (rules, expected) in [
        (
            [rule("g", "allow", "a", "POST /a/{int}", approve), rule("g", "allow", "a", "* /a/{hex}", "")],
            Some((AmbiguousRule, "POST /a/{int}", "POST https://a.test/a/0")),
        ),
        // Two APIs at one host are one place.
        (
            [rule("g", "allow", "a", "POST /a/{int}", approve), rule("g", "allow", "b", "POST /a/{hex}", "")],
            Some((AmbiguousRule, "POST /a/{int}", "POST https://a.test/a/0")),
        ),
        (
            [rule("g", "allow", "a", "POST /a/{int}", approve), rule("h", "allow", "b", "POST /a/{hex}", "")],
            Some((AmbiguousRule, "POST /a/{int}", "POST https://a.test/a/0")),
        ),
        (
            [
                rule("g", "allow", "a", "POST /a", approve),
                rule("h", "allow", "a", "POST /{x}", "approve = { by = [\"boss\"] }"),
            ],
            Some((AmbiguousRule, "POST /{x}", "POST https://a.test/a")),
        ),
        ([rule("g", "allow", "a", "POST /a", approve), rule("h", "allow", "a", "POST /{x}", approve)], None),
        ([rule("g", "allow", "a", "POST /a", approve), rule("i", "allow", "a", "POST /{x}", "")], None),
        (
            [
                rule("g", "allow", "a", "GET /{re:[a-m]+}?p={int}", ""),
                rule("h", "allow", "c", "GET /{re:[k-z]+}?p!", ""),
            ],
            Some((AmbiguousCredential, "GET /{re:[a-m]+}?p={int}", "GET https://a.test/k?p=0")),
        ),
        // Both need a parameter that the other one does not take.
        (
            [
                rule("g", "allow", "a", "GET /a?p!={int}", ""),
                rule("h", "allow", "c", "GET /a?p!={re:[a-z]}", ""),
            ],
            None,
        ),
    ] {
        let rules = rules.concat();
        let expected: Vec<_> = expected
            .into_iter()
            .map(|(code, line, request): (Code, &str, &str)| {
                (code, line.to_owned(), Some(request.to_owned()))
            })
            .collect();
        let mut found = problems(&format!("{callers}{rules}"));
        found.retain(|(code, ..)| *code != Code::NothingAllowed);
        assert_eq!(found, expected, "{rules}");
        if let Some((code, ..)) = expected.first() {
            // A deny rule that refuses all that both match settles it.
            let deny = rule("g", "deny", "a", "* /**", "");
            let denied = problems(&format!("{callers}{rules}{deny}"));
            assert!(denied.iter().all(|(of, ..)| of != code), "{denied:?}");
        }
    }
}

#[test]
fn g12_what_a_grant_inherits_may_be_covered_by_its_own_rules_and_not_the_other_way_round() {
    let extending = |routes: &str| {
        format!(
            "{}[grant.h]\ncallers = [\"y\"]\nextends = \"g\"\n[[grant.h.allow]]\napi = \"a\"\nroutes = [{routes}]\n",
            grant(&["GET /a/{int}"], &[])
        )
    };
    assert_eq!(problems(&extending("\"GET /a/{slug}\"")), []);
    let narrower = (Code::ShadowedRule, "GET /a/7".to_owned(), Some("GET https://a.test/a/7".to_owned()));
    assert_eq!(problems(&extending("\"GET /a/7\"")), [narrower]);
}
