//! `[[allow_warning]]`: what may stay, what may not, and what is of no use.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use freeboard_policy::{Code, Diagnostic, Loaded, Policy, SourceFile, render_all};

/// Two grants that everybody may use.
const POLICY: &str = r#"
[api.a]
origins = ["https://a.test"]

[grant.one]
callers = ["*"]

[[grant.one.allow]]
api = "a"
routes = ["GET /one"]

[grant.two]
callers = ["*"]

[[grant.two.allow]]
api = "a"
routes = [
  "GET /two",
]
"#;

fn load(allowances: &str) -> Result<Loaded, Vec<Diagnostic>> {
    Policy::load(&[SourceFile::new("a.toml", format!("{allowances}{POLICY}"))])
}

fn loaded(allowances: &str) -> Loaded {
    load(allowances).unwrap_or_else(|problems| panic!("{}", render_all(&problems)))
}

fn codes(problems: &[Diagnostic]) -> Vec<Code> {
    problems.iter().map(|problem| problem.code).collect()
}

#[test]
fn a_warning_is_allowed_by_number_or_words_and_its_reason_is_kept() {
    assert_eq!(codes(&loaded("").warnings), [Code::WildcardCaller, Code::WildcardCaller]);
    for code in ["E0508", "e0508", "wildcard-caller", "freeboard::policy::E0508"] {
        let loaded = loaded(&format!("[[allow_warning]]\ncode = \"{code}\"\nreason = \"all of us\"\n"));
        assert!(loaded.warnings.is_empty(), "{}", render_all(&loaded.warnings));
        assert_eq!(loaded.allowed.len(), 2);
        assert!(loaded.allowed.iter().all(|allowed| &*allowed.reason == "all of us"));
    }
}

#[test]
fn at_one_definition_the_others_are_still_shown() {
    let loaded = loaded("[[allow_warning]]\ncode = \"E0508\"\nat = \"grant.one\"\nreason = \"r\"\n");
    assert_eq!(loaded.warnings.len(), 1);
    assert!(loaded.warnings.first().unwrap().render().contains("callers = [\"*\"]"));
    assert_eq!(loaded.allowed.len(), 1);
}

#[test]
fn it_holds_for_its_file_only() {
    let allowance = "[[allow_warning]]\ncode = \"E0508\"\nreason = \"r\"\n[group.g]\ncallers = [\"x\"]\n";
    let used = "\n[grant.three]\ngroups = [\"g\"]\n\n[[grant.three.allow]]\napi = \"a\"\nroutes = [\"GET /three\"]\n";
    let files = [SourceFile::new("a.toml", POLICY), SourceFile::new("b.toml", format!("{allowance}{used}"))];
    let loaded = Policy::load(&files).unwrap();
    assert_eq!(codes(&loaded.warnings), [Code::WildcardCaller, Code::WildcardCaller, Code::UnusedAllowance]);
}

#[test]
fn an_allowance_of_no_use_is_a_warning_that_cannot_be_allowed() {
    let unused = "[[allow_warning]]\ncode = \"E0507\"\nreason = \"r\"\n";
    assert!(codes(&loaded(unused).warnings).contains(&Code::UnusedAllowance));
    let problems = load("[[allow_warning]]\ncode = \"unused-allowance\"\nreason = \"r\"\n").unwrap_err();
    assert!(codes(&problems).contains(&Code::BadAllowance), "{}", render_all(&problems));
}

#[test]
fn errors_unknown_codes_and_definitions_of_other_files_cannot_be_allowed() {
    for (allowance, said) in [
        ("code = \"E0401\"\nreason = \"r\"", "E0401 (bad-route) is an error: it cannot be allowed"),
        ("code = \"E9999\"\nreason = \"r\"", "no problem has the code `E9999`"),
        ("code = \"wildcard-calller\"\nreason = \"r\"", "did you mean"),
        ("code = \"E0508\"\nat = \"grant.three\"\nreason = \"r\"", "the file has no `grant.three`"),
        ("code = \"E0508\"\nat = \"one\"\nreason = \"r\"", "the file has no `one`"),
        ("code = \"E0508\"", "an allowance has no `reason`"),
        ("code = \"E0508\"\nreason = \"\"", "`reason` is empty"),
        ("reason = \"r\"", "an allowance has no `code`"),
        ("code = \"E0508\"\nwhy = \"r\"\nreason = \"r\"", "unknown field `why`"),
    ] {
        let problems = load(&format!("[[allow_warning]]\n{allowance}\n")).unwrap_err();
        assert!(render_all(&problems).contains(said), "{said}:\n{}", render_all(&problems));
    }
    assert!(render_all(&load("allow_warning = 1\n").unwrap_err()).contains("not a list of tables"));
}

#[test]
fn an_allowed_error_is_still_an_error_and_hides_nothing() {
    let broken =
        "[[allow_warning]]\ncode = \"E0508\"\nreason = \"r\"\n[api.b]\norigins = [\"http://b.test\"]\n";
    let problems = load(broken).unwrap_err();
    assert_eq!(codes(&problems), [Code::BadOrigin], "{}", render_all(&problems));
}

#[test]
fn allowances_are_no_part_of_the_meaning() {
    let allowance = "[[allow_warning]]\ncode = \"E0508\"\nreason = \"r\"\n";
    assert_eq!(loaded(allowance).policy.digest(), loaded("").policy.digest());
}
