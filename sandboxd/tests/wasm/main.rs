//! The `wasm` provider from outside: real workers, real programs, and a gate that the tests play themselves.

mod engine_file;
mod fetch;
mod gate;
mod harness;
mod isolation;
mod language;
mod limits;
