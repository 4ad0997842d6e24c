//! Runs of the `gvisor` provider on this machine: what a program inside can do, what it cannot, what is left behind.
//!
//! Each test forks its own launcher. They need root, for the two ids of each run, and `runsc`, which `tests/run` installs;
//! as another user they say that they were skipped.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod basics;
mod gate;
mod isolation;
mod lifecycle;
mod limits;
mod support;
