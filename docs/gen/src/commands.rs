//! `cli.md`: every command with its help, as the programs print it.

use clap::Command;

use crate::NOTICE;

pub(crate) fn page() -> String {
    let mut page = format!(
        "{NOTICE}\n# Command line\n\nWhat the programs print with `--help`. Exit codes: [exit-codes.md](exit-codes.md).\n"
    );
    for program in [freeboard_proxy::cli::definition(), freeboard_sandboxd::cli::definition()] {
        let mut program = program.term_width(100);
        program.build();
        command(&mut page, &program, &mut Vec::new());
    }
    page
}

fn command(page: &mut String, definition: &Command, path: &mut Vec<String>) {
    path.push(definition.get_name().to_owned());
    let help = definition.clone().term_width(100).render_long_help().to_string();
    let help: Vec<&str> = help.trim_end().lines().map(str::trim_end).collect();
    page.push_str(&format!("\n## {}\n\n```text\n{}\n```\n", path.join(" "), squeezed(&help)));
    for sub in definition.get_subcommands().filter(|sub| sub.get_name() != "help" && !sub.is_hide_set()) {
        command(page, sub, path);
    }
    path.pop();
}

/// Lines without two empty ones in a row.
fn squeezed(lines: &[&str]) -> String {
    let mut out: Vec<&str> = Vec::new();
    for line in lines {
        if !(line.is_empty() && out.last().is_some_and(|last| last.is_empty())) {
            out.push(line);
        }
    }
    out.join("\n")
}
