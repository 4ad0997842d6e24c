//! Lists: on one line where they fit, otherwise an entry on each line. A list of routes has each route on a line of its own,
//! so that a pull request shows each permission as one added line.

use toml_edit::{Array, Formatted, Value};

use super::{LINE_MAX, comments, table, text, undecorated};

/// Characters of the line that the list does not have.
#[derive(Clone, Copy)]
pub(super) struct Width {
    pub(super) before: usize,
    pub(super) after: usize,
}

/// What a list holds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    Routes,
    Other,
}

impl Content {
    pub(super) fn of(key: &str) -> Self {
        if key == "routes" { Self::Routes } else { Self::Other }
    }
}

pub(super) fn lay_out(list: &mut Array, width: Width, content: Content) {
    if content == Content::Routes {
        align(list);
    }
    let commented = list.to_string().contains('\n') && has_comments(list);
    if !commented {
        one_line(list);
        let long = width.before + list.to_string().chars().count() + width.after > LINE_MAX;
        let several_routes = content == Content::Routes && list.len() > 1;
        if !long && !several_routes {
            return;
        }
    }
    one_each(list);
}

/// Whether comments stand in the list, outside of its texts.
fn has_comments(list: &Array) -> bool {
    let of = |value: &Value| {
        let decor = value.decor();
        text(decor.prefix()).contains('#') || text(decor.suffix()).contains('#')
    };
    list.iter().any(of) || list.trailing().as_str().unwrap_or_default().contains('#')
}

pub(super) fn one_line(list: &mut Array) {
    for (index, value) in list.iter_mut().enumerate() {
        nested(value);
        value.decor_mut().set_prefix(if index == 0 { "" } else { " " });
        value.decor_mut().set_suffix("");
    }
    list.set_trailing("");
    list.set_trailing_comma(false);
}

fn nested(value: &mut Value) {
    match value {
        Value::Array(list) if !undecorated(list.clone()).contains('#') => one_line(list),
        Value::InlineTable(inner) => table::inline(inner),
        _ => {}
    }
}

/// An entry on each line. A comment on the line of an entry stands, as TOML has it, before the next one.
fn one_each(list: &mut Array) {
    // A comment between an entry and its comma would be lost from its line: it moves behind the comma.
    let mut carried = String::new();
    for value in list.iter_mut() {
        nested(value);
        let decor = value.decor_mut();
        let (prefix, suffix) = (text(decor.prefix()).to_owned(), text(decor.suffix()).to_owned());
        let space = format!("{carried}{prefix}");
        carried = if suffix.contains('#') { format!("{}\n", suffix.trim()) } else { String::new() };
        decor.set_prefix(indented(&space));
        decor.set_suffix("");
    }
    let space = format!("{carried}{}", list.trailing().as_str().unwrap_or_default());
    let trailing = indented(&space);
    let trailing = trailing.trim_end_matches(' ').to_owned();
    list.set_trailing(trailing);
    list.set_trailing_comma(!list.is_empty());
}

/// What stands before an entry: the comment of the line before, comment lines of its own, its indentation.
fn indented(space: &str) -> String {
    let (same_line, below) = space.split_once('\n').unwrap_or((space, ""));
    let mut out = String::new();
    if same_line.trim().starts_with('#') {
        out.push(' ');
        out.push_str(same_line.trim());
    }
    out.push('\n');
    for line in comments(below).trim_end().lines() {
        if !line.is_empty() {
            out.push_str("  ");
            out.push_str(line);
        }
        out.push('\n');
    }
    out.push_str("  ");
    out
}

/// Puts the paths of a list of routes under each other. Only spaces between methods and path change, and those mean nothing.
fn align(list: &mut Array) {
    let gap = |text: &str| {
        let methods = text.find([' ', '\t'])?;
        let path = methods + text.get(methods..)?.find(|c| c != ' ' && c != '\t')?;
        Some((methods, path))
    };
    let several = list.len() > 1;
    let lengths =
        list.iter().filter_map(|value| value.as_str()).filter_map(|text| gap(text.trim()).map(|gap| gap.0));
    let widest = lengths.max().filter(|_| several).unwrap_or(0);
    for value in list.iter_mut() {
        let Value::String(found) = value else { continue };
        let written = found.as_repr().and_then(|repr| repr.as_raw().as_str()).map(str::to_owned);
        let Some(written) = written else { continue };
        let trimmed = found.value().trim();
        let Some((methods, path)) = gap(trimmed) else { continue };
        // Only where the text stands in the file as it is: `"…"` and `'…'` without escapes.
        let quote = written.chars().next().filter(|quote| matches!(quote, '"' | '\''));
        let plain = quote.is_some_and(|quote| written == format!("{quote}{}{quote}", found.value()));
        let (Some(quote), true, Some(head), Some(tail)) =
            (quote, plain, trimmed.get(..methods), trimmed.get(path..))
        else {
            continue;
        };
        let spaces = " ".repeat((widest + 1).saturating_sub(methods).max(1));
        let line = format!("{quote}{head}{spaces}{tail}{quote}");
        if let Ok(Value::String(mut new)) = line.parse::<Value>() {
            *new.decor_mut() = found.decor().clone();
            *found = Formatted::clone(&new);
        }
    }
}
