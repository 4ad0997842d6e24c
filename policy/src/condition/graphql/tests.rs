use super::*;
use crate::condition::body::Facts;
use crate::condition::media::Media;

fn test(fields: &[&str]) -> GraphqlTest {
    GraphqlTest {
        operations: vec![OperationKind::Query],
        fields: fields.iter().map(|field| (*field).into()).collect(),
        names: Vec::new(),
    }
}

fn facts(get: bool, query: &str, media: &str) -> Facts {
    Facts { get, query: Some(query.into()), media: Media::parse(media.as_bytes()) }
}

fn post(body: &str) -> Check {
    let facts = facts(false, "", "application/json");
    test(&["viewer", "repository"]).check(Effect::Allow, &Inspection::new(&facts, Ok(body.as_bytes())))
}

fn reason(check: &Check) -> Option<Reason> {
    match check {
        Check::Fails(miss) | Check::Unclear(miss) => Some(miss.reason),
        _ => None,
    }
}

#[test]
fn a_post_is_allowed_when_every_field_of_every_operation_is() {
    for (body, expected) in [
        (r#"{"query":"{viewer{login}}"}"#, None),
        (
            r#"{"query":"query A{viewer{login}} query B{repository{id}}","operationName":"A","variables":{"x":1}}"#,
            None,
        ),
        (r#"[{"query":"{viewer{login}}"},{"query":"{repository{id}}"}]"#, None),
        (r#"{"query":"{viewer{login}}","extensions":null}"#, None),
        (r#"{"query":"{viewer:users{login}}"}"#, Some(Reason::BodyNotGranted)),
        (r#"{"query":"{\u0075sers{login}}"}"#, Some(Reason::BodyNotGranted)),
        (
            r#"{"query":"query A{viewer{login}} mutation B{viewer}","operationName":"A"}"#,
            Some(Reason::BodyNotGranted),
        ),
        (r#"[{"query":"{viewer{login}}"},{"query":"{users{id}}"}]"#, Some(Reason::BodyNotGranted)),
        (r#"{"query":"{...F} fragment F on Query{users{id}}"}"#, Some(Reason::BodyNotGranted)),
        (r#"{"id":"abc"}"#, Some(Reason::BodyNotGranted)),
        (r#"{"extensions":{"persistedQuery":{"sha256Hash":"x"}}}"#, Some(Reason::BodyNotGranted)),
        (r#"{"query":"{viewer{login}}","extensions":{"persistedQuery":{}}}"#, Some(Reason::BodyNotGranted)),
        (r#"{"query":null}"#, Some(Reason::BodyNotGranted)),
        (r#"{"query":"{viewer{login}}","id":"x"}"#, Some(Reason::InspectionMalformed)),
        (r#"{"query":"{viewer{login}}","Query":"{users{id}}"}"#, Some(Reason::InspectionDuplicateKey)),
        (r#"{"query":"{viewer{login}}","query":"{users{id}}"}"#, Some(Reason::InspectionDuplicateKey)),
        (r#"{"query":"{viewer{login"}"#, Some(Reason::InspectionTruncated)),
        ("[]", Some(Reason::InspectionMalformed)),
        (r#""{viewer}""#, Some(Reason::InspectionMalformed)),
        ("", Some(Reason::InspectionMalformed)),
    ] {
        assert_eq!(reason(&post(body)), expected, "{body}");
    }
}

#[test]
fn a_get_and_the_plain_form_are_read_too() {
    let check = |facts: &Facts, body: &str| {
        reason(&test(&["viewer"]).check(Effect::Allow, &Inspection::new(facts, Ok(body.as_bytes()))))
    };
    let get = |query: &str| check(&facts(true, query, ""), "");
    assert_eq!(get("query=%7Bviewer%7Blogin%7D%7D"), None);
    assert_eq!(get("query=%7Bviewer+%7Blogin%7D%7D&operationName=&variables=%7B%7D"), None);
    assert_eq!(get("query=%7Busers%7Blogin%7D%7D"), Some(Reason::BodyNotGranted));
    assert_eq!(get("query={viewer}&query={users}"), Some(Reason::InspectionDuplicateKey));
    assert_eq!(get("query={viewer};query={users}"), Some(Reason::InspectionDuplicateKey));
    assert_eq!(get("extensions=%7B%22persistedQuery%22%3A1%7D"), Some(Reason::BodyNotGranted));
    assert_eq!(get("query={viewer}&id=1"), Some(Reason::BodyNotGranted));
    assert_eq!(get(""), Some(Reason::BodyNotGranted));
    let plain = facts(false, "", "application/graphql");
    assert_eq!(check(&plain, "{viewer{login}}"), None);
    assert_eq!(check(&plain, "{users{login}}"), Some(Reason::BodyNotGranted));
    let both = facts(false, "query=%7Busers%7D", "application/json");
    assert_eq!(check(&both, r#"{"query":"{viewer}"}"#), Some(Reason::InspectionMalformed));
    assert_eq!(check(&facts(true, "query={viewer}", ""), "{}"), Some(Reason::InspectionMalformed));
}

#[test]
fn a_deny_rule_takes_any_field_and_what_it_cannot_see_is_unclear() {
    let deny = GraphqlTest {
        operations: vec![OperationKind::Mutation],
        fields: vec!["deleteRepository".into()],
        names: Vec::new(),
    };
    let check = |body: &str| {
        let facts = facts(false, "", "application/json");
        deny.check(Effect::Deny, &Inspection::new(&facts, Ok(body.as_bytes())))
    };
    assert_eq!(check(r#"{"query":"mutation{a:createIssue b:deleteRepository}"}"#), Check::Holds);
    assert_eq!(check(r#"[{"query":"{a}"},{"query":"mutation{deleteRepository}"}]"#), Check::Holds);
    assert!(matches!(check(r#"{"query":"mutation{createIssue}"}"#), Check::Fails(_)));
    assert!(matches!(check(r#"{"query":"{deleteRepository}"}"#), Check::Fails(_)));
    assert!(matches!(check(r#"{"id":"1"}"#), Check::Unclear(_)));
}

#[test]
fn names_are_the_operations_own() {
    let named = GraphqlTest { names: vec!["Viewer".into()], ..test(&[]) };
    let check = |body: &str| {
        let facts = facts(false, "", "application/json");
        reason(&named.check(Effect::Allow, &Inspection::new(&facts, Ok(body.as_bytes()))))
    };
    assert_eq!(check(r#"{"query":"query Viewer{a}"}"#), None);
    assert_eq!(check(r#"{"query":"query Other{a}","operationName":"Viewer"}"#), Some(Reason::BodyNotGranted));
    assert_eq!(check(r#"{"query":"{a}"}"#), Some(Reason::BodyNotGranted));
}
