//! HTTP/1.1 on the wire, for both sides: streams, pooled buffers, a strict reader of heads and chunks, a writer.
//!
//! Bytes go in, parsed parts come out, and what is written is written from parsed parts only. Whatever has two
//! readings is an error here (ATTACKS class B).

mod ahead;
mod alarm;
pub mod body;
mod buffer;
pub mod chunked;
pub mod head;
mod input;
mod stream;
pub mod write;

pub use ahead::ReadAhead;
pub use alarm::Patience;
pub use buffer::Scratch;
pub use input::Input;
pub use stream::{Socket, Stream, Wire};
