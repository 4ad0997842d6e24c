//! The targets, bounded: every kept input, then mutations of them. An input that fails is kept.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test reads its inputs from files and fails by panicking"
)]

use std::hash::{BuildHasher as _, Hasher as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use freeboard_fuzz::{TARGETS, Target, find, for_each_target};

/// Bytes of one input.
const INPUT_MAX_BYTES: usize = 16 * 1024;

/// Inputs of one target: what `tests/fuzz --keep` leaves, and those that people wrote.
const KEPT_MAX: usize = 100;

/// Pieces that make a mutation reach further than bytes do.
const WORDS: [&str; 32] = [
    "{int}",
    "{re:",
    "}",
    "{",
    "**",
    "*",
    "%2F",
    "%",
    "%00",
    "..",
    "//",
    ";",
    "\\",
    "?",
    "&",
    "=",
    "!",
    "|",
    "\n",
    "\"",
    "'",
    "[",
    "]",
    "[[grant.g.allow]]",
    "routes = [",
    "$ref",
    "#/",
    "&a",
    "*a",
    "<<: ",
    "\u{202e}",
    "\u{feff}",
];

/// xorshift64*: enough for mutations, and a seed repeats a run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let value = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(value).unwrap() % end.max(1)
    }
}

fn corpus(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target)
}

fn inputs(target: &str) -> Vec<Vec<u8>> {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(corpus(target)).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

fn mutated(random: &mut Random, kept: &[Vec<u8>]) -> Vec<u8> {
    let mut input = kept[random.below(kept.len())].clone();
    for _ in 0..=random.below(4) {
        let at = random.below(input.len() + 1);
        match random.below(6) {
            0 if at < input.len() => input[at] ^= 1 << random.below(8),
            1 if at < input.len() => {
                input.remove(at);
            }
            2 => input.insert(at, u8::try_from(random.below(256)).unwrap()),
            3 => drop(input.splice(at..at, WORDS[random.below(WORDS.len())].bytes())),
            4 => input.truncate(at),
            _ => {
                let other = &kept[random.below(kept.len())];
                let from = random.below(other.len() + 1);
                let until = (from + random.below(64)).min(other.len());
                drop(input.splice(at..at, other[from..until].iter().copied()));
            }
        }
    }
    input.truncate(INPUT_MAX_BYTES);
    input
}

fn run(target: &Target) {
    let kept = inputs(target.name);
    assert!(!kept.is_empty(), "`{}` has inputs to start from", target.name);
    for input in &kept {
        (target.entry)(input);
    }
    // A run is repeated with the seed that it printed.
    let seed = std::env::var("FREEBOARD_FUZZ_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| std::hash::RandomState::new().build_hasher().finish() | 1);
    println!("{}: FREEBOARD_FUZZ_SEED={seed}", target.name);
    let mut random = Random(seed);
    for _ in 0..target.mutations {
        let input = mutated(&mut random, &kept);
        if catch_unwind(AssertUnwindSafe(|| (target.entry)(&input))).is_err() {
            let path = corpus(target.name).join(format!("found-{seed:016x}"));
            std::fs::write(&path, &input).unwrap();
            panic!("an input fails; it is kept as `{}`: commit it with the correction", path.display());
        }
    }
}

/// One test for each target, so that they run side by side.
macro_rules! tests {
    ($($name:ident = $entry:path, $mutations:literal, $a_minute:literal;)*) => {
        $(#[test]
        fn $name() {
            run(find(stringify!($name)).unwrap());
        })*
    };
}

for_each_target!(tests);

#[test]
fn every_folder_has_a_target() {
    for entry in std::fs::read_dir(corpus("")).unwrap() {
        let folder = entry.unwrap().file_name();
        assert!(find(folder.to_str().unwrap()).is_some(), "{folder:?}");
    }
}

/// What is kept stays small enough to be read and to be run by every test.
#[test]
fn kept_inputs_are_few_and_small() {
    for target in TARGETS {
        let kept = inputs(target.name);
        let largest = kept.iter().map(Vec::len).max().unwrap_or(0);
        assert!(
            kept.len() <= KEPT_MAX && largest <= INPUT_MAX_BYTES,
            "{}: {} of up to {largest} bytes",
            target.name,
            kept.len()
        );
    }
}

#[test]
fn an_input_that_fails_is_noticed() {
    let kept = inputs("path");
    let mut random = Random(7);
    let found = (0..3000).any(|_| {
        let input = mutated(&mut random, &kept);
        catch_unwind(|| assert!(!input.contains(&b'\\'), "planted")).is_err()
    });
    assert!(found, "the mutations reach a backslash");
}
