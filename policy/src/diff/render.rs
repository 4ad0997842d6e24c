//! A comparison as text: for a terminal, and as a comment of a pull request.

use std::fmt::Write;

use super::{Asked, Change, Diff, Direction, Verdict};
use crate::explain::RuleView;

/// Rules of one change that are listed; the rest is counted.
const RULES_SHOWN: usize = 12;

/// Characters of a header or body that are shown; the rest is counted. JSON has all of it.
const VALUE_CHARACTERS_SHOWN: usize = 120;

impl Diff {
    /// The comparison for a terminal, without colour, ending in a line break.
    pub fn render(&self) -> String {
        let mut out = String::new();
        for change in &self.changes {
            let sign = sign(change);
            line(&mut out, format_args!("{sign} {}", title(change)));
            for (label, value) in facts(change) {
                line(&mut out, format_args!("    {label:<9} {value}"));
            }
            for rule in change.rules.iter().take(RULES_SHOWN) {
                line(&mut out, format_args!("    {:<9} {}", "rule", shown(rule)));
            }
            if let Some(more) = more_rules(change) {
                line(&mut out, format_args!("    {:<9} {more}", ""));
            }
            if let Some(asked) = &change.witness {
                line(&mut out, format_args!("    {:<9} {}", "request", request(asked)));
                for (name, value) in &asked.headers {
                    line(&mut out, format_args!("    {:<9} {name}: {}", "header", cut(value)));
                }
                if let Some(body) = &asked.body {
                    line(&mut out, format_args!("    {:<9} {}", "body", cut(body)));
                }
                line(&mut out, format_args!("    {:<9} {}", "as", run(asked)));
                line(&mut out, format_args!("    {:<9} {}", "old", asked.old.words()));
                line(&mut out, format_args!("    {:<9} {}", "new", asked.new.words()));
            }
            out.push('\n');
        }
        line(&mut out, format_args!("{}", self.summary()));
        out
    }

    /// The comparison as Markdown, for a comment of a pull request.
    pub fn render_markdown(&self) -> String {
        let mut out = format!("## Policy change: {}\n\n", self.verdict.word());
        line(&mut out, format_args!("{}\n", self.summary()));
        if self.changes.is_empty() {
            return out;
        }
        line(&mut out, format_args!("| | change | grant | callers | shortest request | old | new |"));
        line(&mut out, format_args!("|---|---|---|---|---|---|---|"));
        for change in &self.changes {
            let (asked, old, new) = match &change.witness {
                Some(asked) => (request_cell(asked), asked.old.words(), asked.new.words()),
                None => (String::new(), String::new(), String::new()),
            };
            let (old, new) = match (&change.before, &change.after) {
                (Some(before), Some(after)) => (before.clone(), after.clone()),
                _ => (old, new),
            };
            let grant = grants(change);
            line(
                &mut out,
                format_args!(
                    "| {} | {}{} | {} | {} | {asked} | {} | {} |",
                    sign(change),
                    cell(change.kind.words()),
                    cell(&risks(change).map(|risks| format!(": {risks}")).unwrap_or_default()),
                    cell(&grant),
                    cell(&change.callers.join(", ")),
                    cell(&old),
                    cell(&new),
                ),
            );
        }
        for change in self.changes.iter().filter(|change| !change.rules.is_empty()) {
            line(
                &mut out,
                format_args!("\n{} {} in {}", sign(change), cell(&change.what), code(&change.grant)),
            );
            out.push('\n');
            for rule in change.rules.iter().take(RULES_SHOWN) {
                line(&mut out, format_args!("- {} ({}:{})", code(&rule.route), cell(&rule.file), rule.line));
            }
            if let Some(more) = more_rules(change) {
                line(&mut out, format_args!("- {more}"));
            }
        }
        out
    }

    fn summary(&self) -> String {
        let count =
            |wanted: Direction| self.changes.iter().filter(|change| change.direction == wanted).count();
        let undecided = self.changes.iter().filter(|change| change.undecided).count();
        let mut text = match self.verdict {
            Verdict::Same => "same: no caller may send anything else than before".to_owned(),
            verdict => format!(
                "{}: {} wider, {} narrower",
                verdict.word(),
                count(Direction::Wider),
                count(Direction::Narrower)
            ),
        };
        if undecided > 0 {
            text.push_str(&format!("; {undecided} could not be decided and count as wider"));
        }
        text
    }
}

fn sign(change: &Change) -> char {
    match change.direction {
        Direction::Wider => '+',
        Direction::Narrower => '-',
    }
}

fn title(change: &Change) -> String {
    let risks = risks(change).map(|risks| format!(" [{risks}]")).unwrap_or_default();
    format!("{}: {}{risks}", change.kind.words(), grants(change))
}

fn grants(change: &Change) -> String {
    match &change.with {
        Some(with) => format!("{} in runs that name {with} too", change.grant),
        None => change.grant.to_string(),
    }
}

fn risks(change: &Change) -> Option<String> {
    let words: Vec<&str> = change.risks.iter().map(|risk| risk.words()).collect();
    (!words.is_empty()).then(|| words.join(", "))
}

fn facts(change: &Change) -> Vec<(&'static str, String)> {
    let mut facts = vec![("callers", change.callers.join(", ")), ("what", change.what.clone())];
    facts.extend(change.before.as_ref().map(|before| ("before", before.clone())));
    facts.extend(change.after.as_ref().map(|after| ("after", after.clone())));
    if change.conditional {
        facts.push((
            "depends",
            "on header fields or a body, which the request below does not have".to_owned(),
        ));
    }
    if change.undecided {
        facts.push(("undecided", "the rules are too intricate; look at them".to_owned()));
    }
    facts
}

fn shown(rule: &RuleView) -> String {
    rule.to_string()
}

fn more_rules(change: &Change) -> Option<String> {
    let more = change.rules.len().checked_sub(RULES_SHOWN).filter(|more| *more > 0)?;
    Some(format!("and {more} more"))
}

fn request(asked: &Asked) -> String {
    let websocket = if asked.websocket { " (websocket)" } else { "" };
    format!("{} {}{websocket}", asked.method, asked.url)
}

fn request_cell(asked: &Asked) -> String {
    let mut cell = code(&request(asked));
    for (name, value) in &asked.headers {
        cell.push_str(&format!(" {}", code(&format!("{name}: {}", cut(value)))));
    }
    if let Some(body) = &asked.body {
        cell.push_str(&format!(" {}", code(&cut(body))));
    }
    cell
}

/// A value as one line that is not too long.
fn cut(text: &str) -> String {
    let shown: String = text.chars().take(VALUE_CHARACTERS_SHOWN).flat_map(char::escape_debug).collect();
    let shown = shown.replace("\\\"", "\"").replace("\\'", "'");
    let rest = text.chars().count().saturating_sub(VALUE_CHARACTERS_SHOWN);
    if rest == 0 { shown } else { format!("{shown}… and {rest} characters more") }
}

fn run(asked: &Asked) -> String {
    let tier = asked.tier.map(|tier| format!(" at tier {tier}")).unwrap_or_default();
    format!("caller {} with {}{tier}", asked.caller, asked.grants.join(", "))
}

/// SECURITY: policy text comes from a pull request; in a table of Markdown it must stay text.
fn cell(text: &str) -> String {
    let mut out = String::new();
    for character in text.chars() {
        match character {
            '|' | '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '#' | '!' | '@' | '~' => {
                out.push('\\');
                out.push(character);
            }
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// Code of Markdown that stands in a table: a bar is escaped, a backtick ends no code.
fn code(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    let pad = if longest > 0 { " " } else { "" };
    let text: String = text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    format!("{fence}{pad}{}{pad}{fence}", text.replace('|', "\\|"))
}

fn line(out: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = out.write_fmt(arguments);
    out.truncate(out.trim_end_matches(' ').len());
    out.push('\n');
}
