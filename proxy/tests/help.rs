//! What `freeboard --help` and each of its commands print.
#![expect(clippy::unwrap_used, reason = "a program that cannot be run fails the test")]

use std::process::Command;

/// The help of a command and of everything below it, as the program prints it.
fn help(definition: &clap::Command, words: &mut Vec<String>, out: &mut String) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_freeboard"));
    let output = program.args(words.iter()).arg("--help").env("COLUMNS", "100").output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{words:?}: {output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    out.push_str(&format!(
        "$ freeboard {}\n{}\n",
        [words.join(" ").as_str(), "--help"].join(" ").trim(),
        lines.join("\n")
    ));
    for sub in definition.get_subcommands().filter(|sub| sub.get_name() != "help" && !sub.is_hide_set()) {
        words.push(sub.get_name().to_owned());
        help(sub, words, out);
        words.pop();
    }
}

#[test]
fn help_of_every_command() {
    let mut out = String::new();
    help(&freeboard_proxy::cli::definition(), &mut Vec::new(), &mut out);
    insta::assert_snapshot!(out);
}
