//! A schema to what one value may look like, in the words of route lines.

use serde_json::Value;

use super::document::Document;
use super::expression;
use super::operation::Operation;
use crate::import::Kind as Finding;
use crate::import::Report;
use crate::import::text::alternative;
use crate::limits::IMPORT_REFERENCES_MAX;
use crate::route::pattern::Kind;

/// Bytes of the values of one parameter in a line; with more, the line could not be read in review.
const ALTERNATIVES_MAX_BYTES: usize = 400;

const NUMBER: &str = r"-?\d{1,20}(\.\d{1,20})?";
const SIGNED: &str = r"-?\d{1,20}";
/// RFC 3339 5.6.
const DATE_TIME: &str = r"\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(\.\d{1,9})?([Zz]|[+-]\d{2}:\d{2})";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Shape {
    Any,
    Kind(Kind),
    OneOf(Vec<String>),
    Expression(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Where {
    Path,
    Query,
}

/// A shape, and where it says more or less than the schema.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) shape: Shape,
    pub(super) wider: Option<String>,
    pub(super) narrower: Option<String>,
    /// Integers that the schema does not say to be positive.
    sign_assumed: bool,
}

impl From<Shape> for Found {
    fn from(shape: Shape) -> Self {
        Self { shape, wider: None, narrower: None, sign_assumed: false }
    }
}

impl Shape {
    /// As a route line has it. `Any` is written by the caller, who knows a name for it.
    pub(super) fn written(&self) -> String {
        match self {
            Self::Any => "{any}".to_owned(),
            Self::Kind(kind) => format!("{{{}}}", kind.word()),
            Self::OneOf(texts) => match texts.as_slice() {
                [only] => alternative(only),
                _ => format!(
                    "{{{}}}",
                    texts.iter().map(|text| alternative(text)).collect::<Vec<_>>().join("|")
                ),
            },
            Self::Expression(text) => format!("{{re:{text}}}"),
        }
    }

    /// As an expression, to be a part of a larger one.
    pub(super) fn expression(&self) -> Option<String> {
        match self {
            Self::Any => None,
            Self::Kind(kind) => Some(kind.expression().to_owned()),
            Self::OneOf(texts) => {
                let texts: Vec<String> = texts.iter().map(|text| expression::escaped(text)).collect();
                Some(texts.join("|"))
            }
            Self::Expression(text) => Some(text.clone()),
        }
    }
}

impl Found {
    pub(super) fn any() -> Self {
        Shape::Any.into()
    }

    pub(super) fn wider(reason: impl Into<String>) -> Self {
        Self { wider: Some(reason.into()), ..Self::any() }
    }

    pub(super) fn report(&self, operation: &Operation<'_>, name: &str, notes: &mut Report) {
        for (kind, reason) in [(Finding::Wider, &self.wider), (Finding::Narrower, &self.narrower)] {
            if let Some(reason) = reason {
                notes.add(kind, operation.subject(), format!("`{name}`: {reason}"));
            }
        }
        if self.sign_assumed {
            notes.add(Finding::Note, "", "integers without a `minimum` are taken as not negative");
        }
    }
}

/// The shape of values that the schema describes.
pub(super) fn of(document: &Document, schema: &Value, place: Where) -> Found {
    let found = Reader { document, place }.schema(schema, 0);
    match &found.shape {
        Shape::OneOf(texts) if texts.is_empty() => {
            Found::wider("no value of the schema can be written in a line")
        }
        Shape::OneOf(texts) if texts.iter().map(String::len).sum::<usize>() > ALTERNATIVES_MAX_BYTES => {
            Found::wider(format!("the list of {} values is too long for a line", texts.len()))
        }
        Shape::Expression(text) if !expression::is_usable(text) => {
            Found::wider("the expression is too large")
        }
        _ => found,
    }
}

struct Reader<'d> {
    document: &'d Document,
    place: Where,
}

impl Reader<'_> {
    fn schema(&self, schema: &Value, depth: usize) -> Found {
        if depth > IMPORT_REFERENCES_MAX {
            return Found::wider("schemas lie too deep in each other");
        }
        let schema = match self.document.follow(schema) {
            Ok(schema) => schema,
            Err(reason) => return Found::wider(reason),
        };
        let list = |key: &str| schema.get(key).and_then(Value::as_array).filter(|list| !list.is_empty());
        let mut all = vec![self.own(schema)];
        for parts in list("allOf").into_iter().flatten() {
            all.push(self.schema(parts, depth + 1));
        }
        for parts in [list("oneOf"), list("anyOf")].into_iter().flatten() {
            all.push(self.union(parts.iter().map(|part| self.schema(part, depth + 1)).collect()));
        }
        narrowest(all)
    }

    /// What the schema says without the schemas in it.
    fn own(&self, schema: &Value) -> Found {
        if let Some(value) = schema.get("const") {
            return self.values(std::slice::from_ref(value));
        }
        if let Some(values) = schema.get("enum").and_then(Value::as_array) {
            return self.values(values);
        }
        let types: Vec<&str> = match schema.get("type") {
            Some(Value::String(one)) => vec![one],
            Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
            // Without a type the pattern still holds for strings, and every value is one here.
            _ if schema.get("pattern").is_some() || schema.get("format").is_some() => vec!["string"],
            _ => return Found::any(),
        };
        let shapes: Vec<Found> =
            types.iter().filter(|kind| **kind != "null").map(|kind| of_type(kind, schema)).collect();
        self.union(shapes)
    }

    fn values(&self, values: &[Value]) -> Found {
        let mut texts: Vec<String> = Vec::new();
        let mut dropped = false;
        for value in values {
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Number(number) => number.to_string(),
                Value::Bool(flag) => flag.to_string(),
                Value::Null => continue,
                _ => return Found::wider("values that are lists or objects"),
            };
            if !self.writable(&text) {
                dropped = true;
            } else if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let narrower =
            dropped.then(|| "values that no request can carry in this place are refused".to_owned());
        Found { narrower, ..Shape::OneOf(texts).into() }
    }

    fn writable(&self, text: &str) -> bool {
        let never =
            |c: char| c.is_control() || c == '\\' || (self.place == Where::Path && matches!(c, ';' | '/'));
        let dots = self.place == Where::Path && matches!(text, "." | "..");
        !(text.is_empty() || text.contains(never) || dots)
    }

    fn union(&self, mut parts: Vec<Found>) -> Found {
        let Some(first) = parts.first().cloned() else { return Found::any() };
        let mut whole = parts.iter().fold(first.clone(), |mut whole, part| {
            whole.wider = whole.wider.or_else(|| part.wider.clone());
            whole.narrower = whole.narrower.or_else(|| part.narrower.clone());
            whole.sign_assumed |= part.sign_assumed;
            whole
        });
        parts.dedup_by(|a, b| a.shape == b.shape);
        if parts.len() == 1 {
            return whole;
        }
        let texts = parts.iter().map(|part| match &part.shape {
            Shape::OneOf(texts) => Some(texts.clone()),
            _ => None,
        });
        if let Some(lists) = texts.collect::<Option<Vec<_>>>() {
            let mut all: Vec<String> = Vec::new();
            for text in lists.into_iter().flatten() {
                if !all.contains(&text) {
                    all.push(text);
                }
            }
            whole.shape = Shape::OneOf(all);
            return whole;
        }
        let expressions: Option<Vec<String>> = parts.iter().map(|part| part.shape.expression()).collect();
        whole.shape = match expressions {
            Some(expressions) => Shape::Expression(expressions.join("|")),
            None => Shape::Any,
        };
        whole
    }
}

/// Of schemas that all hold, the one that says most: a value must satisfy it in any case.
fn narrowest(parts: Vec<Found>) -> Found {
    let rank = |found: &Found| match found.shape {
        Shape::OneOf(_) => 0,
        Shape::Kind(_) => 1,
        Shape::Expression(_) => 2,
        Shape::Any => 3,
    };
    let telling = parts.iter().filter(|found| found.shape != Shape::Any).count();
    let best = parts.into_iter().min_by_key(rank);
    let mut best = best.unwrap_or_else(Found::any);
    if telling > 1 && best.wider.is_none() {
        best.wider = Some("of several schemas that must hold, one is taken".to_owned());
    }
    best
}

fn of_type(kind: &str, schema: &Value) -> Found {
    match kind {
        "integer" => integer(schema),
        "number" => Shape::Expression(NUMBER.to_owned()).into(),
        "boolean" => Shape::OneOf(vec!["true".to_owned(), "false".to_owned()]).into(),
        "string" => string(schema),
        _ => Found::any(),
    }
}

fn integer(schema: &Value) -> Found {
    let bound = |key: &str| schema.get(key).and_then(Value::as_f64);
    match bound("minimum").or_else(|| bound("exclusiveMinimum")) {
        Some(minimum) if minimum < 0.0 => Shape::Expression(SIGNED.to_owned()).into(),
        Some(_) => Shape::Kind(Kind::Int).into(),
        None => Found { sign_assumed: true, ..Shape::Kind(Kind::Int).into() },
    }
}

fn string(schema: &Value) -> Found {
    let text = |key: &str| schema.get(key).and_then(Value::as_str);
    match text("format") {
        Some("uuid") => return Shape::Kind(Kind::Uuid).into(),
        Some("date") => return Shape::Kind(Kind::Date).into(),
        Some("date-time") => return Shape::Expression(DATE_TIME.to_owned()).into(),
        _ => {}
    }
    match text("pattern").map(expression::translated) {
        Some(Ok(expression)) => Shape::Expression(expression).into(),
        Some(Err(reason)) => Found::wider(reason),
        None => Found::any(),
    }
}
