//! The contract of a line as JSON Schema, made from the types.

/// JSON Schema (2020-12) of one line of the log. Stored in `schema/record.schema.json`; a test compares them.
pub fn schema() -> serde_json::Value {
    let mut schema = schemars::schema_for!(crate::chain::Record<'static>);
    schema.insert("title".to_owned(), "Freeboard audit record".into());
    schema.to_value()
}
