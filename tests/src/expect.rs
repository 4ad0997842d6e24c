//! The four oracles of every case: what the client saw, what the recorder got, the audit record, the canary scan.

use serde_json::Value;

use crate::lab::{Run, Way};
use crate::response::Response;
use crate::upstream::Recorded;
use crate::wait;
use crate::wire::{Reply, Wire};

/// A request with no body and no field but Host.
pub fn get(host: &str, target: &str) -> String {
    bare("GET", host, target, &[])
}

/// A request with no body and these `Name: value` lines.
pub fn bare(method: &str, host: &str, target: &str, fields: &[&str]) -> String {
    let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
    format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n")
}

/// A request with a body and its length.
pub fn with_body(method: &str, host: &str, target: &str, fields: &[&str], body: &str) -> String {
    let mut fields = fields.to_vec();
    let length = format!("Content-Length: {}", body.len());
    fields.push(&length);
    format!("{}{body}", bare(method, host, target, &fields))
}

/// Sends `request` on a new connection; it must be refused with one of `statuses` (or, where 0 is among them, by closing
/// the connection), nothing may reach an upstream, and there is exactly one record, with verdict `denied`.
pub fn refused(
    run: &Run<'_>,
    way: Way,
    host: &str,
    request: impl AsRef<[u8]>,
    statuses: &[u16],
) -> Option<Response> {
    refused_on(run, &mut run.tls(way, host), request, statuses)
}

/// [`refused`] on an open connection. The record is found by the request id of the answer, since an answer is sent before
/// its record is written: records of earlier requests may still be on their way.
pub fn refused_on(
    run: &Run<'_>,
    wire: &mut Wire,
    request: impl AsRef<[u8]>,
    statuses: &[u16],
) -> Option<Response> {
    let shown = String::from_utf8_lossy(request.as_ref()).into_owned();
    let upstream = &run.lab.upstream;
    let (bytes_before, refusals_before) = (upstream.bytes(), run.refusals(0).len());
    let reply = wire.ask(request);
    let status = reply.status().unwrap_or(0);
    assert!(statuses.contains(&status), "answered {reply:?}, wanted {statuses:?}, to:\n{shown}");
    assert_eq!(upstream.bytes(), bytes_before, "an upstream got bytes of:\n{shown}");
    let response = match reply {
        Reply::Answer(response) => response,
        Reply::Closed(_) => {
            only_denial(&run.refusals(refusals_before + 1)[refusals_before..], &shown);
            return None;
        }
    };
    let reason = response.reason().unwrap_or_else(|| panic!("no reason code in {response:?} to:\n{shown}"));
    let id =
        response.field("x-freeboard-request-id").unwrap_or_else(|| panic!("no request id: {response:?}"));
    let records = wait::until(&format!("the refusal {id} is in the log"), || {
        let mut records = run.lab.audit.decisions(&run.id);
        records.retain(|record| record["request_id"] == id);
        (!records.is_empty()).then_some(records)
    });
    assert_eq!(only_denial(&records, &shown)["reason"], reason.as_str(), "of:\n{shown}");
    run.lab.assert_no_secret("a refusal", &[response.head.clone(), response.body.clone()].concat());
    Some(response)
}

/// The one record among `records`; it must have the verdict `denied`.
fn only_denial<'a>(records: &'a [Value], shown: &str) -> &'a Value {
    assert_eq!(records.len(), 1, "records {records:#?} of:\n{shown}");
    assert_eq!(records[0]["verdict"], "denied", "{records:#?} of:\n{shown}");
    &records[0]
}

/// Sends a request whose head is fine and whose body is not. The head may have gone on while the body was still coming;
/// the upstream must never get a whole request, the client no answer of the upstream, and the connection must be closed.
pub fn broken_body(run: &Run<'_>, way: Way, host: &str, request: impl AsRef<[u8]>, statuses: &[u16]) {
    let shown: String = String::from_utf8_lossy(request.as_ref()).chars().take(400).collect();
    let (before, refusals_before) = (run.lab.upstream.requests().len(), run.refusals(0).len());
    let mut wire = run.tls(way, host);
    let reply = wire.ask(request);
    let status = reply.status().unwrap_or(0);
    assert!(
        status == 0 || statuses.contains(&status),
        "answered {reply:?}, wanted {statuses:?}, to:\n{shown}"
    );
    assert!(wire.is_closed(), "still open after:\n{shown}");
    let new = run.refusals(refusals_before + 1).split_off(refusals_before);
    assert_eq!(new.len(), 1, "records {new:#?} of:\n{shown}");
    assert_eq!(run.lab.upstream.requests().len(), before, "an upstream got a whole request of:\n{shown}");
}

/// Sends `request` on a new connection; it must be answered by the upstream. Returns the answer and what was recorded.
pub fn allowed(run: &Run<'_>, way: Way, host: &str, request: impl AsRef<[u8]>) -> (Response, Recorded) {
    allowed_on(run, &mut run.tls(way, host), request)
}

/// [`allowed`] on an open connection.
pub fn allowed_on(run: &Run<'_>, wire: &mut Wire, request: impl AsRef<[u8]>) -> (Response, Recorded) {
    let shown = String::from_utf8_lossy(request.as_ref()).into_owned();
    run.lab.upstream.take();
    let of_run = || run.lab.audit.decisions_that(true, &run.id);
    let records_before = of_run().len();
    let response = wire.ask(request).answer();
    let mut recorded = run.lab.upstream.take();
    assert_eq!(recorded.len(), 1, "recorded {recorded:#?}, answered {response:?}, to:\n{shown}");
    let records = wait::until("the request is in the log", || {
        let records = of_run();
        (records.len() > records_before).then_some(records)
    });
    let new = &records[records_before..];
    assert_eq!(new.len(), 1, "records {new:#?} of:\n{shown}");
    assert!(new[0]["grant"].is_string(), "{new:#?}");
    run.lab.assert_no_secret("an answer", &[response.head.clone(), response.body.clone()].concat());
    (response, recorded.remove(0))
}
