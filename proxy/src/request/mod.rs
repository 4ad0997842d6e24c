//! One request model for every protocol and door. Anything with two readings is refused while it is made.

pub mod body;
pub mod fields;
pub mod head;
pub mod held;
pub mod measured;
pub mod name;
pub mod pace;
pub mod place;

pub use body::{Body, Length, NoBody};
pub use fields::{Field, Fields};
pub use head::{RequestHead, Version, Websocket};
pub use pace::{Answered, Pace};
pub use place::{Name, Place};
