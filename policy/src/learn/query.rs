//! Queries that were seen: which parameters, how often, with which values.

use std::collections::{BTreeMap, BTreeSet};

use crate::import::har::Segment;
use crate::import::text::{alternative, query_literal};
use crate::limits::{LEARN_VALUES_MAX, QUERY_PARAMETERS_MAX};
use crate::replay::decide::is_redacted;
use crate::route::pattern::Decoded;

/// Values of one parameter that are listed; from one more on the parameter takes its type, or anything.
const LISTED_MAX: usize = 4;
/// Values that stand beside a type as examples.
const EXAMPLES_MAX: usize = 3;

/// Parameters of one kind of request.
#[derive(Debug, Default)]
pub(super) struct Parameters {
    by_name: BTreeMap<String, Parameter>,
    /// Some query cannot be listed: a parameter twice, a semicolon, a name that is not text.
    open: bool,
}

#[derive(Debug, Default)]
struct Parameter {
    count: u64,
    /// At most `LEARN_VALUES_MAX`.
    values: BTreeSet<String>,
    /// The type that every value has.
    kind: Option<&'static str>,
    /// A value was replaced in the record, or cannot be listed.
    unknown: bool,
}

impl Parameters {
    pub(super) fn add(&mut self, query: &str) {
        let mut names = BTreeSet::new();
        for pair in query.split('&').filter(|_| !query.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let decoded = |text: &str| String::from_utf8(Decoded::form(text.as_bytes()).collect());
            let (Ok(name), Ok(text)) = (decoded(name), decoded(value)) else {
                self.open = true;
                continue;
            };
            if pair.contains(';') || name.is_empty() || name.contains('*') || !names.insert(name.clone()) {
                self.open = true;
                continue;
            }
            if self.by_name.len() >= QUERY_PARAMETERS_MAX && !self.by_name.contains_key(&name) {
                self.open = true;
                continue;
            }
            // A raw `+` has two readings; a list of values has one.
            self.by_name.entry(name).or_default().add(text, is_redacted(value) || value.contains('+'));
        }
    }

    pub(super) fn join(&mut self, other: Self) {
        self.open |= other.open;
        for (name, more) in other.by_name {
            let parameter = self.by_name.entry(name).or_default();
            parameter.join(more);
        }
    }

    /// The query as a route line has it, and why each parameter takes what it takes.
    pub(super) fn written(&self, requests: u64) -> (String, Vec<String>) {
        if self.open {
            return ("?*".to_owned(), Vec::new());
        }
        let (mut out, mut evidence) = (String::new(), Vec::new());
        for (name, parameter) in &self.by_name {
            out.push(if out.is_empty() { '?' } else { '&' });
            out.push_str(&query_literal(name));
            if parameter.count == requests {
                out.push('!');
            }
            let value = parameter.written();
            evidence.extend(parameter.evidence(name, &value));
            if !value.is_empty() {
                out.push('=');
                out.push_str(&value);
            }
        }
        (out, evidence)
    }
}

impl Parameter {
    fn add(&mut self, value: String, unknown: bool) {
        let kind = Segment::of_type(&value);
        self.kind = if self.count == 0 { kind } else { self.kind.filter(|known| Some(*known) == kind) };
        self.count += 1;
        self.unknown |= unknown;
        self.insert(value);
    }

    fn join(&mut self, other: Self) {
        let same = self.count == 0 || other.count == 0 || self.kind == other.kind;
        self.kind = if same { self.kind.or(other.kind) } else { None };
        self.count += other.count;
        self.unknown |= other.unknown;
        other.values.into_iter().for_each(|value| self.insert(value));
    }

    fn insert(&mut self, value: String) {
        if self.values.len() < LEARN_VALUES_MAX {
            self.values.insert(value);
        }
    }

    /// Empty for any value.
    fn written(&self) -> String {
        if self.unknown || self.values.iter().any(String::is_empty) {
            return String::new();
        }
        let texts: Vec<&String> = self.values.iter().collect();
        match (texts.as_slice(), self.kind) {
            ([only], _) => query_literal(only),
            (few, _) if few.len() <= LISTED_MAX => {
                let few: Vec<String> = few.iter().map(|value| alternative(value)).collect();
                format!("{{{}}}", few.join("|"))
            }
            (_, Some(kind)) => format!("{{{kind}}}"),
            (_, None) => String::new(),
        }
    }

    /// `page={int}: 12 values, such as 1, 2, 3`
    fn evidence(&self, name: &str, written: &str) -> Option<String> {
        if self.unknown {
            return Some(format!(
                "{name}, any value: a value of it is not in the records, or cannot be listed"
            ));
        }
        let number = self.values.len();
        if number <= LISTED_MAX {
            return None;
        }
        let what =
            if written.is_empty() { format!("{name}, any value") } else { format!("{name}={written}") };
        let examples: Vec<&str> = self.values.iter().take(EXAMPLES_MAX).map(String::as_str).collect();
        let at_least = if number >= LEARN_VALUES_MAX { "at least " } else { "" };
        Some(format!("{what}: {at_least}{number} values, such as {}", examples.join(", ")))
    }
}
