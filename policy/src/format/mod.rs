//! Policy files in one layout: text comes in, the same definitions and comments come out, laid out so that a pull request
//! shows changes of meaning only.
//!
//! Definitions keep their order and their spelling. What changes: line ends, blank lines, spaces, how lists are broken into
//! lines, and that the paths of one list stand under each other.

mod array;
mod table;

use toml_edit::{DocumentMut, RawString, Value};

use crate::SourceFile;
use crate::diagnostic::{Code, Diagnostic};
use crate::source::Located;

/// Characters of a line that lists are kept within. The width of a comment in a review.
const LINE_MAX: usize = 100;

/// The file in the one layout. Formatting it again changes nothing.
///
/// # Errors
/// When the file is not TOML. Whether it is a good policy does not matter.
pub fn format(file: &SourceFile) -> Result<String, Box<Diagnostic>> {
    let located = Located::new(file);
    let mut document: DocumentMut = located.text.parse().map_err(|error: toml_edit::TomlError| {
        let place = located.place(error.span().unwrap_or(0..0)).without_values();
        let message = error.message().lines().next().unwrap_or("cannot be read").to_owned();
        let help = "the file is TOML; it is formatted once it can be read";
        Box::new(Diagnostic::error(Code::Syntax, message).at(place).help(help))
    })?;
    let trailing = comments_keeping_gap(document.trailing().as_str().unwrap_or_default());
    document.set_trailing("");
    table::root(document.as_table_mut());
    let laid_out = format!("{document}{trailing}");
    let laid_out = laid_out.trim_matches('\n');
    Ok(if laid_out.is_empty() { String::new() } else { format!("{laid_out}\n") })
}

/// The comment lines of the space between two things: trimmed, at most one blank line between and after them. Each ends in
/// a line break; nothing for space without comments.
fn comments(space: &str) -> String {
    let mut out = String::new();
    let mut blank = false;
    for line in space.lines().map(str::trim) {
        if line.is_empty() {
            blank = !out.is_empty();
            continue;
        }
        if blank {
            out.push('\n');
            blank = false;
        }
        out.push_str(line);
        out.push('\n');
    }
    if blank {
        out.push('\n');
    }
    out
}

/// The same, with the blank line that stands before them, if there is one: keys of one table are grouped.
fn comments_keeping_gap(space: &str) -> String {
    let comments = comments(space);
    if has_gap(space) { format!("\n{comments}") } else { comments }
}

/// Whether it begins with a blank line.
fn has_gap(space: &str) -> bool {
    space.split_once('\n').is_some_and(|(line, _)| line.trim().is_empty())
}

/// What stands after a value on its line: nothing, or one space and the comment.
fn at_line_end(space: &str) -> String {
    let comment = space.trim();
    if comment.is_empty() { String::new() } else { format!(" {comment}") }
}

fn text(raw: Option<&RawString>) -> &str {
    raw.and_then(RawString::as_str).unwrap_or_default()
}

/// A value as it is written, without what stands before and after it: that belongs to the line around it and changes.
fn undecorated(value: impl Into<Value>) -> String {
    let mut value = value.into();
    value.decor_mut().clear();
    value.to_string()
}
