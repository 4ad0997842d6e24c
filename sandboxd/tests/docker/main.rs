//! Runs of the `docker` provider with a real engine: what a program inside can do, what it cannot, what is left behind.
//!
//! Each test starts an engine of its own, with its data, its socket and its containers below a temporary folder, and an image
//! made of this host's files. They need root and `dockerd`, which `tests/run` installs; where it does not start they say so.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "../own_kernel/basics.rs"]
mod basics;
mod engine;
mod evidence;
#[path = "../own_kernel/gate.rs"]
mod gate;
mod lifecycle;
#[path = "../own_kernel/limits.rs"]
mod limits;
#[path = "../own_kernel/sessions.rs"]
mod sessions;
mod support;
