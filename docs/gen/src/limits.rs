//! `limits.md`: every constant of the limits files with its value, unit, reason and what happens at it.

use crate::NOTICE;
use crate::source::{cell, items};

const FILES: [(&str, &str); 3] = [
    ("Broker", include_str!("../../../proxy/src/limits.rs")),
    ("sandboxd", include_str!("../../../sandboxd/src/limits.rs")),
    ("Policy", include_str!("../../../policy/src/limits.rs")),
];

pub(crate) fn page() -> String {
    let mut page = format!(
        "{NOTICE}\n# Limits\n\nEvery bound with its reason and what happens at it. They are constants: what may be changed is in [config.md](config.md).\n"
    );
    for (title, text) in FILES {
        page.push_str(&format!("\n## {title}\n\n| limit | value | what it bounds |\n|---|---|---|\n"));
        for item in items(text, "pub") {
            let Some((name, value)) = constant(&item.code) else { continue };
            page.push_str(&format!("| `{name}` | `{}` | {} |\n", cell(&value), cell(&item.doc)));
        }
    }
    page
}

/// Name and value of `pub const NAME: Type = value;`, times as people write them.
fn constant(code: &str) -> Option<(String, String)> {
    let (_, rest) = code.split_once("const ")?;
    let (name, rest) = rest.split_once(':')?;
    let (_, value) = rest.split_once('=')?;
    let value = value.trim().trim_end_matches(';').trim();
    Some((name.trim().to_owned(), time(value).unwrap_or_else(|| value.to_owned())))
}

fn time(value: &str) -> Option<String> {
    let (unit, amount) = value.strip_prefix("Duration::from_")?.strip_suffix(')')?.split_once('(')?;
    let unit = match unit {
        "secs" => "s",
        "millis" => "ms",
        "mins" => "min",
        other => other,
    };
    Some(format!("{amount} {unit}"))
}
