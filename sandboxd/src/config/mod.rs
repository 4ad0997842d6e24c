//! Configuration: schema (the file) -> load (read, locate errors) -> effective (what holds, and where it came from).

mod effective;
pub mod hardened;
mod load;
mod schema;

pub use effective::{Config, Flags, Origin, Setting};
pub use load::{ConfigError, Environment, load};
pub use schema::Schema;
