//! What is measured about a run before its code is released, and what each tier requires.
//!
//! [`process`] reads the live first process of a sandbox from outside, through the host's /proc. Every fact says
//! whether it meets what tier `container` requires; one that does not, and nothing runs.

pub(crate) mod container;
pub mod process;

pub use container::{Expected, measure};
