//! What one record costs: encoding, escaping and hashing. Goal: at most 2 µs.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use freeboard_audit::{Chain, Decided, Entry, Event, PolicyIdentity, RunIdentity, Verdict};
use freeboard_policy::{RuleId, Tier};

fn encode(c: &mut Criterion) {
    let entry = Entry {
        policy: Some(Arc::new(PolicyIdentity {
            digest: "ab".repeat(32).into(),
            commit: Some("cd".repeat(20).into()),
        })),
        run: Some(Arc::new(RunIdentity {
            run: "0123456789abcdef0123456789abcdef".into(),
            caller: Some("triage-bot".into()),
            tier: Some(Tier::Container),
            provider: Some("native".into()),
            trace_id: None,
            session: None,
        })),
        event: Event::Request(Decided {
            request_id: "0123456789abcdef".into(),
            verdict: Verdict::Allowed,
            reason: None,
            grant: Some("triage".into()),
            rule: Some(RuleId("triage.allow[0].routes[2]".into())),
            api: Some("github".into()),
            credential: Some("github-app".into()),
            approved_by: None,
            door: "transparent",
            protocol: "http/1.1",
            method: "GET".into(),
            host: "api.github.com".into(),
            port: 443,
            path: "/repos/acme/website/issues?state=open&per_page=100".into(),
            status: Some(200),
            request_bytes: 0,
            response_bytes: 10_240,
            duration_us: 1834,
            upstream_us: Some(1701),
            upstream: Some("140.82.121.6:443".into()),
            upstream_status: None,
            uninspected: false,
            stripped: Box::default(),
            detail: None,
        }),
    };
    let mut chain = Chain::default();
    let mut out = Vec::with_capacity(1 << 20);
    c.bench_function("encode_record", |bench| {
        bench.iter(|| {
            out.clear();
            black_box(chain.append(1_796_048_951_123, black_box(&entry), &mut out))
        });
    });
}

criterion_group!(benches, encode);
criterion_main!(benches);
