//! Stage 2: TLS towards guests, who see leaves of our own CA.
//!
//! [`CertificateAuthority`] is the interception CA, [`LeafMint`] signs leaves with it, [`Authority`] caches what is
//! served for each name.

mod authority;
mod ca;
pub mod hello;
mod leaf;
mod rotation;
pub mod terminate;

#[cfg(test)]
mod tests;

pub use authority::{Authority, AuthorityError};
pub use ca::{CaError, CertificateAuthority, NewCa};
pub use leaf::{Leaf, LeafMint, LeafName};
pub use rotation::{Rotation, Stage};
