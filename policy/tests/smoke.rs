//! A policy is loaded, scoped and asked.

use freeboard_policy::*;

#[test]
fn lab() {
    let text = include_str!("decisions/lab.toml");
    let loaded =
        Policy::load(&[SourceFile::new("lab.toml", text)]).unwrap_or_else(|d| panic!("{}", render_all(&d)));
    eprintln!("{}", render_all(&loaded.warnings));
    let policy = loaded.policy;
    let scope = policy
        .scope(&ScopeQuestion {
            caller: Some("tester"),
            grants: &["lab".to_owned()],
            tier: None,
            now_unix: 0,
        })
        .unwrap();
    eprintln!("{:?}", policy.surface(&scope));
    let host = Host::parse("api.test").unwrap();
    let route = policy.destination(&DestinationQuestion { scope: &scope, host: &host, port: 443 }).unwrap();
    for (method, target) in
        [("GET", "/v1/items/1"), ("POST", "/v1/items/1"), ("GET", "/v1/search?scope=write"), ("GET", "/x")]
    {
        let target = Target::parse(target.as_bytes()).unwrap();
        let question = RequestQuestion {
            scope: &scope,
            route: &route,
            method,
            target: &target,
            websocket: false,
            now_unix: 0,
        };
        eprintln!("{method} {} -> {:?}", target.wire(), policy.evaluate(&question));
    }
}
