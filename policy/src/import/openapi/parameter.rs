//! The parameters of an operation: references followed, those of the path replaced by the operation's own.

use serde_json::Value;

use super::document::Document;
use super::operation::Operation;

pub(super) struct Parameter<'d> {
    pub(super) name: &'d str,
    pub(super) location: &'d str,
    pub(super) required: bool,
    pub(super) style: Option<&'d str>,
    pub(super) explode: Option<bool>,
    /// `None` for a parameter whose value is a document of its own (`content`).
    pub(super) schema: Option<&'d Value>,
    /// The parameter stands for several segments.
    pub(super) several_segments: bool,
}

/// # Errors
/// Why the parameters are not known.
pub(super) fn of<'d>(
    document: &'d Document,
    operation: &Operation<'d>,
) -> Result<Vec<Parameter<'d>>, String> {
    let mut found: Vec<Parameter<'d>> = Vec::new();
    for value in &operation.parameters {
        let value = document.follow(value)?;
        let text = |key: &str| value.get(key).and_then(Value::as_str);
        let flag = |key: &str| value.get(key).and_then(Value::as_bool);
        let (Some(name), Some(location)) = (text("name"), text("in")) else {
            return Err("a parameter has no `name` or no `in`".to_owned());
        };
        found.retain(|before| before.name != name || before.location != location);
        found.push(Parameter {
            name,
            location,
            required: flag("required").unwrap_or(false),
            style: text("style"),
            explode: flag("explode"),
            schema: value.get("schema"),
            several_segments: flag("x-multi-segment").unwrap_or(false),
        });
    }
    Ok(found)
}
