//! A body on its way, whose messages or whose size are measured as it passes.

use freeboard_policy::{BodyMeter, BodyMeterError, Reason};

use super::{Answered, Body, Fields};
use crate::error::Stop;

/// Passes a body on until it is more than its rule takes, if that says anything. Nothing of what is too much goes on.
#[derive(Debug)]
pub struct Measured<'b, B> {
    body: &'b mut B,
    meter: Option<BodyMeter>,
    broken: Option<BodyMeterError>,
}

impl<'b, B: Body> Measured<'b, B> {
    pub fn new(body: &'b mut B, meter: Option<BodyMeter>) -> Self {
        Self { body, meter, broken: None }
    }
}

/// Why a body stops at a message.
pub fn stopped(error: BodyMeterError) -> Stop {
    match error {
        BodyMeterError::PackTooLarge(limit) => {
            Stop::with(Reason::BodyTooLarge, format!("a push of more than {limit} bytes"))
        }
        BodyMeterError::MessageTooLarge(bytes) => {
            Stop::with(Reason::MessageTooLarge, format!("a gRPC message of {bytes} bytes"))
        }
        BodyMeterError::MalformedMessage => Stop::malformed("a gRPC message whose flag is neither 0 nor 1"),
    }
}

impl<B: Body> Body for Measured<'_, B> {
    async fn next(&mut self) -> Result<Option<&[u8]>, Stop> {
        if let Some(error) = self.broken {
            return Err(stopped(error));
        }
        let Some(piece) = self.body.next().await? else { return Ok(None) };
        if let Some(meter) = &mut self.meter {
            meter.pass(piece).map_err(stopped)?;
        }
        Ok(Some(piece))
    }

    fn whole(&mut self) -> Option<&[u8]> {
        let whole = self.body.whole()?;
        match self.meter.as_mut().map_or(Ok(()), |meter| meter.pass(whole)) {
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

    fn answered(&self) -> Option<&Answered> {
        self.body.answered()
    }
}
