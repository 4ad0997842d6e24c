//! The examples of the guide are policies that load, without a warning that the text does not speak of.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeSet;

use freeboard_policy::{Policy, SourceFile, render_all};

const PAGES: [(&str, &str); 11] = [
    ("grants", include_str!("../../docs/policy/grants.md")),
    ("approvals", include_str!("../../docs/policy/approvals.md")),
    ("routes", include_str!("../../docs/policy/routes.md")),
    ("headers", include_str!("../../docs/policy/headers.md")),
    ("json", include_str!("../../docs/policy/json.md")),
    ("graphql", include_str!("../../docs/policy/graphql.md")),
    ("mcp", include_str!("../../docs/policy/mcp.md")),
    ("grpc", include_str!("../../docs/policy/grpc.md")),
    ("websocket", include_str!("../../docs/policy/websocket.md")),
    ("connections", include_str!("../../docs/policy/connections.md")),
    ("git", include_str!("../../docs/policy/git.md")),
];

/// What the pages leave out: the APIs, and who the callers are.
fn completed(example: &str) -> String {
    let mut text = String::new();
    for name in ["main", "github"] {
        if example.contains(&format!("api = \"{name}\"")) {
            text.push_str(&format!("[api.{name}]\norigins = [\"https://{name}.test\"]\n"));
        }
    }
    let names = example.split("grant.").skip(1).filter_map(|rest| rest.split(['.', ']']).next());
    for name in names.collect::<BTreeSet<_>>() {
        if !example.contains(&format!("[grant.{name}]")) {
            text.push_str(&format!("[grant.{name}]\ncallers = [\"me\"]\n"));
        }
    }
    text + example
}

#[test]
fn every_example_of_the_guide_loads() {
    for (page, text) in PAGES {
        let examples: Vec<&str> =
            text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
        assert!(!examples.is_empty(), "{page}");
        for example in examples {
            let file = SourceFile::new(format!("{page}.toml"), completed(example));
            if let Err(problems) = Policy::load(&[file]) {
                panic!("{page}:\n{}", render_all(&problems));
            }
        }
    }
}
