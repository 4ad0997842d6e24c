//! Tools as the interfaces of models take them, and as a page for people.

use serde_json::{Value, json};

use super::{Format, Surface, Tool};

pub(super) fn surface(surface: &Surface, format: Format) -> String {
    let json = match format {
        Format::Mcp => json!({ "tools": surface.tools.iter().map(mcp).collect::<Vec<_>>() }),
        Format::Openai => json!(surface.tools.iter().map(openai).collect::<Vec<_>>()),
        Format::Markdown => return markdown(surface),
    };
    format!("{json:#}\n")
}

fn mcp(tool: &Tool) -> Value {
    let reads = matches!(tool.method.as_str(), "GET" | "HEAD" | "OPTIONS");
    json!({
        "name": tool.name,
        "description": tool.description,
        "inputSchema": tool.parameters,
        "annotations": {
            "readOnlyHint": reads,
            "destructiveHint": !reads && tool.method != "POST",
            "idempotentHint": reads || matches!(tool.method.as_str(), "PUT" | "DELETE"),
            "openWorldHint": true,
        },
        "_meta": { "freeboard/method": tool.method, "freeboard/url": tool.url, "freeboard/query": tool.query },
    })
}

fn openai(tool: &Tool) -> Value {
    json!({
        "type": "function",
        "function": { "name": tool.name, "description": tool.description, "parameters": tool.parameters },
    })
}

fn markdown(surface: &Surface) -> String {
    let mut out = format!("# What the grant `{}` allows\n", surface.grant);
    for tool in &surface.tools {
        out.push_str(&format!(
            "\n## {}\n\n{}\n\n`{} {}`\n",
            tool.name, tool.description, tool.method, tool.url
        ));
        let properties = tool.parameters.get("properties").and_then(Value::as_object);
        let required = tool.parameters.get("required").and_then(Value::as_array);
        let is_required = |name: &str| {
            required.is_some_and(|names| names.iter().any(|required| required.as_str() == Some(name)))
        };
        for (name, schema) in properties.into_iter().flatten() {
            let always = if is_required(name) { "" } else { ", may be left out" };
            let place = match tool.query.get(name).map(String::as_str) {
                Some("*") => ", further query parameters".to_owned(),
                Some(parameter) => format!(", query parameter `{parameter}`"),
                None => String::new(),
            };
            out.push_str(&format!("\n- `{name}`: `{schema}`{place}{always}"));
        }
        if properties.is_some_and(|properties| !properties.is_empty()) {
            out.push('\n');
        }
    }
    for (route, reason) in &surface.left_out {
        out.push_str(&format!("\nNot a tool: `{route}` ({reason}).\n"));
    }
    out
}
