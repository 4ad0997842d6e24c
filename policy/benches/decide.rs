//! Decisions at 10,000 routes: `cargo bench -p freeboard-policy`. The goal is less than 1 µs each, whatever the answer.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a benchmark fails by panicking")]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use freeboard_policy::{
    Decision, DestinationQuestion, Host, NoFields, Policy, RequestQuestion, Route, RunScope, ScopeQuestion,
    SourceFile, Target, render_all,
};

/// One grant with `count` routes of every form for one API, and some deny rules.
fn policy_text(count: usize) -> String {
    let mut text = "[credential.c]\nkind = \"bearer\"\ntoken = { file = \"/run/c\" }\n\n[api.a]\norigins = [\"https://a.test\"]\n\
                    credential = \"c\"\n\n[grant.g]\ncallers = [\"x\"]\n\n[[grant.g.allow]]\napi = \"a\"\nroutes = [\n"
        .to_owned();
    for index in 0..count {
        let (team, item) = (index / 100, index % 100);
        let line = match index % 5 {
            0 => format!("GET /v1/teams/team-{team}/items-{item}"),
            1 => format!("GET /v1/teams/team-{team}/kind-{item}/{{int}}?page={{int}}&state={{open|closed}}"),
            2 => format!("POST|PUT /v1/teams/team-{team}/kind-{item}/{{uuid}}/comments"),
            3 => format!("GET /v1/teams/team-{team}/files-{item}/**"),
            _ => format!("DELETE /v1/teams/team-{team}/{{re:tmp-{item}-[a-z]+}}/{{slug}}"),
        };
        text.push_str(&format!("  '{line}',\n"));
    }
    text.push_str("]\n\n[[grant.g.deny]]\napi = \"a\"\nroutes = [\n");
    for team in 0..count.div_ceil(100) {
        text.push_str(&format!("  'DELETE /v1/teams/team-{team}/kind-{team}/**',\n"));
    }
    text.push_str("]\n");
    text
}

struct Bench {
    policy: Policy,
    scope: RunScope,
    route: Route,
}

impl Bench {
    fn new(count: usize) -> Self {
        let files = [SourceFile::new("bench.toml", policy_text(count))];
        let policy =
            Policy::load(&files).unwrap_or_else(|problems| panic!("{}", render_all(&problems))).policy;
        let grants = ["g".to_owned()];
        let scope = policy
            .scope(&ScopeQuestion {
                caller: Some("x"),
                grants: &grants,
                tier: None,
                session: false,
                now_unix: 0,
            })
            .unwrap();
        let host = Host::parse("a.test").unwrap();
        let route =
            policy.destination(&DestinationQuestion { scope: &scope, host: &host, port: 443 }).unwrap();
        Self { policy, scope, route }
    }

    fn decide(&self, method: &str, target: &Target) -> Decision {
        self.policy.evaluate(&RequestQuestion {
            scope: &self.scope,
            route: &self.route,
            method,
            target,
            fields: &NoFields,
            websocket: false,
            now_unix: 0,
        })
    }
}

fn decisions(criterion: &mut Criterion) {
    for count in [100, 10_000] {
        let bench = Bench::new(count);
        let mut group = criterion.benchmark_group(format!("{count} routes"));
        for (name, method, target, allowed) in [
            ("literal", "GET", "/v1/teams/team-0/items-55", true),
            ("types and query", "GET", "/v1/teams/team-0/kind-51/42?page=3&state=open", true),
            ("uuid", "POST", "/v1/teams/team-0/kind-52/123e4567-e89b-12d3-a456-426614174000/comments", true),
            ("rest of a long path", "GET", "/v1/teams/team-0/files-53/a/b/c/d/e/f/g/h/i/j", true),
            ("expression among twenty", "DELETE", "/v1/teams/team-0/tmp-54-abc/x-1", true),
            ("escaped", "GET", "/v1/teams/team-0/files-53/caf%C3%A9/a%2Fb", true),
            ("denied", "DELETE", "/v1/teams/team-0/kind-0/x", false),
            ("no rule", "GET", "/v1/teams/team-0/nothing/here/at/all", false),
        ] {
            let target = Target::parse(target.as_bytes()).unwrap();
            assert_eq!(matches!(bench.decide(method, &target), Decision::Allow(_)), allowed, "{name}");
            group.bench_function(name, |bencher| {
                bencher.iter(|| bench.decide(black_box(method), black_box(&target)));
            });
        }
        group.finish();
    }
}

fn parsing(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("target");
    for (name, target) in [
        ("plain", "/v1/teams/team-0/kind-51/42?page=3&state=open"),
        ("escaped", "/v1/caf%C3%A9/a%2Fb/%7euser?q=a%20b"),
    ] {
        group.bench_function(name, |bencher| bencher.iter(|| Target::parse(black_box(target.as_bytes()))));
    }
    group.finish();
}

fn loading(criterion: &mut Criterion) {
    let files = [SourceFile::new("bench.toml", policy_text(10_000))];
    let mut group = criterion.benchmark_group("load");
    group.sample_size(10);
    group.bench_function("10,000 routes with every check", |bencher| {
        bencher.iter(|| Policy::load(black_box(&files)));
    });
    group.finish();
}

criterion_group!(benches, decisions, parsing, loading);
criterion_main!(benches);
