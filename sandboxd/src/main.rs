//! Arguments -> command -> exit code. One thread until a command starts more: providers fork helpers first.

use std::process::ExitCode;

fn main() -> ExitCode {
    // First of all: sandboxd is also the program of its workers, which nothing else here should slow down.
    let worker = freeboard_sandboxd::provider::wasm::run_if_asked(std::env::args_os().skip(1));
    worker.unwrap_or_else(freeboard_sandboxd::cli::main)
}
