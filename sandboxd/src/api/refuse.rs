//! The one table from refusals and failures to wire errors. A mark is put on where the refusal is named, never by a
//! general mapping: a mark on a run that may have run makes callers run it twice.

use freeboard_policy::Reason;
use freeboard_wire::NotDispatchedReason as Mark;
use freeboard_wire::check::Invalid;
use freeboard_wire::digest::hex;
use freeboard_wire::{Code, ConnectError, Detail, PROTOCOL, SessionEnd};

use crate::admission::Full;
use crate::causes::chain;
use crate::control_client::BrokerError;
use crate::launch::{Refusal, RunError};
use crate::placement::Unplaced;
use crate::provider::{CreateError, RunFailure};
use crate::session::CallError;

/// The protocol number, checked before anything else in a message.
pub(super) fn protocol(number: u32) -> Result<(), ConnectError> {
    match number {
        PROTOCOL => Ok(()),
        0 => Err(ConnectError::refused(Code::InvalidArgument, Mark::Protocol, "`protocol` is missing")),
        other => {
            let text = format!("this daemon speaks protocol {PROTOCOL}, not {other}");
            Err(ConnectError::refused(Code::Unimplemented, Mark::Protocol, text))
        }
    }
}

/// A request outside the limits.
pub(super) fn invalid(invalid: &Invalid) -> ConnectError {
    let code = if invalid.is_size() { Code::ResourceExhausted } else { Code::InvalidArgument };
    ConnectError::refused(code, Mark::Request, invalid.to_string())
}

pub(super) fn full(full: Full) -> ConnectError {
    ConnectError::refused(Code::ResourceExhausted, Mark::Capacity, full.to_string())
}

pub(super) fn unsupported(text: impl Into<String>) -> ConnectError {
    ConnectError::refused(Code::Unimplemented, Mark::Unsupported, text)
}

/// Why a run has no result, for its caller. Details for operators go to the log under an error id.
pub(super) fn run_error(run: &str, error: &RunError) -> ConnectError {
    match error {
        RunError::Refused(refusal) => refused(run, refusal),
        RunError::Failed(RunFailure::Cancelled) => ConnectError::new(Code::Canceled, "the run was cancelled"),
        RunError::Failed(failure @ RunFailure::Lost(_)) => internal(run, failure),
    }
}

/// A session that serves no more calls; nothing ran.
pub(super) fn session_over(end: SessionEnd, detail: &str) -> ConnectError {
    let code = if end == SessionEnd::NotFound { Code::NotFound } else { Code::FailedPrecondition };
    let text = if detail.is_empty() { "the session has ended" } else { detail };
    ConnectError::refused(code, Mark::Request, text).with(Detail::session_ended(end, detail))
}

/// A call of a session without an outcome.
pub(super) fn call_error(run: &str, error: CallError) -> ConnectError {
    match error {
        CallError::Over(ended) => session_over(ended.end, &ended.detail),
        CallError::Refused(refusal) => refused(run, &refusal),
        CallError::Files(detail) => {
            let text = format!("the work directory does not take the cell's files: {detail}");
            ConnectError::refused(Code::InvalidArgument, Mark::Request, text)
        }
        CallError::NoInterpreter(_) => {
            let id = logged(run, &error);
            let text = format!("the interpreter cannot start (error {id}); nothing ran");
            ConnectError::refused(Code::Unimplemented, Mark::Environment, text)
        }
        CallError::ReadBack(_) => environment(run, &error),
        CallError::Failed(failure) => run_error(run, &RunError::Failed(failure)),
    }
}

fn refused(run: &str, refusal: &Refusal) -> ConnectError {
    let text = refusal.to_string();
    match refusal {
        Refusal::Grant => ConnectError::refused(Code::PermissionDenied, Mark::Permission, text),
        Refusal::NoBroker | Refusal::Port(_) => unsupported(text),
        Refusal::Broker(error) => broker(run, error),
        Refusal::Unplaced(Unplaced::Disabled) => {
            ConnectError::refused(Code::FailedPrecondition, Mark::Unsupported, text)
        }
        Refusal::Unplaced(Unplaced::Unsupported { .. }) => unsupported(text),
        Refusal::Unplaced(Unplaced::TooMuch(_)) => {
            ConnectError::refused(Code::OutOfRange, Mark::Unsupported, text)
        }
        Refusal::Unplaced(Unplaced::TooWeak { .. }) | Refusal::Measured { .. } => {
            ConnectError::refused(Code::FailedPrecondition, Mark::Isolation, text)
        }
        Refusal::Software => ConnectError::refused(Code::FailedPrecondition, Mark::Environment, text),
        Refusal::Full(reason) => full(*reason),
        Refusal::Create(CreateError::Unsupported { .. }) => unsupported(text),
        Refusal::Create(error) => environment(run, error),
        Refusal::Random | Refusal::Journal(_) => environment(run, refusal),
    }
}

fn broker(run: &str, error: &BrokerError) -> ConnectError {
    let BrokerError::Refused { reason, .. } = error else { return environment(run, error) };
    match reason {
        Reason::FloorNotMet | Reason::InsufficientIsolation => {
            let text = "the boundary is weaker than a grant allows";
            ConnectError::refused(Code::FailedPrecondition, Mark::Isolation, text)
        }
        Reason::RunLimit | Reason::BudgetExhausted => ConnectError::refused(
            Code::ResourceExhausted,
            Mark::Capacity,
            "the broker takes no further run now",
        ),
        _ => environment(run, error),
    }
}

/// Nothing ran because something here does not work; another daemon may do. `failed_precondition` would read as a
/// software mismatch to the public client.
fn environment(run: &str, error: &dyn std::error::Error) -> ConnectError {
    let id = logged(run, error);
    let text = format!("the run could not be started (error {id}); nothing ran");
    ConnectError::refused(Code::Unavailable, Mark::Environment, text)
}

/// After dispatch: no mark, generic words.
pub(super) fn internal(run: &str, error: &dyn std::error::Error) -> ConnectError {
    let id = logged(run, error);
    ConnectError::new(Code::Internal, format!("the run failed (error {id}); code may have run"))
}

/// Puts the whole chain into the log, under an id that the caller gets.
fn logged(run: &str, error: &dyn std::error::Error) -> String {
    let mut bytes = [0_u8; 4];
    // An id of zeros still finds the line by its run.
    let _ = getrandom::fill(&mut bytes);
    let id = hex(&bytes);
    tracing::error!(run, id, error = chain(error), "a run has no result");
    id
}
