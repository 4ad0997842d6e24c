//! Sessions are not offered: each call says so, marked, so that a caller may go elsewhere. The protocol number is
//! checked all the same.

use freeboard_wire::{
    CloseSessionRequest, CloseSessionResponse, ConnectError, OpenSessionRequest, OpenSessionResponse,
    SessionRunRequest, SessionRunResponse,
};

use super::refuse;

const TEXT: &str = "this daemon offers no sessions";

pub(super) fn open(request: &OpenSessionRequest) -> Result<OpenSessionResponse, ConnectError> {
    refuse::protocol(request.protocol)?;
    Err(refuse::unsupported(TEXT))
}

pub(super) fn run(request: &SessionRunRequest) -> Result<SessionRunResponse, ConnectError> {
    refuse::protocol(request.protocol)?;
    Err(refuse::unsupported(TEXT))
}

pub(super) fn close(request: &CloseSessionRequest) -> Result<CloseSessionResponse, ConnectError> {
    refuse::protocol(request.protocol)?;
    Err(refuse::unsupported(TEXT))
}
