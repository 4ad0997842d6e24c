//! P2 for rules that look at the body: what a rule does not take reaches no upstream, on every door and protocol; what it
//! takes arrives byte for byte.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failing test panics")]

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use freeboard_tests::expect::{allowed, refused, with_body};
use freeboard_tests::h2::{Ended, H2};
use freeboard_tests::lab::{C1, Lab, POLICY, Run, WAYS, Way};

const RULES: &str = r#"
[grant.conditions]
callers = ["lab"]
[[grant.conditions.allow]]
api = "api"
routes = ["POST /v1/issues"]
headers = { x-mode = ["safe", "dry"] }
[grant.conditions.allow.json]
"/title" = { type = "string", max_length = 20 }
"/labels/*" = { pattern = "[a-z]+", optional = true }
"/admin" = { absent = true }

[[grant.conditions.allow]]
api = "api"
routes = ["PUT /v1/repos/*"]
[[grant.conditions.deny]]
api = "api"
routes = ["* /v1/repos/**"]
json = { "/visibility" = "public" }
"#;

const FIELDS: [&str; 2] = ["Content-Type: application/json", "X-Mode: safe"];

fn on_every_door(body: impl Fn(&Run<'_>, Way)) {
    let Some(lab) = Lab::start_with(&format!("{POLICY}{RULES}"), &[]) else { return };
    let run = lab.run(&["conditions"]);
    for way in WAYS {
        body(&run, way);
    }
}

#[test]
fn what_the_rule_takes_arrives_byte_for_byte_with_the_credential() {
    on_every_door(|run, way| {
        let body = "{\"labels\": [\"bug\"],\n \"title\" : \"caf\u{e9}\"}";
        let request = with_body("POST", "api.test", "/v1/issues", &FIELDS, body);
        let (response, recorded) = allowed(run, way, "api.test", request);
        assert_eq!(response.status, 200);
        assert_eq!(recorded.body, body.as_bytes());
        assert_eq!(recorded.all("authorization"), [format!("Bearer {C1}")]);
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(body.as_bytes()).unwrap();
        let packed = encoder.finish().unwrap();
        let mut request = with_body(
            "POST",
            "api.test",
            "/v1/issues",
            &[FIELDS[0], FIELDS[1], "Content-Encoding: gzip"],
            "",
        )
        .replace("Content-Length: 0", &format!("Content-Length: {}", packed.len()))
        .into_bytes();
        request.extend_from_slice(&packed);
        let (_, recorded) = allowed(run, way, "api.test", request);
        assert_eq!(recorded.body, packed);
    });
}

#[test]
fn what_no_rule_takes_reaches_no_upstream() {
    on_every_door(|run, way| {
        for (body, fields, status, reason) in [
            (r#"{"title":"x","admin":true}"#, &FIELDS[..], 403, "body_not_granted"),
            (r#"{"title":"x","labels":["A"]}"#, &FIELDS, 403, "body_not_granted"),
            (r#"{"title":"a title that is far too long"}"#, &FIELDS, 403, "body_not_granted"),
            (r#"{"title":"x","title":"y"}"#, &FIELDS, 400, "inspection_duplicate_key"),
            (r#"{"title":"x","Title":"y"}"#, &FIELDS, 400, "inspection_duplicate_key"),
            (r#"{"title":"x""#, &FIELDS, 400, "inspection_truncated"),
            (r#"{"title":"x"}{}"#, &FIELDS, 400, "inspection_malformed"),
            ("title=x", &FIELDS, 400, "inspection_malformed"),
            (r#"{"title":"x"}"#, &FIELDS[..1], 403, "header_not_granted"),
            (r#"{"title":"x"}"#, &[FIELDS[1]], 403, "content_type_not_granted"),
            (
                r#"{"title":"x"}"#,
                &[FIELDS[1], "Content-Type: application/x-www-form-urlencoded"],
                403,
                "content_type_not_granted",
            ),
            (r#"{"title":"x"}"#, &[FIELDS[0], FIELDS[1], "Content-Encoding: br"], 415, "inspection_encoding"),
            (
                r#"{"title":"x"}"#,
                &[FIELDS[0], FIELDS[1], "Content-Encoding: gzip, gzip"],
                415,
                "inspection_nested_encoding",
            ),
        ] {
            let request = with_body("POST", "api.test", "/v1/issues", fields, body);
            let response = refused(run, way, "api.test", request, &[status]).unwrap();
            assert_eq!(response.reason().as_deref(), Some(reason), "{body}");
        }
    });
}

#[test]
fn a_deny_rule_on_the_body_is_no_hole_for_what_it_cannot_read() {
    on_every_door(|run, way| {
        let put =
            |body: &str| with_body("PUT", "api.test", "/v1/repos/1", &["Content-Type: text/plain"], body);
        allowed(run, way, "api.test", put(r#"{"visibility":"private"}"#));
        for (body, status) in [
            (r#"{"visibility":"PUBLIC"}"#, 403),
            (r#"{"visibility":"private","Visibility":"public"}"#, 400),
            ("visibility=public", 400),
            ("", 400),
        ] {
            refused(run, way, "api.test", put(body), &[status]);
        }
    });
}

#[test]
fn streams_of_http2_are_held_and_judged_one_by_one() {
    on_every_door(|run, way| {
        let wire = run.tls_with(way, "api.test", 443, "api.test", &[b"h2"]).unwrap();
        let mut connection = H2::start(wire).unwrap();
        let fields = [
            (":method", "POST"),
            (":scheme", "https"),
            (":authority", "api.test"),
            (":path", "/v1/issues"),
            ("content-type", "application/json"),
            ("x-mode", "dry"),
        ];
        run.lab.upstream.take();
        let ended = connection.ask(&fields, Some(br#"{"title":"one"}"#));
        assert_eq!(ended.status(), Some(200), "{ended:?}");
        match connection.ask(&fields, Some(br#"{"title":"two","admin":1}"#)) {
            Ended::Answer { body, .. } => {
                assert!(String::from_utf8_lossy(&body).contains("body_not_granted"), "{body:?}");
            }
            other => panic!("{other:?}"),
        }
        let recorded = run.lab.upstream.take();
        assert_eq!(recorded.len(), 1);
        assert_eq!(recorded[0].body, br#"{"title":"one"}"#);
    });
}
