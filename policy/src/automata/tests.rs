//! What a search finds is true, it finds the shortest, and it finds something whenever there is something.

use proptest::prelude::*;
use proptest::sample::select;

use super::{Answer, Rule, Witness, overlap, search, uncovered};
use crate::Target;
use crate::route::{RouteLine, line};

fn read(text: &str) -> RouteLine {
    line::parse(text).0.unwrap_or_else(|| panic!("{text}: {:?}", line::parse(text).1))
}

fn shown(answer: Answer) -> String {
    match answer {
        Answer::Witness(Witness { method, target, .. }) => format!("{method} {target}"),
        Answer::None => "none".to_owned(),
        Answer::Undecided => "undecided".to_owned(),
    }
}

#[test]
fn finds_a_shortest_request_that_one_line_has_beyond_others() {
    for (line, by, expected) in [
        ("GET /a", &["GET /a"][..], "none"),
        ("GET|POST /a", &["GET /a"], "POST /a"),
        ("GET /a", &["HEAD /a"], "GET /a"),
        ("* /a", &["GET|POST|PUT|PATCH|DELETE|OPTIONS /a"], "none"),
        ("GET /a/**", &["GET /a"], "GET /a/"),
        ("GET /a/**", &["GET /a", "GET /a/", "GET /a/{x}", "GET /a/{x}/"], "GET /a/a/a"),
        ("GET /a/{x}", &["GET /a/{slug}"], "GET /a/-"),
        ("GET /{hex}", &["GET /{int}"], "GET /a"),
        ("GET /{hex}", &["GET /{int}", "GET /{re:[0-9]*[a-f]+[0-9a-f]*}"], "GET /A"),
        (
            "GET /{hex}",
            &["GET /{int}", "GET /{re:[0-9]*[a-fA-F]+[0-9a-fA-F]*}"],
            "GET /000000000000000000000",
        ),
        ("GET /{a|b|c}", &["GET /{a|b}", "GET /c"], "none"),
        ("GET /{a|b|c}", &["GET /{a|b}"], "GET /c"),
        ("GET /{slug}", &["GET /{re:[A-Za-z0-9_].*}"], "none"),
        ("GET /a?*", &["GET /a"], "GET /a?x"),
        ("GET /a?*", &["GET /a", "GET /a?x&*"], "GET /a?a;"),
        ("GET /a?p={int}", &["GET /a?p={hex}"], "none"),
        ("GET /a?p={hex}", &["GET /a?p={int}"], "GET /a?p=a"),
        ("GET /a?p={any}&q", &["GET /a?p={any}", "GET /a?q"], "GET /a?p=a&q"),
        ("GET /a?p", &["GET /a?p!"], "GET /a"),
        ("GET /a?p={int}&*", &["GET /a?*"], "none"),
        ("GET /a?p={slug}", &["GET /a?p={re:[a-z]+}", "GET /a"], "GET /a?p=0"),
        ("GET /caf%C3%A9", &[], "GET /caf%C3%A9"),
    ] {
        let (line, by): (RouteLine, Vec<RouteLine>) =
            (read(line), by.iter().map(|text| read(text)).collect());
        let by: Vec<Rule<'_>> = by.iter().map(|line| Rule::allow(line, false)).collect();
        assert_eq!(
            shown(uncovered(Rule::allow(&line, false), &by)),
            expected,
            "{} beyond {by:?}",
            line.written
        );
    }
}

#[test]
fn deny_lines_are_read_as_the_evaluator_reads_them() {
    for (allow, deny, left) in [
        ("GET /a/{x}", "* /A/B/", "GET /a/a"),
        ("GET /a", "GET /A/", "none"),
        ("GET /{x}", "* /a/{x}", "GET /a"),
        ("GET /a%2Fb", "* /a/b", "none"),
        ("GET /a?*", "* /a?p={int}", "GET /a"),
        ("GET /a?p!={int}", "* /a?P={int}", "none"),
        ("GET /a?p!={slug}", "* /a?P={int}", "GET /a?p=a"),
        ("GET /a?q!={any}", "* /a?q={re:[^+ ]+}", "GET /a?q=+"),
    ] {
        let (allow, deny) = (read(allow), read(deny));
        let found = uncovered(Rule::allow(&allow, false), &[Rule::deny(&deny)]);
        assert_eq!(shown(found), left, "{} without {}", allow.written, deny.written);
    }
}

#[test]
fn websockets_and_other_requests_do_not_meet() {
    let (one, deny) = (read("GET /a"), read("GET /A"));
    assert_eq!(overlap(Rule::allow(&one, true), Rule::allow(&one, false)), Answer::None);
    assert!(
        overlap(Rule::allow(&one, true), Rule::deny(&deny)).witness().is_some_and(|found| found.websocket)
    );
}

#[test]
fn many_rules_with_wide_segments_are_still_decided() {
    let lines: Vec<RouteLine> = (0..200)
        .map(|at| read(&format!("GET /{{x}}/{{re:[a-z]{{2}}}}/item-{at}/{{uuid}}?p={{int}}&q{at}")))
        .collect();
    let by: Vec<Rule<'_>> = lines.iter().map(|line| Rule::allow(line, false)).collect();
    let whole = read("GET /{x}/{re:[a-z]{2}}/{re:item-[0-9]{1,3}}/{uuid}?p={int}");
    assert_eq!(
        shown(uncovered(Rule::allow(&whole, false), &by)),
        "GET /a/aa/item-00/aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"
    );
}

fn route() -> impl Strategy<Value = String> {
    let methods = select(vec!["GET", "HEAD", "POST", "GET|POST", "*", "PURGE"]);
    let segment = select(vec![
        "a",
        "b",
        "A",
        "1",
        "x.git",
        "{x}",
        "{int}",
        "{hex}",
        "{slug}",
        "{a|b}",
        "{1|B|x.git}",
        "{re:[ab]+}",
        "{re:[ab]*}",
        "{n}.git",
        "a%2Fb",
        "a%2f*",
        "secrets",
        "caf%C3%A9",
        "{date}",
        "{re:..?}",
    ]);
    let query = select(vec![
        "",
        "",
        "",
        "?*",
        "?p={int}",
        "?p!={int}&q",
        "?p={a|b}&*",
        "?q=",
        "?q={re:[a-z +]+}",
        "?q=a+b",
        "?P={slug}",
        "?p&P",
        "?p={any}&q!={any}",
        "?a%3Bb={int}&*",
        "?q+r&*",
        "?q%2Br=1",
        "?q!=1&q+r",
    ]);
    let end = select(vec!["", "", "", "/", "/**"]);
    (methods, prop::collection::vec(segment, 0..4), end, query).prop_map(|(methods, segments, end, query)| {
        let path: String = segments.iter().map(|segment| format!("/{segment}")).collect();
        let path = if path.is_empty() && end.is_empty() { "/".to_owned() } else { format!("{path}{end}") };
        format!("{methods} {path}{query}")
    })
}

fn request() -> impl Strategy<Value = Witness> {
    let segment = select(vec![
        "a",
        "b",
        "A",
        "1",
        "42",
        "x.git",
        "y.git",
        "B",
        "a%2Fb",
        "a%2fc",
        "secrets",
        "SECRETS",
        "ab",
        "-",
        "c%2F",
        "%2Fa",
        "caf%C3%A9",
        "caf%C3%89",
        "2026-01-02",
        "a%2F%2Fb",
    ]);
    let method = select(vec!["GET", "HEAD", "POST", "PURGE", "DELETE"]);
    let pair = select(vec![
        "p=1", "p=a", "q=x", "q=", "q", "q=a+b", "q=a%20b", "q=a%2Bb", "P=1", "P=a", "p=1;q=2", "r=1", "p",
        "a;b=1", "a%3Bb=1", "q+r", "q%20r=1", "q%2Br=1", "p=%C3%A9", ";", "q=1",
    ]);
    let end = select(vec!["", "", "/"]);
    (
        method,
        prop::collection::vec(segment, 0..4),
        end,
        prop::collection::vec(pair, 0..4),
        prop::bool::weighted(0.1),
    )
        .prop_map(|(method, segments, end, pairs, websocket)| {
            let path: String = segments.iter().map(|segment| format!("/{segment}")).collect();
            let path = if path.is_empty() { "/".to_owned() } else { format!("{path}{end}") };
            let query = if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) };
            Witness { method: method.to_owned(), target: format!("{path}{query}"), websocket }
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    /// Completeness and shortness in one: whatever a request shows of some rules, a search for just that finds it, and
    /// nothing longer.
    #[test]
    fn whatever_a_request_shows_is_found_and_no_longer(
        rules in prop::collection::vec((route(), prop::bool::weighted(0.3), prop::bool::weighted(0.1)), 1..5),
        requests in prop::collection::vec(request(), 16),
    ) {
        let lines: Vec<(RouteLine, bool, bool)> =
            rules.iter().map(|(text, deny, websocket)| (read(text), *deny, *websocket)).collect();
        let rules: Vec<Rule<'_>> = lines
            .iter()
            .map(|(line, deny, websocket)| if *deny { Rule::deny(line) } else { Rule::allow(line, *websocket) })
            .collect();
        for request in requests {
            let Ok(target) = Target::parse(request.target.as_bytes()) else { continue };
            let hits: Vec<bool> = rules.iter().map(|rule| rule.matches(&request)).collect();
            let Some(anchor) = hits.iter().position(|hit| *hit) else { continue };
            let found = search(&rules, anchor, |found| found == hits);
            let Answer::Witness(found) = found else {
                return Err(TestCaseError::fail(format!("{found:?} for {request:?} {hits:?}")));
            };
            prop_assert!(found.target.len() <= target.wire().len(), "{:?} for {:?}", found, request);
            prop_assert_eq!(rules.iter().map(|rule| rule.matches(&found)).collect::<Vec<_>>(), hits);
        }
    }
}
