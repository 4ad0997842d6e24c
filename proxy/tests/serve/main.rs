//! The real `freeboard` as a process: started, spoken to over its control socket, signalled, killed.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test says what it expects"
)]

mod broker;
mod commands;
mod confine;
mod control;
mod log;
mod metrics;
mod reload;
mod service;
mod start;
