//! freeboard.v1: Start, Write, Get, List, Watch and Cancel of runs that outlive their exchange; Grants, what such runs may reach.

mod grants;
mod limits;
mod start;
mod view;
mod write;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use freeboard_wire::runs::{
    CancelRequest, GetRequest, ListRequest, ListResponse, Run, SERVICE, WatchRequest, WatchResponse,
};
use freeboard_wire::{Code, ConnectError, NotDispatchedReason};
use http::{HeaderMap, Response, StatusCode};
use http_body_util::Full;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::exchange::{error_response, with_type};
use super::refuse;
use super::route::Context;
use crate::callers::SCOPE_ADMIN;
use crate::limits::MAX_EXCHANGE_WAIT;
use crate::runs::Entry;

pub use view::tell;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Procedure {
    Start,
    Write,
    Get,
    List,
    Watch,
    Cancel,
    Grants,
    Limits,
}

impl Procedure {
    pub(super) fn of(path: &str) -> Option<Self> {
        match procedure(path)? {
            "Start" => Some(Self::Start),
            "Write" => Some(Self::Write),
            "Get" => Some(Self::Get),
            "List" => Some(Self::List),
            "Watch" => Some(Self::Watch),
            "Cancel" => Some(Self::Cancel),
            "Grants" => Some(Self::Grants),
            "Limits" => Some(Self::Limits),
            _ => None,
        }
    }
}

impl Procedure {
    /// What who administers callers needs, and does not need to run code for.
    pub(super) fn is_open_to_admins(self) -> bool {
        matches!(self, Self::List | Self::Cancel | Self::Limits)
    }
}

/// The last part of a path of this service.
fn procedure(path: &str) -> Option<&str> {
    path.strip_prefix('/')?.strip_prefix(SERVICE)?.strip_prefix('/')
}

/// Whether a path is of this service, known or not.
pub(super) fn is_path_of(path: &str) -> bool {
    procedure(path).is_some()
}

/// Answers one call.
pub(super) async fn answer(
    procedure: Procedure,
    context: &Context<'_>,
    headers: &HeaderMap,
    body: &[u8],
) -> Response<Full<Bytes>> {
    let answered = match procedure {
        Procedure::Start => start::start(context, headers, body).await.and_then(|run| json(&run)),
        Procedure::Write => write::write(context, body).await.and_then(|written| json(&written)),
        Procedure::Get => get(context, body).await,
        Procedure::List => list(context, body),
        Procedure::Watch => watch(context, body).await,
        Procedure::Cancel => cancel(context, body).await,
        Procedure::Limits => limits::limits(context, body).and_then(|limits| json(&limits)),
        Procedure::Grants => grants::grants(context, body).await.and_then(|grants| json(&grants)),
    };
    match answered {
        Ok(json) => with_type(StatusCode::OK, "application/json", json),
        Err(error) => error_response(&error),
    }
}

async fn get(context: &Context<'_>, body: &[u8]) -> Result<Vec<u8>, ConnectError> {
    let request: GetRequest = decode(body)?;
    let caller = context.caller.as_deref();
    let runs = &context.app.runs;
    let found = match (request.run.is_empty(), request.idempotency_key.is_empty()) {
        (false, true) => runs.of_caller(caller, &request.run),
        (true, false) => runs.by_key(caller, &request.idempotency_key),
        _ => return Err(invalid("exactly one of `run` and `idempotencyKey` is needed")),
    };
    json(&whole(context, &found.ok_or_else(not_found)?).await?)
}

fn list(context: &Context<'_>, body: &[u8]) -> Result<Vec<u8>, ConnectError> {
    let request: ListRequest = decode(body)?;
    let runs = &context.app.runs;
    let mut runs = if request.everybody {
        administers(context)?;
        runs.list_all()
    } else {
        runs.list(context.caller.as_deref())
    };
    runs.retain(|entry| request.state.is_none_or(|state| state == entry.state()));
    let outline = |entry: &Arc<Entry>| if request.everybody { of_another(entry) } else { entry.outline() };
    json(&ListResponse { runs: runs.iter().map(outline).collect() })
}

/// What is told of a run to who administers callers: not what it did.
fn of_another(entry: &Entry) -> Run {
    Run { caller: Some(entry.facts.caller.clone().unwrap_or_default()), ..entry.outline() }
}

fn administers(context: &Context<'_>) -> Result<(), ConnectError> {
    if context.scopes.admin {
        return Ok(());
    }
    let text = format!("the token lacks the scope {SCOPE_ADMIN}");
    Err(ConnectError::refused(Code::PermissionDenied, NotDispatchedReason::Permission, text))
}

async fn watch(context: &Context<'_>, body: &[u8]) -> Result<Vec<u8>, ConnectError> {
    let request: WatchRequest = decode(body)?;
    let entry = find(context, &request.run)?;
    let watched = entry.watch(request.after, exchange_wait(request.wait_ms)).await;
    let crate::runs::Watched { state, output, next, truncated } = watched;
    json(&WatchResponse { state, output, next, truncated })
}

async fn cancel(context: &Context<'_>, body: &[u8]) -> Result<Vec<u8>, ConnectError> {
    let request: CancelRequest = decode(body)?;
    let own = find(context, &request.run);
    let others = || context.app.runs.any(&request.run).filter(|_| context.scopes.admin);
    let (entry, is_own) = match own {
        Ok(entry) => (entry, true),
        Err(error) => (others().ok_or(error)?, false),
    };
    entry.cancel();
    entry.wait_for_end().await;
    if is_own { json(&whole(context, &entry).await?) } else { json(&of_another(&entry)) }
}

fn find(context: &Context<'_>, run: &str) -> Result<Arc<Entry>, ConnectError> {
    context.app.runs.of_caller(context.caller.as_deref(), run).ok_or_else(not_found)
}

/// With result and record once it has ended.
async fn whole(context: &Context<'_>, entry: &Arc<Entry>) -> Result<Run, ConnectError> {
    let view = context.app.runs.view(entry).await;
    view.map_err(|error| refuse::internal(&entry.facts.run, &error))
}

/// Another caller's run, one that was forgotten and one that never was: the same words for all.
fn not_found() -> ConnectError {
    ConnectError::refused(Code::NotFound, NotDispatchedReason::Request, "this caller has no such run")
}

fn invalid(text: &str) -> ConnectError {
    ConnectError::refused(Code::InvalidArgument, NotDispatchedReason::Request, text)
}

fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, ConnectError> {
    serde_json::from_slice(body).map_err(|error| invalid(&format!("the body does not decode: {error}")))
}

fn json<T: Serialize>(value: &T) -> Result<Vec<u8>, ConnectError> {
    serde_json::to_vec(value).map_err(|error| refuse::internal("", &error))
}

/// A wish of the caller to wait, clamped.
fn exchange_wait(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds).min(MAX_EXCHANGE_WAIT)
}
