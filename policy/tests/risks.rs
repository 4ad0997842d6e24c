//! What a policy opens, as its report says it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use freeboard_policy::{Policy, SourceFile, render_all};

const POLICY: &str = r#"
[credential.wide]
kind = "bearer"
token = { file = "/wide" }

[api.one]
origins = ["https://one.test", "https://two.test"]
credential = "wide"

[api.public]
origins = ["https://public.test"]

[grant.reader]
callers = ["bot", "other"]
expires = 2026-12-24

[[grant.reader.allow]]
api = "public"
routes = ["GET /items/{int}/parts", "GET /files/**", "GET /{x}/{y}?*"]

[grant.writer]
callers = ["bot"]
expires = 2027-06-30

[[grant.writer.allow]]
api = "one"
routes = ["GET /items", "POST /items", "* /all/**"]
"#;

#[test]
fn the_report_names_writes_wildcards_reach_and_ends() {
    let files = [SourceFile::new("policy.toml", POLICY)];
    let policy = Policy::load(&files).unwrap_or_else(|problems| panic!("{}", render_all(&problems))).policy;
    // 2026-12-01
    let risks = policy.risks(1_796_083_200, 30);
    insta::assert_snapshot!(risks.render());
    let writes: Vec<usize> = risks.writes.iter().map(|writes| writes.rules.len()).collect();
    assert_eq!(writes, [2]);
    assert_eq!(risks.wildcards.first().unwrap().breadth, 12);
    assert_eq!(
        risks.expiring.iter().map(|expiring| (&*expiring.grant, expiring.days_left)).collect::<Vec<_>>(),
        [("reader", 24)]
    );
    assert_eq!(
        risks.callers.iter().map(|reach| (&*reach.caller, reach.routes, reach.writes)).collect::<Vec<_>>(),
        [("bot", 6, 2), ("other", 3, 0)]
    );
}
