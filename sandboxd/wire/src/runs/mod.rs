//! freeboard.v1: runs that outlive the exchange that started them, as JSON.
//!
//! Eight procedures of one service, each a POST with a JSON object: Start, Write, Get, List, Watch, Cancel, Grants, Limits. `message` holds the objects,
//! `check` what a Start may ask for, `digest` what a record of such a run promises.

mod base64_text;
mod check;
mod digest;
mod message;

pub use check::{MAX_IDEMPOTENCY_KEY_BYTES, MAX_STDIN_BYTES, idempotency_key, start, write};
pub use digest::{record_digest, result_digest};
pub use message::*;

/// The service as it appears in paths.
pub const SERVICE: &str = "freeboard.v1.Runs";
/// The version of the records of these runs. In version 1 the digest of a result did not cover requests and standard input.
pub const RECORD_VERSION: u32 = 2;
