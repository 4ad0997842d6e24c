//! A permitted request on its way: connection, head, bodies both ways, and what is left afterwards.

mod http2;

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use freeboard_policy::{AnswerTerms, ApiView, GrantView, Host, Permit, Reason, Route};
use tokio::time::timeout;

use crate::credential::{Material, Scrubber};
use crate::error::Stop;
use crate::http1::body::{BodyError, Reader};
use crate::http1::{Input, Scratch, Stream, write};
use crate::limits;
use crate::pipeline::{After, Client, Held};
use crate::record::Draft;
use crate::request::name::{Role, role};
use crate::request::{Body, Fields, Length, RequestHead, Version};
use crate::respond::{ResponseHead, Sink};
use crate::upstream::answer::{AnswerHead, Framing, forwards};
use crate::upstream::dial::{Offer, Protocol};
use crate::upstream::http2::Session;
use crate::upstream::pool::Key;
use crate::upstream::send::{Connection, ReadHead, Written, write_head};
use crate::upstream::websocket;

/// What was decided about one request.
#[derive(Debug, Clone, Copy)]
pub struct Plan<'a> {
    pub client: &'a Client,
    pub api: &'a std::sync::Arc<ApiView>,
    pub route: &'a Route,
    pub grant: &'a GrantView,
    pub material: Option<&'a Material>,
    /// The host that the guest asked for; an alias where it differs from the route's.
    pub asked: &'a Host,
    /// What the rule demands of the answer.
    pub answer: Option<&'a AnswerTerms>,
}

impl Plan<'_> {
    /// # Errors
    /// `response_type_not_granted`: the answer has a body of another type than the rule takes.
    fn check_answer(&self, fields: &Fields, length: Length) -> Result<(), Stop> {
        let Some(terms) = self.answer else { return Ok(()) };
        if matches!(length, Length::None | Length::Sized(0)) || terms.takes(fields.all("content-type")) {
            return Ok(());
        }
        Err(Stop::new(Reason::ResponseTypeNotGranted, "the content type of the answer is none of the rule's"))
    }

    fn key(&self) -> Key<'_> {
        Key {
            host: &self.route.host,
            port: self.route.port,
            api: &self.api.name,
            identity: self.material.map_or(0, |material| material.identity),
        }
    }
}

/// Bytes of one request body that the grant takes.
pub fn request_limit(grant: &GrantView) -> u64 {
    grant.request_bytes.unwrap_or(limits::DEFAULT_REQUEST_BYTES)
}

fn response_limit(grant: &GrantView) -> u64 {
    grant.response_bytes.unwrap_or(limits::DEFAULT_RESPONSE_BYTES)
}

/// Sends the request and relays the answer. Consumes the permit.
///
/// # Errors
/// What stopped it; `Sink::has_begun` says whether the guest has seen a part of the answer.
pub async fn forward<B: Body, S: Sink>(
    plan: Plan<'_>,
    permit: Permit,
    draft: &mut Draft,
    head: &RequestHead,
    body: &mut B,
    sink: &mut S,
) -> Result<After, Stop> {
    let (mut connection, fresh) = match open(&plan, head).await? {
        Opened::Http2(session) => {
            // Boxed: most requests never need this state.
            return Box::pin(http2::forward(plan, permit, session, draft, head, body, sink)).await;
        }
        Opened::Http1(connection) => (connection, false),
        Opened::Fresh(connection) => (connection, true),
    };
    let whole = if head.length == Length::None { None } else { body.whole() };
    // SECURITY: a body that is here whole goes out with its length. Appended raw to a head that announces chunks, its
    // bytes would be read as framing: the guest would write requests of its own (ATTACKS B22, `egress_h2`).
    let length = match (head.length, whole) {
        (Length::Unknown, Some(whole)) => Length::Sized(whole.len() as u64),
        (length, _) => length,
    };
    let mut written = write_head(permit, plan.route, head, length, plan.material)?;
    let ready = head.length == Length::None || whole.is_some();
    if let Some(whole) = whole {
        written.append(whole);
        draft.note(|outcome| outcome.request_bytes = whole.len() as u64);
    }
    // A connection from the pool may have been closed by its peer a moment ago: one more try on a fresh one, where
    // repeating does no harm and nothing of the request is lost.
    if !fresh {
        let repeatable = ready && head.is_idempotent() && head.websocket.is_none();
        match over(&plan, &mut connection, &written, ready, draft, head, body, sink).await {
            Err(Trouble::ClosedSilently) if repeatable => {}
            Err(trouble) => return Err(trouble.into_stop()),
            Ok(done) => return Ok(finish(&plan, connection, done)),
        }
        connection = match connect(&plan, Offer::Http1Only).await? {
            Opened::Fresh(connection) | Opened::Http1(connection) => connection,
            Opened::Http2(_) => return Err(Stop::new(Reason::Internal, "h2 was chosen and not offered")),
        };
    }
    let done = over(&plan, &mut connection, &written, ready, draft, head, body, sink).await;
    let done = done.map_err(Trouble::into_stop)?;
    Ok(finish(&plan, connection, done))
}

/// A connection that can carry the request.
enum Opened {
    /// From the pool.
    Http1(Box<Connection>),
    Fresh(Box<Connection>),
    Http2(Session),
}

/// HTTP/1.1 from the pool first; HTTP/2 for gRPC and for origins that speak nothing else.
async fn open(plan: &Plan<'_>, head: &RequestHead) -> Result<Opened, Stop> {
    let pool = &plan.client.run.pool;
    if http2::is_needed(head) {
        return match pool.take_http2(plan.key()) {
            Some(session) => Ok(Opened::Http2(session)),
            None => connect(plan, Offer::Any).await,
        };
    }
    if let Some(connection) = pool.take(plan.key()) {
        return Ok(Opened::Http1(connection));
    }
    if head.websocket.is_some() {
        return connect(plan, Offer::Http1Only).await;
    }
    if plan.client.broker.dialler.speaks_only_http2(&plan.route.host, plan.route.port)
        && let Some(session) = pool.take_http2(plan.key())
    {
        return Ok(Opened::Http2(session));
    }
    connect(plan, Offer::Http1).await
}

/// Boxed: the handshake's state is large and most requests never need it.
fn connect<'a>(
    plan: &Plan<'a>,
    offer: Offer,
) -> Pin<Box<dyn Future<Output = Result<Opened, Stop>> + Send + 'a>> {
    let Plan { client, api, route, .. } = *plan;
    Box::pin(async move {
        let connected = client.broker.dialler.connect(api, &route.host, route.port, offer).await?;
        if connected.protocol == Protocol::Http2 {
            return Session::start(connected).await.map(Opened::Http2);
        }
        let (stream, address) = (Stream::from(connected.stream), connected.address);
        Ok(Opened::Fresh(Box::new(Connection { stream, input: Input::default(), address, reused: false })))
    })
}

/// A new session where the one before was over.
async fn connect_http2(plan: &Plan<'_>) -> Result<Session, Stop> {
    match connect(plan, Offer::Any).await? {
        Opened::Http2(session) => Ok(session),
        _ => Err(Stop::new(Reason::UpstreamUnreachable, "the upstream does not speak h2 any more")),
    }
}

/// How an exchange over one connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Done {
    guest: GuestSide,
    /// The upstream connection may carry another request.
    reusable: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GuestSide {
    Keep,
    Close,
    Websocket,
}

fn finish(plan: &Plan<'_>, mut connection: Box<Connection>, done: Done) -> After {
    match done.guest {
        GuestSide::Websocket => {
            let scrubber = plan.material.map(|material| std::sync::Arc::clone(&material.scrubber));
            return After::Websocket(Box::new(Switched { connection, scrubber, held: None }));
        }
        _ if done.reusable && connection.input.is_empty() => {
            connection.input.release();
            plan.client.run.pool.put(plan.key(), connection);
        }
        _ => {}
    }
    if done.guest == GuestSide::Keep { After::Keep } else { After::Close }
}

/// A connection that speaks websocket from here on.
#[derive(Debug)]
pub struct Switched {
    pub connection: Box<Connection>,
    /// Masks the credential in what the upstream sends.
    pub scrubber: Option<std::sync::Arc<Scrubber>>,
    /// The record, which ends with the websocket, and the place in the budget that it takes until then.
    pub held: Option<Held>,
}

enum Trouble {
    Stopped(Stop),
    /// The upstream closed before the first byte of an answer.
    ClosedSilently,
}

impl From<Stop> for Trouble {
    fn from(stop: Stop) -> Self {
        Self::Stopped(stop)
    }
}

impl Trouble {
    fn into_stop(self) -> Stop {
        match self {
            Self::Stopped(stop) => stop,
            Self::ClosedSilently => {
                Stop::new(Reason::UpstreamUnreachable, "the upstream closed without an answer")
            }
        }
    }
}

/// One exchange over one connection.
#[expect(clippy::too_many_arguments, reason = "the parts of one exchange, each borrowed from another owner")]
async fn over<B: Body, S: Sink>(
    plan: &Plan<'_>,
    connection: &mut Connection,
    written: &Written,
    ready: bool,
    draft: &mut Draft,
    head: &RequestHead,
    body: &mut B,
    sink: &mut S,
) -> Result<Done, Trouble> {
    draft.note(|outcome| outcome.upstream_address = Some(connection.address));
    let Connection { stream, input, .. } = connection;
    if stream.write_all(written.bytes(), limits::CLIENT_WRITE_TIMEOUT).await.is_err() {
        return Err(Trouble::ClosedSilently);
    }
    if ready {
        let answer = read_answer(stream, input, head);
        let answer = timeout(limits::RESPONSE_HEAD_TIMEOUT, answer).await.map_err(|_| head_timeout())??;
        return relay(plan, stream, input, answer, true, draft, head, sink).await;
    }
    if head.expects_continue {
        sink.go_on().await?;
    }
    let sent = AtomicU64::new(0);
    let result = {
        let mut upload = Upload {
            future: pin!(upload(stream, body, head, request_limit(plan.grant), &sent)),
            state: UploadState::Running,
        };
        let answer =
            upload.beside(pin!(read_answer(stream, input, head)), Some(limits::RESPONSE_HEAD_TIMEOUT)).await;
        match answer {
            Ok(answer) => {
                let complete = upload.state == UploadState::Complete;
                let relay = relay(plan, stream, input, answer?, complete, draft, head, sink);
                upload.beside(pin!(relay), None).await.and_then(|done| {
                    let complete = upload.state == UploadState::Complete;
                    done.map(|done| Done { reusable: done.reusable && complete, ..done })
                })
            }
            Err(trouble) => Err(trouble),
        }
    };
    draft.note(|outcome| outcome.request_bytes = sent.load(Ordering::Relaxed));
    result
}

fn head_timeout() -> Stop {
    Stop::new(Reason::UpstreamTimeout, "no response head in time")
}

async fn read_answer(stream: &Stream, input: &mut Input, head: &RequestHead) -> Result<AnswerHead, Trouble> {
    for _ in 0..limits::MAX_INTERIM_RESPONSES {
        match Connection::read_head(stream, input, head.method == "HEAD").await? {
            ReadHead::ClosedSilently => return Err(Trouble::ClosedSilently),
            // 100 was answered by us; other interim responses concern nobody any more.
            ReadHead::Head(answer) if answer.status < 200 && answer.status != 101 => {}
            ReadHead::Head(answer) => return Ok(answer),
        }
    }
    Err(Stop::new(Reason::UpstreamMalformed, "too many interim responses").into())
}

/// A request body on its way while something else goes on.
struct Upload<'a, F> {
    future: Pin<&'a mut F>,
    state: UploadState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UploadState {
    Running,
    Complete,
    /// The upstream takes no more of it: its answer says why.
    Unwanted,
}

enum UploadEnd {
    Complete,
    Unwanted,
}

impl<F: Future<Output = Result<UploadEnd, Stop>>> Upload<'_, F> {
    /// Drives `other` to its end and the upload as far as it gets meanwhile. `patience` counts from the end of the
    /// upload.
    async fn beside<G: Future>(
        &mut self,
        mut other: Pin<&mut G>,
        patience: Option<std::time::Duration>,
    ) -> Result<G::Output, Trouble> {
        let both = poll_fn(|cx| {
            if self.state == UploadState::Running
                && let Poll::Ready(end) = self.future.as_mut().poll(cx)
            {
                match end {
                    Ok(UploadEnd::Complete) => self.state = UploadState::Complete,
                    Ok(UploadEnd::Unwanted) => self.state = UploadState::Unwanted,
                    Err(stop) => return Poll::Ready(Err(stop)),
                }
            }
            match other.as_mut().poll(cx) {
                Poll::Ready(output) => Poll::Ready(Ok(Some(output))),
                Poll::Pending if self.state != UploadState::Running && patience.is_some() => {
                    Poll::Ready(Ok(None))
                }
                Poll::Pending => Poll::Pending,
            }
        });
        match (both.await?, patience) {
            (Some(output), _) => Ok(output),
            (None, patience) => {
                let patience = patience.unwrap_or(limits::RESPONSE_HEAD_TIMEOUT);
                timeout(patience, other).await.map_err(|_| head_timeout().into())
            }
        }
    }
}

/// Sends a body piece by piece in the framing that the head announced.
async fn upload<B: Body>(
    stream: &Stream,
    body: &mut B,
    head: &RequestHead,
    limit: u64,
    sent: &AtomicU64,
) -> Result<UploadEnd, Stop> {
    let chunked = head.length == Length::Unknown;
    let mut total = 0_u64;
    let mut out = Scratch::take();
    while let Some(piece) = body.next().await? {
        total = total.saturating_add(piece.len() as u64);
        if total > limit {
            return Err(Stop::with(Reason::BodyTooLarge, format!("more than {limit} bytes")));
        }
        let bytes = if chunked {
            out.clear();
            write::chunk(&mut out, piece);
            &*out
        } else {
            piece
        };
        if stream.write_all(bytes, limits::CLIENT_WRITE_TIMEOUT).await.is_err() {
            return Ok(UploadEnd::Unwanted);
        }
        sent.store(total, Ordering::Relaxed);
    }
    if chunked {
        let mut trailers = body.trailers();
        if let Some(trailers) = &mut trailers {
            keep_harmless(trailers);
        }
        out.clear();
        write::last_chunk(&mut out, trailers.as_ref());
        if stream.write_all(&out, limits::CLIENT_WRITE_TIMEOUT).await.is_err() {
            return Ok(UploadEnd::Unwanted);
        }
    }
    Ok(UploadEnd::Complete)
}

/// Trailers may not frame, route, authenticate or change the meaning of the head (RFC 9110 6.5.1, ATTACKS B26).
pub fn keep_harmless(trailers: &mut Fields) {
    trailers.retain(|name, _| {
        role(name) == Role::Ordinary
            && ![
                "cookie",
                "cache-control",
                "content-encoding",
                "content-type",
                "content-range",
                "range",
                "www-authenticate",
            ]
            .iter()
            .any(|other| other.eq_ignore_ascii_case(name))
    });
}

/// Passes the answer on. `uploaded`: the request body has been sent whole, so the guest's connection can be kept.
#[expect(clippy::too_many_arguments, reason = "the parts of one exchange, each borrowed from another owner")]
async fn relay<S: Sink>(
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
    let total = relay_body(stream, input, &mut reader, &response, limit, sink).await;
    let (total, result) = total;
    draft.note(|outcome| outcome.response_bytes = total);
    result?;
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
async fn relay_body<S: Sink>(
    stream: &Stream,
    input: &mut Input,
    reader: &mut Reader,
    response: &ResponseHead,
    limit: u64,
    sink: &mut S,
) -> (u64, Result<(), Stop>) {
    let mut total = 0;
    let result = async {
        if reader.is_done() {
            return sink.begin(response, &[], true).await;
        }
        if let Some(whole) = reader.whole(input) {
            sink.begin(response, whole, true).await?;
            total = whole.len() as u64;
            return Ok(());
        }
        // An event stream may send its head long before its first event: pass the head on at once (ATTACKS H22).
        if input.is_empty() {
            sink.begin(response, &[], false).await?;
        }
        while let Some(piece) =
            reader.next(stream, input, limits::RESPONSE_IDLE_TIMEOUT).await.map_err(|error| failed(&error))?
        {
            total += piece.len() as u64;
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
            trailers.retain(|name, _| forwards(role(name)));
        }
        sink.end(trailers.as_ref()).await
    }
    .await;
    (total, result)
}

fn failed(error: &BodyError) -> Stop {
    match error {
        BodyError::Malformed(what) => Stop::new(Reason::UpstreamMalformed, what),
        BodyError::Closed => Stop::new(Reason::UpstreamUnreachable, "closed inside the response body"),
        BodyError::TimedOut => Stop::new(Reason::UpstreamTimeout, "the response body stalled"),
        BodyError::Failed(error) => Stop::with(Reason::UpstreamUnreachable, error.to_string()),
    }
}

#[cfg(test)]
mod tests;
