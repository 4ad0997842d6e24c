//! Runs the engine's start-up once and writes a WebAssembly file that begins where it ended.
//!
//! `cargo run -p freeboard-sandboxd --example snapshot -- IN.wasm OUT.wasm`, from `src/provider/wasm/engine/build.sh`.
//! In: the linked engine. Out: the same with its memory as it is after `_initialize` and `snapshot`. Clocks stand still
//! and random bytes are zero while it runs, so that the output is the same every time; nothing that must differ between
//! runs may be drawn before the snapshot. An interpreter runs it: only the build script needs a WebAssembly compiler.
#![expect(clippy::expect_used, clippy::panic, reason = "a build tool stops loudly")]

use std::error::Error;

use wasmi::{Engine, Instance, Linker, Module, Store, Val};
use wasmtime_wizer::{InstanceState, SnapshotVal, ValType, Wizer};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(from), Some(to)) = (arguments.next(), arguments.next()) else {
        return Err("usage: snapshot IN.wasm OUT.wasm".into());
    };
    std::fs::write(to, take(&std::fs::read(from)?)?)?;
    Ok(())
}

fn take(wasm: &[u8]) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut wizer = Wizer::new();
    wizer.init_func("snapshot");
    let (context, instrumented) = wizer.instrument(wasm)?;
    let engine = Engine::default();
    let module = Module::new(&engine, instrumented)?;
    let mut linker = Linker::new(&engine);
    linker.func_wrap("freeboard", "output", |_: i32, _: i32, _: i32| {})?;
    linker.func_wrap("freeboard", "wall_ms", || 0.0_f64)?;
    linker.func_wrap("freeboard", "monotonic_ms", || 0.0_f64)?;
    linker.func_wrap("freeboard", "random", |_: i32, _: i32| {})?;
    linker.func_wrap("freeboard", "request", |_: i32, _: i32, _: i32, _: i32| -1_i32)?;
    linker.func_wrap("freeboard", "cancel", |_: i32| {})?;
    let mut store = Store::new(&engine, ());
    let instance = linker.instantiate_and_start(&mut store, &module)?;
    instance.get_typed_func::<(), ()>(&store, "_initialize")?.call(&mut store, ())?;
    match instance.get_typed_func::<(), i32>(&store, "snapshot")?.call(&mut store, ())? {
        0 => {}
        step => return Err(format!("the engine did not start: step {step}").into()),
    }
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    Ok(runtime.block_on(wizer.snapshot(&context, &mut State { store, instance }))?)
}

struct State {
    store: Store<()>,
    instance: Instance,
}

impl InstanceState for State {
    async fn global_get(&mut self, name: &str, _: ValType) -> SnapshotVal {
        let global = self.instance.get_global(&self.store, name).expect("the instrumented module exports it");
        match global.get(&self.store) {
            Val::I32(value) => SnapshotVal::I32(value),
            Val::I64(value) => SnapshotVal::I64(value),
            Val::F32(value) => SnapshotVal::F32(value.to_bits()),
            Val::F64(value) => SnapshotVal::F64(value.to_bits()),
            other => panic!("a global of type {other:?} cannot be kept"),
        }
    }

    async fn memory_contents(&mut self, name: &str, contents: impl FnOnce(&[u8]) + Send) {
        let memory = self.instance.get_memory(&self.store, name).expect("the instrumented module exports it");
        contents(memory.data(&self.store));
    }
}
