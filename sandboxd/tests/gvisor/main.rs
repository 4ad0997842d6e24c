//! Runs of the `gvisor` provider on this machine: what a program inside can do, what it cannot, what is left behind.
//!
//! Each test forks its own launcher. They need root, for the two ids of each run, and `runsc`, which `tests/run` installs;
//! as another user they say that they were skipped.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "../own_kernel/basics.rs"]
mod basics;
mod evidence;
#[path = "../own_kernel/gate.rs"]
mod gate;
#[path = "../own_kernel/isolation.rs"]
mod isolation;
#[path = "../own_kernel/lifecycle.rs"]
mod lifecycle;
#[path = "../own_kernel/limits.rs"]
mod limits;
#[path = "../own_kernel/pool.rs"]
mod pool;
#[path = "../own_kernel/sessions.rs"]
mod sessions;
mod support;
