//! The stored WebAssembly file of the engine is what its sources give.

use std::path::PathBuf;
use std::process::Command;

use sha2::{Digest as _, Sha256};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/provider/wasm/engine")
}

fn stored_digest() -> String {
    let text = std::fs::read_to_string(folder().join("quickjs.wasm.sha256")).unwrap();
    text.split_whitespace().next().unwrap().to_owned()
}

#[test]
fn the_stored_file_has_the_stored_digest_and_is_what_this_build_carries() {
    let bytes = std::fs::read(folder().join("quickjs.wasm")).unwrap();
    let digest = format!("{:x}", Sha256::digest(bytes));
    assert_eq!(digest, stored_digest());
    assert_eq!(digest, freeboard_sandboxd::provider::wasm::ENGINE_SHA256);
}

/// Every import is one of ours: there is no function through which the engine could reach anything else.
#[test]
fn the_stored_file_imports_six_functions_of_ours_and_nothing_else() {
    let engine = wasmi::Engine::default();
    let module = wasmi::Module::new(&engine, std::fs::read(folder().join("quickjs.wasm")).unwrap()).unwrap();
    let mut imports: Vec<_> =
        module.imports().map(|import| format!("{}.{}", import.module(), import.name())).collect();
    imports.sort();
    let ours = ["cancel", "monotonic_ms", "output", "random", "request", "wall_ms"]
        .map(|name| format!("freeboard.{name}"));
    assert_eq!(imports, ours);
}

/// Takes about a minute; skipped, and says so, where the compilers are not installed.
#[test]
fn the_sources_give_the_stored_file_again() {
    let needed = ["/usr/bin/clang-14", "/usr/bin/wasm-ld-14", "/usr/lib/wasm32-wasi/libc.a"];
    if let Some(missing) = needed.iter().find(|path| !std::path::Path::new(path).exists()) {
        eprintln!(
            "SKIPPED: {missing} is missing; install clang-14 lld-14 wasi-libc libclang-rt-14-dev-wasm32"
        );
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let file = out.path().join("quickjs.wasm");
    let built = Command::new(folder().join("build.sh")).arg(&file).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let digest = format!("{:x}", Sha256::digest(std::fs::read(&file).unwrap()));
    assert_eq!(digest, stored_digest(), "run engine/build.sh and store what it gives");
}
