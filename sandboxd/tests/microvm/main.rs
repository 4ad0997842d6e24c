//! Runs of the `microvm` provider on this machine: what a program inside can do, what it cannot, what is left behind.
//!
//! Each test forks its own launcher. They need root, for the tap and the id of each run, QEMU and a kernel, which `tests/run`
//! installs; without them they say that they were skipped. Where KVM runs no ordinary kernel the machines are translated:
//! the same tests, some seconds each.
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
