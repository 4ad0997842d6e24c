//! libFuzzer around one target, which the environment names: `FREEBOARD_FUZZ_TARGET=path freeboard-fuzz FOLDER …`. One program
//! for all, because linking one for each takes longer than it helps. `tests/fuzz` builds and runs it.

#![no_main]

use std::sync::LazyLock;

/// A wrong name ends the run: a target that is not there must not pass for one that found nothing.
static TARGET: LazyLock<&freeboard_fuzz::Target> = LazyLock::new(|| {
    let name = std::env::var("FREEBOARD_FUZZ_TARGET").unwrap_or_default();
    freeboard_fuzz::find(&name).unwrap_or_else(|| {
        freeboard_fuzz::TARGETS.iter().for_each(|target| println!("{} {}", target.name, target.a_minute));
        eprintln!("FREEBOARD_FUZZ_TARGET is `{name}`, and must be one of these");
        std::process::exit(2)
    })
});

libfuzzer_sys::fuzz_target!(
    init: {
        LazyLock::force(&TARGET);
    },
    |data: &[u8]| (TARGET.entry)(data)
);
