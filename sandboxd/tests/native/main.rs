//! Runs of the `native` provider on this machine: what a program inside can do, what it cannot, what is left behind.
//!
//! Each test forks its own launcher. They run as they are (root or not); `without_root` runs them all once more as an
//! ordinary user when they were started as root. Where a host allows no namespaces they fail, since nothing would be
//! tested.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod basics;
mod calls;
mod files;
mod gate;
mod inheritance;
mod input;
mod lifecycle;
mod limits;
mod pool;
mod sessions;
mod support;
mod timing;
mod without_root;
