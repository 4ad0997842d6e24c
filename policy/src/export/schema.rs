//! A pattern of a route line as JSON Schema.

use serde_json::{Value, json};

use crate::route::pattern::{Kind, Pattern};

pub(super) fn of(pattern: &Pattern) -> Value {
    match pattern {
        Pattern::Literal(text) => json!({ "type": "string", "const": String::from_utf8_lossy(text) }),
        Pattern::OneOf(texts) => {
            let texts: Vec<_> = texts.iter().map(|text| String::from_utf8_lossy(text)).collect();
            json!({ "type": "string", "enum": texts })
        }
        Pattern::Kind(Kind::Int) => json!({ "type": "integer", "minimum": 0 }),
        Pattern::Kind(Kind::Uuid) => json!({ "type": "string", "format": "uuid" }),
        Pattern::Kind(Kind::Date) => json!({ "type": "string", "format": "date" }),
        Pattern::Kind(kind) => json!({ "type": "string", "pattern": format!("^(?:{})$", kind.expression()) }),
        Pattern::Regex(_) => expression(pattern),
        Pattern::Any => json!({ "type": "string", "minLength": 1 }),
        Pattern::AnyOrEmpty => json!({ "type": "string" }),
    }
}

/// An expression is a `pattern` where ECMA-262 reads it the same, and words otherwise.
fn expression(pattern: &Pattern) -> Value {
    let mut written = String::new();
    pattern.write_canonical(&mut written);
    let whole = written.strip_prefix("{re:").and_then(|rest| rest.strip_suffix('}'));
    let portable = whole.map(|text| text.replace("(?s:.*)", r"[\s\S]*"));
    match portable {
        Some(text)
            if !text.replace("(?:", "").contains("(?")
                && !text.contains(['&', '~'])
                && !text.contains("[[") =>
        {
            json!({ "type": "string", "pattern": format!("^(?:{text})$") })
        }
        _ => json!({ "type": "string", "description": format!("of the form `{written}`") }),
    }
}
