#![no_main]

use freeboard_policy_fuzz::{Kind, judge};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = judge(Kind::Mcp, bytes);
});
