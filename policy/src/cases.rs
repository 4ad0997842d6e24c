//! `*.test.toml`: what people expect of their policy, checked against it.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::diagnostic::{Code, Diagnostic};
use crate::explain::{Explanation, Request, RuleView, Verdict};
use crate::source::Located;
use crate::units::end_of_day_unix;
use crate::{Policy, Reason, SourceFile, Tier};

/// A file of cases.
#[derive(Debug, Clone, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Freeboard policy cases")]
pub struct CasesFile {
    /// What the cases of the file have in common.
    #[serde(default)]
    pub defaults: Defaults,
    /// One expectation each.
    #[serde(default)]
    #[schemars(with = "Vec<CaseFields>")]
    pub case: Vec<toml::Spanned<CaseFields>>,
}

/// Facts that cases leave out.
#[derive(Debug, Clone, Default, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Defaults {
    /// Authenticated caller of the run.
    pub caller: Option<String>,
    /// Grants that the run names; left out: every grant that the caller may use.
    pub grants: Option<Vec<String>>,
    /// Measured tier of the run; left out: floors are not compared.
    pub tier: Option<Tier>,
    /// The day of the request, for grants that expire; left out: the day on which the tests run.
    #[schemars(with = "Option<String>")]
    pub on: Option<toml::value::Datetime>,
}

/// One request and what must come of it.
#[derive(Debug, Clone, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CaseFields {
    /// What the case shows, in a few words.
    pub name: Option<String>,
    /// `METHOD https://HOST[:PORT]/PATH[?QUERY]`
    pub request: String,
    pub caller: Option<String>,
    pub grants: Option<Vec<String>>,
    pub tier: Option<Tier>,
    #[schemars(with = "Option<String>")]
    pub on: Option<toml::value::Datetime>,
    /// Header fields of the request, by name.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The body of the request, as rules see it: decoded. Left out: none.
    pub body: Option<String>,
    /// The request is a websocket handshake.
    #[serde(default)]
    pub websocket: bool,
    /// `allow` or `refuse`.
    pub expect: Expected,
    /// The rule that must decide, for example `triage.allow[0].routes[2]`.
    pub rule: Option<String>,
    /// The credential that must be attached; `"none"` for none.
    pub credential: Option<String>,
    /// The reason of the refusal, for example `no_rule`.
    pub reason: Option<Reason>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Expected {
    Allow,
    Refuse,
}

/// A case with its outcome.
#[derive(Debug, Clone, Serialize)]
pub struct CaseResult {
    pub file: Arc<str>,
    pub line: u32,
    pub name: String,
    /// Each expectation that was not met; empty when the case passed.
    pub differences: Vec<String>,
    pub explanation: Explanation,
}

impl CaseResult {
    pub fn passed(&self) -> bool {
        self.differences.is_empty()
    }

    /// A failed case as text, ending in a line break.
    pub fn render(&self) -> String {
        let mut out = format!("FAILED {}:{}: {}\n", self.file, self.line, self.name);
        for difference in &self.differences {
            // Writing to a String cannot fail.
            let _ = writeln!(out, "  {difference}");
        }
        for line in self.explanation.render().lines() {
            let _ = writeln!(out, "    {line}");
        }
        out
    }
}

/// Which rules the cases exercise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Coverage {
    pub rules: usize,
    /// Rules by which no case is allowed or denied, in the order of files and lines.
    pub unexercised: Vec<RuleView>,
}

impl Policy {
    /// Which rules these cases exercise: those that decide a case, and those that match it too.
    pub fn coverage(&self, results: &[CaseResult]) -> Coverage {
        let explanations = results.iter().map(|result| &result.explanation);
        let exercised: HashSet<&Arc<str>> = explanations
            .flat_map(|explanation| explanation.rule.iter().chain(&explanation.also).map(|rule| &rule.id))
            .collect();
        let rules = self.compiled.grants.iter().flat_map(|grant| &grant.rules);
        let routes = rules.flat_map(|rules| rules.allow.routes.iter().chain(&rules.deny.routes));
        let all: Vec<RuleView> = routes.map(RuleView::from).collect();
        let rules = all.len();
        let mut unexercised: Vec<RuleView> =
            all.into_iter().filter(|rule| !exercised.contains(&rule.id)).collect();
        unexercised.sort_by(|a, b| (&a.file, a.line, &a.id).cmp(&(&b.file, b.line, &b.id)));
        Coverage { rules, unexercised }
    }

    /// Runs the cases of one file. `today_unix` is now, for cases that name no day.
    ///
    /// # Errors
    /// When the file is not a file of cases, or has none.
    pub fn test(&self, file: &SourceFile, today_unix: i64) -> Result<Vec<CaseResult>, Box<Diagnostic>> {
        let located = Located::new(file);
        let parsed: CasesFile = toml::from_str(located.text).map_err(|error| {
            let place = located.place(error.span().unwrap_or(0..0));
            Box::new(Diagnostic::error(Code::BadCase, error.message().trim().to_owned()).at(place))
        })?;
        if parsed.case.is_empty() {
            let message = "the file has no case";
            let help = "a case is `[[case]]` with `request` and `expect`";
            return Err(Box::new(
                Diagnostic::error(Code::BadCase, message).at(located.place(0..0)).help(help),
            ));
        }
        parsed.case.iter().map(|case| self.one_case(&located, &parsed.defaults, case, today_unix)).collect()
    }

    fn one_case(
        &self,
        located: &Located<'_>,
        defaults: &Defaults,
        case: &toml::Spanned<CaseFields>,
        today_unix: i64,
    ) -> Result<CaseResult, Box<Diagnostic>> {
        let place = located.place(case.span());
        let case = case.get_ref();
        let Some((method, url)) = case.request.trim().split_once(char::is_whitespace) else {
            let message = format!("`{}` is not `METHOD URL`", case.request.escape_debug());
            let help = "for example `GET https://api.example.com/v1/items`";
            return Err(Box::new(Diagnostic::error(Code::BadCase, message).at(place).help(help)));
        };
        let day = case.on.as_ref().or(defaults.on.as_ref()).and_then(|on| on.date);
        let headers: Vec<(String, String)> =
            case.headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        let explanation = self.explain(&Request {
            caller: case.caller.as_deref().or(defaults.caller.as_deref()),
            grants: case.grants.as_deref().or(defaults.grants.as_deref()),
            tier: case.tier.or(defaults.tier),
            method,
            url: url.trim(),
            headers: &headers,
            body: case.body.as_deref().map(str::as_bytes),
            websocket: case.websocket,
            now_unix: day.map_or(today_unix, |day| end_of_day_unix(day.year, day.month, day.day) - 1),
        });
        Ok(CaseResult {
            file: Arc::clone(&located.name),
            line: place.line,
            name: case.name.clone().unwrap_or_else(|| case.request.clone()),
            differences: differences(case, &explanation),
            explanation,
        })
    }
}

fn differences(case: &CaseFields, found: &Explanation) -> Vec<String> {
    let expected = match case.expect {
        Expected::Allow => Verdict::Allow,
        Expected::Refuse => Verdict::Refuse,
    };
    let mut out = Vec::new();
    let mut compare = |what: &str, expected: &str, found: &str| {
        if expected != found {
            out.push(format!("{what}: expected {expected}, found {found}"));
        }
    };
    compare("verdict", expected.word(), found.verdict.word());
    if let Some(rule) = &case.rule {
        compare("rule", rule, found.rule.as_ref().map_or("none", |rule| &rule.id));
    }
    if let Some(credential) = &case.credential {
        compare("credential", credential, found.credential.as_deref().unwrap_or("none"));
    }
    if let Some(reason) = case.reason {
        compare("reason", reason.code(), found.reason.map_or("none", Reason::code));
    }
    out
}
