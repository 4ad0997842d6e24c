//! Compiles the JavaScript engine's WebAssembly file to machine code, so that no run and no start of sandboxd does.
//!
//! In: `src/provider/wasm/engine/quickjs.wasm` and its stored digest. Out: `quickjs.cwasm` in `OUT_DIR`, embedded by the
//! worker. A file that does not have the stored digest stops the build.

use std::error::Error;
use std::path::Path;

use sha2::{Digest, Sha256};

#[path = "src/provider/wasm/engine_config.rs"]
mod engine_config;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = Path::new("src/provider/wasm/engine");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/provider/wasm/engine_config.rs");
    println!("cargo:rerun-if-changed={}", folder.join("quickjs.wasm").display());
    println!("cargo:rerun-if-changed={}", folder.join("quickjs.wasm.sha256").display());

    let wasm = std::fs::read(folder.join("quickjs.wasm"))?;
    let stored = std::fs::read_to_string(folder.join("quickjs.wasm.sha256"))?;
    let stored = stored.split_whitespace().next().unwrap_or_default();
    let digest = format!("{:x}", Sha256::digest(&wasm));
    if digest != stored {
        return Err(
            format!("quickjs.wasm has SHA-256 {digest}, stored is {stored}: run engine/build.sh").into()
        );
    }

    let target = std::env::var("TARGET")?;
    let mut config = wasmtime::Config::new();
    engine_config::compiled(&mut config, &target)?;
    config.cranelift_opt_level(wasmtime::OptLevel::Speed);
    let compiled = wasmtime::Engine::new(&config)?.precompile_module(&wasm)?;
    std::fs::write(Path::new(&std::env::var("OUT_DIR")?).join("quickjs.cwasm"), compiled)?;
    println!("cargo:rustc-env=FREEBOARD_ENGINE_SHA256={digest}");
    println!("cargo:rustc-env=FREEBOARD_ENGINE_TARGET={target}");
    link_own_unwinder()?;
    Ok(())
}

/// Gives the program an unwinder of its own instead of libgcc's shared one: a library less to find and to bind at each start,
/// and one that asks the processor a dozen questions, each of which costs microseconds where processors are emulated.
fn link_own_unwinder() -> Result<(), Box<dyn Error>> {
    if std::env::var("CARGO_CFG_TARGET_ENV")? != "gnu" {
        return Ok(());
    }
    let folder = Path::new(&std::env::var("OUT_DIR")?).join("link");
    std::fs::create_dir_all(&folder)?;
    // The standard library asks for the shared one by this name; the compiler's static halves of it are always there.
    std::fs::write(folder.join("libgcc_s.a"), "GROUP ( -lgcc_eh -lgcc )\n")?;
    println!("cargo:rustc-link-arg-bins=-L{}", folder.display());
    Ok(())
}
