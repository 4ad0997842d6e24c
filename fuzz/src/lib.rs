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

pub use bodies::{Kind, json_is_granted, judge, mcp_is_granted};

/// A parser and what must hold for it.
#[derive(Debug)]
pub struct Target {
    /// Also the folder of its inputs: `fuzz/corpus/NAME`.
    pub name: &'static str,
    pub entry: fn(&[u8]),
    /// What takes some seconds in a debug build.
    pub mutations: usize,
}

/// Every target: name, entry, mutations. A new one is a line here, and a first input in its folder.
#[macro_export]
macro_rules! for_each_target {
    ($make:ident) => {
        $make! {
            policy = files::policy, 400;
            fmt = files::fmt, 800;
            openapi = files::openapi, 300;
            har = files::har, 1_000;
            plimsoll = files::plimsoll, 1_000;
            path = requests::path, 10_000;
            query = requests::query, 10_000;
            decide = requests::decide, 2_000;
            json = bodies::json, 3_000;
            graphql = bodies::graphql, 3_000;
            mcp = bodies::mcp, 3_000;
            push = bodies::push, 3_000;
            fetch = bodies::fetch, 3_000;
            hello = tunnels::hello, 10_000;
            frames = tunnels::frames, 5_000;
            head = http1::head, 5_000;
            chunked = http1::chunked, 5_000;
            dns = names::dns, 5_000;
            scrub = answers::scrub, 500;
            websocket = answers::websocket, 1_000;
        }
    };
}

macro_rules! table {
    ($($name:ident = $entry:path, $mutations:literal;)*) => {
        pub const TARGETS: &[Target] =
            &[$(Target { name: stringify!($name), entry: $entry, mutations: $mutations }),*];
    };
}

for_each_target!(table);

pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
