//! `freeboard`: arguments to configuration to app to exit code.

#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    freeboard_proxy::cli::main()
}
