//! What the whole-system tests share: a lab of real processes and sockets in a network of its own.
//!
//! ```text
//! ┌─ world: a network namespace ───────────────────────────┐   ┌─ one per run ─────────────────────┐
//! │ upstreams on 10.77.0.N:443, recording raw bytes        │   │ gate: lo, every address local,    │
//! │ the real `freeboard serve`, its log and policy in      │◄──┤ sockets handed to the broker      │
//! │ temporary folders                                      │   │ over its control socket           │
//! └────────────────────────────────────────────────────────┘   └───────────────────────────────────┘
//! ```
//!
//! Start with [`lab::Lab`]. Attack cases have ids (`A01`…); the test that shows one carries the id in its name.

#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on panics; this crate is used by tests only"
)]
#![allow(
    clippy::return_self_not_must_use,
    clippy::format_push_string,
    clippy::format_collect,
    reason = "builders of answers and servers, and short texts, read better so"
)]

pub mod answer;
pub mod audit;
pub mod broker;
pub mod ca;
pub mod canary;
pub mod dns;
pub mod expect;
pub mod h2;
pub mod lab;
pub mod nameserver;
pub mod network;
pub mod pressure;
pub mod probe;
pub mod real;
pub mod response;
pub mod sandbox;
pub mod upstream;
pub mod wait;
pub mod wire;
