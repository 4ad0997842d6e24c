//! `diagnostics/`: a page for each problem that a policy can have, from the table that `freeboard policy explain-code` prints.

use freeboard_policy::Severity;
use freeboard_policy::pages::Page as Diagnostic;

use crate::source::cell;
use crate::{NOTICE, Page};

pub(crate) fn pages() -> impl Iterator<Item = Page> {
    let single = Diagnostic::all().map(|page| {
        let name = format!("diagnostics/{}.md", page.short());
        (name, format!("{NOTICE}\n{}", page.render()))
    });
    single.chain(std::iter::once(("diagnostics/README.md".to_owned(), index())))
}

fn index() -> String {
    let mut page = format!(
        "{NOTICE}\n# Problems of policies\n\nThe code stands in brackets before each problem, and `freeboard policy explain-code CODE` prints its page. A code never changes \
         its meaning.\n\n| code | name | severity | meaning |\n|---|---|---|---|\n"
    );
    for diagnostic in Diagnostic::all() {
        let severity = match diagnostic.found().first().map(|found| found.severity) {
            Some(Severity::Warning) => "warning",
            _ => "error",
        };
        let (short, words) = (diagnostic.short(), diagnostic.words());
        let meaning = cell(diagnostic.code.meaning().trim());
        page.push_str(&format!("| [{short}]({short}.md) | {words} | {severity} | {meaning} |\n"));
    }
    page
}
