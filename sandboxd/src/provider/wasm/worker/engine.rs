//! Loads the compiled engine once per worker, ready to be instantiated per run.

use std::sync::Arc;

use wasmtime::{
    Config, Enabled, Engine, InstanceAllocationStrategy, InstancePre, Linker, PoolingAllocationConfig,
};

use super::super::engine_config;
use super::Runs;
use super::host;
use super::run::Guest;
use crate::child::sys::EmbeddedCode;

/// The engine's machine code, made by the build script of this very build; used where it lies.
static COMPILED: &Aligned<[u8]> =
    &Aligned { bytes: *include_bytes!(concat!(env!("OUT_DIR"), "/quickjs.cwasm")) };

/// On a page border, for the largest pages that Linux has on the processors we know.
#[repr(C, align(65536))]
struct Aligned<T: ?Sized> {
    bytes: T,
}

/// Bytes of linear memory that are wiped and kept for the next run instead of being given back: what a small program
/// touches. Wiping a page costs less than a page fault.
const KEEP_RESIDENT_BYTES: usize = 4 << 20;
/// Entries of the function table: the engine has about 2,000.
pub(super) const TABLE_ELEMENTS: usize = 8192;
/// Machine stack of guest code in bytes, the most that wasmtime takes without asynchronous calls; at its end the instance
/// traps. The engine's own limit (engine/main.c) comes first in ordinary code.
const MAX_WASM_STACK_BYTES: usize = 2 << 20;

#[derive(Debug)]
pub(super) struct Loaded {
    pre: InstancePreOfGuest,
    pub(super) memory_bytes: usize,
}

struct InstancePreOfGuest(InstancePre<Guest>);

impl std::fmt::Debug for InstancePreOfGuest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("InstancePre")
    }
}

impl Loaded {
    pub(super) fn engine(&self) -> &Engine {
        self.pre.0.module().engine()
    }

    pub(super) fn pre(&self) -> &InstancePre<Guest> {
        &self.pre.0
    }
}

/// Loads the machine code. The first instance makes the copy-on-write image.
pub(super) fn load(memory_mib: u32, runs: Runs) -> Result<Loaded, wasmtime::Error> {
    let memory_bytes = (memory_mib as usize) << 20;
    let mut config = Config::new();
    engine_config::compiled(&mut config, env!("FREEBOARD_ENGINE_TARGET"))?;
    config.max_wasm_stack(MAX_WASM_STACK_BYTES);
    config.with_custom_code_memory(Some(Arc::new(EmbeddedCode)));
    config.allocation_strategy(match runs {
        Runs::Many => InstanceAllocationStrategy::Pooling(pool(memory_bytes)),
        // What a pool keeps for the next run costs more than it saves when there is none. The limits of memory and table
        // are those of `Guest`, with a pool as well.
        Runs::One => InstanceAllocationStrategy::OnDemand,
    });
    let engine = Engine::new(&config)?;
    let module = crate::child::sys::deserialize_embedded_module(&engine, &COMPILED.bytes)?;
    let mut linker = Linker::new(&engine);
    host::add_to(&mut linker)?;
    Ok(Loaded { pre: InstancePreOfGuest(linker.instantiate_pre(&module)?), memory_bytes })
}

/// Room for one instance, reserved once.
fn pool(memory_bytes: usize) -> PoolingAllocationConfig {
    let mut pool = PoolingAllocationConfig::default();
    pool.total_core_instances(1)
        .total_memories(1)
        .total_tables(1)
        .max_memories_per_module(1)
        .max_tables_per_module(1)
        .table_elements(TABLE_ELEMENTS)
        .max_memory_size(memory_bytes)
        .max_unused_warm_slots(1)
        .decommit_batch_size(1)
        .linear_memory_keep_resident(KEEP_RESIDENT_BYTES)
        .table_keep_resident(TABLE_ELEMENTS * size_of::<usize>())
        .pagemap_scan(Enabled::Auto);
    pool
}
