//! The parsers of what guests send: kept inputs, random changes of them, and random documents whose answer is known by how
//! they were made.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test reads its inputs from files and fails by panicking"
)]

use std::path::Path;

use freeboard_fuzz::{Kind, json_is_granted, judge, mcp_is_granted};
use freeboard_policy::Reason;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

/// The inputs that people wrote: `allow-*` are allowed, everything else is refused.
fn kept(kind: Kind) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(kind.word());
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files
        .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), std::fs::read(path).unwrap()))
        .filter(|(name, _)| !name.starts_with("seen-") && !name.starts_with("found-"))
        .collect();
    files.sort();
    files
}

#[test]
fn kept_inputs_keep_their_answers() {
    for kind in Kind::ALL {
        let inputs = kept(kind);
        assert!(inputs.iter().any(|(name, _)| name.starts_with("allow-")), "{kind:?}");
        for (name, bytes) in inputs {
            let answer = judge(kind, &bytes);
            assert_eq!(answer.is_ok(), name.starts_with("allow-"), "{kind:?} {name}: {answer:?}");
        }
    }
}

/// One change of some bytes, as a fuzzer makes them.
#[derive(Debug, Clone)]
enum Change {
    Set(usize, u8),
    Insert(usize, Vec<u8>),
    Cut(usize, usize),
    Repeat(usize, usize, usize),
}

fn change() -> impl Strategy<Value = Change> {
    let token = select(vec![
        "{",
        "}",
        "[",
        "]",
        "\"",
        "\\u0000",
        ",",
        ":",
        "null",
        "1e9",
        "...",
        "fragment F on Q",
        "@a",
        "$",
        "0000",
        "0001",
        "ffff",
        "PACK",
        "\0",
        "refs/heads/",
        "query",
        "\"query\":",
        "#",
        "\"\"\"",
        "want ",
        "\n",
    ]);
    prop_oneof![
        (any::<usize>(), any::<u8>()).prop_map(|(at, byte)| Change::Set(at, byte)),
        (any::<usize>(), token).prop_map(|(at, text)| Change::Insert(at, text.as_bytes().to_vec())),
        (any::<usize>(), 1..16_usize).prop_map(|(at, length)| Change::Cut(at, length)),
        (any::<usize>(), 1..32_usize, 1..64_usize)
            .prop_map(|(at, length, times)| Change::Repeat(at, length, times)),
    ]
}

fn changed(mut bytes: Vec<u8>, changes: &[Change]) -> Vec<u8> {
    for change in changes {
        let size = bytes.len();
        let place = |at: &usize| at % (size + 1);
        match change {
            Change::Set(at, byte) => {
                if let Some(found) = bytes.get_mut(place(at)) {
                    *found = *byte;
                }
            }
            Change::Insert(at, text) => drop(bytes.splice(place(at)..place(at), text.iter().copied())),
            Change::Cut(at, length) => drop(bytes.drain(place(at)..(place(at) + length).min(size))),
            Change::Repeat(at, length, times) => {
                let range = place(at)..(place(at) + length).min(size);
                let part = bytes[range.clone()].repeat(*times);
                drop(bytes.splice(range, part));
            }
        }
    }
    bytes
}

/// Something of JSON that the rule of the harness looks at, and something that it does not.
fn document() -> impl Strategy<Value = Value> {
    let state = select(vec![json!("open"), json!("closed"), json!("Open"), json!(1), Value::Null]);
    let n = select(vec![json!(0), json!(1), json!(9), json!(10), json!(5.5), json!("5")]);
    let tags = prop::collection::vec(select(vec![json!("a"), json!("B"), json!("abc"), json!(1)]), 0..3);
    (
        prop::option::of(state),
        prop::option::of(n),
        prop::option::of(tags),
        prop::option::of(Just(json!(true))),
    )
        .prop_map(|(state, n, tags, admin)| {
            let members = [("state", state), ("n", n), ("tags", tags.map(Value::Array)), ("admin", admin)];
            let there = members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
            Value::Object(there.collect())
        })
}

/// (as it is written, the root fields that it asks for)
fn selection() -> impl Strategy<Value = (String, Vec<&'static str>)> {
    let field = select(vec!["viewer", "repository", "users", "Viewer"]);
    let leaf = (
        field,
        select(vec!["", "viewer:", "a:"]),
        select(vec!["", "{id}", "(x:\"}users\"){id}", "@skip(if:true)"]),
    )
        .prop_map(|(field, alias, rest)| (format!("{alias}{field}{rest} "), vec![field]));
    leaf.prop_recursive(3, 8, 3, |inner| {
        prop::collection::vec(inner, 1..3).prop_map(|parts| {
            let text: String = parts.iter().map(|(text, _)| text.as_str()).collect();
            (format!("... on Query {{{text}}} "), parts.into_iter().flat_map(|(_, fields)| fields).collect())
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_change_of_an_input_makes_a_parser_panic(
        kind in select(Kind::ALL.to_vec()),
        which in any::<prop::sample::Index>(),
        changes in prop::collection::vec(change(), 1..8),
    ) {
        let inputs = kept(kind);
        let _ = judge(kind, &changed(which.get(&inputs).1.clone(), &changes));
    }

    #[test]
    fn json_is_taken_as_its_conditions_say(document in document()) {
        let answer = judge(Kind::Json, document.to_string().as_bytes());
        prop_assert_eq!(answer.is_ok(), json_is_granted(&document), "{} {:?}", document, answer);
    }

    #[test]
    fn no_spelling_hides_a_field_of_graphql(
        parts in prop::collection::vec(selection(), 1..4),
        as_fragment in any::<bool>(),
        mutation in prop::bool::weighted(0.1),
        batch in any::<bool>(),
    ) {
        let text: String = parts.iter().map(|(text, _)| text.as_str()).collect();
        let word = if mutation { "mutation" } else { "query" };
        let text = if as_fragment {
            format!("fragment F on Query {{{text}}} {word} {{...F}}")
        } else {
            format!("{word} {{{text}}}")
        };
        let body = if batch { json!([{ "query": "{viewer}" }, { "query": text }]) } else { json!({ "query": text }) };
        let granted = parts.iter().flat_map(|(_, fields)| fields).all(|field| ["viewer", "repository"].contains(field));
        prop_assert_eq!(judge(Kind::Graphql, body.to_string().as_bytes()).is_ok(), granted && !mutation, "{}", text);
    }

    #[test]
    fn a_push_is_taken_as_its_commands_say(
        commands in prop::collection::vec(
            (select(vec!["refs/heads/bot/a", "refs/heads/bot/b/c", "refs/heads/bot", "refs/heads/main", "refs/heads/Bot/a"]), 0..3_u8),
            1..4,
        ),
        cut in any::<prop::sample::Index>(),
    ) {
        let (null, some) = ("0".repeat(40), "1".repeat(40));
        let mut body = String::new();
        for (at, (name, change)) in commands.iter().enumerate() {
            let (old, new) = match change { 0 => (&null, &some), 1 => (&some, &null), _ => (&some, &some) };
            let capabilities = if at == 0 { "\0report-status" } else { "\n" };
            let line = format!("{old} {new} {name}{capabilities}");
            body.push_str(&format!("{:04x}{line}", line.len() + 4));
        }
        body.push_str("0000");
        if commands.iter().any(|(_, change)| *change != 1) { body.push_str("PACK"); }
        let granted = commands.iter().all(|(name, change)| name.starts_with("refs/heads/bot/") && *change != 2);
        prop_assert_eq!(judge(Kind::Push, body.as_bytes()).is_ok(), granted, "{:?}", commands);
        // A push that ends too early is never taken for a shorter one.
        let length = cut.index(body.len());
        let early = judge(Kind::Push, &body.as_bytes()[..length]);
        prop_assert!(early.is_err(), "{} of {}: {:?}", length, body, early);
    }

    #[test]
    fn every_message_of_a_batch_counts(
        messages in prop::collection::vec((select(vec!["initialize", "notifications/x", "tools/call", "tools/list", "x"]), select(vec!["search", "delete"]), 0..20_usize), 1..5),
    ) {
        let body: Vec<Value> = messages
            .iter()
            .map(|(method, tool, length)| {
                json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": { "name": tool, "arguments": { "q": "x".repeat(*length) } } })
            })
            .collect();
        let granted = body.iter().all(mcp_is_granted);
        prop_assert_eq!(judge(Kind::Mcp, Value::Array(body).to_string().as_bytes()).is_ok(), granted, "{:?}", messages);
    }
}

#[test]
fn an_empty_body_is_no_request_of_any_kind() {
    for kind in Kind::ALL {
        let answer = judge(kind, b"");
        let expected =
            if kind == Kind::Push { Reason::InspectionTruncated } else { Reason::InspectionMalformed };
        assert_eq!(answer, Err(expected), "{kind:?}");
    }
}
