//! What must hold for any bytes: one target for each parser. Bytes go in; a target panics when something that must hold does
//! not. `main` puts libFuzzer around them, the tests run them on every kept input and on mutations of those.

#![allow(clippy::panic, clippy::missing_panics_doc, reason = "a target says by panicking what does not hold")]

mod answers;
mod bodies;
mod files;
mod http1;
mod names;
mod requests;
mod tunnels;
mod uploads;

pub use bodies::{Kind, json_is_granted, judge, mcp_is_granted};

/// A parser and what must hold for it.
#[derive(Debug)]
pub struct Target {
    /// Also the folder of its inputs: `fuzz/corpus/NAME`.
    pub name: &'static str,
    pub entry: fn(&[u8]),
    /// What takes some seconds in a debug build.
    pub mutations: usize,
    /// What takes libFuzzer most of a minute. With a seed this number ends the fuzzing, not the clock, so that a slow machine and
    /// a fast one try the same inputs.
    pub a_minute: usize,
}

/// Every target: name, entry, mutations, inputs of a minute. A new one is a line here, and a first input in its folder.
#[macro_export]
macro_rules! for_each_target {
    ($make:ident) => {
        $make! {
            policy = files::policy, 400, 60_000;
            fmt = files::fmt, 800, 800_000;
            openapi = files::openapi, 300, 400_000;
            har = files::har, 1_000, 300_000;
            plimsoll = files::plimsoll, 1_000, 700_000;
            path = requests::path, 10_000, 800_000;
            query = requests::query, 10_000, 1_000_000;
            decide = requests::decide, 2_000, 40_000;
            json = bodies::json, 3_000, 1_000_000;
            graphql = bodies::graphql, 3_000, 1_000_000;
            mcp = bodies::mcp, 3_000, 1_000_000;
            push = bodies::push, 3_000, 800_000;
            fetch = bodies::fetch, 3_000, 1_000_000;
            hello = tunnels::hello, 10_000, 1_800_000;
            frames = tunnels::frames, 5_000, 1_600_000;
            head = http1::head, 5_000, 1_500_000;
            chunked = http1::chunked, 5_000, 1_000_000;
            signed = uploads::signed, 3_000, 500_000;
            dns = names::dns, 5_000, 2_200_000;
            scrub = answers::scrub, 500, 60_000;
            websocket = answers::websocket, 1_000, 50_000;
        }
    };
}

macro_rules! table {
    ($($name:ident = $entry:path, $mutations:literal, $a_minute:literal;)*) => {
        pub const TARGETS: &[Target] =
            &[$(Target { name: stringify!($name), entry: $entry, mutations: $mutations, a_minute: $a_minute }),*];
    };
}

for_each_target!(table);

pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
