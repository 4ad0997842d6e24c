//! The `wasm` provider from outside: real workers, real programs.

mod harness;
mod language;
