//! A request body as the pipeline sees it, whatever protocol it came by.

use std::future::Future;

use super::{Answered, Fields};
use crate::error::Stop;

/// How long a body is said to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// There is no body.
    None,
    /// Exactly this many bytes; 0 is a body that is said to be empty.
    Sized(u64),
    /// Ends where its coding says so (chunked, END_STREAM).
    Unknown,
}

/// A body that is read piece by piece. Dropping a future of it midway leaves the guest's connection in an
/// unknown state: close it.
pub trait Body: Send {
    /// The next piece; `None` at the end. Pieces are never empty.
    ///
    /// # Errors
    /// `malformed`, `client_closed`, `client_timeout`.
    fn next(&mut self) -> impl Future<Output = Result<Option<&[u8]>, Stop>> + Send;

    /// The whole body where all of it has arrived already, without waiting; it is used up then.
    fn whole(&mut self) -> Option<&[u8]>;

    /// True when the end was read, so that the next request can follow.
    fn is_done(&self) -> bool;

    /// Fields after the body, once it is done.
    fn trailers(&mut self) -> Option<Fields>;

    /// Where a body that waits for the guest hears that its answer has begun, if that changes how long it waits.
    fn answered(&self) -> Option<&Answered>;
}

/// The body of a request that has none.
#[derive(Debug, Clone, Copy)]
pub struct NoBody;

impl Body for NoBody {
    async fn next(&mut self) -> Result<Option<&[u8]>, Stop> {
        Ok(None)
    }

    fn whole(&mut self) -> Option<&[u8]> {
        Some(&[])
    }

    fn is_done(&self) -> bool {
        true
    }

    fn trailers(&mut self) -> Option<Fields> {
        None
    }

    fn answered(&self) -> Option<&Answered> {
        None
    }
}
