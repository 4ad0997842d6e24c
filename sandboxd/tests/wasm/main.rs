//! The `wasm` provider from outside: real workers, real programs, and a gate that the tests play themselves.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "helpers of tests may panic like the tests themselves"
)]

mod engine_file;
mod fetch;
mod gate;
mod harness;
mod isolation;
mod language;
mod limits;
