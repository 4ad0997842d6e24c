//! The client surface of a grant: arguments that fit a tool's schema make a request that the grant allows.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test reads what was exported and fails by panicking"
)]

use freeboard_policy::explain::{Request, Verdict};
use freeboard_policy::export::Format;
use freeboard_policy::{Policy, SourceFile, render_all};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use serde_json::{Map, Value};

const POLICY: &str = r#"
[api.shop]
origins = ["https://eu.shop.test", "https://us.shop.test:8443"]

[api.inner]
origins = ["https://secret-name.test"]
alias = "inner.internal"
hidden = true

[grant.g]
callers = ["bot"]
budget = { calls = 7 }

[[grant.g.allow]]
api = "shop"
routes = [
  "GET|POST /orders/{int}/items/{slug}",
  "GET /orders?state={open|closed}&page!={int}&filter[min]={re:[0-9]{1,3}(\\.[0-9])?}&q",
  "PUT /days/{date}/{in|out}/{re:v[0-9]{1,2}}",
  "DELETE /things/{uuid}",
  "GET /raw/{hex}?*",
  "GET /mixed/{base}...{head}/x%20y",
  "GET /files/**",
  "GET /a/*/b?x!&*",
]

[[grant.g.allow]]
api = "shop"
websocket = true
routes = ["GET /live"]

[[grant.g.allow]]
api = "inner"
routes = ["PATCH /only"]

[[grant.g.deny]]
api = "shop"
routes = ["* /orders/{int}/items/private"]
"#;

fn policy() -> Policy {
    let loaded = Policy::load(&[SourceFile::new("p.toml", POLICY)]);
    loaded.unwrap_or_else(|problems| panic!("{}", render_all(&problems))).policy
}

fn tools() -> Vec<Value> {
    let text = policy().client_surface("g").unwrap().render(Format::Mcp);
    serde_json::from_str::<Value>(&text).unwrap()["tools"].as_array().unwrap().clone()
}

fn escaped(text: &str) -> String {
    text.bytes()
        .map(|b| if b.is_ascii_alphanumeric() { char::from(b).to_string() } else { format!("%{b:02X}") })
        .collect()
}

/// A value that a schema describes, made from nothing but the schema.
fn value(schema: &Value, runner: &mut TestRunner) -> String {
    let mut draw = |expression: &str| {
        proptest::string::string_regex(expression).unwrap().new_tree(runner).unwrap().current()
    };
    if let Some(choices) = schema.get("enum").and_then(Value::as_array) {
        let at = draw("[0-9]{3}").parse::<usize>().unwrap() % choices.len();
        return choices[at].as_str().unwrap().to_owned();
    }
    match (schema["type"].as_str(), schema["format"].as_str(), schema["pattern"].as_str()) {
        (Some("integer"), ..) => draw("[0-9]{1,15}"),
        (_, Some("uuid"), _) => draw("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
        (_, Some("date"), _) => draw("20[0-9]{2}-0[1-9]-[12][0-9]"),
        (_, _, Some(pattern)) => draw(pattern.trim_start_matches('^').trim_end_matches('$')),
        _ => draw("[a-zA-Z0-9 äß/:_-]{1,9}"),
    }
}

/// The URL of a call, made from what was exported alone.
fn url(tool: &Value, arguments: &Map<String, Value>) -> String {
    let mut url = tool["_meta"]["freeboard/url"].as_str().unwrap().to_owned();
    for (name, value) in arguments {
        let text = value.as_str().unwrap_or_default();
        url = url.replace(&format!("{{{name}}}"), &escaped(text)).replace(&format!("{{+{name}}}"), text);
    }
    url = url.replace("{+rest}", "");
    let query = tool["_meta"]["freeboard/query"].as_object().unwrap();
    let mut pairs = Vec::new();
    for (argument, parameter) in query {
        match arguments.get(argument) {
            Some(Value::Object(more)) => {
                pairs.extend(
                    more.iter().map(|(name, value)| format!("{name}={}", escaped(value.as_str().unwrap()))),
                );
            }
            Some(value) => {
                pairs.push(format!(
                    "{}={}",
                    escaped(parameter.as_str().unwrap()),
                    escaped(value.as_str().unwrap())
                ));
            }
            None => {}
        }
    }
    if pairs.is_empty() { url } else { format!("{url}?{}", pairs.join("&")) }
}

proptest! {
    #[test]
    fn arguments_that_fit_the_schema_are_allowed(seed in any::<u64>(), all in any::<bool>()) {
        let mut runner = TestRunner::new_with_rng(
            ProptestConfig::default(),
            TestRng::from_seed(RngAlgorithm::ChaCha, &seed.to_le_bytes().repeat(4)),
        );
        let policy = policy();
        for tool in tools() {
            let schema = &tool["inputSchema"];
            let required = schema["required"].as_array().unwrap();
            let mut arguments = Map::new();
            for (name, schema) in schema["properties"].as_object().unwrap() {
                if name == "body" || !(all || required.iter().any(|required| required == name)) {
                    continue;
                }
                let value = if schema["type"] == "object" {
                    serde_json::json!({ "more": value(&schema["additionalProperties"], &mut runner) })
                } else if name == "rest" {
                    Value::String("a/b".to_owned())
                } else {
                    Value::String(value(schema, &mut runner))
                };
                arguments.insert(name.clone(), value);
            }
            let url = url(&tool, &arguments);
            prop_assert!(!url.contains(['{', '}']), "{url}");
            let method = tool["_meta"]["freeboard/method"].as_str().unwrap();
            let explanation = policy.explain(&Request {
                caller: Some("bot"), grants: None, tier: None, method, url: &url, headers: &Vec::new(), body: None, websocket: false, now_unix: 0,
            });
            prop_assert_eq!(explanation.verdict, Verdict::Allow, "{} {}\n{}", method, url, explanation.render());
        }
    }
}

#[test]
fn tools_are_what_the_interfaces_of_models_take() {
    let surface = policy().client_surface("g").unwrap();
    let name = |tool: &Value| tool["name"].as_str().unwrap().to_owned();
    let names: std::collections::BTreeSet<String> = tools().iter().map(name).collect();
    assert_eq!(names.len(), 10, "each route and method once, each with a name of its own: {names:?}");
    for name in &names {
        let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
        assert!(plain && name.len() <= 64, "{name}");
    }
    let openai: Value = serde_json::from_str(&surface.render(Format::Openai)).unwrap();
    assert_eq!(openai.as_array().unwrap().len(), 10);
    assert!(
        openai
            .as_array()
            .unwrap()
            .iter()
            .all(|tool| tool["type"] == "function" && tool["function"]["parameters"]["type"] == "object")
    );
    insta::assert_snapshot!("export_mcp", surface.render(Format::Mcp));
    insta::assert_snapshot!("export_markdown", surface.render(Format::Markdown));
}

#[test]
fn hidden_names_stay_hidden_and_websockets_are_no_tools() {
    let surface = policy().client_surface("g").unwrap();
    for format in [Format::Mcp, Format::Openai, Format::Markdown] {
        let text = surface.render(format);
        assert!(!text.contains("secret-name"), "{text}");
    }
    assert!(surface.render(Format::Mcp).contains("https://inner.internal/only"));
    assert_eq!(surface.left_out.iter().map(|(route, _)| &**route).collect::<Vec<_>>(), ["GET /live"]);
    assert!(policy().client_surface("nobody").is_none());
}
