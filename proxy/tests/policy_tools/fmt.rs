//! `freeboard policy fmt`

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::{folder, policy, policy_with_input, seen, text};

const UNTIDY: &str = "[api.a]\norigins=['https://a.test']\n\n\n\n[grant.g]\ncallers = [ \"x\",\n  \"y\" ] # both\n[[grant.g.allow]]\napi=\"a\"\nroutes = [\"GET /a\",\n\"DELETE /b\"]\n";
const TIDY: &str = "[api.a]\norigins = ['https://a.test']\n\n[grant.g]\ncallers = [\"x\", \"y\"] # both\n\n[[grant.g.allow]]\napi = \"a\"\nroutes = [\n  \"GET    /a\",\n  \"DELETE /b\",\n]\n";
const CASES: &str = "[[case]]\nrequest=\"GET https://a.test/a\"\ncaller = \"x\"\nexpect = \"allow\"\n";

fn read(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).unwrap()
}

#[test]
fn a_folder_is_laid_out_in_place_and_a_second_time_changes_nothing() {
    let folder =
        folder(&[("a.toml", UNTIDY), ("deep/b.test.toml", CASES), ("note.txt", "x=1"), (".h.toml", "x=1")]);
    let private = std::fs::Permissions::from_mode(0o640);
    std::fs::set_permissions(folder.path().join("a.toml"), private).unwrap();
    insta::assert_snapshot!(seen(&policy(folder.path(), &["fmt", "."])), @r"
    status 0
    --- stdout
    2 files formatted, 0 as before
    --- stderr
    formatted `a.toml`
    formatted `deep/b.test.toml`
    ");
    assert_eq!(read(folder.path(), "a.toml"), TIDY);
    assert!(read(folder.path(), "deep/b.test.toml").contains("request = \"GET"));
    assert_eq!(
        (read(folder.path(), "note.txt"), read(folder.path(), ".h.toml")),
        ("x=1".into(), "x=1".into())
    );
    let mode = std::fs::metadata(folder.path().join("a.toml")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640, "the mode of a file stays");
    insta::assert_snapshot!(seen(&policy(folder.path(), &["fmt", "."])), @r"
    status 0
    --- stdout
    0 files formatted, 2 as before
    --- stderr
    ");
    let left: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 4, "nothing stays behind: {left:?}");
}

#[test]
fn check_names_the_files_that_would_change_and_writes_nothing() {
    let folder = folder(&[("a.toml", UNTIDY), ("b.toml", TIDY)]);
    insta::assert_snapshot!(seen(&policy(folder.path(), &["fmt", "--check", "."])), @r"
    status 1
    --- stdout
    --- stderr
    `a.toml` is laid out in another way
    hint: `freeboard policy fmt` without `--check` lays the files out
    ");
    assert_eq!(read(folder.path(), "a.toml"), UNTIDY);
    assert_eq!(policy(folder.path(), &["fmt", "--check", "b.toml"]).status.code(), Some(0));
}

#[test]
fn standard_input_goes_to_standard_output() {
    let here = folder(&[]);
    let output = policy_with_input(here.path(), &["fmt", "-"], UNTIDY);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), TIDY.to_owned()));
    assert_eq!(text(&output.stderr), "");
    let check = policy_with_input(here.path(), &["fmt", "--check", "-"], UNTIDY);
    assert_eq!((check.status.code(), text(&check.stdout)), (Some(1), String::new()));
    assert_eq!(policy_with_input(here.path(), &["fmt", "--check", "-"], TIDY).status.code(), Some(0));
}

#[test]
fn the_meaning_stays() {
    let folder = folder(&[("a.toml", UNTIDY)]);
    let digest = || text(&policy(folder.path(), &["check", "."]).stdout);
    let before = digest();
    assert_eq!(policy(folder.path(), &["fmt", "."]).status.code(), Some(0));
    assert_eq!(digest(), before);
    assert!(before.contains("digest "), "{before}");
}

#[test]
fn a_file_that_cannot_be_read_is_shown_and_left_alone_and_the_others_are_laid_out() {
    let broken = "[api.a\nx=1\n";
    let folder = folder(&[("a.toml", broken), ("b.toml", UNTIDY)]);
    let output = policy(folder.path(), &["fmt", "."]);
    assert_eq!(output.status.code(), Some(1), "{}", seen(&output));
    assert!(text(&output.stderr).contains("a.toml:1:"), "{}", seen(&output));
    assert_eq!(
        (read(folder.path(), "a.toml"), read(folder.path(), "b.toml")),
        (broken.to_owned(), TIDY.to_owned())
    );
    assert_eq!(policy(folder.path(), &["fmt", "absent"]).status.code(), Some(2));
}
