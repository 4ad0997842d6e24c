//! CloseSession: ends a session and says how many calls it had, and which record was the last.

use freeboard_wire::{CloseSessionRequest, CloseSessionResponse, ConnectError};

use super::find;
use crate::api::refuse;
use crate::api::route::Context;

/// Waits for a call in progress. A second close of the same session says the same.
pub(in crate::api) async fn close(
    context: &Context<'_>,
    request: &CloseSessionRequest,
) -> Result<CloseSessionResponse, ConnectError> {
    refuse::protocol(request.protocol)?;
    let entry = find(context, &request.session_id)?;
    let summary = context.app.sessions.close(&entry).await;
    Ok(CloseSessionResponse {
        session: summary.fingerprint,
        calls: summary.chain.calls,
        last_record_sha256: summary.chain.last,
        ended: summary.ended.end.into(),
    })
}
