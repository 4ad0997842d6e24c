//! `audit.md` and `audit.schema.json`: what a line of the audit log holds.

use serde_json::Value;

use crate::NOTICE;
use crate::schema::{description, resolved, rows};

pub(crate) fn schema_file() -> String {
    format!("{}\n", serde_json::to_string_pretty(&freeboard_audit::schema()).unwrap_or_default())
}

pub(crate) fn page() -> String {
    let schema = freeboard_audit::schema();
    let mut page = format!(
        "{NOTICE}\n# Audit records\n\n\
         The log is a folder of JSON lines: `audit.jsonl` is written, full files are called `audit-NUMBER.jsonl` after their first record. \
         Each line is printable ASCII: whatever a guest sent is escaped. Each line names the SHA-256 of the line before it (`prev`). \
         `freeboard audit verify` finds the first record that is changed, missing or out of order, and prints the head; keep that \
         elsewhere, because a chain alone does not show that its end was cut off or that everything was written anew. \
         JSON Schema: [audit.schema.json](audit.schema.json).\n\n\
         ## Every record\n\n| field | type | always | meaning |\n|---|---|---|---|\n"
    );
    page.push_str(&rows(&schema, &schema, &[]));
    for kind in kinds(&schema) {
        let name = kind.pointer("/properties/kind/const").and_then(Value::as_str).unwrap_or_default();
        let target = resolved(kind, &schema);
        page.push_str(&format!("\n## `{name}`\n\n{}\n\n", description(kind, &schema)));
        let table = format!(
            "{}{}",
            rows(target, &schema, &["kind"]),
            if std::ptr::eq(target, kind) { String::new() } else { rows(kind, &schema, &["kind"]) }
        );
        if !table.is_empty() {
            page.push_str(&format!("| field | type | always | meaning |\n|---|---|---|---|\n{table}"));
        }
    }
    page
}

/// The schema of each kind of record.
fn kinds(schema: &Value) -> Vec<&Value> {
    let direct = schema.get("oneOf").and_then(Value::as_array);
    let nested = schema.get("allOf").and_then(Value::as_array).into_iter().flatten();
    let nested =
        nested.filter_map(|part| resolved(part, schema).get("oneOf").and_then(Value::as_array)).flatten();
    direct.into_iter().flatten().chain(nested).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_kind_has_a_section() {
        let page = super::page();
        for kind in [
            "request",
            "tunnel",
            "tls",
            "connection",
            "dns",
            "gate_opened",
            "gate_closed",
            "run_refused",
            "policy_loaded",
            "reload_refused",
            "revoked",
            "started",
            "stopped",
            "finding",
            "suppressed",
            "recovered",
        ] {
            assert!(page.contains(&format!("## `{kind}`")), "{kind}");
        }
    }
}
