//! The operations of a description, sorted by path.

use serde_json::{Map, Value};

use super::document::Document;
use crate::import::text::comment;
use crate::import::{Kind, Report};

/// The fields of a path item that are operations, and the method of each.
const METHODS: [(&str, &str); 8] = [
    ("get", "GET"),
    ("head", "HEAD"),
    ("options", "OPTIONS"),
    ("post", "POST"),
    ("put", "PUT"),
    ("patch", "PATCH"),
    ("delete", "DELETE"),
    ("trace", "TRACE"),
];
/// Fields of a path item that are no operations.
const OTHERS: [&str; 5] = ["$ref", "summary", "description", "servers", "parameters"];

pub(super) struct Operation<'d> {
    pub(super) method: &'static str,
    pub(super) template: &'d str,
    pub(super) id: Option<&'d str>,
    summary: Option<&'d str>,
    deprecated: bool,
    pub(super) tags: Vec<&'d str>,
    /// Those of the path first; the operation's own replace them.
    pub(super) parameters: Vec<&'d Value>,
    pub(super) body: Option<&'d Value>,
    /// The nearest `servers`; `None` = those of the description.
    pub(super) servers: Option<&'d [Value]>,
    /// The operation's own `security`; `None` = that of the description.
    pub(super) security: Option<&'d Value>,
}

impl Operation<'_> {
    /// What the report calls it.
    pub(super) fn subject(&self) -> String {
        let id = self.id.map(|id| format!(" ({})", comment(id))).unwrap_or_default();
        format!("{} {}{id}", self.method, comment(self.template))
    }

    /// What stands beside its line.
    pub(super) fn comment(&self) -> String {
        let deprecated = self.deprecated.then_some("deprecated");
        let parts: Vec<&str> = [self.id, self.summary, deprecated].into_iter().flatten().collect();
        comment(&parts.join(": "))
    }

    pub(super) fn writes(&self) -> bool {
        !matches!(self.method, "GET" | "HEAD" | "OPTIONS")
    }
}

/// Every operation. What is none, and what cannot be found, is reported.
pub(super) fn all<'d>(document: &'d Document, report: &mut Report) -> Vec<Operation<'d>> {
    let mut found = Vec::new();
    let paths = document.root().get("paths").and_then(Value::as_object);
    for (template, item) in paths.into_iter().flatten() {
        if template.starts_with("x-") {
            continue;
        }
        match document.follow(item) {
            Ok(item) => of_path(template, item, &mut found, report),
            Err(reason) => report.add(Kind::NotExpressed, comment(template), reason),
        }
    }
    let webhooks = document.root().get("webhooks").and_then(Value::as_object).map_or(0, Map::len);
    if webhooks > 0 {
        let reason = format!("requests that the API sends and no run makes (webhooks: {webhooks})");
        report.add(Kind::LeftOut, "", reason);
    }
    found
}

fn of_path<'d>(template: &'d str, item: &'d Value, found: &mut Vec<Operation<'d>>, report: &mut Report) {
    for (field, _) in item.as_object().into_iter().flatten() {
        let known = METHODS.iter().any(|(name, _)| name == field) || OTHERS.contains(&field.as_str());
        if !known && !field.starts_with("x-") {
            let reason = format!("`{}` is not an operation of OpenAPI 3.0 or 3.1", comment(field));
            report.add(Kind::NotExpressed, comment(template), reason);
        }
    }
    let list = |value: &'d Value, key: &str| value.get(key).and_then(Value::as_array);
    for (field, method) in METHODS {
        let Some(operation) = item.get(field) else { continue };
        let text = |key: &str| operation.get(key).and_then(Value::as_str);
        let shared = list(item, "parameters").into_iter().flatten();
        let servers = list(operation, "servers").or_else(|| list(item, "servers"));
        found.push(Operation {
            method,
            template,
            id: text("operationId"),
            summary: text("summary"),
            deprecated: operation.get("deprecated").and_then(Value::as_bool).unwrap_or(false),
            tags: list(operation, "tags").into_iter().flatten().filter_map(Value::as_str).collect(),
            parameters: shared.chain(list(operation, "parameters").into_iter().flatten()).collect(),
            body: operation.get("requestBody"),
            servers: servers.map(Vec::as_slice).filter(|servers| !servers.is_empty()),
            security: operation.get("security"),
        });
    }
}
