//! The schema of a JSON request body to `json` conditions of a rule.
//!
//! What a condition cannot say is left open, never guessed: the rule is then wider than the schema, not another one.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::document::Document;
use super::expression;
use super::operation::Operation;
use crate::import::text::quoted;
use crate::limits::CONDITIONS_MAX;

/// How deep conditions look into a body. Deeper values are left open.
const DEPTH_MAX: usize = 6;

/// What a rule demands of a body.
pub(super) struct Body {
    /// Lines of the `json` table.
    pub(super) conditions: Vec<String>,
    /// A request without a body is refused, though the description allows it.
    pub(super) body_demanded: bool,
}

/// # Errors
/// Why the body stays open.
pub(super) fn conditions(document: &Document, operation: &Operation<'_>) -> Result<Option<Body>, String> {
    let Some(body) = operation.body else { return Ok(None) };
    let body = document.follow(body)?;
    let content = body.get("content").and_then(Value::as_object);
    let Some((media, schema)) =
        content.filter(|content| content.len() == 1).and_then(|content| content.iter().next())
    else {
        return Err("it has several media types, or none".to_owned());
    };
    let media = media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if media != "application/json" && !media.ends_with("+json") {
        return Err("it is not JSON".to_owned());
    }
    let mut reader = Reader { document, lines: BTreeMap::new() };
    if let Some(schema) = schema.get("schema") {
        reader.value(schema, "", true, 0);
    }
    if reader.lines.len() > CONDITIONS_MAX {
        return Err(format!("its schema has more than {CONDITIONS_MAX} conditions"));
    }
    if reader.lines.is_empty() {
        return Err("its schema demands nothing that a condition can say".to_owned());
    }
    let conditions = reader.lines.iter().map(|(pointer, want)| format!("{} = {{ {want} }}", quoted(pointer)));
    let required = body.get("required").and_then(Value::as_bool).unwrap_or(false);
    Ok(Some(Body { conditions: conditions.collect(), body_demanded: !required }))
}

struct Reader<'d> {
    document: &'d Document,
    /// Pointer → fields of its condition.
    lines: BTreeMap<String, String>,
}

impl Reader<'_> {
    fn value(&mut self, schema: &Value, pointer: &str, required: bool, depth: usize) {
        let Ok(schema) = self.document.follow(schema) else { return };
        // Values that may be null, and values of several forms, are left open.
        let open = ["oneOf", "anyOf", "not", "if"].iter().any(|key| schema.get(key).is_some());
        if depth > DEPTH_MAX || open || schema.get("nullable").and_then(Value::as_bool) == Some(true) {
            return;
        }
        let kind = match schema.get("type") {
            Some(Value::String(kind)) => kind.as_str(),
            None if schema.get("properties").is_some() || schema.get("allOf").is_some() => "object",
            _ => return,
        };
        let mut fields = vec![format!("type = \"{kind}\"")];
        match kind {
            "object" => return self.object(schema, pointer, required, depth),
            "array" => {
                fields.extend(count(schema, "maxItems", "max_items"));
                if let Some(items) = schema.get("items") {
                    self.value(items, &format!("{pointer}/*"), false, depth + 1);
                }
            }
            "string" | "integer" | "number" | "boolean" => match listed(schema) {
                Listed::Values(values) => fields = vec![format!("enum = [{}]", values.join(", "))],
                Listed::Unwritable => return,
                Listed::None if kind == "string" => {
                    fields.extend(count(schema, "maxLength", "max_length"));
                    let pattern = schema.get("pattern").and_then(Value::as_str).map(expression::translated);
                    if let Some(Ok(pattern)) = pattern {
                        fields.push(format!("pattern = {}", quoted(&pattern)));
                    }
                }
                Listed::None => fields.extend(bounds(schema, kind)),
            },
            _ => return,
        }
        self.push(pointer, fields, required);
    }

    fn object(&mut self, schema: &Value, pointer: &str, required: bool, depth: usize) {
        let mut parts = vec![schema];
        let all = schema.get("allOf").and_then(Value::as_array);
        for part in all.into_iter().flatten() {
            match self.document.follow(part) {
                Ok(part) => parts.push(part),
                Err(_) => return,
            }
        }
        // Of parts that must all hold, each has its own idea of further members.
        let closed =
            parts.len() == 1 && schema.get("additionalProperties").and_then(Value::as_bool) == Some(false);
        let mut names = BTreeSet::new();
        for part in parts {
            let demanded: Vec<&str> = part
                .get("required")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .collect();
            for (name, property) in part.get("properties").and_then(Value::as_object).into_iter().flatten() {
                names.insert(name.clone());
                if name == "*" {
                    continue;
                }
                let below = format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"));
                let required = required && demanded.contains(&name.as_str());
                self.value(property, &below, required, depth + 1);
            }
        }
        let mut fields = vec!["type = \"object\"".to_owned()];
        if closed && !names.is_empty() && names.len() <= CONDITIONS_MAX {
            let names: Vec<String> = names.iter().map(|name| quoted(name)).collect();
            fields.push(format!("members = [{}]", names.join(", ")));
        }
        self.push(pointer, fields, required);
    }

    fn push(&mut self, pointer: &str, mut fields: Vec<String>, required: bool) {
        if !required {
            fields.push("optional = true".to_owned());
        }
        self.lines.insert(pointer.to_owned(), fields.join(", "));
    }
}

fn count(schema: &Value, from: &str, to: &str) -> Option<String> {
    let bound = schema.get(from).and_then(Value::as_u64).filter(|bound| *bound > 0)?;
    Some(format!("{to} = {bound}"))
}

/// Whole numbers only: what a fraction means to two readers differs.
fn bounds(schema: &Value, kind: &str) -> Vec<String> {
    let bound = |from: &str, to: &str| {
        let bound = schema.get(from).and_then(Value::as_i64)?;
        Some(format!("{to} = {bound}"))
    };
    let (least, most) = (bound("minimum", "min"), bound("maximum", "max"));
    if kind == "boolean" { Vec::new() } else { least.into_iter().chain(most).collect() }
}

enum Listed {
    None,
    Values(Vec<String>),
    /// A value that TOML does not have.
    Unwritable,
}

fn listed(schema: &Value) -> Listed {
    let values = match (schema.get("const"), schema.get("enum").and_then(Value::as_array)) {
        (Some(value), _) => vec![value],
        (None, Some(values)) if !values.is_empty() && values.len() <= CONDITIONS_MAX => {
            values.iter().collect()
        }
        (None, Some(_)) => return Listed::Unwritable,
        (None, None) => return Listed::None,
    };
    let mut written = Vec::new();
    for value in values {
        let text = match value {
            Value::String(text) => quoted(text),
            Value::Bool(flag) => flag.to_string(),
            Value::Number(number) if number.is_i64() => number.to_string(),
            _ => return Listed::Unwritable,
        };
        if !written.contains(&text) {
            written.push(text);
        }
    }
    Listed::Values(written)
}
