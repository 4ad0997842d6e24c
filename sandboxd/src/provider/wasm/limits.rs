//! Every number of the `wasm` provider, with its unit, its reason and what happens at the limit.

use std::time::Duration;

/// Linear memory of one run in MiB: what agents' glue code needs, many times over. A run that needs more gets
/// allocation failures, and status 137 when nothing handles them.
pub const DEFAULT_MEMORY_MIB: u32 = 64;
/// Least linear memory that may be configured, MiB: the engine itself takes two.
pub const MIN_MEMORY_MIB: u32 = 4;
/// Most linear memory that may be configured, MiB: the compiled code reserves 4 GiB of addresses per worker.
pub const MAX_MEMORY_MIB: u32 = 1024;
/// Wall time of a run that names none.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest wall time of a run; more is clamped.
pub const MAX_TIMEOUT: Duration = Duration::from_mins(5);
/// Source text in bytes (256 KiB); more is not created.
pub const MAX_CODE_BYTES: usize = 256 << 10;
/// Largest message between sandboxd and a worker in bytes: a source text and the client surface of 64 APIs fit. More is
/// a fault; the worker ends.
pub const MAX_FRAME_BYTES: usize = 1 << 20;

/// Workers that live at once; a run beyond that waits for one, for at most `ACQUIRE_TIMEOUT`.
pub const MAX_WORKERS: usize = 64;
/// How long a run waits for a worker when all are busy; then it is refused and nothing ran.
pub const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);
/// Idle workers that are kept for callers who were served before; the one idle longest ends first.
pub const MAX_IDLE_WORKERS: usize = 16;
/// Workers that have served nobody and wait for a new caller.
pub const SPARE_WORKERS: usize = 1;
/// Runs after which a worker is replaced: bounds what a fault in one could pile up.
pub const MAX_RUNS_PER_WORKER: u64 = 100_000;
/// How long a new worker may take until it is locked down; then it is killed and the run refused.
pub const START_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a command leaves the processors to the worker that it has just forked; then it goes on beside it.
pub const HEAD_START: Duration = Duration::from_millis(2);
/// How long after the deadline a worker may take to say so; then it is killed and the run has timed out all the same.
pub const DEADLINE_GRACE: Duration = Duration::from_millis(500);

/// How often the deadline of running code is looked at. A run ends at most this much too late.
pub const EPOCH_TICK: Duration = Duration::from_millis(10);
/// Ticks without a run after which the ticking thread sleeps until the next run.
pub const IDLE_TICKS: u32 = 20;

/// Output that has waited this long is sent on although the run goes on.
pub const OUTPUT_LATENCY: Duration = Duration::from_millis(20);
/// Output bytes that are sent on at once.
pub const OUTPUT_CHUNK_BYTES: usize = 32 << 10;
/// Output of one run that is read and thrown away after its limit is full, in bytes per stream; then the run ends with
/// status 153, as a program that floods does elsewhere.
pub const OUTPUT_FLOOD_BYTES: u64 = 64 << 20;

/// Requests of one run that are open at once; more wait in the guest.
pub const MAX_EXCHANGES: usize = 16;
/// Requests of one run, open and waiting; `fetch` beyond that is rejected.
pub const MAX_WAITING_EXCHANGES: usize = 256;
/// Wall time of one request; then `fetch` is rejected and the connection closed.
pub const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(65);
/// Request head and body in bytes; `fetch` beyond that is rejected.
pub const MAX_REQUEST_HEAD_BYTES: usize = 32 << 10;
pub const MAX_REQUEST_BODY_BYTES: usize = 4 << 20;
/// Response head in bytes; a longer one is a failed `fetch`.
pub const MAX_RESPONSE_HEAD_BYTES: usize = 64 << 10;
/// Header fields of a response; more is a failed `fetch`.
pub const MAX_RESPONSE_FIELDS: usize = 128;
/// Response body in bytes; a longer one is a failed `fetch`.
pub const MAX_RESPONSE_BODY_BYTES: usize = 8 << 20;

/// Open descriptors of a worker: its own few, and one per request.
pub const WORKER_DESCRIPTORS: u64 = 64;
/// Addresses that a locked-down worker may still map beyond what it has, in bytes: request and response bodies.
pub const WORKER_SPARE_ADDRESSES: u64 = 512 << 20;
