//! A gRPC body on its way, whose messages are measured as they pass.

use freeboard_policy::{GrpcMessageError, GrpcMessages, Reason};

use super::{Body, Fields};
use crate::error::Stop;

/// Passes a body on until a message is larger than its rule takes. Nothing of that message goes on.
#[derive(Debug)]
pub struct Measured<'b, B> {
    body: &'b mut B,
    messages: GrpcMessages,
    broken: Option<GrpcMessageError>,
}

impl<'b, B: Body> Measured<'b, B> {
    pub fn new(body: &'b mut B, messages: GrpcMessages) -> Self {
        Self { body, messages, broken: None }
    }
}

/// Why a body stops at a message.
pub fn stopped(error: GrpcMessageError) -> Stop {
    match error {
        GrpcMessageError::TooLarge(bytes) => {
            Stop::with(Reason::MessageTooLarge, format!("a gRPC message of {bytes} bytes"))
        }
        GrpcMessageError::Malformed => Stop::malformed("a gRPC message whose flag is neither 0 nor 1"),
    }
}

impl<B: Body> Body for Measured<'_, B> {
    async fn next(&mut self) -> Result<Option<&[u8]>, Stop> {
        if let Some(error) = self.broken {
            return Err(stopped(error));
        }
        let Some(piece) = self.body.next().await? else { return Ok(None) };
        self.messages.pass(piece).map_err(stopped)?;
        Ok(Some(piece))
    }

    fn whole(&mut self) -> Option<&[u8]> {
        let whole = self.body.whole()?;
        match self.messages.pass(whole) {
            Ok(()) => Some(whole),
            Err(error) => {
                self.broken = Some(error);
                None
            }
        }
    }

    fn is_done(&self) -> bool {
        self.body.is_done()
    }

    fn trailers(&mut self) -> Option<Fields> {
        self.body.trailers()
    }
}
