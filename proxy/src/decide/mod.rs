//! Asks policy, and keeps what a run has left.

pub mod budget;
