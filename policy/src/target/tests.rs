use super::{Target, TargetError};

fn refused(raw: &str, error: TargetError) {
    assert_eq!(Target::parse(raw.as_bytes()).map(|t| t.wire().to_owned()), Err(error), "{raw:?}");
}

fn accepted(raw: &str, wire: &str, segments: &[&str]) {
    let target = Target::parse(raw.as_bytes()).unwrap_or_else(|error| panic!("{raw:?}: {error}"));
    assert_eq!(target.wire(), wire, "{raw:?}");
    let view = target.view();
    let found: Vec<_> =
        (0..view.len()).map(|at| String::from_utf8_lossy(view.segment(at).unwrap()).into_owned()).collect();
    assert_eq!(found, segments, "{raw:?}");
}

#[test]
fn a01_a02_refuses_dot_segments_raw_and_escaped() {
    for raw in [
        "/v1/items/../admin",
        "/v1/items/./x",
        "/..",
        "/.",
        "/v1/items/%2e%2e/admin",
        "/v1/items/.%2E/admin",
        "/v1/items/%2E./admin",
        "/v1/items/%2e",
        "/v1/items/a%2F..%2Fadmin",
        "/v1/items/..%2Fadmin",
        "/v1/items/a%2f%2E%2e",
    ] {
        refused(raw, TargetError::DotSegment);
    }
    accepted("/v1/...", "/v1/...", &["v1", "..."]);
    accepted("/v1/..a", "/v1/..a", &["v1", "..a"]);
    accepted("/v1/.well-known", "/v1/.well-known", &["v1", ".well-known"]);
}

#[test]
fn a04_keeps_an_escaped_slash_as_data_byte_for_byte() {
    accepted("/v1/items/a%2Fadmin", "/v1/items/a%2Fadmin", &["v1", "items", "a/admin"]);
    accepted("/@scope%2fpkg", "/@scope%2fpkg", &["@scope/pkg"]);
}

#[test]
fn a06_refuses_backslashes_raw_and_escaped() {
    for raw in ["/v1/items\\..\\admin", "/v1/items/%5c..%5cadmin", "/v1/x?a=%5C", "/v1/x?a=\\"] {
        refused(raw, TargetError::Backslash);
    }
}

#[test]
fn a07_decodes_at_most_once() {
    accepted("/v1/items/%252e%252e/admin", "/v1/items/%252e%252e/admin", &["v1", "items", "%2e%2e", "admin"]);
    accepted("/v1/items/a%252fadmin", "/v1/items/a%252fadmin", &["v1", "items", "a%2fadmin"]);
}

#[test]
fn a08_refuses_overlong_and_bad_utf8() {
    for raw in [
        "/v1/items/%c0%ae%c0%ae/admin",
        "/v1/items/%e0%80%af",
        "/v1/items/%ff",
        "/v1/items/%ed%a0%80",
        "/x?q=%ff",
        "/x?q=%c3",
    ] {
        refused(raw, TargetError::BadUtf8);
    }
    assert_eq!(Target::parse(b"/v1/\xc3\xa9").map(|_| ()), Err(TargetError::RawByte));
}

#[test]
fn a09_a10_refuses_control_characters_raw_and_escaped() {
    for raw in [
        "/v1/items/x%00/y",
        "/v1/items/x%0d%0aX-Injected:%201",
        "/v1/\u{0}",
        "/v1/\u{1}",
        "/v1/\u{7f}",
        "/v1/%7F",
        "/v1/%1f",
        "/x?q=%0a",
        "/x?q=\t",
    ] {
        refused(raw, TargetError::Control);
    }
}

#[test]
fn a11_refuses_empty_segments_and_knows_a_trailing_slash() {
    for raw in ["//v1/items/1", "/v1//items/1", "/v1/items//1", "//", "/v1//"] {
        refused(raw, TargetError::EmptySegment);
    }
    accepted("/", "/", &[]);
    accepted("/v1/items/", "/v1/items/", &["v1", "items"]);
    assert!(Target::parse(b"/v1/items/").unwrap().view().trailing_slash);
    assert!(!Target::parse(b"/v1/items").unwrap().view().trailing_slash);
}

#[test]
fn a15_decodes_unreserved_escapes_and_keeps_case() {
    accepted("/v1/%69tems/1", "/v1/items/1", &["v1", "items", "1"]);
    accepted("/v1/%69TEMS/%7e", "/v1/iTEMS/~", &["v1", "iTEMS", "~"]);
    accepted("/V1/ITEMS/1", "/V1/ITEMS/1", &["V1", "ITEMS", "1"]);
}

#[test]
fn a16_refuses_path_parameters() {
    for raw in ["/v1/items/1;jsessionid=x", "/v1/admin;/../items/1", "/v1/a%3Bb"] {
        refused(raw, TargetError::PathParameter);
    }
    accepted("/v1/x?a=1;b", "/v1/x?a=1;b", &["v1", "x"]);
}

#[test]
fn a17_a49_refuses_fragments_and_odd_forms() {
    refused("/v1/admin#/v1/items/1", TargetError::Fragment);
    refused("/v1/x?a#b", TargetError::Fragment);
    for raw in ["", "*", "api.test:443", "http://api.test/", "?a", "v1"] {
        refused(raw, TargetError::NotOriginForm);
    }
}

#[test]
fn refuses_bad_escapes_and_bytes_that_must_be_escaped() {
    for raw in ["/%", "/%2", "/%zz", "/a%2", "/%%20", "/x?%", "/%u0041"] {
        refused(raw, TargetError::BadEscape);
    }
    for raw in ["/a b", "/a\"b", "/a<b", "/{a}", "/a^b", "/x?a b", "/x?\""] {
        refused(raw, TargetError::RawByte);
    }
}

#[test]
fn a53_never_folds_unicode() {
    accepted("/v1/caf%C3%A9", "/v1/caf%C3%A9", &["v1", "café"]);
    accepted("/v1/cafe%CC%81", "/v1/cafe%CC%81", &["v1", "cafe\u{301}"]);
    accepted("/v1/a%EF%BC%8Fb", "/v1/a%EF%BC%8Fb", &["v1", "a\u{ff0f}b"]);
}

#[test]
fn splits_path_and_query_at_the_first_question_mark() {
    let target = Target::parse(b"/a?b=/c?d&%41=%2f").unwrap();
    assert_eq!((target.path(), target.query()), ("/a", Some("b=/c?d&A=%2f")));
    assert_eq!(Target::parse(b"/a?").unwrap().query(), Some(""));
    assert_eq!(Target::parse(b"/a").unwrap().query(), None);
}

#[test]
fn refuses_a_target_over_the_limit_and_takes_one_at_the_limit() {
    let at_limit = format!("/{}", "a".repeat(super::TARGET_MAX_BYTES - 1));
    assert!(Target::parse(at_limit.as_bytes()).is_ok());
    refused(&format!("{at_limit}a"), TargetError::TooLong);
}

#[test]
fn the_second_reading_splits_at_escaped_slashes() {
    let target = Target::parse(b"/a/b%2Fc/d%2f").unwrap();
    let split = target.split_at_escaped_slashes().unwrap();
    let view = split.view();
    let found: Vec<_> = (0..view.len()).map(|at| view.segment(at).unwrap()).collect();
    assert_eq!(found, [b"a", b"b", b"c", b"d"]);
    assert!(view.trailing_slash);
    assert!(Target::parse(b"/a/b").unwrap().split_at_escaped_slashes().is_none());
}
