//! Doc comments of items, read from their source: for constants and variants, which leave no trace in the program.

/// An item with its doc comment and its code up to the `;` or `,`.
pub(crate) struct Item {
    pub(crate) doc: String,
    pub(crate) code: String,
}

/// Documented lines of `text` that begin with `start`. A comment goes on over several lines; so may the code.
pub(crate) fn items(text: &str, start: &str) -> Vec<Item> {
    let mut items = Vec::new();
    let mut doc: Vec<&str> = Vec::new();
    let mut lines = text.lines().map(str::trim);
    while let Some(line) = lines.next() {
        if let Some(comment) = line.strip_prefix("///") {
            doc.push(comment.trim());
            continue;
        }
        if line.starts_with("#[") {
            continue;
        }
        if line.starts_with(start) && !doc.is_empty() {
            let mut code = line.to_owned();
            while !code.ends_with([';', ',', '{']) {
                let Some(more) = lines.next() else { break };
                code.push(' ');
                code.push_str(more);
            }
            items.push(Item { doc: doc.join(" "), code });
        }
        doc.clear();
    }
    items
}

/// Text for a table cell.
pub(crate) fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ").replace('<', "&lt;")
}
