//! `policy.md`: the fields of a policy file, from the schema that editors use.

use serde_json::Value;

use crate::NOTICE;
use crate::schema::{description, rows};

pub(crate) fn page() -> String {
    let root: Value = serde_json::from_str(&freeboard_policy::schema::policy_file()).unwrap_or_default();
    let mut page = format!(
        "{NOTICE}\n# Policy files\n\n{}\n\nThe language by example is in `policy/README.md`; `freeboard policy check` shows every mistake with its place, \
         `freeboard policy schema` prints the JSON Schema.\n\n## A file\n\n| field | type | always | meaning |\n|---|---|---|---|\n",
        description(&root, &root)
    );
    page.push_str(&rows(&root, &root, &[]));
    let definitions = root.get("definitions").and_then(Value::as_object);
    for (name, definition) in definitions.into_iter().flatten() {
        page.push_str(&format!("\n## {name}\n\n{}\n", description(definition, &root)));
        table(&mut page, definition, &root);
        for option in definition.get("oneOf").and_then(Value::as_array).into_iter().flatten() {
            let kind = option.pointer("/properties/kind/const").and_then(Value::as_str);
            let title = kind.map_or_else(String::new, |kind| format!("`kind = \"{kind}\"`: "));
            page.push_str(&format!("\n{title}{}\n", description(option, &root)));
            table(&mut page, option, &root);
        }
    }
    page
}

fn table(page: &mut String, schema: &Value, root: &Value) {
    let rows = rows(schema, root, &["kind"]);
    if !rows.is_empty() {
        page.push_str(&format!("\n| field | type | always | meaning |\n|---|---|---|---|\n{rows}"));
    }
}
