//! The query parameters of an operation to the query of a route line.

use serde_json::Value;

use super::document::Document;
use super::operation::Operation;
use super::parameter::Parameter;
use super::shape::{self, Found, Shape, Where};
use crate::import::text::{comment, query_literal};
use crate::import::{Kind, Report};

/// # Errors
/// Why no line can say it.
pub(super) fn written(
    document: &Document,
    operation: &Operation<'_>,
    parameters: &[Parameter<'_>],
    notes: &mut Report,
) -> Result<String, String> {
    let mut query = Query { document, operation, notes, parts: Vec::new() };
    for parameter in parameters.iter().filter(|parameter| parameter.location == "query") {
        query.parameter(parameter)?;
    }
    if query.parts.is_empty() { Ok(String::new()) } else { Ok(format!("?{}", query.parts.join("&"))) }
}

struct Query<'a, 'd> {
    document: &'d Document,
    operation: &'a Operation<'d>,
    notes: &'a mut Report,
    parts: Vec<String>,
}

impl Query<'_, '_> {
    fn parameter(&mut self, parameter: &Parameter<'_>) -> Result<(), String> {
        let shown = comment(parameter.name);
        let Some(schema) = parameter.schema else {
            self.push(parameter.name, parameter.required, Found::any());
            return Ok(());
        };
        let style = parameter.style.unwrap_or("form");
        let explode = parameter.explode.unwrap_or(style == "form");
        let resolved = self.document.follow(schema).unwrap_or(&Value::Null);
        let properties = resolved.get("properties").and_then(Value::as_object);
        match (is_type(resolved, "array"), is_type(resolved, "object") || properties.is_some()) {
            (true, _) => {
                let separator = match (style, explode) {
                    (_, true) => None,
                    ("pipeDelimited", _) => Some(r"\|"),
                    ("spaceDelimited", _) => Some(" "),
                    _ => Some(","),
                };
                self.list(parameter, resolved, separator);
            }
            (_, true) => match properties {
                Some(properties) if style == "deepObject" || explode => {
                    let required = |name: &str| {
                        let names = resolved.get("required").and_then(Value::as_array);
                        names.into_iter().flatten().any(|listed| listed.as_str() == Some(name))
                    };
                    for (name, schema) in properties {
                        let written = if style == "deepObject" {
                            format!("{}[{name}]", parameter.name)
                        } else {
                            name.clone()
                        };
                        let found = shape::of(self.document, schema, Where::Query);
                        self.push(&written, parameter.required && required(name), found);
                    }
                }
                Some(_) => self.push(parameter.name, parameter.required, Found::any()),
                None if parameter.required => {
                    return Err(format!("the parameter `{shown}` is an object whose fields are not listed"));
                }
                None => {
                    let reason =
                        format!("`{shown}` is an object whose fields are not listed; it is left out");
                    self.notes.add(Kind::Narrower, self.operation.subject(), reason);
                }
            },
            _ => {
                let found = shape::of(self.document, schema, Where::Query);
                self.push(parameter.name, parameter.required, found);
            }
        }
        Ok(())
    }

    fn list(&mut self, parameter: &Parameter<'_>, schema: &Value, separator: Option<&str>) {
        let mut found = match schema.get("items") {
            Some(items) => shape::of(self.document, items, Where::Query),
            None => Found::any(),
        };
        match separator {
            None => {
                let reason = "a list is taken with one value: a parameter that is there twice is refused";
                found.narrower.get_or_insert_with(|| reason.to_owned());
            }
            Some(separator) => {
                let whole =
                    found.shape.expression().map(|item| format!("(?:{item})(?:{separator}(?:{item}))*"));
                let whole = whole.filter(|whole| super::expression::is_usable(whole));
                found.shape = whole.map_or(Shape::Any, Shape::Expression);
            }
        }
        self.push(parameter.name, parameter.required, found);
    }

    fn push(&mut self, name: &str, required: bool, found: Found) {
        found.report(self.operation, &comment(name), self.notes);
        let mark = if required { "!" } else { "" };
        let value = match found.shape {
            Shape::Any => String::new(),
            shape => format!("={}", shape.written()),
        };
        self.parts.push(format!("{}{mark}{value}", query_literal(name)));
    }
}

fn is_type(schema: &Value, wanted: &str) -> bool {
    match schema.get("type") {
        Some(Value::String(one)) => one == wanted,
        Some(Value::Array(several)) => several.iter().any(|one| one.as_str() == Some(wanted)),
        _ => false,
    }
}
