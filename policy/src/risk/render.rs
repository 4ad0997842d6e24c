//! The report as text.

use std::collections::BTreeSet;
use std::fmt::{Display, Write};

use super::Risks;

/// Entries of one part that are shown; the rest is counted. `--format json` has all.
const SHOWN_MAX: usize = 20;

impl Risks {
    /// The report for a terminal, without colour, ending in a line break.
    pub fn render(&self) -> String {
        let mut out = String::new();
        part(&mut out, "grants that change something", &self.writes, |writes| {
            let routes: Vec<&str> = writes.rules.iter().take(3).map(|rule| &*rule.route).collect();
            let more = writes.rules.len().saturating_sub(routes.len());
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!(
                "{} for {} at {}: {}{more}",
                writes.grant,
                writes.callers.join(", "),
                joined(&writes.hosts),
                routes.join("; ")
            )
        });
        part(&mut out, "wildcards, the broadest first", &self.wildcards, |wildcard| {
            let with = wildcard
                .credential
                .as_ref()
                .map(|name| format!(", with credential `{name}`"))
                .unwrap_or_default();
            format!("{} ({}{with})", wildcard.rule, wildcard.why.join(", "))
        });
        part(&mut out, "credentials by reach", &self.credentials, |reach| {
            format!(
                "{}: {}; {} of {} routes change something; grants {}; callers {}",
                reach.credential,
                joined(&reach.hosts),
                reach.writes,
                reach.routes,
                joined(&reach.grants),
                joined(&reach.callers)
            )
        });
        part(&mut out, "callers by reach", &self.callers, |reach| {
            format!(
                "{}: {}; {} of {} routes change something; grants {}; credentials {}",
                reach.caller,
                joined(&reach.hosts),
                reach.writes,
                reach.routes,
                joined(&reach.grants),
                joined(&reach.credentials)
            )
        });
        part(&mut out, "grants that end soon", &self.expiring, |expiring| match expiring.days_left {
            ..=0 => format!("{}: ended after {}", expiring.grant, expiring.last_day),
            days => format!("{}: last day {}, {days} days left", expiring.grant, expiring.last_day),
        });
        out
    }
}

fn part<T>(out: &mut String, title: &str, entries: &[T], shown: impl Fn(&T) -> String) {
    if !out.is_empty() {
        out.push('\n');
    }
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{title}:");
    if entries.is_empty() {
        out.push_str("  none\n");
    }
    for entry in entries.iter().take(SHOWN_MAX) {
        let _ = writeln!(out, "  {}", shown(entry));
    }
    if let Some(more) = entries.len().checked_sub(SHOWN_MAX).filter(|more| *more > 0) {
        let _ = writeln!(out, "  and {more} more");
    }
}

fn joined<T: Display>(set: &BTreeSet<T>) -> String {
    if set.is_empty() {
        return "none".to_owned();
    }
    set.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
