//! Write: more standard input for a run that was started with it open.

use freeboard_wire::runs::{WriteRequest, WriteResponse};
use freeboard_wire::{Code, ConnectError, NotDispatchedReason};

use super::{decode, exchange_wait, find};
use crate::api::refuse;
use crate::api::route::Context;

pub(super) async fn write(context: &Context<'_>, body: &[u8]) -> Result<WriteResponse, ConnectError> {
    let request: WriteRequest = decode(body)?;
    freeboard_wire::runs::write(&request).map_err(|error| refuse::invalid(&error))?;
    let entry = find(context, &request.run)?;
    let refused = |code, text: String| ConnectError::refused(code, NotDispatchedReason::Request, text);
    let no_input = || refused(Code::FailedPrecondition, "the run has no standard input".to_owned());
    let input = entry.input.as_ref().ok_or_else(no_input)?;
    let WriteRequest { offset, data, end, wait_ms, .. } = &request;
    let put = tokio::select! {
        put = input.put_all(*offset, data, *end, exchange_wait(*wait_ms)) => put,
        // Nobody reads any more: what was taken until then is told.
        () = entry.wait_for_end() => input.put(*offset, &[], false),
    };
    let (taken, ended) = put.map_err(|gap| refused(Code::OutOfRange, gap.to_string()))?;
    Ok(WriteResponse { state: entry.state(), taken, ended })
}
