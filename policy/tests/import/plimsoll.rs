//! Grants files of plimsoll.

use freeboard_policy::import::plimsoll::import;
use freeboard_policy::import::{ImportError, Kind};
use freeboard_policy::{CredentialView, SecretReference};

use crate::{allows, fixture, loaded, message, shown};

#[test]
fn profiles_become_grants_with_their_credentials_and_budgets() {
    let imported = import(&fixture("plimsoll/grants.json")).unwrap();
    let policy = loaded(&imported.policy);
    for (method, url, allowed) in [
        ("GET", "https://tickets.test/v1/tickets", true),
        ("GET", "https://tickets.test/v1/tickets/T-1.2~x_y", true),
        ("GET", "https://tickets.test/v1/tickets/a%20b", false),
        ("GET", "https://tickets.test/v1/tickets?all=1", false),
        ("POST", "https://tickets.test/v1/tickets", true),
        ("DELETE", "https://tickets.test/v1/tickets/1", false),
        ("GET", "https://open.test/status", true),
    ] {
        assert_eq!(allows(&policy, method, url), allowed, "{method} {url}\n{}", imported.policy);
    }
    assert_eq!(policy.grant("tickets").and_then(|grant| grant.calls), Some(20));
    assert_eq!(policy.grant("open").and_then(|grant| grant.calls), Some(256));
    match policy.credential("tickets") {
        Some(CredentialView::Jwt { key: SecretReference::Env(name), ttl_seconds: 60, scope, .. }) => {
            assert_eq!(
                (name.as_str(), scope.as_deref()),
                ("TICKETS_SECRET", Some("tickets:read tickets:write"))
            );
        }
        other => panic!("{other:?}"),
    }
    insta::assert_snapshot!("plimsoll_grants", shown(&imported));
}

#[test]
fn every_field_that_has_no_place_is_reported() {
    let report = import(&fixture("plimsoll/grants.json")).unwrap().report;
    for field in
        ["preamble", "catalog", "batch_of", "advice", "health_check", "global", "POST /v1/tickets", "http://"]
    {
        assert!(
            report.findings.iter().any(|finding| finding.reason.contains(field)),
            "{field}:\n{}",
            report.render()
        );
    }
}

#[test]
fn two_profiles_that_would_share_a_request_are_not_merged() {
    let text = r#"{"profiles": {
        "a": {"base_url": "https://x.test", "allow": ["GET /one", "GET /two"], "allowed_callers": ["bot"], "token": {"env": "A"}},
        "b": {"base_url": "https://x.test", "allow": ["GET /two", "GET /three"], "allowed_callers": ["bot"], "token": {"env": "B"}}
    }}"#;
    let imported = import(text).unwrap();
    loaded(&imported.policy);
    let lost: Vec<_> = imported.report.of(Kind::NotExpressed).map(|lost| lost.subject.as_str()).collect();
    assert_eq!(lost, ["b: GET /two"]);
}

#[test]
fn a_file_of_another_kind_is_refused() {
    for text in [
        "{}",
        "[]",
        r#"{"profiles": {"a": {"base_url": "https://x.test", "allowed_callers": [], "extra": 1}}}"#,
        "{",
    ] {
        assert!(message(import(text)).contains("not JSON"), "{text}");
    }
    assert!(matches!(import(r#"{"profiles": {}}"#), Err(ImportError::Nothing(_))));
}
