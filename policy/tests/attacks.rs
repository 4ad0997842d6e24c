//! Attacks of class G: policy files that say something else than their authors believe.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use freeboard_policy::explain::{Explanation, Request, Verdict};
use freeboard_policy::{Code, Diagnostic, Policy, SourceFile, render_all};

const API: &str = "[api.a]\norigins = [\"https://api.test\"]\n";

fn problems(text: &str) -> Vec<Diagnostic> {
    match Policy::load(&[SourceFile::new("g.toml", text)]) {
        Ok(loaded) => loaded.warnings,
        Err(problems) => problems,
    }
}

fn refused(text: &str, code: Code, says: &str) {
    let found = Policy::load(&[SourceFile::new("g.toml", text)]).err();
    let found = found.unwrap_or_else(|| panic!("accepted:\n{text}"));
    let right = found.iter().any(|problem| problem.code == code && problem.render().contains(says));
    assert!(right, "{code:?} {says}:\n{}\nof\n{text}", render_all(&found));
}

fn grant(fields: &str, routes: &str) -> String {
    format!(
        "{API}[grant.g]\ncallers = [\"bot\"]\n{fields}\n[[grant.g.allow]]\napi = \"a\"\nroutes = {routes}\n"
    )
}

fn ask(policy: &str, method: &str, url: &str) -> Explanation {
    let loaded = Policy::load(&[SourceFile::new("g.toml", policy)]);
    let policy = loaded.unwrap_or_else(|problems| panic!("{}", render_all(&problems))).policy;
    policy.explain(&Request {
        caller: Some("bot"),
        grants: None,
        tier: None,
        method,
        url,
        headers: &Vec::new(),
        body: None,
        websocket: false,
        now_unix: 0,
    })
}

#[test]
fn g01_no_text_becomes_a_truth_value_or_a_number() {
    for fields in [
        "floor = true",
        "ttl = 900",
        "ttl = 22:22",
        "budget = { calls = \"7\" }",
        "budget = { calls = 0o17.0 }",
        "expires = \"2027-01-31\"",
    ] {
        let found = Policy::load(&[SourceFile::new("g.toml", grant(fields, "[\"GET /x\"]"))]);
        assert!(found.is_err(), "{fields}");
    }
    refused(&grant("", "[\"GET /x\", no]"), Code::Syntax, "g.toml:");
    refused(&grant("", "[\"GET /x\", false]"), Code::WrongType, "");
    // The same words as texts stay texts.
    let text = grant("", "[\"GET /no\", \"GET /on\", \"GET /0443\"]");
    assert_eq!(ask(&text, "GET", "https://api.test/no").verdict, Verdict::Allow);
    assert_eq!(ask(&text, "GET", "https://api.test/false").verdict, Verdict::Refuse);
}

#[test]
fn g02_what_is_there_twice_is_refused_with_its_line() {
    let twice = format!("{}\n[grant.g]\ncallers = [\"other\"]\n", grant("", "[\"GET /x\"]"));
    refused(&twice, Code::DuplicateDefinition, "g.toml:10:");
    let routes = grant("", "[\"GET /x\"]\nroutes = [\"* /**\"]");
    refused(&routes, Code::DuplicateDefinition, "g.toml:9:");
    let files = [SourceFile::new("one.toml", grant("", "[\"GET /x\"]")), SourceFile::new("two.toml", API)];
    let found = Policy::load(&files).err().unwrap_or_default();
    assert!(found.iter().any(|problem| problem.code == Code::DuplicateDefinition), "{}", render_all(&found));
}

#[test]
fn g05_an_unknown_field_is_refused_with_the_one_that_was_meant() {
    refused(&grant("flor = \"kernel\"", "[\"GET /x\"]"), Code::UnknownField, "did you mean `floor`?");
    let table = grant("", "[\"GET /x\"]").replace("[grant.", "[grants.").replace("[[grant.", "[[grants.");
    refused(&table, Code::UnknownField, "did you mean `grant`?");
}

#[test]
fn g07_an_empty_list_never_means_everything() {
    refused(&grant("", "[]"), Code::EmptyList, "");
    refused(&grant("", "[\"GET /x\"]").replace("[\"bot\"]", "[]"), Code::EmptyList, "");
    refused("# only a comment\n", Code::Empty, "");
    refused("", Code::Empty, "");
    // A grant without a rule loads, says so, and allows nothing.
    let nothing = format!("{}[grant.h]\ncallers = [\"nobody\"]\n", grant("", "[\"GET /x\"]"));
    assert!(problems(&nothing).iter().any(|problem| problem.code == Code::NothingAllowed));
    assert_eq!(ask(&nothing, "GET", "https://api.test/y").verdict, Verdict::Refuse);
}

#[test]
fn g12_shadowed_and_dead_rules_are_listed_and_order_does_not_matter() {
    let codes = |text: &str| problems(text).iter().map(|problem| problem.code).collect::<Vec<_>>();
    assert_eq!(codes(&grant("", "[\"GET /x/**\", \"GET /x/{int}\"]")), [Code::ShadowedRule]);
    assert_eq!(codes(&grant("", "[\"GET /x\", \"GET|HEAD /x\"]")), [Code::DuplicateRule]);
    let deny = "[[grant.g.deny]]\napi = \"a\"\nroutes = [\"* /x/private/**\"]\n";
    let allow = "[[grant.g.allow]]\napi = \"a\"\nroutes = [\"GET /x/**\"]\n";
    let head = format!("{API}[grant.g]\ncallers = [\"bot\"]\n");
    for text in [format!("{head}{allow}{deny}"), format!("{head}{deny}{allow}")] {
        assert_eq!(ask(&text, "GET", "https://api.test/x/1").verdict, Verdict::Allow);
        assert_eq!(ask(&text, "GET", "https://api.test/x/private/1").verdict, Verdict::Refuse);
    }
    let dead = grant("", "[\"GET /x/private/1\"]") + deny;
    assert_eq!(codes(&dead), [Code::UnreachableRule]);
}

#[test]
fn g14_a_reference_to_nothing_is_refused_and_an_unused_credential_reported() {
    let missing = grant("", "[\"GET /x\"]")
        .replace("\"https://api.test\"]", "\"https://api.test\"]\ncredential = \"tokn\"");
    refused(&missing, Code::UnknownReference, "tokn");
    let unused = format!(
        "[credential.c]\nkind = \"bearer\"\ntoken = {{ env = \"C\" }}\n{}",
        grant("", "[\"GET /x\"]")
    );
    assert!(problems(&unused).iter().any(|problem| problem.code == Code::UnusedCredential));
}

#[test]
fn g21_a_secret_in_the_policy_is_refused_and_never_shown() {
    let credential = |token: &str| {
        let api = API.replace("\"]", "\"]\ncredential = \"c\"");
        format!(
            "[credential.c]\nkind = \"bearer\"\ntoken = {token}\n{}",
            grant("", "[\"GET /x\"]").replace(API, &api)
        )
    };
    for token in ["\"planted-value\"", "{ env = \"${planted-value}\" }", "\"planted-value: 'a'\\n[grant.x]\""]
    {
        let found = Policy::load(&[SourceFile::new("g.toml", credential(token))]).err().unwrap_or_default();
        assert!(!found.is_empty(), "{token} was accepted");
        assert!(!render_all(&found).contains("planted-value"), "{}", render_all(&found));
    }
    assert!(problems(&credential("{ env = \"TOKEN\" }")).is_empty(), "the reference itself is fine");
}

#[test]
fn g29_what_would_allow_a_request_is_as_narrow_as_the_request() {
    let policy = grant("", "[\"GET /x\"]");
    let suggested = ask(&policy, "DELETE", "https://api.test/x/7?force=1").would_allow.unwrap();
    assert!(suggested.contains("DELETE /x/7") && !suggested.contains('*'), "{suggested}");
    for url in [
        "https://10.0.0.5/",
        "https://169.254.169.254/latest/meta-data/",
        "https://metadata.google.internal/",
    ] {
        let explanation = ask(&policy, "GET", url);
        assert_eq!(explanation.verdict, Verdict::Refuse);
        let suggested = explanation.would_allow.unwrap_or_default();
        assert!(
            !suggested.contains("addresses")
                && !suggested.contains("metadata")
                && !suggested.contains("10.0.0.5"),
            "{suggested}"
        );
    }
}

#[test]
fn g30_a_file_of_another_version_is_refused_with_a_message_about_it() {
    let of = |version: &str| format!("version = {version}\n{}", grant("", "[\"GET /x\"]"));
    assert!(problems(&of("1")).is_empty());
    for version in ["0", "2", "99"] {
        refused(&of(version), Code::Version, "version");
    }
}

#[test]
fn g31_encodings_are_taken_once_or_refused() {
    let text = grant("", "[\"GET /x\"]");
    let digest = |bytes: &[u8]| {
        let file = SourceFile::decode("g.toml", bytes).ok()?;
        Policy::load(&[file]).ok().map(|loaded| loaded.policy.digest().to_string())
    };
    let plain = digest(text.as_bytes());
    assert!(plain.is_some());
    assert_eq!(digest(format!("\u{feff}{text}").as_bytes()), plain, "a byte order mark");
    assert_eq!(digest(text.replace('\n', "\r\n").as_bytes()), plain, "CRLF");
    assert_eq!(digest(text.replace(" = ", "\t=\t").as_bytes()), plain, "tabs");
    let utf16: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert_eq!(digest(&utf16), None, "UTF-16");
    assert_eq!(digest(format!("{text}---\n{text}").as_bytes()), None, "a second document");
    assert_eq!(digest(format!("{text}...\n").as_bytes()), None, "a trailing end of document");
}
