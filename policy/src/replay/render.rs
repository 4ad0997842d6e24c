//! A replay as text.

use std::fmt::Write;

use super::{Outcome, Replay};

impl Replay {
    /// The report for a terminal, without colour, ending in a line break.
    pub fn render(&self) -> String {
        let mut out = String::new();
        let mut before = None;
        for group in &self.groups {
            if before != Some(group.outcome) {
                let gap = if before.is_some() { "\n" } else { "" };
                line(&mut out, format_args!("{gap}{}:", group.outcome.words()));
                before = Some(group.outcome);
            }
            let why = match (group.outcome, group.reason, group.unknown, &group.rule) {
                (Outcome::NowRefused, Some(reason), ..) => format!("({reason})"),
                (Outcome::NeedsApproval, .., Some(rule)) => format!("by {rule}"),
                (Outcome::NowAllowed, Some(reason), _, Some(rule)) => format!("(was {reason}) by {rule}"),
                (_, _, Some(unknown), _) => format!("({})", unknown.words()),
                _ => String::new(),
            };
            let caller = if group.caller.is_empty() { "(anonymous)" } else { &group.caller };
            let route = printable(&group.route);
            let runs =
                if group.runs > 0 { format!(" in {}", plural(group.runs, "run")) } else { String::new() };
            let said = format!("{:>6} x {caller} {} {route} {why}{runs}", group.count, group.method);
            line(&mut out, format_args!("  {}", said.trim_end()));
        }
        if !self.groups.is_empty() {
            out.push('\n');
        }
        self.totals(&mut out);
        out
    }

    fn totals(&self, out: &mut String) {
        let requests = usize::try_from(self.requests).unwrap_or(usize::MAX);
        line(
            out,
            format_args!(
                "{}{}: {} as before, {} now refused, {} need approval, {} now allowed, {} cannot be told",
                plural(requests, "request"),
                if self.connections > 0 {
                    format!(" ({} of them connections that were passed on unread)", self.connections)
                } else {
                    String::new()
                },
                self.same,
                self.now_refused,
                self.needs_approval,
                self.now_allowed,
                self.unknown,
            ),
        );
        if self.unknown > 0 {
            line(
                out,
                format_args!(
                    "records keep neither header fields nor bodies nor values that look like secrets"
                ),
            );
        }
        if self.not_comparable > 0 {
            line(
                out,
                format_args!(
                    "{} of them were refused for what no rule decides, such as budgets",
                    self.not_comparable
                ),
            );
        }
        if self.grants_assumed > 0 {
            line(
                out,
                format_args!(
                    "{} of them belong to runs whose beginning is not in the log: decided by every grant of their caller",
                    self.grants_assumed
                ),
            );
        }
    }
}

fn plural(number: usize, word: &str) -> String {
    format!("{number} {word}{}", if number == 1 { "" } else { "s" })
}

/// SECURITY: paths come from guests and are printed on an operator's terminal.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

fn line(out: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = out.write_fmt(arguments);
    out.push('\n');
}
