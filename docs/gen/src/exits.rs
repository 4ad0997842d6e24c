//! `exit-codes.md`: what the programs end with.

use freeboard_proxy::cli::Exit;

use crate::NOTICE;
use crate::source::{cell, items};

pub(crate) fn page() -> String {
    let mut page = format!("{NOTICE}\n# Exit codes\n\n## freeboard\n\n| code | meaning |\n|---|---|\n");
    for (exit, meaning) in Exit::ALL {
        page.push_str(&format!("| {} | {} |\n", *exit as u8, cell(meaning.trim())));
    }
    page.push_str("\n## sandboxd\n\n| ending | code and meaning |\n|---|---|\n");
    for item in items(include_str!("../../../sandboxd/src/cli/exit.rs"), "") {
        let name = item.code.split(['(', ',']).next().unwrap_or_default();
        if name.chars().all(char::is_alphanumeric) && item.code.ends_with(',') {
            page.push_str(&format!("| {name} | {} |\n", cell(&item.doc)));
        }
    }
    page
}
