//! Sessions of AWS roles: what the routes of the grants come to as a session policy, and where that is not the same.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use freeboard_policy::{Code, CredentialView, Diagnostic, Policy, SourceFile, render_all};
use serde_json::{Value, json};

fn load(service: &str, origin: &str, routes: &[&str]) -> (Option<Value>, Vec<Diagnostic>) {
    let text = format!(
        r#"
[credential.reports]
kind = "aws-sigv4"
access_key_id = {{ file = "/id" }}
secret_access_key = {{ file = "/key" }}
region = "eu-central-1"
service = "{service}"
role_arn = "arn:aws:iam::123456789012:role/reports"
[api.reports]
origins = ["{origin}"]
credential = "reports"
[grant.reports]
callers = ["bot"]
[[grant.reports.allow]]
api = "reports"
routes = {routes:?}
"#
    );
    let loaded = Policy::load(&[SourceFile::new("p.toml", text)]);
    let loaded = loaded.unwrap_or_else(|problems| panic!("{}", render_all(&problems)));
    let Some(CredentialView::Aws(view)) = loaded.policy.credential("reports") else {
        panic!("no credential")
    };
    let role = view.role.as_ref().unwrap();
    assert_eq!(
        (role.issuer.url().as_str(), role.ttl_seconds),
        ("https://sts.eu-central-1.amazonaws.com/", 3600)
    );
    let policy = role.session_policy.as_ref();
    assert!(policy.is_none_or(|policy| policy.len() <= 2048), "{policy:?}");
    (policy.map(|policy| serde_json::from_str(policy).unwrap()), loaded.warnings)
}

const BUCKET: &str = "https://reports.s3.eu-central-1.amazonaws.com";
const PATHS: &str = "https://s3.eu-central-1.amazonaws.com";

/// Statements as (actions, resources).
fn statements(policy: &Value) -> Vec<(Vec<&str>, Vec<&str>)> {
    let all = policy["Statement"].as_array().unwrap();
    all.iter()
        .map(|statement| {
            assert_eq!(statement["Effect"], "Allow");
            (texts_of(&statement["Action"]), texts_of(&statement["Resource"]))
        })
        .collect()
}

fn texts_of(value: &Value) -> Vec<&str> {
    value.as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect()
}

#[test]
fn a_session_can_do_what_the_routes_of_s3_need_and_no_more() {
    for (origin, routes, expected) in [
        (
            BUCKET,
            &["GET /2026/{name}.csv"][..],
            vec![(vec!["s3:GetObject"], vec!["arn:aws:s3:::reports/2026/*"])],
        ),
        (
            BUCKET,
            &["GET /?list-type!=2&prefix={any}", "PUT /in/{uuid}?x-id", "DELETE /in/{a|b}"],
            vec![
                (vec!["s3:DeleteObject"], vec!["arn:aws:s3:::reports/in/a", "arn:aws:s3:::reports/in/b"]),
                (vec!["s3:ListBucket"], vec!["arn:aws:s3:::reports"]),
                (vec!["s3:PutObject"], vec!["arn:aws:s3:::reports/in/*"]),
            ],
        ),
        // A parameter that must be there leaves the action without it out.
        (
            BUCKET,
            &["POST /big/{x}?uploads!", "DELETE /big/{x}?uploadId!", "GET /big/{x}?versionId"],
            vec![(
                vec!["s3:AbortMultipartUpload", "s3:GetObject", "s3:GetObjectVersion", "s3:PutObject"],
                vec!["arn:aws:s3:::reports/big/*"],
            )],
        ),
        (
            BUCKET,
            &["GET /out/**"],
            vec![(vec!["s3:GetObject"], vec!["arn:aws:s3:::reports/out", "arn:aws:s3:::reports/out/*"])],
        ),
        // The bucket stands in the path; what IAM takes for a wildcard is written out.
        (
            PATHS,
            &["HEAD /reports/a%2Ab/c", "GET /"],
            vec![
                (vec!["s3:GetObject"], vec!["arn:aws:s3:::reports/a${*}b/c"]),
                (vec!["s3:ListAllMyBuckets"], vec!["*"]),
            ],
        ),
    ] {
        let (policy, warnings) = load("s3", origin, routes);
        assert_eq!(statements(&policy.unwrap()), expected, "{routes:?}");
        assert!(warnings.is_empty(), "{}", render_all(&warnings));
    }
}

#[test]
fn a_route_that_needs_an_action_that_is_not_known_is_told() {
    for route in ["GET /x?policy", "GET /x?*", "PUT /?lifecycle", "POST /x", "GET /x?partNumber&*"] {
        let (policy, warnings) = load("s3", BUCKET, &[route, "GET /y"]);
        assert!(policy.unwrap().to_string().contains("arn:aws:s3:::reports/y"), "{route}");
        let codes: Vec<Code> = warnings.iter().map(|warning| warning.code).collect();
        assert_eq!(codes, [Code::GrantBeyondCredential], "{route}: {}", render_all(&warnings));
    }
}

#[test]
fn a_role_that_cannot_be_narrowed_is_told() {
    let (policy, warnings) = load("dynamodb", "https://dynamodb.eu-central-1.amazonaws.com", &["POST /"]);
    assert_eq!(policy, None);
    assert_eq!(warnings.first().unwrap().code, Code::CredentialBeyondGrants);

    let many: Vec<String> =
        (0..60).map(|number| format!("GET /a-long-name-of-a-folder-{number}/{{x}}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let (policy, warnings) = load("s3", BUCKET, &many);
    let expected =
        json!({ "Action": ["s3:GetObject"], "Effect": "Allow", "Resource": ["arn:aws:s3:::reports/*"] });
    assert_eq!(policy.unwrap()["Statement"][0], expected);
    assert_eq!(warnings.first().unwrap().code, Code::CredentialBeyondGrants);
}

#[test]
fn what_is_no_role_is_refused() {
    for (field, shown) in [
        ("role_arn = \"reports\"", "is not the ARN of a role"),
        ("role_arn = \"arn:aws:iam::123456789012:user/x\"", "is not the ARN of a role"),
        ("role_arn = \"arn:aws:iam::123456789012:role/x\"\nttl = \"2h\"", "`ttl`"),
        ("ttl = \"1h\"", "`ttl` without `role_arn`"),
        ("sts_url = \"https://sts.test/\"", "`sts_url` without `role_arn`"),
    ] {
        let text = format!(
            "[credential.c]\nkind = \"aws-sigv4\"\ncredentials = {{ file = \"/c\" }}\nregion = \"eu-central-1\"\nservice = \"s3\"\n{field}\n"
        );
        let problems = Policy::load(&[SourceFile::new("p.toml", text)]).unwrap_err();
        assert!(render_all(&problems).contains(shown), "{field}: {}", render_all(&problems));
    }
}
