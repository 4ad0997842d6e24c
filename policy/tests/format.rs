//! The layout of files: stable, with every comment, and without a change of meaning.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "the crate reads no files; its tests read theirs")]

use std::fs;
use std::path::{Path, PathBuf};

use freeboard_policy::{Policy, SourceFile, format, render_all};
use proptest::prelude::*;

fn formatted(text: &str) -> String {
    format::format(&SourceFile::new("p.toml", text)).unwrap_or_else(|problem| panic!("{}", problem.render()))
}

/// Every file of the repository that holds policy and can be read.
fn policy_files() -> Vec<PathBuf> {
    let mut files = Vec::new();
    for folder in ["tests/accept", "tests/decisions", "../examples"] {
        walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut files);
    }
    assert!(files.len() > 8, "{files:?}");
    files
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            walk(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "toml") {
            files.push(path);
        }
    }
}

/// Every comment, in order. No text of these files has a `#` in it, so that everything behind one is a comment.
fn comments(text: &str) -> Vec<String> {
    text.lines().filter_map(|line| line.split_once('#')).map(|(_, words)| words.trim().to_owned()).collect()
}

#[test]
fn every_file_keeps_meaning_and_comments_and_formatting_twice_changes_nothing() {
    for path in policy_files() {
        let text = fs::read_to_string(&path).unwrap();
        let once = formatted(&text);
        assert_eq!(formatted(&once), once, "{}", path.display());
        assert_eq!(comments(&once), comments(&text), "{}", path.display());
        let digest = |text: &str| {
            let loaded = Policy::load(&[SourceFile::new("p.toml", text)]).ok()?;
            Some(loaded.policy.digest().to_string())
        };
        assert_eq!(digest(&once), digest(&text), "{}", path.display());
    }
}

#[test]
fn the_layout_is_the_documented_one() {
    let untidy = "\r\n# About the API.\r\n\r\n\r\n[api.a]\r\norigins=[ 'https://a.test',]   # one\r\n\r\n\r\ncredential =  \"c\"\n\
                  [credential.c]\nkind = \"bearer\"\ntoken={file=\"/c\"}\n\
                  [grant.g]\n  callers = [\n \"x\", \"y\" ]\nbudget = { calls=1 ,per_minute = 2}\n\
                  # the rules\n[[grant.g.allow]]\napi = \"a\"\nroutes = [\"GET /a\", # first\n\n  # about the second\n  \"DELETE   /b\",\n'POST /c' # last\n  # end\n]\n\
                  [[grant.g.deny]]\napi = \"a\"\nroutes = [ \"*    /secret\" ]\n\n# the end\n\n";
    insta::assert_snapshot!(formatted(untidy));
}

#[test]
fn a_directive_for_editors_stays_at_the_top() {
    let text = "#:schema ./policy.schema.json\n[api.a]\norigins = [\"https://a.test\"]\n";
    assert_eq!(formatted(text), text);
    assert_eq!(formatted(&format!("\n\n{text}")), text);
}

#[test]
fn texts_are_never_touched() {
    for kept in [
        "note = '''GET    /a\n  # no comment\n'''\n",
        "routes = [\"GET \\u0020 /a\"]\n",
        "text = \"a    b\"\n",
        "a.b = 1\na.c = { d = \"x,  y\" }\n",
    ] {
        assert_eq!(formatted(kept), kept);
    }
}

#[test]
fn a_file_that_is_no_toml_is_left_alone() {
    let problem = format::format(&SourceFile::new("p.toml", "[api.a\ntoken = \"secret\"\n")).unwrap_err();
    assert!(!problem.render().contains("secret"), "{}", problem.render());
}

/// Space between two things of a value: nothing, spaces, line ends, comments of their own or at the end of a line.
fn gap() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        4 => Just(""), 2 => Just("  "), 2 => Just("\n"), 1 => Just("\n\n\n "),
        1 => Just(" # c\n"), 1 => Just("\n# c ] }\n"), 1 => Just("# c, \"\n\n  # c\n"),
    ]
}

/// A value of any depth, with gaps wherever TOML takes them.
fn value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("1"),
        Just("'https:t'"),
        Just("\"GET   /a#s\""),
        Just("\"PATCH /a\""),
        Just("'''a\n #s b'''"),
        Just("\"\"\"a\nb\"\"\""),
        Just("\"a long text that leaves little of its line for what stands beside it, as a note may\""),
    ];
    leaf.prop_map(str::to_owned).prop_recursive(3, 12, 4, |inner| {
        let entries = prop::collection::vec((gap(), inner, gap()), 0..4);
        (entries, any::<bool>(), any::<bool>(), gap()).prop_map(|(entries, list, comma, end)| {
            let several = entries.iter().enumerate().map(|(index, (before, value, after))| {
                if list {
                    format!("{before}{value}{after}")
                } else {
                    format!("{before}k{index}={before}{value}{after}")
                }
            });
            let several: Vec<String> = several.collect();
            let comma = if comma && !several.is_empty() { "," } else { "" };
            let (open, close) = if list { ('[', ']') } else { ('{', '}') };
            format!("{open}{}{comma}{end}{close}", several.join(","))
        })
    })
}

/// The same data, without what a layout may change.
fn data(text: &str) -> toml::Table {
    fn tidy(value: &mut toml::Value) {
        match value {
            // A list of routes puts its paths under each other.
            toml::Value::String(text) => *text = text.split_whitespace().collect::<Vec<_>>().join(" "),
            toml::Value::Array(list) => list.iter_mut().for_each(tidy),
            toml::Value::Table(table) => table.iter_mut().for_each(|(_, value)| tidy(value)),
            _ => {}
        }
    }
    let mut table: toml::Table = text.parse().unwrap_or_else(|problem| panic!("{problem}\n{text}"));
    table.iter_mut().for_each(|(_, value)| tidy(value));
    table
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any spaces, blank lines, line ends and comments where TOML takes them.
    #[test]
    fn no_spelling_changes_the_meaning(
        gaps in prop::collection::vec((0..4_usize, 0..3_usize, any::<bool>(), any::<bool>()), 48),
        crlf in any::<bool>(),
    ) {
        let mut numbers = 0;
        let mut gaps = gaps.into_iter();
        // Spaces, what stands at the end of a line, and what stands above the next.
        let mut gap = || {
            let (spaces, lines, at_end, above) = gaps.next().unwrap_or((1, 0, false, false));
            let mut comment = |wanted: bool| {
                numbers += 1;
                if wanted { format!("# c{numbers}") } else { String::new() }
            };
            let (at_end, above) = (comment(at_end), comment(above));
            let blank = "\n".repeat(lines);
            let above = if above.is_empty() { blank } else { format!("{above}\n{blank}") };
            (" ".repeat(spaces), at_end, above)
        };
        let mut text = String::new();
        let lines = [
            "[credential.c]", "kind = \"bearer\"", "token.file = \"/c\"", "[api.a]", "origins = [\"https://a.test\"]",
            "credential = \"c\"", "trust.ca_file = \"/ca\"", "[grant.g]", "callers = [\"x\", \"y\"]", "floor = \"vm\"",
            "budget = {calls=1,per_minute = 2}", "[[grant.g.deny]]", "api = \"a\"", "routes = [\"* /secret\"]",
            "[[grant.g.allow]]", "api = \"a\"",
        ];
        for line in lines {
            let (spaces, at_end, above) = gap();
            let line = line.replace(" = ", &format!("{spaces}={spaces}"));
            text.push_str(&format!("{above}{spaces}{line}{spaces}{at_end}\n"));
        }
        text.push_str("routes = [");
        for route in ["GET|HEAD /a", "POST /b/{int}", "* /secret/{int}"] {
            let (spaces, at_end, above) = gap();
            let (_, at_comma, above_comma) = gap();
            let route = route.replace(' ', &format!(" {spaces}"));
            text.push_str(&format!("{at_end}\n{above}{spaces}\"{route}\"{spaces}{at_comma}\n{above_comma},"));
        }
        let (_, at_end, above) = gap();
        text.push_str(&format!("{at_end}\n{above}]\n{above}"));
        let text = if crlf { text.replace('\n', "\r\n") } else { text };
        let once = formatted(&text);
        prop_assert_eq!(&formatted(&once), &once);
        prop_assert_eq!(comments(&once), comments(&text), "{}", once);
        let digest = |text: &str| {
            let files = [SourceFile::new("p.toml", text)];
            Policy::load(&files).map(|loaded| loaded.policy.digest().to_string()).map_err(|problems| render_all(&problems))
        };
        prop_assert_eq!(digest(&once).unwrap(), digest(&text).unwrap(), "{}", once);
    }

    /// Lists and tables in each other, however they are written.
    #[test]
    fn values_of_any_depth_keep_data_and_comments(
        key in prop_oneof![Just("routes"), Just("k"), Just("a . b")], value in value(), at_end in prop_oneof![Just(""), Just(" # c\n")],
    ) {
        let text = format!("{key}  ={value}{at_end}\nz = 1");
        // Comments stand between `# c` and a line end; texts have `#s` in them.
        prop_assume!(text.parse::<toml::Table>().is_ok());
        let once = formatted(&text);
        prop_assert_eq!(&formatted(&once), &once, "{}", text);
        prop_assert_eq!(once.matches("# c").count(), text.matches("# c").count(), "{}\n{}", text, once);
        prop_assert_eq!(data(&once), data(&text), "{}", once);
    }
}
