//! Problems of a policy for other programs: SARIF 2.1.0 (OASIS) for code scanning, and GitHub's workflow commands.

use std::fmt::Write as _;

use clap::ValueEnum;
use freeboard_policy::pages::Page;
use freeboard_policy::{Allowed, Code, Diagnostic, Place, Severity};
use serde_json::{Value, json};

/// How problems are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// For people; `human` is the same
    #[value(alias = "human")]
    Text,
    /// For programs
    Json,
    /// SARIF 2.1.0, for code scanning
    Sarif,
    /// Workflow commands of GitHub Actions: annotations on the changed lines
    Github,
}

/// One run of the check as SARIF. Warnings that the files allow are results that are suppressed, with the reason that stands
/// there. `folder` stands before the names of files.
pub(super) fn sarif(problems: &[Diagnostic], allowed: &[Allowed], folder: &str) -> String {
    let all = problems.iter().chain(allowed.iter().map(|allowed| &allowed.warning));
    let mut codes: Vec<Code> = all.map(|problem| problem.code).collect();
    codes.sort_unstable();
    codes.dedup();
    let rules: Vec<Value> = codes.iter().copied().map(rule).collect();
    let mut results: Vec<Value> = problems.iter().map(|problem| result(problem, folder)).collect();
    results.extend(allowed.iter().map(|allowed| suppressed(allowed, folder)));
    json!({
        "$schema": "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": { "name": "freeboard", "version": env!("CARGO_PKG_VERSION"), "rules": rules } },
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    })
    .to_string()
}

fn rule(code: Code) -> Value {
    let mut rule = json!({
        "id": code.id(),
        "name": code.code(),
        "shortDescription": { "text": code.meaning().trim() },
    });
    if let (Some(page), Value::Object(fields)) = (Page::of(code), &mut rule) {
        fields.insert("fullDescription".to_owned(), json!({ "text": page.why }));
        fields.insert("help".to_owned(), json!({ "text": page.mend }));
    }
    rule
}

fn result(problem: &Diagnostic, folder: &str) -> Value {
    let related: Vec<Value> = problem
        .related
        .iter()
        .map(|related| {
            let mut location = location(&related.place, folder);
            if let Value::Object(fields) = &mut location {
                fields.insert("message".to_owned(), json!({ "text": related.message }));
            }
            location
        })
        .collect();
    json!({
        "ruleId": problem.code.id(),
        "level": level(problem),
        "message": { "text": words(problem) },
        "locations": [match &problem.place {
            Some(place) => location(place, folder),
            // A problem of the folder as a whole. Code scanning shows no result without a place.
            None => json!({ "physicalLocation": { "artifactLocation": { "uri": uri(if folder.is_empty() { "." } else { folder }) } } }),
        }],
        "relatedLocations": related,
    })
}

/// Section 3.27.23 and 3.35 of the standard.
fn suppressed(allowed: &Allowed, folder: &str) -> Value {
    let mut result = result(&allowed.warning, folder);
    if let Value::Object(fields) = &mut result {
        let suppression =
            json!({ "kind": "inSource", "status": "accepted", "justification": allowed.reason });
        fields.insert("suppressions".to_owned(), json!([suppression]));
    }
    result
}

fn location(place: &Place, folder: &str) -> Value {
    json!({
        "physicalLocation": {
            "artifactLocation": { "uri": uri(&path(place, folder)) },
            "region": {
                "startLine": place.line,
                "startColumn": place.column,
                "endColumn": place.column.saturating_add(place.width),
            },
        },
    })
}

const fn level(problem: &Diagnostic) -> &'static str {
    match problem.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    }
}

/// The message and its help.
fn words(problem: &Diagnostic) -> String {
    match &problem.help {
        Some(help) => format!("{}\n{help}", problem.message),
        None => problem.message.clone(),
    }
}

fn path(place: &Place, folder: &str) -> String {
    if folder.is_empty() { place.file.to_string() } else { format!("{folder}/{}", place.file) }
}

/// A path as a relative reference (RFC 3986 4.2), an absolute one as a `file` URI (RFC 8089).
fn uri(path: &str) -> String {
    let mut out = String::from(if path.starts_with('/') { "file://" } else { "" });
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'/') {
            out.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

/// One workflow command for each problem.
pub(super) fn github(problems: &[Diagnostic], folder: &str) -> String {
    let mut out = String::new();
    for problem in problems {
        let mut properties = Vec::new();
        if let Some(place) = &problem.place {
            properties.push(format!("file={}", property(&path(place, folder))));
            properties.push(format!("line={}", place.line));
            properties.push(format!("col={}", place.column));
            properties.push(format!("endColumn={}", place.column.saturating_add(place.width)));
        }
        properties.push(format!("title={}", property(&problem.code.id())));
        // Writing to a String cannot fail.
        let _ = writeln!(out, "::{} {}::{}", level(problem), properties.join(","), data(&words(problem)));
    }
    out
}

/// SECURITY: text of a pull request must not become a command of its own; line breaks and what separates are escaped.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use freeboard_policy::{Policy, SourceFile};

    /// Problems of a file whose name and text try to be more than text.
    fn problems() -> Vec<Diagnostic> {
        let text = "[api.a]\norigins = [\"http://a.test\"]\n\"x\\n::error::y\" = 1\n\"50%\" = 1\n";
        let twice = "[api.b]\norigins = [\"https://b.test\"]\n";
        let files = [
            SourceFile::new("a b,c:d\n.toml", text),
            SourceFile::new("one.toml", twice),
            SourceFile::new("two.toml", twice),
        ];
        Policy::load(&files).unwrap_err()
    }

    /// What section 3 of the standard demands of the properties that are used; the snapshot was validated against the schema of
    /// the standard when it was made.
    #[test]
    fn sarif_is_sarif_2_1_0() {
        let report: Value = serde_json::from_str(&sarif(&problems(), &[], "policy")).unwrap();
        assert_eq!(report.get("version"), Some(&json!("2.1.0")));
        let run = report.pointer("/runs/0").unwrap();
        assert!(run.pointer("/tool/driver/name").is_some_and(Value::is_string));
        for rule in run.pointer("/tool/driver/rules").and_then(Value::as_array).unwrap() {
            assert!(rule.get("id").is_some_and(Value::is_string), "{rule}");
            for text in ["shortDescription", "fullDescription", "help"] {
                assert!(
                    rule.get(text).and_then(|text| text.get("text")).is_some_and(Value::is_string),
                    "{rule}"
                );
            }
        }
        for result in run.get("results").and_then(Value::as_array).unwrap() {
            assert!(result.pointer("/message/text").is_some_and(Value::is_string), "{result}");
            assert!([json!("error"), json!("warning")].contains(result.get("level").unwrap()), "{result}");
            let lists = ["locations", "relatedLocations"].map(|list| result.get(list).unwrap());
            for location in lists.into_iter().flat_map(|list| list.as_array().unwrap()) {
                let region = location.pointer("/physicalLocation/region").unwrap();
                let number = |name: &str| region.get(name).and_then(Value::as_u64).unwrap();
                assert!(number("startLine") >= 1 && number("startColumn") >= 1, "{location}");
                assert!(number("endColumn") > number("startColumn"), "{location}");
            }
        }
        insta::assert_snapshot!(serde_json::to_string_pretty(&report).unwrap());
    }

    #[test]
    fn every_result_has_a_rule_and_a_place() {
        let report: Value = serde_json::from_str(&sarif(&problems(), &[], "policy")).unwrap();
        let rules = report.pointer("/runs/0/tool/driver/rules").and_then(Value::as_array).unwrap();
        let results = report.pointer("/runs/0/results").and_then(Value::as_array).unwrap();
        assert_eq!(results.len(), problems().len());
        for (result, problem) in results.iter().zip(problems()) {
            assert!(rules.iter().any(|rule| rule.get("id") == result.get("ruleId")), "{result}");
            let line = result.pointer("/locations/0/physicalLocation/region/startLine");
            assert_eq!(line, Some(&json!(problem.place.unwrap().line)));
        }
    }

    #[test]
    fn sarif_without_problems_is_sarif_too() {
        let report: Value = serde_json::from_str(&sarif(&[], &[], "")).unwrap();
        assert_eq!(report.pointer("/runs/0/results"), Some(&json!([])));
        assert_eq!(report.pointer("/runs/0/tool/driver/rules"), Some(&json!([])));
    }

    #[test]
    fn an_allowed_warning_is_a_suppressed_result_with_its_reason() {
        let text = "[api.a]\norigins = [\"https://a.test\"]\n[[allow_warning]]\ncode = \"E0205\"\nreason = \"next week\"\n";
        let file = |text: String| [SourceFile::new("one.toml", text)];
        let unused = Policy::load(&file(text.to_owned()));
        let code =
            unused.as_ref().map(|loaded| loaded.allowed.first().map(|allowed| allowed.warning.code.code()));
        assert_eq!(code.unwrap(), Some("policy::unused-api"));
        let loaded = unused.unwrap();
        let report: Value =
            serde_json::from_str(&sarif(&loaded.warnings, &loaded.allowed, "policy")).unwrap();
        let result = report.pointer("/runs/0/results/0").unwrap();
        assert_eq!(result.get("ruleId"), report.pointer("/runs/0/tool/driver/rules/0/id"));
        assert_eq!(
            result.get("suppressions"),
            Some(&json!([{ "kind": "inSource", "status": "accepted", "justification": "next week" }]))
        );
    }

    #[test]
    fn paths_become_uris() {
        for (path, expected) in [
            ("a b.toml", "a%20b.toml"),
            ("policy/ä#?.toml", "policy/%C3%A4%23%3F.toml"),
            ("/etc/freeboard/policy/a.toml", "file:///etc/freeboard/policy/a.toml"),
        ] {
            assert_eq!(uri(path), expected);
        }
    }

    #[test]
    fn each_problem_is_one_command_whatever_its_text() {
        let commands = github(&problems(), "policy");
        assert_eq!(commands.lines().count(), problems().len(), "{commands}");
        assert!(commands.lines().all(|line| line.starts_with("::error file=policy/")), "{commands}");
        insta::assert_snapshot!(commands);
    }
}
