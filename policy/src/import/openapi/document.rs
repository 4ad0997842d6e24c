//! The description as a value, and its references.

use serde_json::Value;

use crate::import::{ImportError, yaml};
use crate::limits::IMPORT_REFERENCES_MAX;
use crate::route::pattern::Decoded;

pub(super) struct Document {
    root: Value,
}

impl Document {
    pub(super) fn parse(text: &str) -> Result<Self, ImportError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let root: Value = if text.trim_start().starts_with('{') {
            serde_json::from_str(text).map_err(ImportError::Json)?
        } else {
            yaml::read(text).map_err(ImportError::Yaml)?
        };
        let document = Self { root };
        document.check_version()?;
        Ok(document)
    }

    fn check_version(&self) -> Result<(), ImportError> {
        let unsuitable = |message: String| Err(ImportError::Unsuitable(message));
        let version = match self.root.get("openapi") {
            Some(Value::String(text)) => text.clone(),
            // YAML without quotes.
            Some(Value::Number(number)) => number.to_string(),
            _ if self.root.get("swagger").is_some() => {
                return unsuitable(
                    "the description is Swagger 2.0; convert it to OpenAPI 3 first".to_owned(),
                );
            }
            _ => return unsuitable("not an OpenAPI description: it has no `openapi: 3.…`".to_owned()),
        };
        let known = |minor: &str| version == minor || version.starts_with(&format!("{minor}."));
        if known("3.0") || known("3.1") {
            return Ok(());
        }
        unsuitable(format!("OpenAPI {} is not read; 3.0 and 3.1 are", version.escape_debug()))
    }

    pub(super) fn root(&self) -> &Value {
        &self.root
    }

    /// The title of the API.
    pub(super) fn title(&self) -> &str {
        self.text("/info/title")
    }

    /// The version of the API.
    pub(super) fn version(&self) -> &str {
        self.text("/info/version")
    }

    fn text(&self, pointer: &str) -> &str {
        self.root.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// The value that stands at the end of its references.
    ///
    /// # Errors
    /// Why there is none, for the report.
    pub(super) fn follow<'d>(&'d self, value: &'d Value) -> Result<&'d Value, String> {
        let mut at = value;
        for _ in 0..IMPORT_REFERENCES_MAX {
            let Some(reference) = at.get("$ref").and_then(Value::as_str) else { return Ok(at) };
            let shown = crate::import::text::comment(reference);
            let Some(pointer) = reference.strip_prefix('#') else {
                return Err(format!("the reference `{shown}` leads out of the description"));
            };
            let decoded: Vec<u8> = Decoded::of(pointer.as_bytes()).collect();
            let target = std::str::from_utf8(&decoded).ok().and_then(|pointer| self.root.pointer(pointer));
            at = target.ok_or_else(|| format!("the reference `{shown}` leads nowhere"))?;
        }
        Err("references lead in a circle".to_owned())
    }
}
