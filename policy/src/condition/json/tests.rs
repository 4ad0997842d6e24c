use super::*;

fn test(pointer: &str, want: JsonWant) -> JsonTest {
    JsonTest { pointer: Pointer::parse(pointer).unwrap(), want }
}

fn holds(pointer: &str, want: &JsonWant, effect: Effect, body: &str) -> bool {
    let document = value::parse(body.as_bytes()).unwrap();
    check(&[test(pointer, want.clone())], effect, &document) == Check::Holds
}

#[test]
fn an_allow_rule_wants_every_part_to_hold() {
    let of = |change: fn(&mut JsonWant)| {
        let mut want = JsonWant::default();
        change(&mut want);
        want
    };
    let text = |text: &str| Scalar::Text(text.into());
    let state = JsonWant { one_of: vec![text("open"), text("closed")], ..JsonWant::default() };
    let small = of(|want| {
        (want.min, want.max) = (Some(Number::Whole(1)), Some(Number::Whole(10)));
        want.kind = Some(Kind::Integer);
    });
    for (pointer, want, body, expected) in [
        ("/a", &of(|_| {}), r#"{"a":null}"#, true),
        ("/a", &of(|_| {}), r#"{"b":1}"#, false),
        ("/a", &of(|want| want.optional = true), r#"{"b":1}"#, true),
        ("/a", &of(|want| want.absent = true), r#"{"b":1}"#, true),
        ("/a", &of(|want| want.absent = true), r#"{"a":null}"#, false),
        ("/state", &state, r#"{"state":"open"}"#, true),
        ("/state", &state, r#"{"state":"Open"}"#, false),
        ("/state", &state, r#"{"state":["open"]}"#, false),
        ("/n", &small, r#"{"n":10}"#, true),
        ("/n", &small, r#"{"n":11}"#, false),
        ("/n", &small, r#"{"n":0}"#, false),
        ("/n", &small, r#"{"n":5.0}"#, false),
        ("/n", &small, r#"{"n":"5"}"#, false),
        ("/t", &of(|want| want.max_length = Some(3)), r#"{"t":"äöü"}"#, true),
        ("/t", &of(|want| want.max_length = Some(3)), r#"{"t":"four"}"#, false),
        ("/t", &of(|want| want.max_length = Some(3)), r#"{"t":1}"#, false),
        ("/l", &of(|want| want.max_items = Some(2)), r#"{"l":[1,2]}"#, true),
        ("/l", &of(|want| want.max_items = Some(2)), r#"{"l":[1,2,3]}"#, false),
        ("", &of(|want| want.members = vec!["a".into()]), r#"{"a":1}"#, true),
        ("", &of(|want| want.members = vec!["a".into()]), r#"{"a":1,"b":1}"#, false),
        ("", &of(|want| want.members = vec!["a".into()]), r#"{"A":1}"#, false),
        ("", &of(|want| want.kind = Some(Kind::Object)), "[]", false),
        ("/l/*/id", &small, r#"{"l":[{"id":1},{"id":2}]}"#, true),
        ("/l/*/id", &small, r#"{"l":[{"id":1},{"id":99}]}"#, false),
        ("/l/*/id", &small, r#"{"l":[{"id":1},{}]}"#, false),
        ("/l/*/id", &small, r#"{"l":{"id":1}}"#, false),
        ("/l/1", &small, r#"{"l":[99,2]}"#, true),
        ("/l/01", &small, r#"{"l":[99,2]}"#, false),
        ("/a~1b", &small, r#"{"a/b":2}"#, true),
    ] {
        assert_eq!(holds(pointer, want, Effect::Allow, body), expected, "{pointer} {want:?} {body}");
    }
}

#[test]
fn a_deny_rule_takes_one_place_that_holds_in_any_letter_case() {
    let public = JsonWant { one_of: vec![Scalar::Text("public".into())], ..JsonWant::default() };
    for (pointer, body, denied) in [
        ("/v", r#"{"v":"public"}"#, true),
        ("/v", r#"{"v":"Public"}"#, true),
        ("/v", r#"{"v":"private"}"#, false),
        ("/v", "{}", false),
        ("/*/v", r#"[{"v":"private"},{"v":"public"}]"#, true),
        ("/*/v", "[]", false),
    ] {
        assert_eq!(holds(pointer, &public, Effect::Deny, body), denied, "{pointer} {body}");
    }
}

#[test]
fn a_member_with_two_readings_is_unclear_for_both() {
    let document = value::parse(br#"{"v":"private","V":"public"}"#).unwrap();
    for effect in [Effect::Allow, Effect::Deny] {
        let found = check(&[test("/v", JsonWant::default())], effect, &document);
        assert!(
            matches!(&found, Check::Unclear(miss) if miss.reason == Reason::InspectionDuplicateKey),
            "{found:?}"
        );
    }
}

#[test]
fn whole_numbers_are_compared_exactly() {
    let limit = JsonWant { max: Some(Number::Whole(9_007_199_254_740_992)), ..JsonWant::default() };
    assert!(holds("", &limit, Effect::Allow, "9007199254740992"));
    assert!(!holds("", &limit, Effect::Allow, "9007199254740993"));
    assert!(!holds("", &limit, Effect::Allow, "1e300"));
    assert!(holds("", &limit, Effect::Allow, "-1e300"));
}

#[test]
fn pointers_are_read_as_rfc_6901_says() {
    for (text, good) in [
        ("", true),
        ("/", true),
        ("/a/b", true),
        ("/~0~1", true),
        ("a", false),
        ("/~2", false),
        ("/~", false),
    ] {
        assert_eq!(Pointer::parse(text).is_ok(), good, "{text}");
    }
    assert_eq!(Pointer::parse("/a~1b/*/~0").unwrap().to_string(), "/a~1b/*/~0");
}
