//! OpenAPI.

use freeboard_policy::import::openapi::{Options, import};
use freeboard_policy::import::{Kind, Writes};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{allows, fixture, loaded, message, naming, shown};

fn options() -> Options {
    Options { naming: naming(), ..Options::default() }
}

#[test]
fn reads_only_unless_asked_and_reports_what_it_cannot_say() {
    let imported = import(&fixture("openapi/shop.yaml"), &options()).unwrap();
    loaded(&imported.policy);
    insta::assert_snapshot!("openapi_shop", shown(&imported));
}

#[test]
fn writes_are_taken_when_asked_for() {
    let options = Options { writes: Writes::Include, tags: vec!["orders".to_owned()], ..options() };
    let imported = import(&fixture("openapi/shop.yaml"), &options).unwrap();
    let policy = loaded(&imported.policy);
    let order = "https://eu.shop.test/v2/orders/123e4567-e89b-12d3-a456-426614174000";
    for (method, url) in [("POST", "https://us.shop.test/v2/orders"), ("DELETE", order), ("GET", order)] {
        assert!(allows(&policy, method, url), "{method} {url}\n{}", imported.policy);
    }
    assert!(!allows(&policy, "TRACE", order));
    assert!(!allows(&policy, "GET", "https://eu.shop.test/v2/users/me"), "of another tag");
    let body = imported.report.of(Kind::Wider).find(|finding| finding.subject.contains("createOrder"));
    assert!(body.is_some_and(|finding| finding.reason.contains("body")));
}

#[test]
fn no_operation_is_dropped_silently() {
    let imported = import(&fixture("openapi/shop.yaml"), &options()).unwrap();
    for id in [
        "listOrders",
        "createOrder",
        "getOrder",
        "deleteOrder",
        "traceOrder",
        "latestOrder",
        "getOrderByRef",
        "byDay",
        "compare",
        "searchThing",
        "getMe",
        "getUser",
        "getFile",
        "putFile",
        "matrix",
        "remote",
        "circle",
        "tree",
        "odd",
        "map",
        "look",
    ] {
        let written =
            imported.policy.contains(&format!("# {id}")) || imported.policy.contains(&format!("({id})"));
        let reported =
            imported.report.findings.iter().any(|finding| finding.subject.contains(&format!("({id})")));
        assert!(written || reported, "{id} is nowhere");
    }
}

#[test]
fn decides_as_the_description_says() {
    let policy = loaded(&import(&fixture("openapi/shop.yaml"), &options()).unwrap().policy);
    for (url, allowed) in [
        ("https://eu.shop.test/v2/orders?page=1", true),
        ("https://us.shop.test/v2/orders?page=2&state=open&since=2027-01-31T10:00:00Z&q=a%20b", true),
        (
            "https://us.shop.test/v2/orders?page=2&filter%5Bopen%5D=true&filter%5Bmin%5D=-1.5&ids=1,2,3&tag=x",
            true,
        ),
        ("https://us.shop.test/v2/orders", false),
        ("https://us.shop.test/v2/orders?page=x", false),
        ("https://us.shop.test/v2/orders?page=1&state=lost", false),
        ("https://us.shop.test/v2/orders?page=1&tag=a&tag=b", false),
        ("https://us.shop.test/v2/orders?page=1&ids=1,x", false),
        ("https://us.shop.test/v2/orders?page=1&other=1", false),
        ("https://us.shop.test/v2/orders?page=1&since=yesterday", false),
        ("https://us.shop.test/orders?page=1", false),
        ("https://asia.shop.test/v2/orders?page=1", false),
        ("https://eu.shop.test/v2/orders/AB-1234", true),
        ("https://eu.shop.test/v2/orders/AB-12345", false),
        ("https://eu.shop.test/v2/days/2027-01-31/in", true),
        ("https://eu.shop.test/v2/days/2027-01-31/a%20b", true),
        ("https://eu.shop.test/v2/days/2027-01-32/in", false),
        ("https://eu.shop.test/v2/days/2027-01-31/side", false),
        ("https://eu.shop.test/v2/compare/main...dev", true),
        ("https://eu.shop.test/v2/compare/main..dev", false),
        ("https://eu.shop.test/v2/things/abc:search", true),
        ("https://eu.shop.test/v2/things/abc:delete", false),
        ("https://files.shop.test/a/b/c.txt", false),
        ("https://files.shop.test/files/a/b/c.txt", true),
        ("https://eu.shop.test/v2/files/a", false),
        ("https://eu.shop.test/v2/look?either=latest", true),
        ("https://eu.shop.test/v2/look?either=7", true),
        ("https://eu.shop.test/v2/look?either=later", false),
        ("https://eu.shop.test/v2/look?both=all&word=anything", true),
        ("https://eu.shop.test/v2/look?both=none", false),
    ] {
        assert_eq!(allows(&policy, "GET", url), allowed, "{url}");
    }
}

#[test]
fn a_relative_server_needs_an_origin_and_foreign_text_stays_a_comment() {
    let text = fixture("openapi/petstore.json");
    assert!(message(import(&text, &options())).contains("--server"));
    let options = Options { server: Some("https://pets.test".to_owned()), ..options() };
    let imported = import(&text, &options).unwrap();
    let policy = loaded(&imported.policy);
    assert!(allows(&policy, "GET", "https://pets.test/api/v3/pets/7"), "{}", imported.policy);
    assert!(!allows(&policy, "POST", "https://pets.test/api/v3/pets/7"));
    assert_eq!(policy.grants().count(), 1, "a summary became policy:\n{}", imported.policy);
    insta::assert_snapshot!("openapi_petstore", shown(&imported));
}

#[test]
fn the_credential_that_a_person_completes_is_one() {
    for (file, server) in
        [("openapi/shop.yaml", None), ("openapi/petstore.json", Some("https://pets.test".to_owned()))]
    {
        let options = Options { writes: Writes::Include, server, ..options() };
        let imported = import(&fixture(file), &options).unwrap();
        let completed: Vec<String> = imported
            .policy
            .lines()
            .map(|line| match line.strip_prefix("# ") {
                Some(rest) if rest.starts_with("[credential") || rest.contains(" = ") => rest.to_owned(),
                _ => line.to_owned(),
            })
            .collect();
        let text = completed.join("\n");
        let policy =
            freeboard_policy::Policy::load(&[freeboard_policy::SourceFile::new("x.toml", text.as_str())]);
        let policy = policy
            .unwrap_or_else(|problems| panic!("{}\n{text}", freeboard_policy::render_all(&problems)))
            .policy;
        assert!(policy.credentials().count() >= 1);
        assert!(policy.apis().all(|api| api.credential.is_some()));
    }
}

#[test]
fn says_what_is_wrong_with_a_description() {
    let text = fixture("openapi/shop.yaml");
    for (text, options, reason) in [
        ("{\"swagger\": \"2.0\"}", options(), "Swagger 2.0"),
        ("{\"openapi\": \"3.2.0\"}", options(), "3.2.0 is not read"),
        ("{\"info\": 1}", options(), "not an OpenAPI description"),
        ("{", options(), "not JSON"),
        ("a: [", options(), "not YAML"),
        ("openapi: 3.0.0", options(), "no HTTPS server"),
        (
            &text,
            Options { operations: vec!["listOrder".to_owned()], ..options() },
            "did you mean `listOrders`?",
        ),
        (&text, Options { tags: vec!["nope".to_owned()], ..options() }, "no tag `nope`"),
        (&text, Options { server: Some("http://x.test".to_owned()), ..options() }, "not HTTPS"),
        (&text, Options { path_prefixes: vec!["/zzz".to_owned()], ..options() }, "no route comes of it"),
        (
            &text,
            Options { naming: freeboard_policy::import::Naming::default(), ..options() },
            "would not be valid",
        ),
    ] {
        let found = message(import(text, &options));
        assert!(found.contains(reason), "{reason}: {found}");
    }
}

#[test]
fn an_alias_bomb_is_refused() {
    let mut text = String::from("openapi: 3.0.0\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..10 {
        text.push_str(&format!(
            "a{level}: &a{level} [{}]\n",
            vec![format!("*a{}", level - 1); 10].join(", ")
        ));
    }
    assert!(message(import(&text, &options())).contains("YAML"));
}

#[test]
fn a_json_body_is_what_its_schema_says() {
    let text = fixture("openapi/bodies.yaml");
    let imported = import(&text, &Options { writes: Writes::Include, ..options() }).unwrap();
    let policy = loaded(&imported.policy);
    let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
    for (method, path, body, allowed) in [
        ("POST", "/tickets", r#"{"title": "x", "state": "open"}"#, true),
        (
            "POST",
            "/tickets",
            r#"{"title": "x", "state": "open", "labels": ["a", "b"], "votes": 3, "owner": {"name": "n"}}"#,
            true,
        ),
        ("POST", "/tickets", r#"{"state": "open"}"#, false),
        ("POST", "/tickets", r#"{"title": "longer than ten", "state": "open"}"#, false),
        ("POST", "/tickets", r#"{"title": "x", "state": "gone"}"#, false),
        ("POST", "/tickets", r#"{"title": "x", "state": "open", "labels": ["a", "b", "c"]}"#, false),
        ("POST", "/tickets", r#"{"title": "x", "state": "open", "labels": [1]}"#, false),
        ("POST", "/tickets", r#"{"title": "x", "state": "open", "votes": 11}"#, false),
        ("POST", "/tickets", r#"{"title": "x", "state": "open", "votes": "3"}"#, false),
        ("POST", "/tickets", r#"{"title": "x", "state": "open", "owner": {"name": 1}}"#, false),
        ("POST", "/tickets", r#"{"title": "x", "state": "open", "admin": true}"#, false),
        ("POST", "/tickets", "[]", false),
        ("PATCH", "/tickets/7", r#"{"title": null, "either": 1}"#, true),
        ("PATCH", "/tickets/7", r#"{"done": "yes"}"#, false),
        ("PUT", "/users/me", r#"{"anything": 1}"#, true),
        ("PUT", "/users/7", r#"{"anything": 1}"#, true),
    ] {
        let url = format!("https://bodies.test{path}");
        let explanation = policy.explain(&freeboard_policy::explain::Request {
            caller: Some(crate::CALLER),
            grants: None,
            tier: None,
            method,
            url: &url,
            headers: &headers,
            body: Some(body.as_bytes()),
            websocket: false,
            now_unix: 0,
        });
        let verdict = explanation.verdict == freeboard_policy::explain::Verdict::Allow;
        assert_eq!(verdict, allowed, "{method} {path} {body}\n{}\n{}", explanation.render(), imported.policy);
    }
    insta::assert_snapshot!("openapi_bodies", shown(&imported));
}

/// A schema, texts that it describes and texts that it does not.
fn schemas() -> impl Strategy<Value = (Value, BoxedStrategy<String>, BoxedStrategy<String>)> {
    let made = |schema: Value, good: &'static str, bad: &'static str| {
        (schema, good.prop_map(|text| text).boxed(), bad.prop_map(|text| text).boxed())
    };
    prop_oneof![
        Just(made(
            json!({ "type": "integer", "minimum": 0 }),
            "[0-9]{1,12}",
            "[a-z]{1,8}|-[0-9]{1,4}|[0-9]+[.][0-9]+"
        )),
        Just(made(json!({ "type": "integer", "minimum": -5 }), "-?[0-9]{1,12}", "[a-z]{1,8}|[0-9]+-")),
        Just(made(json!({ "type": "number" }), "-?[0-9]{1,9}(\\.[0-9]{1,9})?", "[a-z]{1,8}|[0-9]\\.")),
        Just(made(json!({ "type": "boolean" }), "true|false", "yes|no|TRUE|1|truefalse")),
        Just(made(
            json!({ "type": "string", "format": "uuid" }),
            "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
            "[0-9a-f]{32}|x"
        )),
        Just(made(
            json!({ "type": "string", "format": "date" }),
            "20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])",
            "20[0-9]{2}|20[0-9]{2}-13-01"
        )),
        Just(made(
            json!({ "enum": ["a b", "c|d", "{e}", "f%g", "re:h"] }),
            "a b|c\\|d|\\{e\\}|f%g|re:h",
            "a|b|c|d|e|h"
        )),
        Just(made(json!({ "const": "only" }), "only", "onl|onlyy|other")),
        Just(made(
            json!({ "type": "string", "pattern": "^[a-f]{2,4}(-x)?$" }),
            "[a-f]{2,4}(-x)?",
            "[a-f]|[g-z]{2}|[a-f]{5}"
        )),
        Just(made(json!({ "type": "string", "pattern": "b+c" }), "[a-z]{0,3}b+c[a-z]{0,3}", "[d-z]{1,5}|cb")),
        Just(made(
            json!({ "oneOf": [{ "type": "integer", "minimum": 0 }, { "enum": ["latest"] }] }),
            "[0-9]{1,5}|latest",
            "[a-k]{1,6}|latest1|1latest"
        )),
        Just(made(json!({ "type": ["integer", "null"], "minimum": 1 }), "[0-9]{1,5}", "null|x")),
        Just(made(json!({ "allOf": [{ "type": "string" }, { "enum": ["p", "q"] }] }), "p|q", "r|pq")),
    ]
}

fn escaped(text: &str) -> String {
    text.bytes()
        .map(|b| if b.is_ascii_alphanumeric() { char::from(b).to_string() } else { format!("%{b:02X}") })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Instances of a template are allowed; change one part to what its schema refuses, and it is not.
    #[test]
    fn instances_of_a_template_are_allowed_and_others_are_not(
        parts in proptest::collection::vec((schemas(), "[a-z.~()+,=!]{0,3}", any::<bool>()), 1..4),
        parameters in proptest::collection::vec((schemas(), any::<bool>()), 0..4),
        seed in any::<u64>(),
        yaml in any::<bool>(),
    ) {
        let mut runner = proptest::test_runner::TestRunner::new_with_rng(
            ProptestConfig::default(),
            proptest::test_runner::TestRng::from_seed(proptest::test_runner::RngAlgorithm::ChaCha, &seed.to_le_bytes().repeat(4)),
        );
        let mut draw = |strategy: &BoxedStrategy<String>| strategy.new_tree(&mut runner).unwrap().current();
        let (mut template, mut declared) = (String::new(), Vec::new());
        for (index, ((schema, ..), literal, _)) in parts.iter().enumerate() {
            template.push_str(&format!("/s{index}/p{literal}{{v{index}}}"));
            declared.push(json!({ "name": format!("v{index}"), "in": "path", "required": true, "schema": schema }));
        }
        for (index, ((schema, ..), required)) in parameters.iter().enumerate() {
            declared.push(json!({ "name": format!("q[{index}]"), "in": "query", "required": required, "schema": schema }));
        }
        let description = json!({
            "openapi": "3.1.0", "info": { "title": "T" }, "servers": [{ "url": "https://api.test/base/" }],
            "paths": { &template: { "get": { "operationId": "x", "parameters": declared } } },
        });
        // JSON is YAML; a line before it makes the reader take it as such.
        let text = if yaml { format!("# YAML\n{description}") } else { description.to_string() };
        let imported = import(&text, &options()).unwrap();
        prop_assert_eq!(imported.report.of(Kind::NotExpressed).count(), 0, "{}", imported.report.render());
        let policy = loaded(&imported.policy);

        let mut values: Vec<String> = parts.iter().map(|((_, good, _), ..)| draw(good)).collect();
        let mut arguments: Vec<Option<String>> = parameters
            .iter()
            .map(|((_, good, _), required)| (*required || seed % 2 == 0).then(|| draw(good)))
            .collect();
        let url = |values: &[String], arguments: &[Option<String>]| {
            let segments = parts.iter().zip(values).enumerate();
            let path: String =
                segments.map(|(at, ((_, literal, _), value))| format!("/s{at}/p{}{}", literal, escaped(value))).collect();
            let pairs: Vec<String> = arguments
                .iter()
                .enumerate()
                .filter_map(|(at, value)| value.as_ref().map(|value| format!("q%5B{at}%5D={}", escaped(value))))
                .collect();
            let query = if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) };
            format!("https://api.test/base{path}{query}")
        };
        let good = url(&values, &arguments);
        prop_assert!(allows(&policy, "GET", &good), "{}\n{}", good, imported.policy);
        prop_assert!(!allows(&policy, "POST", &good));
        prop_assert!(!allows(&policy, "GET", &good.replace("/base/", "/")));

        for (at, ((_, _, bad), ..)) in parts.iter().enumerate() {
            let kept = std::mem::replace(&mut values[at], draw(bad));
            let url = url(&values, &arguments);
            prop_assert!(!allows(&policy, "GET", &url), "{}\n{}", url, imported.policy);
            values[at] = kept;
        }
        for (at, ((_, _, bad), required)) in parameters.iter().enumerate() {
            let kept = arguments[at].replace(draw(bad));
            let wrong = url(&values, &arguments);
            prop_assert!(!allows(&policy, "GET", &wrong), "{}\n{}", wrong, imported.policy);
            arguments[at] = None;
            prop_assert_eq!(allows(&policy, "GET", &url(&values, &arguments)), !required);
            arguments[at] = kept;
        }
    }
}
