//! The arrows between crates, the stages of the broker, and where `unsafe` may stand. The lists double as documentation.
#![expect(
    clippy::expect_used,
    reason = "helpers of tests: a file of the tree that cannot be read fails the test"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Which crates of the workspace each crate may use. A new arrow is a decision: write it down in docs/decisions first.
const CRATES: &[(&str, &str, &[&str])] = &[
    ("policy", "freeboard-policy", &[]),
    ("netns", "freeboard-netns", &[]),
    ("proxy/audit", "freeboard-audit", &["freeboard-policy"]),
    ("proxy/control", "freeboard-control", &["freeboard-policy"]),
    ("proxy", "freeboard-proxy", &["freeboard-policy", "freeboard-audit", "freeboard-control"]),
    ("sandboxd/wire", "freeboard-wire", &[]),
    ("sandboxd/guest", "freeboard-guest", &["freeboard-netns"]),
    ("sandboxd/clients/rust", "freeboard-client", &["freeboard-wire"]),
    (
        "sandboxd",
        "freeboard-sandboxd",
        &[
            "freeboard-policy",
            "freeboard-netns",
            "freeboard-control",
            "freeboard-wire",
            "freeboard-guest",
            "freeboard-client",
        ],
    ),
];

/// Stages of the broker in the order in which a request passes them. A stage may name an earlier one, never a later
/// one; `pipeline`, `app` and the doors know the order and may name all.
const STAGES: &[&str] = &["tls", "request", "decide", "credential", "upstream", "record"];

/// The only files that may hold `unsafe`.
const UNSAFE_FILES: &[&str] = &["netns/src/sys.rs", "sandboxd/src/child/sys.rs"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests folder is in the workspace").to_owned()
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).expect("a source folder can be read") {
        let path = entry.expect("a folder entry can be read").path();
        if path.is_dir() && path.file_name().is_none_or(|name| name != "target") {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

/// The names of workspace crates in one section of a manifest.
fn arrows(manifest: &str, section: &str) -> Vec<String> {
    let mut inside = false;
    let mut found = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            inside = line.trim() == section;
        } else if inside && line.starts_with("freeboard-") {
            let end = line.find(['.', ' ', '=']).unwrap_or(line.len());
            found.push(line[..end].to_owned());
        }
    }
    found
}

#[test]
fn crates_point_one_way() {
    for (folder, name, allowed) in CRATES {
        let manifest =
            fs::read_to_string(root().join(folder).join("Cargo.toml")).expect("the manifest can be read");
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{folder} is not {name}");
        for arrow in arrows(&manifest, "[dependencies]") {
            assert!(allowed.contains(&arrow.as_str()), "{name} must not use {arrow}");
        }
        assert!(arrows(&manifest, "[build-dependencies]").is_empty(), "{name} builds with a workspace crate");
    }
}

#[test]
fn the_arrow_test_sees_an_arrow() {
    let manifest = "[dependencies]\nfreeboard-netns.workspace = true\n[dev-dependencies]\nfreeboard-x = 1\n";
    assert_eq!(arrows(manifest, "[dependencies]"), ["freeboard-netns"]);
}

#[test]
fn stages_point_backwards_only() {
    for (place, stage) in STAGES.iter().enumerate() {
        let folder = root().join("proxy/src").join(stage);
        for file in rust_files(&folder) {
            let text = fs::read_to_string(&file).expect("a source file can be read");
            for later in &STAGES[place + 1..] {
                let arrow = format!("use crate::{later}");
                assert!(!text.contains(&arrow), "{} names the later stage `{later}`", file.display());
            }
        }
    }
}

#[test]
fn unsafe_stands_only_in_the_two_named_files() {
    let root = root();
    let mut seen = BTreeMap::new();
    for folder in ["policy", "netns", "proxy", "sandboxd", "docs", "tests"] {
        for file in rust_files(&root.join(folder)) {
            let text = fs::read_to_string(&file).expect("a source file can be read");
            let relative = file.strip_prefix(&root).expect("below the root").to_string_lossy().into_owned();
            let count = text.lines().filter(|line| is_unsafe(line)).count();
            if count > 0 {
                seen.insert(relative, count);
            }
        }
    }
    for (file, count) in &seen {
        assert!(UNSAFE_FILES.contains(&file.as_str()), "{file} holds `unsafe` {count} times");
    }
}

fn is_unsafe(line: &str) -> bool {
    let code = line.trim_start();
    !code.starts_with("//")
        && (code.contains(concat!("unsafe", " {"))
            || code.contains(concat!("unsafe", " fn"))
            || code.contains(concat!("unsafe", " impl")))
}

#[test]
fn the_unsafe_test_sees_unsafe() {
    assert!(is_unsafe(concat!("    let x = unsafe", " { call() };")));
    assert!(!is_unsafe(concat!("// no unsafe", " { here }")));
}

#[test]
fn policy_has_no_way_to_the_world() {
    for file in rust_files(&root().join("policy/src")) {
        let text = fs::read_to_string(&file).expect("a source file can be read");
        for banned in
            ["std::fs", "std::net::Tcp", "std::env", "std::time::SystemTime", "std::thread", "tokio"]
        {
            assert!(!text.contains(banned), "{} uses {banned}: policy is pure", file.display());
        }
    }
}

#[test]
fn every_dependency_comes_from_crates_io() {
    let lock = fs::read_to_string(root().join("Cargo.lock")).expect("the lock file can be read");
    for line in lock.lines().filter(|line| line.starts_with("source = ")) {
        assert_eq!(line, "source = \"registry+https://github.com/rust-lang/crates.io-index\"");
    }
    for banned in ["openssl-sys", "native-tls"] {
        assert!(!lock.contains(&format!("name = \"{banned}\"\n")), "one TLS stack: no {banned}");
    }
}
