//! A page for every diagnostic: what it means, an example that triggers it, how to mend it. The documentation, `freeboard policy
//! explain-code` and a test that runs every example read this one table.
//!
//! A number is given once and never again: people search for it. A new diagnostic takes the next free number of its group.

mod apis;
mod conditions;
mod files;
mod names;
mod routes;
mod rules;

use crate::suggest::nearest;
use crate::{Code, Diagnostic, Policy, Severity, SourceFile};

/// What there is to say about one diagnostic.
#[derive(Debug, Clone, Copy)]
pub struct Page {
    pub code: Code,
    /// `0106` is shown as `E0106`.
    pub number: u16,
    /// What goes wrong without it, for those who want to know why it is a problem at all.
    pub why: &'static str,
    pub example: Example,
    pub mend: &'static str,
    /// The example, mended.
    pub mended: &'static str,
}

/// Something that triggers one diagnostic and no other.
#[derive(Debug, Clone, Copy)]
pub enum Example {
    /// One policy file.
    File(&'static str),
    /// A policy file and a file of cases.
    Cases { policy: &'static str, cases: &'static str },
    /// A policy file that is not text as people write it.
    Bytes { says: &'static str, bytes: &'static [u8] },
    /// A policy file that is too large to be shown.
    Large { says: &'static str, build: fn() -> String },
}

impl Page {
    /// Every page, sorted by number.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        [files::PAGES, names::PAGES, apis::PAGES, routes::PAGES, rules::PAGES, conditions::PAGES]
            .into_iter()
            .flatten()
    }

    pub fn of(code: Code) -> Option<&'static Self> {
        Self::all().find(|page| page.code == code)
    }

    /// Finds a page by `E0106`, `freeboard::policy::E0106`, or the words of the code; letter case does not matter.
    ///
    /// # Errors
    /// The name that was meant, perhaps.
    pub fn find(text: &str) -> Result<&'static Self, Option<String>> {
        let wanted = text.trim().to_ascii_lowercase();
        let bare = wanted.rsplit("::").next().unwrap_or_default();
        let names =
            |page: &Self| [page.short(), page.words().to_owned()].map(|name| name.to_ascii_lowercase());
        let found = Self::all().find(|page| names(page).iter().any(|name| name == bare));
        found.ok_or_else(|| {
            let all: Vec<String> = Self::all().flat_map(names).collect();
            nearest(bare, all.iter().map(String::as_str)).map(|near| {
                let page = Self::all().find(|page| names(page).iter().any(|name| name == near));
                page.map_or_else(|| near.to_owned(), Self::short)
            })
        })
    }

    /// `E0106`
    pub fn short(&self) -> String {
        format!("E{:04}", self.number)
    }

    /// `freeboard::policy::E0106`
    pub fn id(&self) -> String {
        format!("freeboard::policy::{}", self.short())
    }

    /// The code in words, for example `unknown-field`.
    pub fn words(&self) -> &'static str {
        self.code.code().trim_start_matches("policy::")
    }

    /// The diagnostics of the example.
    pub fn found(&self) -> Vec<Diagnostic> {
        self.example.diagnostics()
    }

    /// The page as Markdown.
    pub fn render(&self) -> String {
        let found = self.found();
        let severity = match found.first().map(|diagnostic| diagnostic.severity) {
            Some(Severity::Warning) => "A warning: the policy is used all the same.",
            _ => "An error: the policy is not loaded, and a running broker keeps the one before.",
        };
        format!(
            "# {}: {}\n\n{}\n\n{severity} {}\n\n## Example\n\n{}\n```text\n{}```\n\n## How to mend it\n\n{}\n\n```toml\n{}```\n",
            self.short(),
            self.words(),
            self.code.meaning().trim(),
            self.why,
            self.example.shown(),
            crate::render_all(&found),
            self.mend,
            self.mended.trim_start(),
        )
    }
}

impl Example {
    fn shown(&self) -> String {
        match self {
            Self::File(text) => format!("```toml\n{}```\n", text.trim_start()),
            Self::Cases { policy, cases } => {
                let (policy, cases) = (policy.trim_start(), cases.trim_start());
                format!("The policy:\n\n```toml\n{policy}```\n\nThe cases:\n\n```toml\n{cases}```\n")
            }
            Self::Bytes { says, .. } | Self::Large { says, .. } => format!("{says}\n"),
        }
    }

    fn diagnostics(&self) -> Vec<Diagnostic> {
        match self {
            Self::File(text) => load(text.trim_start()),
            Self::Large { build, .. } => load(&build()),
            Self::Bytes { bytes, .. } => match SourceFile::decode("policy.toml", bytes) {
                Ok(file) => load(&file.text),
                Err(problem) => vec![*problem],
            },
            Self::Cases { policy, cases } => {
                let loaded = match Policy::load(&[SourceFile::new("policy.toml", policy.trim_start())]) {
                    Ok(loaded) => loaded,
                    Err(problems) => return problems,
                };
                let cases = SourceFile::new("policy.test.toml", cases.trim_start());
                let failed = loaded.policy.test(&cases, 0).err();
                loaded.warnings.into_iter().chain(failed.map(|problem| *problem)).collect()
            }
        }
    }
}

fn load(text: &str) -> Vec<Diagnostic> {
    match Policy::load(&[SourceFile::new("policy.toml", text)]) {
        Ok(loaded) => loaded.warnings,
        Err(problems) => problems,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_diagnostic_has_a_page_of_its_own() {
        for code in Code::ALL {
            let pages = Page::all().filter(|page| page.code == *code).count();
            assert_eq!(pages, 1, "{code:?} has {pages} pages: add one to policy/src/pages");
        }
        let numbers: Vec<u16> = Page::all().map(|page| page.number).collect();
        assert!(numbers.is_sorted_by(|a, b| a < b), "numbers are given once, in order: {numbers:?}");
    }

    #[test]
    fn the_warnings_are_those_that_may_be_allowed() {
        for page in Page::all() {
            let warned = page.found().iter().all(|found| found.severity == Severity::Warning);
            let about_allowances = page.code == Code::UnusedAllowance;
            assert_eq!(page.code.may_be_allowed(), warned && !about_allowances, "{}", page.short());
        }
    }

    #[test]
    fn every_example_triggers_its_diagnostic_and_no_other() {
        for page in Page::all() {
            let found = page.found();
            let codes: Vec<Code> = found.iter().map(|diagnostic| diagnostic.code).collect();
            let right = !codes.is_empty() && codes.iter().all(|code| *code == page.code);
            assert!(right, "{}:\n{}", page.short(), crate::render_all(&found));
        }
    }

    #[test]
    fn every_mended_example_is_a_policy_without_a_problem() {
        for page in Page::all() {
            let left = load(page.mended.trim_start());
            assert!(left.is_empty(), "{}:\n{}", page.short(), crate::render_all(&left));
        }
    }

    #[test]
    fn pages_are_found_by_number_and_by_words() {
        for text in ["E0106", "e0106", "freeboard::policy::E0106", "policy::unknown-field", "unknown-field"] {
            assert_eq!(Page::find(text).map(|page| page.code).ok(), Some(Code::UnknownField), "{text}");
        }
        assert_eq!(Page::find("unknown-feild").err().flatten().as_deref(), Some("E0106"));
        assert!(Page::find("E9999").is_err());
    }
}
