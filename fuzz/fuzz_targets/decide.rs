#![no_main]

#[path = "../../policy/tests/fuzz/entries.rs"]
#[allow(dead_code, reason = "each target uses one of the entries")]
mod entries;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entries::decide(data));
