//! `freeboard`: arguments to configuration to app to exit code.

#![forbid(unsafe_code)]

/// A request makes some forty short-lived allocations on one thread, and its record is freed on another. With the system's
/// allocator they were a tenth of an HTTP/2 request's cost (docs/benchmarks.md). Built without huge pages: each arena would
/// begin with several of 2 MiB, of which an idle broker uses a tenth.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    freeboard_proxy::cli::main()
}
