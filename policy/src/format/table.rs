//! Tables: one blank line before each header, `key = value` with single spaces.

use toml_edit::{InlineTable, Item, KeyMut, Table, Value};

use super::array::{self, Width};
use super::{at_line_end, comments, comments_keeping_gap, has_gap, text, undecorated};

/// The root and every table below it.
pub(super) fn root(table: &mut Table) {
    keys(table);
    tables(table);
}

fn tables(table: &mut Table) {
    for (_, item) in table.iter_mut() {
        match item {
            // `a.b = 1` is a key of the table above.
            Item::Table(table) if table.is_dotted() => {}
            Item::Table(table) => {
                header(table);
                keys(table);
                tables(table);
            }
            Item::ArrayOfTables(list) => {
                for table in list.iter_mut() {
                    header(table);
                    keys(table);
                    tables(table);
                }
            }
            Item::Value(_) | Item::None => {}
        }
    }
}

fn header(table: &mut Table) {
    // `[a.b]` makes `a`, which has no line of its own.
    if table.is_implicit() {
        return;
    }
    let decor = table.decor_mut();
    let (prefix, suffix) = (text(decor.prefix()).to_owned(), text(decor.suffix()).to_owned());
    let comments = comments(&prefix);
    // Comments right below the last key, with a blank line after them, belong to the table above.
    let of_table_above = !has_gap(&prefix) && comments.ends_with("\n\n");
    decor.set_prefix(if of_table_above { comments } else { format!("\n{comments}") });
    decor.set_suffix(at_line_end(&suffix));
}

fn keys(table: &mut Table) {
    let mut first = true;
    for (mut key, item) in table.iter_mut() {
        if key_of(&mut key, item, first) {
            first = false;
        }
    }
}

/// Whether it is a key, and no table with a header.
fn key_of(key: &mut KeyMut<'_>, item: &mut Item, first: bool) -> bool {
    match item {
        Item::Value(value) => {
            leaf(key, first);
            set_value(key.get(), value);
            true
        }
        // `a.b = 1`: what stands before it belongs to the last part of the key.
        Item::Table(inner) if inner.is_dotted() => {
            let mut first = first;
            for (mut key, item) in inner.iter_mut() {
                first &= !key_of(&mut key, item, first);
            }
            true
        }
        Item::Table(_) | Item::ArrayOfTables(_) | Item::None => false,
    }
}

fn leaf(key: &mut KeyMut<'_>, first: bool) {
    let decor = key.leaf_decor_mut();
    let prefix = text(decor.prefix()).to_owned();
    let prefix = if first { comments(&prefix) } else { comments_keeping_gap(&prefix) };
    decor.set_prefix(prefix);
    decor.set_suffix(" ");
}

fn set_value(key: &str, value: &mut Value) {
    let suffix = text(value.decor().suffix()).to_owned();
    value.decor_mut().clear();
    match value {
        Value::Array(list) => {
            let width =
                Width { before: key.chars().count() + 3, after: at_line_end(&suffix).chars().count() };
            array::lay_out(list, width, array::Content::of(key));
        }
        Value::InlineTable(table) => inline(table),
        _ => {}
    }
    value.decor_mut().set_prefix(" ");
    value.decor_mut().set_suffix(at_line_end(&suffix));
}

/// `{ a = 1, b = 2 }`; one with comments, line breaks or dotted keys in it is left as it is.
pub(super) fn inline(table: &mut InlineTable) {
    let dotted = |(_, value): (&str, &Value)| value.as_inline_table().is_some_and(InlineTable::is_dotted);
    if undecorated(table.clone()).contains(['\n', '#']) || table.iter().any(dotted) {
        return;
    }
    let last = table.len().saturating_sub(1);
    for (index, (mut key, value)) in table.iter_mut().enumerate() {
        key.leaf_decor_mut().set_prefix(" ");
        key.leaf_decor_mut().set_suffix(" ");
        match value {
            Value::Array(list) => array::one_line(list),
            Value::InlineTable(inner) => inline(inner),
            _ => {}
        }
        value.decor_mut().set_prefix(" ");
        value.decor_mut().set_suffix(if index == last { " " } else { "" });
    }
    table.set_trailing_comma(false);
    table.set_trailing("");
}
