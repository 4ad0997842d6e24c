//! A permitted request on its way: connection, head, bodies both ways, and what is left afterwards.

mod http2;
mod relay;
mod upload;

use std::future::Future;
use std::pin::{Pin, pin};

use freeboard_audit::{Event, Finding, Severity};
use freeboard_policy::{AnswerTerms, ApiView, GrantView, Host, Permit, Reason, Route};
use tokio::time::Instant;

use crate::credential::{Material, Scrubber};
use crate::decide::breaker::{Overload, Ticket};
use crate::error::Stop;
use crate::http1::{Input, Patience, Stream};
use crate::limits;
use crate::pipeline::{After, Client, Held};
use crate::record::Draft;
use crate::request::{Body, Fields, Length, RequestHead};
use crate::respond::Sink;
use crate::upstream::answer::{AnswerHead, retry_after};
use crate::upstream::dial::{Offer, Protocol};
use crate::upstream::http2::Session;
use crate::upstream::pool::Key;
use crate::upstream::send::{Connection, ReadHead, Written, write_head};
use relay::relay;
use upload::{Upload, UploadState, upload};

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
    /// Told what the API says of its load.
    pub ticket: &'a Ticket<'a>,
    /// How many revocations were known when it was decided.
    pub revocations: u64,
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

    /// The head of an answer: it may say that the API wants no more requests.
    fn heard(&self, status: u16, fields: &Fields) {
        let broker = &self.client.broker;
        let now = broker.clock.now();
        let wait = || retry_after(fields.first("retry-after")?, now.unix_seconds());
        let pause = Overload::of(status).and_then(|_| wait());
        let Some(pause) = self.ticket.answered(status, pause, now.instant) else { return };
        let api = &self.api.name;
        let detail =
            format!("API `{api}` answered {status}: nothing is sent to it for {} s", pause.as_secs());
        tracing::warn!(%api, status, ?pause, "the breaker opens");
        let code = "breaker_open".into();
        let finding = Finding { severity: Severity::Warning, code, credential: None, detail: detail.into() };
        // An error means that the log is full or down, which requests are refused for.
        let _ = broker.recorder.event(None, None, Event::Finding(finding));
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
    let Plan { client, api, route, material, .. } = *plan;
    let certificate = material.and_then(Material::certificate);
    Box::pin(async move {
        let dialler = &client.broker.dialler;
        let connected = dialler.connect_as(api, &route.host, route.port, offer, certificate).await?;
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
            return After::Websocket(Box::new(Switched {
                connection,
                scrubber,
                revocations: plan.revocations,
                held: None,
            }));
        }
        _ if done.reusable && connection.input.is_clean() => {
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
    /// See [`Plan::revocations`].
    pub revocations: u64,
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
        let patience = Patience::Until(Instant::now() + limits::RESPONSE_HEAD_TIMEOUT);
        let answer = read_answer(stream, input, head, patience).await?;
        return relay(plan, stream, input, answer, true, draft, head, sink).await;
    }
    if head.expects_continue {
        sink.go_on().await?;
    }
    let counted = draft.count();
    let answered = body.answered().cloned();
    let mut upload = Upload {
        future: pin!(upload(stream, body, head, request_limit(plan.grant), &counted.to_upstream)),
        state: UploadState::Running,
    };
    // Its time counts from the end of the upload, which `beside` knows.
    let patience = Some(limits::RESPONSE_HEAD_TIMEOUT);
    let answer = upload.beside(pin!(read_answer(stream, input, head, Patience::Endless)), patience).await??;
    if let Some(answered) = answered {
        answered.begin();
    }
    let complete = upload.state == UploadState::Complete;
    let relay = relay(plan, stream, input, answer, complete, draft, head, sink);
    let done = upload.beside(pin!(relay), None).await??;
    let complete = upload.state == UploadState::Complete;
    Ok(Done { reusable: done.reusable && complete, ..done })
}

async fn read_answer(
    stream: &Stream,
    input: &mut Input,
    head: &RequestHead,
    patience: Patience,
) -> Result<AnswerHead, Trouble> {
    for _ in 0..limits::MAX_INTERIM_RESPONSES {
        match Connection::read_head(stream, input, head.method == "HEAD", patience).await? {
            ReadHead::ClosedSilently => return Err(Trouble::ClosedSilently),
            // 100 was answered by us; other interim responses concern nobody any more.
            ReadHead::Head(answer) if answer.status < 200 && answer.status != 101 => {}
            ReadHead::Head(answer) => return Ok(answer),
        }
    }
    Err(Stop::new(Reason::UpstreamMalformed, "too many interim responses").into())
}

#[cfg(test)]
mod tests;
