//! SessionRun: one call in a session's sandbox, and its link in the chain of records.
//!
//! A call that was released is carried to its end by a task of its own, whatever becomes of the connection: the chain moves
//! before the answer is written, and moves too when nobody reads it. A client that goes away ends the call early, not the
//! session.

use std::sync::Arc;
use std::time::Duration;

use freeboard_policy::Tier;
use freeboard_wire::digest::{CallContent, record_digest, request_digest, rule_id};
use freeboard_wire::{
    Code, ConnectError, Detail, NotDispatchedReason, RECORD_VERSION, RunRecord, RunResponse,
    SessionRunRequest, SessionRunResponse, UnansweredCall, check,
};

use super::find;
use crate::api::App;
use crate::api::answer::{Link, Wanted, answer, instance, signed};
use crate::api::refuse;
use crate::api::route::Context;
use crate::api::run::job_file;
use crate::job::{Language, Payload};
use crate::launch::{InSession, Order, Refusal, new_run_id, unix_ms};
use crate::limits::{ARTIFACT_BYTES, OUTPUT_BYTES};
use crate::placement::Unplaced;
use crate::provider::{Cancel, CellEnd};
use crate::session::{Entry, Turn};

pub(in crate::api) async fn run(
    context: &Context<'_>,
    request: SessionRunRequest,
) -> Result<SessionRunResponse, ConnectError> {
    let run = new_run_id().map_err(|refusal| refuse::run_error("", &refusal.into()))?;
    let (entry, mut order) = order(context, &request, run)?;
    let began = std::time::Instant::now();
    let turn = match context.deadline {
        None => entry.turn().await,
        Some(deadline) => match tokio::time::timeout(deadline, entry.turn()).await {
            Ok(turn) => turn,
            Err(_) => return Err(deadline_passed()),
        },
    };
    let turn = turn.map_err(refuse::full)?;
    if let Some(deadline) = context.deadline {
        // What is left of the caller's deadline is the call's: it is answered as timed out, not lost.
        let left = deadline.saturating_sub(began.elapsed());
        if left.is_zero() {
            return Err(deadline_passed());
        }
        order.timeout = Some(order.timeout.map_or(left, |asked| asked.min(left)));
    }
    let cancel = Cancel::default();
    let _gone = CancelWhenDropped(Arc::clone(&cancel));
    let app = Arc::clone(context.app);
    let running = tokio::spawn(async move { carry(&app, &turn, &request, &order, cancel).await });
    running.await.unwrap_or_else(|error| {
        tracing::error!(%error, session = entry.fingerprint, "a call of a session broke off");
        Err(ConnectError::new(Code::Internal, "internal error"))
    })
}

fn deadline_passed() -> ConnectError {
    let text = "the caller's deadline passed";
    ConnectError::refused(Code::DeadlineExceeded, NotDispatchedReason::Capacity, text)
}

/// The client is gone: nobody waits for the call any more.
struct CancelWhenDropped(Cancel);

impl Drop for CancelWhenDropped {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

/// Runs the call and moves the chain.
async fn carry(
    app: &App,
    turn: &Turn,
    request: &SessionRunRequest,
    order: &Order,
    cancel: Cancel,
) -> Result<SessionRunResponse, ConnectError> {
    let entry = turn.entry();
    let started = std::time::SystemTime::now();
    let called = turn.call(&app.launcher, &app.sessions, order, cancel).await;
    let chain = entry.chain();
    let link = Link { session: entry.fingerprint.clone(), sequence: chain.calls + 1, previous: chain.last };
    let answered = match called {
        Ok((ran, cell)) => answer(request.into(), wanted(request, cell), &order.run, ran, link.clone()),
        Err(error) => Err(refuse::call_error(&order.run, error)),
    };
    match answered {
        Ok(run) => {
            let record = run.record.as_ref().map(|record| record.record_sha256.clone()).unwrap_or_default();
            turn.count(&record);
            Ok(with_end(entry, run))
        }
        Err(error) if error.mark().is_some() => Err(error),
        Err(error) => {
            let record = unanswered(entry, request.into(), &order.run, started, link, error.code);
            turn.count(&record.record_sha256);
            Err(error.with(Detail::unanswered(&UnansweredCall { record: Some(record) })))
        }
    }
}

fn wanted(request: &SessionRunRequest, cell: CellEnd) -> Wanted {
    if request.cell.is_some() {
        Wanted::Cell(cell)
    } else if request.project.is_some() {
        Wanted::Project
    } else {
        Wanted::JavaScript
    }
}

fn with_end(entry: &Entry, run: RunResponse) -> SessionRunResponse {
    let ended = entry.ended();
    SessionRunResponse {
        run: Some(run),
        ended: ended.as_ref().map(|ended| ended.end.into()).unwrap_or_default(),
        end_detail: ended.map(|ended| ended.detail).unwrap_or_default(),
    }
}

/// The record of a call that may have run and has no result.
fn unanswered(
    entry: &Entry,
    call: CallContent<'_>,
    run: &str,
    started: std::time::SystemTime,
    link: Link,
    code: Code,
) -> RunRecord {
    let started = unix_ms(started);
    let now = unix_ms(std::time::SystemTime::now()).max(started);
    let mut record = RunRecord {
        version: RECORD_VERSION,
        request_sha256: request_digest(call),
        provider: entry.facts.evidence.provider.clone(),
        isolation: entry.facts.evidence.tier.word().to_owned(),
        environment: entry.facts.description.environment.clone(),
        started_unix_ms: signed(started),
        ended_unix_ms: signed(now),
        software_rule_id: rule_id(call.software_rule),
        instance: instance(run),
        session: link.session,
        sequence: link.sequence,
        previous_sha256: link.previous,
        unanswered: code.name().to_owned(),
        ..RunRecord::default()
    };
    record.record_sha256 = record_digest(&record).unwrap_or_default();
    record
}

/// Checks in the order of the contract: protocol, floor, rule, session, payload, limits, grant, tier, software.
fn order(
    context: &Context<'_>,
    request: &SessionRunRequest,
    run: String,
) -> Result<(Arc<Entry>, Order), ConnectError> {
    // Named is claimed, whatever else is wrong with the request.
    let found = find(context, &request.session_id);
    refuse::protocol(request.protocol)?;
    let invalid = |error| refuse::invalid(&error);
    let floor = check::floor(&request.minimum_isolation).map_err(invalid)?.and_then(Tier::from_word);
    let rule = check::rule(request.software_rule.as_ref()).map_err(invalid)?;
    let entry = found?;
    if let Some(ended) = entry.ended() {
        return Err(refuse::session_over(ended.end, &ended.detail));
    }
    let (payload, grant_profile, files, artifacts) = match check::session_payload(request).map_err(invalid)? {
        check::SessionPayload::JavaScript(run) => (
            Payload::JavaScript { code: run.code.clone() },
            run.grant_profile.as_str(),
            Vec::new(),
            Vec::new(),
        ),
        check::SessionPayload::Project(run) => (
            Payload::Steps { steps: run.steps.clone() },
            run.grant_profile.as_str(),
            run.files.iter().map(job_file).collect(),
            run.artifacts.clone(),
        ),
        check::SessionPayload::Cell(run) => {
            let payload =
                Payload::Cell { language: language(&entry, &run.language)?, code: run.code.clone() };
            (payload, "", run.files.iter().map(job_file).collect(), Vec::new())
        }
    };
    if matches!(payload, Payload::JavaScript { .. }) && !entry.facts.description.supports_javascript {
        return Err(refuse::unsupported("the session's sandbox runs no JavaScript"));
    }
    let grants = check::grants(grant_profile).map_err(invalid)?;
    let measured = entry.facts.evidence.tier;
    let refused = |refusal: Refusal| refuse::run_error(&run, &refusal.into());
    if let Some(needed) = floor.filter(|needed| measured < *needed) {
        return Err(refused(Refusal::Unplaced(Unplaced::TooWeak { needed, best: measured, why: None })));
    }
    check::narrows(entry.facts.rule.as_ref(), rule).map_err(invalid)?;
    // As for a single run: no provider here states a software identity, and an unstated one meets no rule.
    if rule.is_some() {
        return Err(refused(Refusal::Software));
    }
    let order = Order {
        run,
        caller: context.caller.clone(),
        trace_id: check::trace_id(&request.trace_id).map(str::to_owned),
        grants,
        floor,
        timeout: u64::try_from(request.timeout_ms).ok().filter(|ms| *ms > 0).map(Duration::from_millis),
        software: Vec::new(),
        payload,
        files,
        artifacts,
        environment: Vec::new(),
        output_limit: OUTPUT_BYTES,
        less: crate::job::Less::default(),
        input: None,
        artifact_limit: ARTIFACT_BYTES,
        released: Arc::default(),
        wait: None,
        witness: None,
        session: InSession::Call(entry.of_call()),
    };
    Ok((entry, order))
}

/// The language of a cell, when it was proved here.
fn language(entry: &Entry, word: &str) -> Result<Language, ConnectError> {
    let proved = entry.facts.description.languages.iter().any(|language| language == word);
    Language::from_word(word)
        .filter(|_| proved)
        .ok_or_else(|| refuse::unsupported(format!("the session's sandbox runs no cells in {word}")))
}
