//! Start: from a message to an order; the same request under the same key is one run.

use std::sync::Arc;
use std::time::{Duration, Instant};

use freeboard_policy::Tier;
use freeboard_wire::digest::sha256_hex;
use freeboard_wire::runs::{Limits, Program, Run, StartRequest, idempotency_key};
use freeboard_wire::{Code, ConnectError, NotDispatchedReason, check};
use http::HeaderMap;

use super::{decode, invalid, whole};
use crate::admission::Wait;
use crate::api::refuse;
use crate::api::route::Context;
use crate::input::Input;
use crate::job::{JobFile, Less, Payload};
use crate::launch::{InSession, Order, Refusal, RunError, new_run_id};
use crate::limits::{ARTIFACT_BYTES, MAX_EXCHANGE_WAIT, MAX_QUEUE_TIME, OUTPUT_BYTES};
use crate::runs::{Asked, StartError};

const KEY: &str = "idempotency-key";
const PREFER: &str = "prefer";

pub(super) async fn start(
    context: &Context<'_>,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Run, ConnectError> {
    let key = key(headers)?;
    let request: StartRequest = decode(body)?;
    freeboard_wire::runs::start(&request).map_err(|error| refuse::invalid(&error))?;
    let wait = wait(headers);
    limits(request.limits)?;
    let order = order(context, request)?;
    let run = order.run.clone();
    let places = context.app.launcher.admission().standing(order.caller.as_deref()).max_concurrent;
    let asked = Asked { order, key, request_sha256: sha256_hex(body), places };
    let started = context.app.runs.start(Arc::clone(context.app) as _, asked).await;
    let entry = started.map_err(|error| refused(&run, error))?;
    if !wait.is_zero() {
        // What is there when the time is over is told.
        let _ = tokio::time::timeout(wait, entry.wait_for_end()).await;
    }
    whole(context, &entry).await
}

fn refused(run: &str, error: StartError) -> ConnectError {
    match error {
        StartError::Full(full) => refuse::full(full),
        StartError::KeyTaken => {
            ConnectError::refused(Code::AlreadyExists, NotDispatchedReason::Request, error.to_string())
        }
        StartError::Journal(error) => refuse::run_error(run, &RunError::Refused(Refusal::Journal(error))),
    }
}

/// How long this exchange waits for the end of the run: `Prefer: wait=SECONDS` (RFC 7240, 4.3). Not a part of the message,
/// which is the same run however long somebody waits for it. What is not understood is no preference.
fn wait(headers: &HeaderMap) -> Duration {
    let preferences = headers.get_all(PREFER).iter().filter_map(|value| value.to_str().ok());
    let mut waits = preferences.flat_map(|value| value.split(',')).filter_map(|preference| {
        let (name, value) = preference.trim().split_once('=')?;
        let seconds = name.trim().eq_ignore_ascii_case("wait").then(|| value.trim().trim_matches('"'))?;
        seconds.parse().ok()
    });
    waits.next().map_or(Duration::ZERO, |seconds| Duration::from_secs(seconds).min(MAX_EXCHANGE_WAIT))
}

/// One key at most.
fn key(headers: &HeaderMap) -> Result<Option<String>, ConnectError> {
    let mut values = headers.get_all(KEY).iter();
    let key = match (values.next(), values.next()) {
        (None, _) => return Ok(None),
        (Some(value), None) => value.to_str().map_err(|_| invalid("`Idempotency-Key` is not ASCII"))?,
        (Some(_), Some(_)) => return Err(invalid("there are two `Idempotency-Key`")),
    };
    idempotency_key(key).map_err(|error| refuse::invalid(&error))?;
    Ok(Some(key.to_owned()))
}

/// What no provider has a say in. The other limits are compared where the provider is chosen.
fn limits(limits: Limits) -> Result<(), ConnectError> {
    if limits.output_bytes > OUTPUT_BYTES as u64 {
        let text = format!(
            "`limits.outputBytes` asks for {}; a run may have {OUTPUT_BYTES} here",
            limits.output_bytes
        );
        return Err(ConnectError::refused(Code::OutOfRange, NotDispatchedReason::Unsupported, text));
    }
    Ok(())
}

fn less(limits: Limits) -> Less {
    Less {
        time: (limits.time_ms > 0).then(|| Duration::from_millis(limits.time_ms)),
        memory_mib: Some(limits.memory_mib).filter(|mib| *mib > 0),
        pids: Some(limits.pids).filter(|pids| *pids > 0),
    }
}

/// A request that was checked, as an order.
fn order(context: &Context<'_>, request: StartRequest) -> Result<Order, ConnectError> {
    let run = new_run_id().map_err(|refusal| refuse::run_error("", &refusal.into()))?;
    if !request.grants.is_empty() && context.caller.is_none() {
        // An anonymous caller has no grant; it learns nothing else.
        return Err(refuse::run_error(&run, &RunError::Refused(Refusal::Grant)));
    }
    let mut files: Vec<JobFile> =
        request.files.into_iter().map(|file| JobFile { path: file.path, content: file.content }).collect();
    let payload = payload(request.program, &mut files)?;
    let wait = (request.queue_ms > 0).then(|| Wait {
        until: Instant::now() + Duration::from_millis(request.queue_ms).min(MAX_QUEUE_TIME),
        priority: request.priority,
    });
    Ok(Order {
        run,
        caller: context.caller.clone(),
        trace_id: check::trace_id(&request.trace_id).map(str::to_owned),
        grants: request.grants,
        floor: Tier::from_word(&request.minimum_isolation),
        timeout: (request.timeout_ms > 0).then(|| Duration::from_millis(request.timeout_ms)),
        software: Vec::new(),
        payload,
        files,
        artifacts: request.artifacts,
        environment: request.environment.into_iter().map(|one| (one.name, one.value)).collect(),
        output_limit: match request.limits.output_bytes {
            0 => OUTPUT_BYTES,
            asked => usize::try_from(asked).unwrap_or(OUTPUT_BYTES).min(OUTPUT_BYTES),
        },
        less: less(request.limits),
        input: request.stdin.map(|stdin| Arc::new(Input::of(stdin))),
        artifact_limit: ARTIFACT_BYTES,
        released: Arc::default(),
        wait,
        witness: None,
        session: InSession::No,
    })
}

/// Python and shell programs are files with a fixed name, as `sandboxd run` has them.
fn payload(program: Program, files: &mut Vec<JobFile>) -> Result<Payload, ConnectError> {
    let mut script = |interpreter: &str, name: &str, code: String| {
        if files.iter().any(|file| file.path == name) {
            return Err(invalid(&format!("`files` has a `{name}`, which is the name of the program itself")));
        }
        files.push(JobFile { path: name.to_owned(), content: code.into_bytes() });
        Ok(Payload::Command { argv: vec![interpreter.to_owned(), name.to_owned()] })
    };
    match program {
        Program::Javascript(code) => Ok(Payload::JavaScript { code }),
        Program::Python(code) => script("python3", "main.py", code),
        Program::Shell(code) => script("sh", "main.sh", code),
        Program::Command(argv) => Ok(Payload::Command { argv }),
        Program::Steps(steps) => Ok(Payload::Steps { steps }),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_preference_is_for_whole_seconds_up_to_the_limit() {
        for (value, seconds) in [
            ("wait=7", 7),
            ("respond-async, Wait=\"7\"", 7),
            ("wait=99999", MAX_EXCHANGE_WAIT.as_secs()),
            ("wait=", 0),
            ("wait=-1", 0),
            ("waiting=7", 0),
            ("", 0),
        ] {
            let headers = HeaderMap::from_iter([(
                http::header::HeaderName::from_static(PREFER),
                HeaderValue::from_static(value),
            )]);
            assert_eq!(wait(&headers).as_secs(), seconds, "{value}");
        }
    }
}
