use super::parse;
use crate::diagnostic::{Code, Severity};

fn canonical(text: &str) -> String {
    let (line, problems) = parse(text);
    line.unwrap_or_else(|| panic!("{text}: {problems:?}")).canonical()
}

fn refused(text: &str, code: Code) {
    let (line, problems) = parse(text);
    assert!(line.is_none(), "{text}");
    assert!(problems.iter().any(|p| p.code == code && p.severity == Severity::Error), "{text}: {problems:?}");
}

#[test]
fn reads_every_segment_form() {
    for (text, meaning) in [
        ("GET /", "GET /"),
        ("GET /v1/items/", "GET /v1/items/"),
        ("  GET   /repos/acme/{repo}/issues/{int} ", "GET /repos/acme/{any}/issues/{int}"),
        ("GET|HEAD|POST /a/*", "GET|POST /a/{any}"),
        ("* /repos/acme/secrets/**", "* /repos/acme/secrets/**"),
        ("GET /{uuid}/{hex}/{slug}/{date}/{any}", "GET /{uuid}/{hex}/{slug}/{date}/{any}"),
        ("GET /{b|a}", "GET /{a|b}"),
        ("GET /{re:v[0-9]{1,2}}/x", "GET /{re:v[0-9]{1,2}}/x"),
        ("GET /{re:a/b?c}/x?q", "GET /{re:a/b?c}/x?q"),
        ("GET /%69tems/caf%c3%a9", "GET /items/caf%C3%A9"),
        ("GET /@scope%2f*", "GET /%40scope%2F{any}"),
        ("GET /{owner}/{repo}.git/info/refs", "GET /{any}/{any}.git/info/refs"),
        ("GET /compare/{base}...{head}", "GET /compare/{any}...{any}"),
        ("PROPFIND /dav/**", "PROPFIND /dav/**"),
    ] {
        assert_eq!(canonical(text), meaning, "{text}");
    }
}

#[test]
fn reads_every_query_form() {
    for (text, meaning) in [
        ("GET /a?*", "GET /a?*"),
        ("GET /a?page={int}&per_page={int}", "GET /a?page={int}&per_page={int}"),
        ("GET /a?b&a!={x|y}", "GET /a?a!={x|y}&b"),
        ("GET /a?service!=git-upload-pack", "GET /a?service!=git-upload-pack"),
        ("GET /a?filter[a]={any}&*", "GET /a?filter%5Ba%5D={any}&*"),
        ("GET /a?q=a+b", "GET /a?q=a%20b"),
        ("GET /a?q=", "GET /a?q="),
        ("GET /a?flag!", "GET /a?flag!"),
        ("GET /a?since={date}T*", "GET /a?since={date}T{any}"),
    ] {
        assert_eq!(canonical(text), meaning, "{text}");
    }
}

#[test]
fn refuses_lines_that_cannot_match_or_mean_two_things() {
    for text in [
        "",
        "GET",
        "/v1",
        "GET v1",
        "GET  ",
        "get /v1",
        "G3T /x",
        "GET| /x",
        "GET|GET /x",
        "GET,POST /x",
        "GET /a//b",
        "GET //",
        "GET /a/../b",
        "GET /%2e%2e/b",
        "GET /a%2F../b",
        "GET /./b",
        "GET /**/b",
        "GET /a**",
        "GET /a;b",
        "GET /a%3bb",
        "GET /a\\b",
        "GET /a%5cb",
        "GET /a%00",
        "GET /%ff",
        "GET /%c0%ae",
        "GET /%",
        "GET /%zz",
        "GET /a b",
        "GET /a#b",
        "GET /é",
        "GET /{",
        "GET /a}",
        "GET /{}",
        "GET /{a b}",
        "GET /{1a}",
        "GET /{a|}",
        "GET /{a|a}",
        "GET /a?",
        "GET /a?&",
        "GET /a?=x",
        "GET /a?a&a",
        "GET /a?a={int}!",
        "GET /a?a;b",
        "GET /a?*&a",
        "GET /a?a*={int}",
        "GET /a?x={a|é}",
    ] {
        refused(text, Code::BadRoute);
    }
    for text in ["TRACE /", "GET|CONNECT /", "track /"] {
        refused(text, Code::ForbiddenMethod);
    }
    for text in ["GET /{re:}", "GET /{re:[}", "GET /{re:(a|b)*a(a|b){20}}", "GET /{re:a)|(b}"] {
        let (line, _) = parse(text);
        assert!(line.is_none(), "{text}");
    }
    refused(&format!("GET /{}", "a/".repeat(70)), Code::BadRoute);
    refused(&format!("GET /{}", "a".repeat(2000)), Code::BadRoute);
}

#[test]
fn g28_refuses_names_that_look_like_types() {
    for text in ["GET /{integer}", "GET /{Int}", "GET /{UUID}", "GET /{number}", "GET /{guid}"] {
        refused(text, Code::NotAType);
    }
    assert_eq!(canonical("GET /{id}"), "GET /{any}");
}

#[test]
fn marks_the_part_of_the_line_that_is_wrong() {
    let (_, problems) = parse("GET /v1/{integer}/x");
    assert_eq!(problems[0].span, 9..16);
    let (_, problems) = parse("GTE /v1");
    assert_eq!((problems[0].severity, problems[0].span.clone()), (Severity::Warning, 0..3));
    assert_eq!(problems[0].help.as_deref(), Some("did you mean `GET`?"));
}

#[test]
fn the_canonical_form_means_itself() {
    for text in ["GET|POST /a/{b|a}/{re:x+}/{n}.git/**?z&a!={int}&*", "* /@s%2f*/?q=a+b", "GET /caf%c3%a9?*"]
    {
        let once = canonical(text);
        assert_eq!(canonical(&once), once, "{text}");
    }
}
