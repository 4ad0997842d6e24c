//! The answer of an HTTP/1.1 upstream on its way to the guest.

use freeboard_policy::{Host, Reason, Route};

use super::upload::keep_harmless;
use super::{Done, GuestSide, Plan, Trouble, response_limit};
use crate::error::Stop;
use crate::http1::body::{BodyError, Reader};
use crate::http1::{Input, Stream};
use crate::limits;
use crate::record::Draft;
use crate::request::{Fields, Length, RequestHead, Version};
use crate::respond::{ResponseHead, Sink};
use crate::upstream::answer::{AnswerHead, Framing, forwards};
use crate::upstream::websocket;

/// Passes the answer on. `uploaded`: the request body has been sent whole, so the guest's connection can be kept.
#[expect(clippy::too_many_arguments, reason = "the parts of one exchange, each borrowed from another owner")]
pub(super) async fn relay<S: Sink>(
    plan: &Plan<'_>,
    stream: &Stream,
    input: &mut Input,
    mut answer: AnswerHead,
    uploaded: bool,
    draft: &mut Draft,
    head: &RequestHead,
    sink: &mut S,
) -> Result<Done, Trouble> {
    let upstream_us = draft.started().elapsed_us();
    draft.note(|outcome| {
        outcome.upstream_status = Some(answer.status);
        outcome.upstream_us = upstream_us;
    });
    plan.heard(answer.status, &answer.fields);
    if answer.status == 101 {
        return switch(answer, head, draft, sink).await;
    }
    let limit = response_limit(plan.grant);
    if let Framing::Sized(length) = answer.framing
        && length > limit
    {
        return Err(Stop::with(Reason::ResponseTooLarge, format!("{length} bytes, at most {limit}")).into());
    }
    plan.check_answer(&answer.fields, answer.framing.length())?;
    // A session that the upstream gives to our credential is not the guest's to keep (ATTACKS C05).
    if plan.material.is_some() && answer.fields.remove("set-cookie") {
        draft.note(|outcome| outcome.stripped.push("set_cookie"));
    }
    if plan.route.host != *plan.asked {
        answer.fields = speak_of_alias(&answer.fields, plan.route, plan.asked);
    }
    let by_close = head.version == Version::Http10 && answer.framing.length() == Length::Unknown;
    let close = head.close || by_close || !uploaded || plan.client.broker.draining.is_cancelled();
    let response = ResponseHead {
        status: answer.status,
        fields: answer.fields,
        length: answer.framing.length(),
        declared: answer.declared,
        close,
        websocket_accept: None,
    };
    draft.note(|outcome| outcome.status = response.status);
    let mut reader = answer.framing.reader();
    relay_body(stream, input, &mut reader, &response, limit, draft, sink).await?;
    reader.settle(input);
    let guest = if close { GuestSide::Close } else { GuestSide::Keep };
    Ok(Done { guest, reusable: answer.keep && uploaded })
}

/// A redirect to the origin itself names the alias, which is the only name of it that the guest can reach.
fn speak_of_alias(fields: &Fields, route: &Route, alias: &Host) -> Fields {
    let (plain, with_port) =
        (format!("https://{}", route.host), format!("https://{}:{}", route.host, route.port));
    let origin = if route.port == 443 { [&with_port, &plain] } else { [&with_port, &with_port] };
    let mut renamed = Fields::default();
    for (name, value) in fields.iter() {
        let redirects = ["location", "content-location"].iter().any(|other| other.eq_ignore_ascii_case(name));
        let rest = origin.iter().find_map(|origin| value.strip_prefix(origin.as_bytes()));
        match rest.filter(|rest| redirects && matches!(rest.first(), None | Some(b'/' | b'?' | b'#'))) {
            Some(rest) => {
                let port = if route.port == 443 { String::new() } else { format!(":{}", route.port) };
                let value = [format!("https://{alias}{port}").as_bytes(), rest].concat();
                renamed.push(name, &value);
            }
            None => renamed.push(name, value),
        }
    }
    renamed
}

/// SECURITY: only an answer to the guest's own websocket handshake turns the connection into a relay (ATTACKS B31).
async fn switch<S: Sink>(
    answer: AnswerHead,
    head: &RequestHead,
    draft: &mut Draft,
    sink: &mut S,
) -> Result<Done, Trouble> {
    if !head.websocket.as_ref().is_some_and(|asked| websocket::accepts(asked, &answer)) {
        return Err(Stop::new(Reason::UpstreamMalformed, "101 that answers no websocket handshake").into());
    }
    let response = ResponseHead {
        status: 101,
        fields: answer.fields,
        length: Length::None,
        declared: None,
        close: false,
        websocket_accept: answer.websocket_accept,
    };
    draft.note(|outcome| (outcome.status, outcome.protocol) = (101, "websocket"));
    sink.begin(&response, &[], true).await?;
    Ok(Done { guest: GuestSide::Websocket, reusable: false })
}

/// Head with whatever of the body is here in one write, then piece by piece as it comes.
///
/// Each piece is counted in the draft when it comes: a stream that is cut is recorded with what had passed.
async fn relay_body<S: Sink>(
    stream: &Stream,
    input: &mut Input,
    reader: &mut Reader,
    response: &ResponseHead,
    limit: u64,
    draft: &mut Draft,
    sink: &mut S,
) -> Result<(), Stop> {
    if reader.is_done() {
        return sink.begin(response, &[], true).await;
    }
    if let Some(whole) = reader.whole(input) {
        sink.begin(response, whole, true).await?;
        draft.note(|outcome| outcome.response_bytes = whole.len() as u64);
        return Ok(());
    }
    // An event stream may send its head long before its first event: pass the head on at once (ATTACKS H22).
    if input.is_empty() {
        sink.begin(response, &[], false).await?;
    }
    let mut total = 0;
    while let Some(piece) =
        reader.next(stream, input, limits::RESPONSE_IDLE_TIMEOUT).await.map_err(|error| failed(&error))?
    {
        total += piece.len() as u64;
        draft.note(|outcome| outcome.response_bytes = total);
        if total > limit {
            return Err(Stop::with(Reason::ResponseTooLarge, format!("more than {limit} bytes")));
        }
        if sink.has_begun() {
            sink.data(piece).await?;
        } else {
            sink.begin(response, piece, false).await?;
        }
    }
    if !sink.has_begun() {
        sink.begin(response, &[], false).await?;
    }
    let mut trailers = reader.take_trailers();
    if let Some(trailers) = &mut trailers {
        keep_harmless(trailers);
        trailers.retain(|field| forwards(field.role));
    }
    sink.end(trailers.as_ref()).await
}

fn failed(error: &BodyError) -> Stop {
    match error {
        BodyError::Malformed(what) => Stop::new(Reason::UpstreamMalformed, what),
        BodyError::Closed => Stop::new(Reason::UpstreamUnreachable, "closed inside the response body"),
        BodyError::TimedOut => Stop::new(Reason::UpstreamTimeout, "the response body stalled"),
        BodyError::Failed(error) => Stop::with(Reason::UpstreamUnreachable, error.to_string()),
    }
}
