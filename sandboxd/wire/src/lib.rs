//! plimsoll.v1 on the wire: messages, their two encodings, limits, digests and errors. And freeboard.v1, in `runs`.
//!
//! Bytes of a request come in, checked values go out; answers and errors go the other way. Nothing here knows
//! HTTP, a clock or a sandbox, and nothing here decides what may run.
//!
//! `json` reads and writes proto3 JSON, strictly; `prost` does the binary form of the same structs; `check` holds the
//! limits that client and daemon share; `digest` computes what a run record promises; `error` is the error answer.

#![forbid(unsafe_code)]

pub mod check;
pub mod digest;
pub mod error;
pub mod json;
pub mod limits;
mod message;
pub mod runs;
mod word;

pub use error::{Code, ConnectError, Detail};
pub use message::*;
pub use word::{NotDispatchedReason, ProjectOutcome, SessionEnd, TIERS};

/// The protocol number that this crate speaks.
pub const PROTOCOL: u32 = 4;
/// The version of the records that live answers carry.
pub const RECORD_VERSION: u32 = 4;
/// The service as it appears in paths.
pub const SERVICE: &str = "plimsoll.v1.SandboxService";
