//! YAML to the values of JSON, bounded: aliases are counted as what they stand for, so that a few lines cannot become
//! gigabytes. Scalars are read as the core schema of YAML 1.2 has them; keys must be scalars and different.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle};
use serde_json::{Map, Number, Value};

use crate::limits::{IMPORT_DEPTH_MAX, IMPORT_NODES_MAX};

/// Why a text is not taken, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct YamlError {
    pub line: usize,
    pub column: usize,
    pub message: String,
}

/// Reads one document.
pub(crate) fn read(text: &str) -> Result<Value, YamlError> {
    let mut builder = Builder::default();
    for event in Parser::new_from_str(text) {
        match event {
            Ok((event, span)) => {
                builder.take(event).map_err(|message| at(span.start.line(), span.start.col(), message))?;
            }
            Err(error) => {
                let marker = error.marker();
                return Err(at(marker.line(), marker.col(), error.info().to_owned()));
            }
        }
    }
    builder.document.ok_or_else(|| at(1, 0, "the document is empty".to_owned()))
}

fn at(line: usize, column: usize, message: String) -> YamlError {
    YamlError { line, column: column + 1, message }
}

/// A value with the number of values in it.
struct Counted {
    value: Value,
    nodes: usize,
}

#[derive(Default)]
struct Builder {
    open: Vec<Open>,
    anchors: HashMap<usize, Counted>,
    /// Values of the document, those that aliases stand for included.
    nodes: usize,
    document: Option<Value>,
}

struct Open {
    anchor: usize,
    nodes: usize,
    kind: OpenKind,
}

enum OpenKind {
    List(Vec<Value>),
    Table { entries: Map<String, Value>, key: Option<String>, merged: Vec<Value> },
}

impl Builder {
    fn take(&mut self, event: Event<'_>) -> Result<(), String> {
        match event {
            Event::SequenceStart(anchor, _) => self.open(anchor, OpenKind::List(Vec::new())),
            Event::MappingStart(anchor, _) => {
                self.open(anchor, OpenKind::Table { entries: Map::new(), key: None, merged: Vec::new() })
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(),
            Event::Scalar(text, style, anchor, tag) => {
                let text_only = tag.is_some_and(|tag| !tag.is_yaml_core_schema() || tag.suffix == "str");
                if let Some(Open { kind: OpenKind::Table { key: key @ None, .. }, .. }) = self.open.last_mut()
                {
                    *key = Some(text.into_owned());
                    return Ok(());
                }
                let value = match style {
                    ScalarStyle::Plain if !text_only => plain(&text),
                    _ => Value::String(text.into_owned()),
                };
                self.finished(anchor, Counted { value, nodes: 1 })
            }
            Event::Alias(anchor) => {
                let found = self.anchors.get(&anchor).ok_or("the alias stands inside what it stands for")?;
                // SECURITY: counted before it is copied.
                if self.nodes + found.nodes > IMPORT_NODES_MAX {
                    return Err(too_many());
                }
                let copy = Counted { value: found.value.clone(), nodes: found.nodes };
                self.finished(0, copy)
            }
            Event::DocumentStart(_) if self.document.is_some() => {
                Err("a second document begins; one is read".to_owned())
            }
            _ => Ok(()),
        }
    }

    fn open(&mut self, anchor: usize, kind: OpenKind) -> Result<(), String> {
        if let Some(Open { kind: OpenKind::Table { key: None, .. }, .. }) = self.open.last() {
            return Err("a key is a list or a table".to_owned());
        }
        if self.open.len() >= IMPORT_DEPTH_MAX {
            return Err(format!("nested deeper than {IMPORT_DEPTH_MAX}"));
        }
        self.open.push(Open { anchor, nodes: 1, kind });
        Ok(())
    }

    fn close(&mut self) -> Result<(), String> {
        let Some(open) = self.open.pop() else { return Ok(()) };
        // Its own node; those below were counted when they were finished.
        let value = match open.kind {
            OpenKind::List(items) => Value::Array(items),
            OpenKind::Table { mut entries, merged, .. } => {
                for (key, value) in merged.into_iter().flat_map(entries_of) {
                    entries.entry(key).or_insert(value);
                }
                Value::Object(entries)
            }
        };
        self.nodes -= open.nodes - 1;
        self.finished(open.anchor, Counted { value, nodes: open.nodes })
    }

    fn finished(&mut self, anchor: usize, found: Counted) -> Result<(), String> {
        self.nodes += found.nodes;
        if self.nodes > IMPORT_NODES_MAX {
            return Err(too_many());
        }
        if anchor > 0 {
            self.nodes += found.nodes;
            self.anchors.insert(anchor, Counted { value: found.value.clone(), nodes: found.nodes });
        }
        let Some(open) = self.open.last_mut() else {
            self.document = Some(found.value);
            return Ok(());
        };
        open.nodes += found.nodes;
        match &mut open.kind {
            OpenKind::List(items) => items.push(found.value),
            OpenKind::Table { entries, key, merged } => {
                let key = key.take().ok_or("an alias is a key")?;
                if key == "<<" {
                    merged.push(found.value);
                } else if entries.insert(key.clone(), found.value).is_some() {
                    return Err(format!("the key `{}` is there twice", key.escape_debug()));
                }
            }
        }
        Ok(())
    }
}

/// What `<<` takes over: one table, or several, the first of which wins.
fn entries_of(value: Value) -> Vec<(String, Value)> {
    match value {
        Value::Object(entries) => entries.into_iter().collect(),
        Value::Array(items) => items.into_iter().filter(Value::is_object).flat_map(entries_of).collect(),
        _ => Vec::new(),
    }
}

fn too_many() -> String {
    format!("more than {IMPORT_NODES_MAX} values, aliases counted as what they stand for")
}

/// A scalar without quotes, as YAML 1.2 10.3.2 has it.
fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        _ => number(text).map_or_else(|| Value::String(text.to_owned()), Value::Number),
    }
}

fn number(text: &str) -> Option<Number> {
    let radix = |digits: &str, radix| i64::from_str_radix(digits, radix).ok().map(Number::from);
    if let Some(digits) = text.strip_prefix("0o") {
        return radix(digits, 8);
    }
    if let Some(digits) = text.strip_prefix("0x") {
        return radix(digits, 16);
    }
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        || !digits.contains(|c: char| c.is_ascii_digit())
    {
        return None;
    }
    if digits.bytes().all(|byte| byte.is_ascii_digit()) {
        let unsigned = text.strip_prefix('+').unwrap_or(text);
        let exact =
            unsigned.parse::<i64>().map(Number::from).or_else(|_| unsigned.parse::<u64>().map(Number::from));
        return exact.ok().or_else(|| text.parse().ok().and_then(Number::from_f64));
    }
    let float =
        digits.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-'));
    text.parse().ok().filter(|_| float).and_then(Number::from_f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reads_what_descriptions_are_written_in() {
        let text = "
openapi: 3.0
info: {title: \"A: b\", version: '1.0'}
list: [1, -2, 0x1F, 1.5, 1e3, ~, true, no, 2020-01-01, 1.2.3, +, '7', !!str 8]
block: |
  two
  lines
responses:
  200: ok
base: &base {a: 1, b: 2}
merged:
  <<: *base
  b: 3
alias: *base
";
        let expected = json!({
            "openapi": 3.0,
            "info": { "title": "A: b", "version": "1.0" },
            "list": [1, -2, 31, 1.5, 1000.0, null, true, "no", "2020-01-01", "1.2.3", "+", "7", "8"],
            "block": "two\nlines\n",
            "responses": { "200": "ok" },
            "base": { "a": 1, "b": 2 },
            "merged": { "a": 1, "b": 3 },
            "alias": { "a": 1, "b": 2 },
        });
        assert_eq!(read(text).unwrap(), expected);
    }

    #[test]
    fn aliases_cannot_grow_without_bound() {
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
        for level in 1..12 {
            let before = vec![format!("*a{}", level - 1); 9].join(", ");
            bomb.push_str(&format!("a{level}: &a{level} [{before}]\n"));
        }
        let error = read(&bomb).unwrap_err();
        assert!(error.message.contains("aliases"), "{error}");
    }

    #[test]
    fn refuses_what_has_two_readings_or_no_bottom() {
        for (text, reason) in [
            ("a: 1\na: 2\n", "twice"),
            ("a: &x [*x]\n", "inside what it stands for"),
            ("a: 1\n---\nb: 2\n", "second document"),
            ("? [a]\n: 1\n", "a key is a list"),
            ("", "empty"),
            ("a: [", ""),
            ("a: *unknown\n", ""),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.message.contains(reason), "{text}: {error}");
        }
        assert!(read(&"[".repeat(100_000)).is_err());
        assert!(read(&"- ".repeat(5_000)).is_err());
    }
}
