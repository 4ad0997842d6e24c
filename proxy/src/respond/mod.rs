//! Answers to guests: the one table from cause to reply, and the sink that every protocol has for responses.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::error::Stop;
use crate::record::RequestId;
use crate::request::{Fields, Length};

mod guarded;
mod refusal;
mod tokens;

pub use guarded::{Found, Guarded};
pub use refusal::{Refused, refused};

/// The head of a response to a guest.
#[derive(Debug)]
pub struct ResponseHead {
    pub status: u16,
    /// End-to-end fields only.
    pub fields: Fields,
    pub length: Length,
    /// Content-Length of an answer without a body that states one (HEAD, 304).
    pub declared: Option<u64>,
    /// The connection ends after this response.
    pub close: bool,
    /// Sec-WebSocket-Accept of a 101.
    pub websocket_accept: Option<Box<[u8]>>,
}

/// Where the response of one exchange goes, whatever the protocol. Every method is a no-op error after a failure.
pub trait Sink: Send {
    /// Tells a guest that waits with its body to go on.
    ///
    /// # Errors
    /// The guest is gone.
    fn go_on(&mut self) -> impl Future<Output = Result<(), Stop>> + Send;

    /// Sends the head with the first bytes of the body, in one write where that can be. `last`: the body is complete.
    ///
    /// # Errors
    /// The guest is gone or does not read.
    fn begin(
        &mut self,
        head: &ResponseHead,
        first: &[u8],
        last: bool,
    ) -> impl Future<Output = Result<(), Stop>> + Send;

    /// Sends more of the body.
    ///
    /// # Errors
    /// The guest is gone or does not read.
    fn data(&mut self, bytes: &[u8]) -> impl Future<Output = Result<(), Stop>> + Send;

    /// Ends the body.
    ///
    /// # Errors
    /// The guest is gone or does not read.
    fn end(&mut self, trailers: Option<&Fields>) -> impl Future<Output = Result<(), Stop>> + Send;

    /// True once a head was sent: a refusal has no place any more.
    fn has_begun(&self) -> bool;

    /// Set once the guest has cancelled the exchange, where the protocol can tell: its record says so.
    fn left(&self) -> Option<Arc<AtomicBool>> {
        None
    }

    /// Sends the answer for `stop`, where nothing was sent before.
    ///
    /// # Errors
    /// The guest is gone or does not read.
    fn refuse(
        &mut self,
        stop: &Stop,
        id: RequestId,
        close: bool,
    ) -> impl Future<Output = Result<u16, Stop>> + Send {
        async move {
            let Refused { head, body } = refused(stop, id, close);
            self.begin(&head, &body, true).await?;
            Ok(head.status)
        }
    }
}
