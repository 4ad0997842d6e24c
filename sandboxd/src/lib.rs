//! sandboxd: the life of a run.
//!
//! admit -> prepare (the broker says floor, ports and CA) -> create the boundary -> measure it -> compare with every
//! floor -> open the gate at the broker -> release the code -> collect -> close the gate -> destroy the boundary.
//! Nothing of the guest's traffic and no credential is ever in this process.

pub mod admission;
pub mod api;
pub mod attest;
pub mod callers;
mod causes;
pub mod child;
pub mod cli;
pub mod config;
pub mod control_client;
pub mod evidence;
pub mod input;
pub mod isolate;
pub mod job;
mod kernel_file;
pub mod launch;
pub mod limits;
pub mod metrics;
pub mod placement;
pub mod provider;
pub mod runs;
pub mod session;
