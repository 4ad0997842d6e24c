//! sandboxd: the life of a run.
//!
//! admit -> prepare (the broker says floor, ports and CA) -> create the boundary -> measure it -> compare with every
//! floor -> open the gate at the broker -> release the code -> collect -> close the gate -> destroy the boundary.
//! Nothing of the guest's traffic and no credential is ever in this process.

pub mod child;
pub mod job;
pub mod provider;
