//! How the engine's WebAssembly file is compiled. One place for the build script, which compiles it, and the worker, which
//! loads the result: wasmtime refuses code that was compiled with other settings.

/// Settings that end up in compiled code.
pub(crate) fn compiled(config: &mut wasmtime::Config, target: &str) -> Result<(), wasmtime::Error> {
    // Naming the target keeps the code to what every processor of the kind has: built here, it runs there.
    config.target(target)?;
    config.epoch_interruption(true);
    // Nobody unwinds through guest code or asks where in it a trap was: less to load and to register.
    config.native_unwind_info(false);
    config.generate_address_map(false);
    config.wasm_simd(false);
    config.wasm_relaxed_simd(false);
    config.wasm_multi_memory(false);
    config.wasm_memory64(false);
    Ok(())
}
