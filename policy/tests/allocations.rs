//! The hot path allocates nothing: a decision costs what its path costs, whatever the allocator does.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use freeboard_policy::{
    Decision, DestinationQuestion, Host, NoFields, Policy, RequestQuestion, ScopeQuestion, SourceFile, Target,
};

#[test]
fn a_decision_allocates_nothing() {
    let text = std::include_str!("decisions/language.toml");
    let policy = Policy::load(&[SourceFile::new("p.toml", text)]).unwrap().policy;
    let grants = ["segments".to_owned(), "queries".to_owned(), "denies".to_owned()];
    let scope = policy
        .scope(&ScopeQuestion {
            caller: Some("bot"),
            grants: &grants,
            tier: None,
            session: false,
            now_unix: 0,
        })
        .unwrap();
    let host = Host::parse("api.test").unwrap();
    for (method, target, allowed) in [
        ("GET", "/re/v12-rc", true),
        ("GET", "/mixed/a.git/info", true),
        ("GET", "/either/dark%20blue", true),
        ("GET", "/list?page=2&state=open", true),
        ("GET", "/text?q=ab+c", true),
        ("GET", "/d/a%2Fb/c", true),
        ("POST", "/d/act?_method=delete", false),
        ("GET", "/d/SECRETS/x", false),
        ("GET", "/nothing/here", false),
    ] {
        let target = Target::parse(target.as_bytes()).unwrap();
        let mut decision = None;
        let counted = allocation_counter::measure(|| {
            let route = policy
                .destination(&DestinationQuestion { scope: &scope, host: &host, port: 443 })
                .map_err(drop);
            drop(std::hint::black_box(route));
        });
        // The route owns a copy of its host name.
        assert!(counted.count_total <= 1, "{counted:?}");
        let route =
            policy.destination(&DestinationQuestion { scope: &scope, host: &host, port: 443 }).unwrap();
        let counted = allocation_counter::measure(|| {
            let question = RequestQuestion {
                scope: &scope,
                route: &route,
                method,
                target: &target,
                fields: &NoFields,
                websocket: false,
                now_unix: 0,
            };
            decision = Some(policy.evaluate(&question));
        });
        assert_eq!(counted.count_total, 0, "{method} {}", target.wire());
        assert_eq!(matches!(decision, Some(Decision::Allow(_))), allowed, "{method} {}", target.wire());
    }
    // Positive control: the counter counts.
    assert_eq!(allocation_counter::measure(|| drop(std::hint::black_box(Box::new(1)))).count_total, 1);
}
