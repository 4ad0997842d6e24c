//! What an import has to tell beside the policy.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;

use serde::Serialize;

/// Everything that the reader of the imported policy must know.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Route lines written.
    pub routes: usize,
    pub findings: Vec<Finding>,
}

/// One thing to know.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct Finding {
    pub kind: Kind,
    /// What it is about, for example `GET /pets/{petId} (getPet)`.
    pub subject: String,
    pub reason: String,
}

/// What it means for the reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The language cannot say it: no line was written.
    NotExpressed,
    /// It was not asked for: no line was written.
    LeftOut,
    /// Another line allows it already: the line is a comment.
    Covered,
    /// The line allows more than the description.
    Wider,
    /// The line allows less than the description.
    Narrower,
    /// To be done or known by a person.
    Note,
}

impl Kind {
    const fn title(self) -> &'static str {
        match self {
            Self::NotExpressed => "not expressed",
            Self::LeftOut => "left out",
            Self::Covered => "covered by another line",
            Self::Wider => "wider than the description",
            Self::Narrower => "narrower than the description",
            Self::Note => "to know",
        }
    }
}

impl Report {
    pub(crate) fn add(&mut self, kind: Kind, subject: impl Into<String>, reason: impl Into<String>) {
        self.findings.push(Finding { kind, subject: subject.into(), reason: reason.into() });
    }

    /// Without what is there twice.
    pub(crate) fn once_each(&mut self) {
        let mut seen = HashSet::new();
        self.findings.retain(|finding| seen.insert(finding.clone()));
    }

    pub fn of(&self, kind: Kind) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(move |finding| finding.kind == kind)
    }

    /// The report as text, findings of one kind and reason together, ending in a line break.
    pub fn render(&self) -> String {
        let routes =
            if self.routes == 1 { "1 route written" } else { &format!("{} routes written", self.routes) };
        let mut out = format!("{routes}\n");
        let mut groups: BTreeMap<(Kind, &str), Vec<&str>> = BTreeMap::new();
        for finding in &self.findings {
            groups.entry((finding.kind, &finding.reason)).or_default().push(&finding.subject);
        }
        for ((kind, reason), subjects) in groups {
            // Writing to a String cannot fail.
            let _ = writeln!(out, "{}: {reason}", kind.title());
            for subject in subjects.iter().filter(|subject| !subject.is_empty()) {
                let _ = writeln!(out, "  {subject}");
            }
        }
        out
    }
}
