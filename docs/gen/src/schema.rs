//! Tables from JSON Schemas.

use serde_json::{Map, Value};

use crate::source::cell;

/// One row per property of an object's schema: name, type, whether it is always there, description.
pub(crate) fn rows(schema: &Value, root: &Value, skip: &[&str]) -> String {
    let empty = Map::new();
    let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&empty);
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .map(|names| names.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    let mut out = String::new();
    for (name, property) in properties.iter().filter(|(name, _)| !skip.contains(&name.as_str())) {
        let always = if required.contains(&name.as_str()) { "yes" } else { "" };
        out.push_str(&format!(
            "| `{name}` | {} | {always} | {} |\n",
            kind(property, root),
            cell(&description(property, root))
        ));
    }
    out
}

/// The definition that a schema refers to, or itself.
pub(crate) fn resolved<'a>(schema: &'a Value, root: &'a Value) -> &'a Value {
    let pointer = schema.get("$ref").and_then(Value::as_str).and_then(|name| name.strip_prefix('#'));
    pointer.and_then(|pointer| root.pointer(pointer)).unwrap_or(schema)
}

pub(crate) fn description(schema: &Value, root: &Value) -> String {
    let own = schema.get("description").and_then(Value::as_str);
    let of_target = resolved(schema, root).get("description").and_then(Value::as_str);
    own.or(of_target).unwrap_or_default().to_owned()
}

fn kind(schema: &Value, root: &Value) -> String {
    for key in ["anyOf", "oneOf"] {
        if let Some(first) = schema.get(key).and_then(Value::as_array).and_then(|options| options.first()) {
            let all_constant = resolved(schema, root).get("oneOf").is_some();
            return if all_constant { words(schema) } else { kind(first, root) };
        }
    }
    let target = resolved(schema, root);
    if target.get("oneOf").is_some() || target.get("enum").is_some() {
        return words(target);
    }
    match target.get("type") {
        Some(Value::String(kind)) => kind.clone(),
        Some(Value::Array(kinds)) => kinds
            .iter()
            .filter_map(Value::as_str)
            .filter(|kind| *kind != "null")
            .collect::<Vec<_>>()
            .join(" or "),
        _ => String::new(),
    }
}

/// The words that a value may be, where there are few.
fn words(schema: &Value) -> String {
    let constants = schema
        .get("oneOf")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|option| option.get("const"));
    let listed = schema.get("enum").and_then(Value::as_array).into_iter().flatten();
    let in_options = schema
        .get("oneOf")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|option| option.get("enum").and_then(Value::as_array))
        .flatten();
    let words: Vec<String> = constants
        .chain(listed)
        .chain(in_options)
        .filter_map(Value::as_str)
        .map(|word| format!("`{word}`"))
        .collect();
    if words.len() > 12 { "a code of [reasons.md](reasons.md)".to_owned() } else { words.join(", ") }
}
