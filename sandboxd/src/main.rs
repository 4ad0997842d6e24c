//! Arguments -> command -> exit code. One thread until a command starts more: providers fork helpers first.

fn main() -> std::process::ExitCode {
    freeboard_sandboxd::cli::main()
}
