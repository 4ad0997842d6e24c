//! Runs of the `native` provider on this machine: what a program inside can do, what it cannot, what is left behind.
//!
//! Each test forks its own launcher. They run as root and as an ordinary user; where a host allows neither namespaces
//! nor root they fail, since nothing would be tested.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod basics;
mod support;
