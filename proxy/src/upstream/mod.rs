//! The upstream side: resolve, check, dial, verify, send, keep.

pub mod answer;
pub mod chain;
pub mod check;
pub mod counted;
pub mod dial;
pub mod frames;
pub mod health;
pub mod http2;
mod issuer;
pub mod pool;
pub mod resolve;
pub mod send;
pub mod trust;
pub mod unread;
pub mod websocket;
