//! Laws of policies, tried on random policies and requests.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod checks;
mod differences;
mod reference;

use freeboard_policy::explain::{Request, Verdict};
use freeboard_policy::{
    Code, Decision, DestinationQuestion, HeldBody, Host, NoFields, Policy, Reason, RequestQuestion, RunScope,
    ScopeQuestion, Severity, SourceFile, Target, render_all,
};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use reference::{Asked, Reference};

const API: &str = "[api.a]\norigins = [\"https://a.test\"]\n";

fn segment_pattern() -> impl Strategy<Value = &'static str> {
    select(vec![
        "a",
        "b",
        "A",
        "1",
        "x.git",
        "{x}",
        "*",
        "{int}",
        "{hex}",
        "{slug}",
        "{a|b}",
        "{1|B|x.git}",
        "{re:[ab]+}",
        "{n}.git",
        "a%2Fb",
        "a%2f*",
        "%61",
        "secrets",
    ])
}

fn query_pattern() -> impl Strategy<Value = &'static str> {
    select(vec![
        "",
        "",
        "",
        "?*",
        "?p={int}",
        "?p!={int}&q",
        "?p={a|b}&*",
        "?q=",
        "?q={re:[a-z]+}",
        "?q=a+b",
        "?%70={slug}",
    ])
}

fn route() -> impl Strategy<Value = String> {
    let methods = select(vec!["GET", "HEAD", "POST", "GET|POST", "*", "PURGE"]);
    let end = select(vec!["", "", "", "/", "/**"]);
    (methods, prop::collection::vec(segment_pattern(), 0..4), end, query_pattern()).prop_map(
        |(methods, segments, end, query)| {
            let path: String = segments.iter().map(|segment| format!("/{segment}")).collect();
            let path =
                if path.is_empty() && end.is_empty() { "/".to_owned() } else { format!("{path}{end}") };
            format!("{methods} {path}{query}")
        },
    )
}

/// (is it an allow rule, is it for websockets, its route)
type Rules = Vec<(bool, bool, String)>;

fn rules() -> impl Strategy<Value = Rules> {
    prop::collection::vec((prop::bool::weighted(0.75), prop::bool::weighted(0.1), route()), 1..8)
}

fn request() -> impl Strategy<Value = (String, String, bool)> {
    let segment = select(vec![
        "a", "b", "A", "1", "42", "x.git", "y.git", "B", "a%2Fb", "a%2fc", "%61", "secrets", "SECRETS", "ab",
        "-", "%2525", "c%2F",
    ]);
    let method = select(vec!["GET", "HEAD", "POST", "PURGE", "DELETE", "get", "TRACE", "PROPFIND"]);
    let end = select(vec!["", "", "", "/"]);
    let query = select(vec![
        "", "", "", "?", "?p=1", "?p=a", "?p=1&q=x", "?q=", "?q=a+b", "?q=a%20b", "?q=a%2Bb", "?p=1&p=2",
        "?p=1;q=2", "?%70=7", "?P=1", "?q=ab&", "?r=1", "?p",
    ]);
    (method, prop::collection::vec(segment, 0..5), end, query, prop::bool::weighted(0.1)).prop_map(
        |(method, segments, end, query, websocket)| {
            let path: String = segments.iter().map(|segment| format!("/{segment}")).collect();
            let path = if path.is_empty() { "/".to_owned() } else { format!("{path}{end}") };
            (method.to_owned(), format!("{path}{query}"), websocket)
        },
    )
}

fn grant(name: &str, rules: &[(bool, bool, String)]) -> String {
    let mut text = format!("[grant.{name}]\ncallers = [\"x\"]\n");
    for (allow, websocket, route) in rules {
        let word = if *allow { "allow" } else { "deny" };
        let websocket = if *websocket && *allow { "websocket = true\n" } else { "" };
        text.push_str(&format!("[[grant.{name}.{word}]]\napi = \"a\"\n{websocket}routes = ['{route}']\n"));
    }
    text
}

/// `None` for a policy that the checks refuse for its meaning: repeated or dead rules are frequent in random ones.
fn load(files: &[SourceFile]) -> Option<Policy> {
    match Policy::load(files) {
        Ok(loaded) => Some(loaded.policy),
        Err(problems) => {
            let meant = [Code::DuplicateRule, Code::UnreachableRule, Code::ShadowedRule];
            let errors = problems.iter().filter(|problem| problem.severity == Severity::Error);
            assert!(
                errors.into_iter().all(|problem| meant.contains(&problem.code)),
                "{}",
                render_all(&problems)
            );
            None
        }
    }
}

fn one(text: String) -> [SourceFile; 1] {
    [SourceFile::new("p.toml", text)]
}

fn scope(policy: &Policy) -> RunScope {
    let grants = policy.grants_of(Some("x"), 0);
    policy
        .scope(&ScopeQuestion { caller: Some("x"), grants: &grants, tier: None, session: false, now_unix: 0 })
        .unwrap()
}

fn decide(policy: &Policy, method: &str, target: &str, websocket: bool) -> Result<(), Reason> {
    let target = Target::parse(target.as_bytes()).map_err(|_| Reason::TargetNotCanonical)?;
    let (scope, host) = (scope(policy), Host::parse("a.test").unwrap());
    let destination = DestinationQuestion { scope: &scope, host: &host, port: 443 };
    let route = policy.destination(&destination).map_err(|refusal| refusal.reason)?;
    let question = RequestQuestion {
        scope: &scope,
        route: &route,
        method,
        target: &target,
        fields: &NoFields,
        websocket,
        now_unix: 0,
    };
    match policy.evaluate(&question) {
        Decision::Allow(_) => Ok(()),
        Decision::NeedsBody(pending) => {
            pending.inspect(HeldBody::Whole(&[])).map(drop).map_err(|refusal| refusal.reason)
        }
        Decision::Refuse(refusal) => Err(refusal.reason),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_global_rejects: 100_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_compiled_policy_and_a_slow_second_reading_agree(
        rules in rules(),
        requests in prop::collection::vec(request(), 24),
    ) {
        let text = format!("{API}{}", grant("g", &rules));
        let Some(policy) = load(&one(text.clone())) else { return Err(TestCaseError::reject("dead rules")) };
        let reference = Reference::read(&text);
        for (method, target, websocket) in requests {
            let slow = reference.allows(&Asked { method: &method, target: &target, websocket });
            let fast = decide(&policy, &method, &target, websocket);
            prop_assert_eq!(fast.is_ok(), slow, "{} {} {:?}\n{}", method, target, fast, text);
        }
    }

    #[test]
    fn adding_a_deny_never_allows_more(
        rules in rules(),
        added in route(),
        requests in prop::collection::vec(request(), 24),
    ) {
        let more = [rules.clone(), vec![(false, false, added)]].concat();
        let policies = (load(&one(format!("{API}{}", grant("g", &rules)))), load(&one(format!("{API}{}", grant("g", &more)))));
        let (Some(before), Some(after)) = policies else { return Err(TestCaseError::reject("dead rules")) };
        for (method, target, websocket) in requests {
            if decide(&after, &method, &target, websocket).is_ok() {
                prop_assert!(decide(&before, &method, &target, websocket).is_ok(), "{} {}", method, target);
            }
        }
    }

    #[test]
    fn the_order_of_files_and_rules_never_matters(
        first in rules(),
        second in rules(),
        requests in prop::collection::vec(request(), 16),
    ) {
        let file = |name: &str, text: String| SourceFile::new(name, text);
        let (g, h) = (grant("g", &first), grant("h", &second));
        let reversed: Rules = first.iter().rev().cloned().collect();
        let one_way = [file("a.toml", API.to_owned()), file("b.toml", g.clone()), file("c.toml", h.clone())];
        let other_way = [file("z.toml", g), file("c.toml", API.to_owned()), file("b.toml", h.clone())];
        let turned = [file("a.toml", API.to_owned()), file("b.toml", grant("g", &reversed)), file("c.toml", h)];
        let Some(policy) = load(&one_way) else { return Err(TestCaseError::reject("dead rules")) };
        let (moved, turned) = (load(&other_way).unwrap(), load(&turned).unwrap());
        prop_assert_eq!(policy.digest(), moved.digest());
        for (method, target, websocket) in requests {
            let answer = decide(&policy, &method, &target, websocket);
            prop_assert_eq!(&answer, &decide(&moved, &method, &target, websocket));
            prop_assert_eq!(&answer, &decide(&turned, &method, &target, websocket));
        }
    }

    #[test]
    fn g26_the_explanation_agrees_and_its_suggestion_works(rules in rules(), requests in prop::collection::vec(request(), 8)) {
        let text = format!("{API}{}", grant("g", &rules));
        let Some(policy) = load(&one(text.clone())) else { return Err(TestCaseError::reject("dead rules")) };
        for (method, target, websocket) in requests {
            let url = format!("https://a.test{target}");
            let asked = Request {
                caller: Some("x"), grants: None, tier: None, method: &method, url: &url, headers: &Vec::new(), body: None, websocket, now_unix: 0,
            };
            let explanation = policy.explain(&asked);
            let answer = decide(&policy, &method, &target, websocket);
            prop_assert_eq!(explanation.reason, answer.err(), "{}", url);
            prop_assert_eq!(explanation.verdict == Verdict::Allow, answer.is_ok());
            prop_assert_eq!(explanation.rule.is_some(), answer.is_ok() || answer == Err(Reason::DeniedByRule));
            let token = method.bytes().all(|byte| byte.is_ascii_uppercase());
            if let Some(line) = explanation.would_allow.filter(|line| line.starts_with('"') && token) {
                let route = line.trim_start_matches('"').split('"').next().unwrap().to_owned();
                let more = [rules.clone(), vec![(true, websocket, route.clone())]].concat();
                let widened = load(&one(format!("{API}{}", grant("g", &more))));
                if let Some(widened) = widened {
                    prop_assert_eq!(decide(&widened, &method, &target, websocket), Ok(()), "{} by {}\n{}", url, route, text);
                }
            }
        }
    }

    #[test]
    fn spellings_of_one_policy_have_one_digest(rules in rules(), cut in subsequence(vec![0, 1, 2, 3], 0..4)) {
        let plain = format!("{API}{}", grant("g", &rules));
        let mut spelt = format!("# a comment\r\n{}", plain.replace('\n', "\r\n"));
        if cut.contains(&0) { spelt = spelt.replace("GET ", "GET    "); }
        if cut.contains(&1) { spelt = spelt.replace("{x}", "{any}"); }
        if cut.contains(&2) { spelt = spelt.replace("/%61", "/a"); }
        if cut.contains(&3) { spelt = spelt.replace("{a|b}", "{b|a}"); }
        let (Some(plain), Some(spelt)) = (load(&one(plain)), load(&one(spelt))) else { return Err(TestCaseError::reject("dead")) };
        prop_assert_eq!(plain.digest(), spelt.digest());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn canonicalising_twice_changes_nothing(raw in r"/([a-c./;?#&=+~ ]|%[0-9a-f]{2}|%2[eEfF5]|\\|é|//|\.\.){0,12}") {
        if let Ok(target) = Target::parse(raw.as_bytes()) {
            let again = Target::parse(target.wire().as_bytes()).unwrap();
            prop_assert_eq!(&again, &target);
            prop_assert!(!target.path().split('/').any(|segment| segment == ".." || segment == "."), "{}", raw);
            prop_assert!(!target.path().contains("//") && !target.path().contains(';'), "{}", raw);
        }
    }

    #[test]
    fn no_bytes_at_all_make_the_parsers_panic(raw in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = Target::parse(&raw);
        let mut with_slash = vec![b'/'];
        with_slash.extend(&raw);
        let _ = Target::parse(&with_slash);
        if let Ok(text) = std::str::from_utf8(&raw) {
            let _ = Host::parse(text);
            let route = format!("{API}[grant.g]\ncallers = [\"x\"]\n[[grant.g.allow]]\napi = \"a\"\nroutes = ['''\n{text}''']\n");
            let _ = Policy::load(&one(route));
        }
        if let Ok(file) = SourceFile::decode("p.toml", &raw) {
            let _ = Policy::load(&[file]);
        }
    }
}
