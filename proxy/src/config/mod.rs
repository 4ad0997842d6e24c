//! `[broker]` of freeboard.toml: options -> load -> effective.
//!
//! [`options`] says which options there are, [`load`] reads a file and finds every mistake with its place,
//! [`effective`] lays flags over the file over the defaults and remembers where each value came from.

pub mod effective;
pub mod load;
pub mod options;
pub mod units;

#[cfg(test)]
mod tests;

pub use effective::{Config, Environment, ExplicitRun, Flags, Guard};
pub use load::{ConfigError, Problem};
