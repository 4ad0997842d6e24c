//! One request from top to bottom. Read this first.
//!
//! A parsed head, a body to read and a sink for the answer come in, whatever door and protocol they belong to; one
//! audit record comes out. The order of the steps is the design: names, policy, budget, credential, room for the
//! record, connection, and only then the first byte upstream.

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use freeboard_policy::{ApiView, Fault, Host, PendingBody, Permit, Reason};

use crate::approvals::{Approvals, Asked};
use crate::broker::{Broker, Moment, Snapshot};
use crate::credential::sigv4::{Payload, SignedBody};
use crate::credential::{Attach, Material};
use crate::decide::breaker::{Admission, Ticket};
use crate::decide::budget::InFlight;
use crate::decide::{self, Allowed, Decided, Question};
use crate::error::Stop;
use crate::forward;
use crate::record::{Draft, Kind};
use crate::request::head::Form;
use crate::request::held::{self, hold};
use crate::request::measured::{self, Measured};
use crate::request::{Body, Length, Name, RequestHead, Version};
use crate::respond::{Guarded, Sink};
use crate::run::RunContext;

/// Who is speaking, and through which door.
#[derive(Debug, Clone)]
pub struct Client {
    pub broker: Arc<Broker>,
    pub run: Arc<RunContext>,
    /// `transparent`, `proxy`, `explicit`, `streams`.
    pub door: &'static str,
}

/// Where a connection leads.
#[derive(Debug)]
pub enum Lead {
    /// TLS that we ended: every request on it is for this place.
    Tunnel(Origin),
    /// Clear text to us as a proxy: each request names its place in its target.
    Proxy,
    /// Clear text to an origin: port 80 of a gate. Every request is refused.
    Plain { port: u16 },
}

/// The place that a tunnel was opened to and that SNI confirmed.
#[derive(Debug, Clone)]
pub struct Origin {
    pub host: Host,
    pub port: u16,
    /// Set when the destination is refused: TLS was completed only so that the guest can read why.
    pub refusal: Option<Stop>,
}

/// What a websocket keeps of its request until it ends: the record, the place in the budget, and what is asked again
/// when the policy changes.
#[derive(Debug)]
pub struct Held {
    pub draft: Draft,
    place: (Host, u16),
    head: Box<RequestHead>,
    snapshot: Arc<Snapshot>,
    revocations: u64,
    _in_flight: InFlight,
}

impl Held {
    /// Ends when policy no longer allows the websocket.
    pub async fn revoked(&self, client: &Client) -> Stop {
        match question(&self.place.0, self.place.1, &self.head, None) {
            Ok(asked) => {
                let seen = Arc::clone(&self.snapshot);
                decide::revoked(&client.broker, &client.run, seen, self.revocations, asked).await
            }
            Err(stop) => stop,
        }
    }
}

/// What an exchange leaves of the guest's connection.
#[derive(Debug)]
pub enum After {
    /// The next request may follow.
    Keep,
    /// Close, after the guest had a chance to read the answer.
    Close,
    /// The connection is broken.
    Gone,
    /// The connection speaks websocket from here on: call `upstream::websocket::relay`, then end the record.
    Websocket(Box<forward::Switched>),
}

/// Handles one request whose head has one reading. Exactly one audit record, also when it is dropped midway.
pub async fn exchange<B: Body, S: Sink>(
    client: &Client,
    lead: &Lead,
    started: Moment,
    mut head: Box<RequestHead>,
    body: &mut B,
    sink: &mut S,
) -> After {
    let snapshot = client.broker.snapshot();
    let mut draft = draft(client, &snapshot, head.version, started);
    draft.watch(sink.left());
    draft.note(|outcome| {
        outcome.method = head.method.as_ref().into();
        outcome.path = head.target.as_ref().map(|target| target.wire().into()).unwrap_or_default();
    });
    let result = decide_and_forward(client, lead, &snapshot, &mut draft, &mut head, body, sink).await;
    let stripped = std::mem::take(&mut head.stripped);
    draft.note(|outcome| outcome.stripped.extend(stripped));
    match result {
        Ok((After::Websocket(mut switched), in_flight, place)) => {
            let revocations = switched.revocations;
            switched.held = Some(Held { draft, place, head, snapshot, revocations, _in_flight: in_flight });
            After::Websocket(switched)
        }
        Ok((after, _in_flight, _)) => {
            draft.allowed();
            after
        }
        Err(stop) => {
            let stop = canary(&snapshot, &head, stop);
            refuse(draft, &stop, &head, body, sink).await
        }
    }
}

/// A refused request that carries a placeholder says so before anything else: whoever sent it collects keys (ATTACKS H51).
fn canary(snapshot: &Snapshot, head: &RequestHead, stop: Stop) -> Stop {
    match snapshot.placeholders.astray(head) {
        Some(found) if stop.reason.fault() == Fault::Policy => {
            tracing::warn!(api = %found.api, "a placeholder went astray");
            let refused = stop.reason;
            Stop::with(Reason::PlaceholderAstray, format!("of API `{}`; without it: {refused}", found.api))
        }
        _ => stop,
    }
}

async fn decide_and_forward<B: Body, S: Sink>(
    client: &Client,
    lead: &Lead,
    snapshot: &Arc<Snapshot>,
    draft: &mut Draft,
    head: &mut RequestHead,
    body: &mut B,
    sink: &mut S,
) -> Result<(After, InFlight, (Host, u16)), Stop> {
    let place = place(lead, head);
    draft.note(|outcome| {
        (outcome.host, outcome.port) = match &place {
            Ok((host, port)) => (host.as_str().into(), *port),
            // What the guest named, where it is no place to go to.
            Err(_) => (head.place.name.to_string().into(), head.place.port.unwrap_or(443)),
        };
    });
    if client.broker.draining.is_cancelled() {
        return Err(Reason::ShuttingDown.into());
    }
    let (host, port) = place?;
    let asked = question(&host, port, head, None)?;
    let (allowed, mut held) = match decide::request(&client.run, snapshot, draft.started(), asked)? {
        Decided::Allowed(allowed) => (allowed, None),
        // Boxed: most requests never need this state.
        Decided::NeedsBody(pending) => {
            let place = (&host, port);
            let (allowed, held) =
                Box::pin(inspect(client, snapshot, draft, place, pending, head, body, sink)).await?;
            (allowed, Some(held))
        }
    };
    let Allowed { permit, route, api, grant, revocations } = allowed;
    if let Some(found) = snapshot.placeholders.astray(head) {
        return Err(Stop::with(Reason::PlaceholderAstray, format!("of API `{}`", found.api)));
    }
    draft.note(|outcome| {
        outcome.grant = Some(Arc::clone(permit.grant()));
        outcome.rule = Some(permit.rule().clone());
        outcome.api = Some(Arc::clone(permit.api()));
        outcome.credential = permit.credential().cloned();
    });
    if let (Length::Sized(length), limit) = (head.length, forward::request_limit(grant))
        && length > limit
    {
        return Err(Stop::with(Reason::BodyTooLarge, format!("{length} bytes, at most {limit}")));
    }
    let ticket = admitted(client, &api)?;
    let in_flight = client.run.account.budget(grant).begin(grant, draft.started().instant)?;
    if let Some(calls) = permit.calls() {
        client.run.account.begin_route(permit.rule(), calls)?;
    }
    if grant.caller_per_minute.is_some() || api.per_minute.is_some() {
        let caller = client.run.caller.as_ref();
        client.broker.rates.take(&api, grant, caller, draft.started().instant)?;
    }
    if let Some(approval) = permit.approval() {
        let asked = Asked {
            request_id: draft.request_id().to_string(),
            grant: permit.grant(),
            rule: permit.rule().to_string(),
            method: &head.method,
            host: host.as_str(),
            path: head.target.as_ref().map_or("", |target| target.wire()),
            body_bytes: held.as_ref().map_or(0, |held| held.content().raw().len() as u64),
        };
        // Boxed: most requests never need this state.
        let again = question(&host, port, head, held.as_ref().map(held::Held::content))?;
        let still = || {
            let current = client.broker.snapshot();
            let now = client.broker.clock.now();
            match decide::request(&client.run, &current, now, again)? {
                Decided::Allowed(_) if Arc::ptr_eq(&current, snapshot) => Ok(()),
                _ => Err(Stop::new(Reason::ApprovalWithdrawn, "the policy has changed")),
            }
        };
        let by = Box::pin(Approvals::wait(&client.broker, &client.run, approval, asked, still)).await?;
        draft.note(|outcome| outcome.approved_by = Some(by));
    }
    let material = match permit.credential() {
        Some(name) => {
            Some(snapshot.material(&client.broker.mints, name, &client.run, draft.started()).await?)
        }
        None => None,
    };
    if let Some(material) = &material {
        // SECURITY: before injection (ATTACKS B32, C09).
        head.drop_guest_credentials(material.header_name());
        head.ask_for_readable_answers();
    }
    let slot = client.broker.recorder.reserve()?;
    draft.note(|outcome| outcome.slot = Some(slot));
    let (answer, meter) = (permit.answer_terms(), permit.body_meter());
    let plan = forward::Plan {
        client,
        api: &api,
        route: &route,
        grant,
        material: material.as_deref(),
        asked: &host,
        answer: answer.as_ref(),
        ticket: &ticket,
        revocations,
    };
    let scrubber = material.as_ref().map(|material| Arc::clone(&material.scrubber));
    let mut guarded = Guarded::new(sink, scrubber);
    let after = match (&mut held, meter) {
        (None, None) => send(client, snapshot, plan, permit, draft, head, None, body, &mut guarded).await,
        (None, meter) => {
            let body = &mut Measured::new(body, meter);
            Box::pin(send(client, snapshot, plan, permit, draft, head, None, body, &mut guarded)).await
        }
        (Some(held), meter) => {
            let (content, mut replay) = held.split(body);
            if let Some(meter) = &meter {
                // What is here already is judged before anything goes on.
                meter.clone().pass(content.raw()).map_err(measured::stopped)?;
            }
            let (held, body) = (Some(content), &mut Measured::new(&mut replay, meter));
            Box::pin(send(client, snapshot, plan, permit, draft, head, held, body, &mut guarded)).await
        }
    };
    let found = guarded.found();
    draft.note(|outcome| {
        outcome.stripped.extend(found.secret.then_some("secret_in_answer"));
        outcome.stripped.extend(found.token.then_some("token_in_answer"));
    });
    Ok((after?, in_flight, (host, port)))
}

/// Asks whether the API takes requests now. Before the budget: a request that is held back costs nothing.
fn admitted<'a>(client: &'a Client, api: &'a Arc<ApiView>) -> Result<Ticket<'a>, Stop> {
    let now = client.broker.clock.now().instant;
    match client.broker.breakers.admit(&api.name, api.health_check.is_some(), now) {
        Admission::Sent(ticket) => Ok(ticket),
        Admission::Shed { stop, probe } => {
            if probe {
                tokio::spawn(crate::upstream::health::probe(Arc::clone(&client.broker), Arc::clone(api)));
            }
            Err(stop)
        }
    }
}

/// Holds the body for the rules that look at it, and asks again.
#[expect(clippy::too_many_arguments, reason = "the parts of one exchange, each borrowed from another owner")]
async fn inspect<'s, B: Body, S: Sink>(
    client: &Client,
    snapshot: &'s Arc<Snapshot>,
    draft: &Draft,
    place: (&Host, u16),
    pending: PendingBody,
    head: &mut RequestHead,
    body: &mut B,
    sink: &mut S,
) -> Result<(Allowed<'s>, held::Held), Stop> {
    let held = hold(head, body, sink, &pending, client.run.room()).await?;
    let asked = question(place.0, place.1, head, Some(held.content()))?;
    match decide::request(&client.run, snapshot, draft.started(), asked)? {
        Decided::Allowed(allowed) => Ok((allowed, held)),
        Decided::NeedsBody(_) => Err(Stop::new(Reason::Internal, "the body was asked for twice")),
    }
}

/// Sends what is permitted, signed first where the credential signs.
#[expect(clippy::too_many_arguments, reason = "the parts of one exchange, each borrowed from another owner")]
async fn send<B: Body, S: Sink>(
    client: &Client,
    snapshot: &Arc<Snapshot>,
    plan: forward::Plan<'_>,
    permit: Permit,
    draft: &mut Draft,
    head: &mut RequestHead,
    held: Option<&held::Content>,
    body: &mut B,
    sink: &mut S,
) -> Result<After, Stop> {
    if let Some(material @ Material { attach: Attach::Sign(_), .. }) = plan.material {
        // Boxed: most requests never need this state.
        let signed = signed(client, snapshot, plan, material, permit, draft, head, held, body, sink);
        return Box::pin(signed).await;
    }
    while_permitted(client, snapshot, plan, permit, draft, head, held, body, sink).await
}

/// Signs the request in place of the guest, its body too where it is signed, and sends it.
#[expect(clippy::too_many_arguments, reason = "the parts of one exchange, each borrowed from another owner")]
async fn signed<B: Body, S: Sink>(
    client: &Client,
    snapshot: &Arc<Snapshot>,
    plan: forward::Plan<'_>,
    material: &Material,
    permit: Permit,
    draft: &mut Draft,
    head: &mut RequestHead,
    held: Option<&held::Content>,
    body: &mut B,
    sink: &mut S,
) -> Result<After, Stop> {
    let Attach::Sign(signer) = &material.attach else {
        return Err(Stop::new(Reason::Internal, "nothing to sign with"));
    };
    let port = if plan.route.port == 443 { String::new() } else { format!(":{}", plan.route.port) };
    let authority = format!("{}{port}", plan.route.host);
    let mut payload = signer.payload(head)?;
    let mut whole = None;
    if payload == Payload::ToHash {
        if std::mem::take(&mut head.expects_continue) {
            sink.go_on().await?;
        }
        let (read, hash) = SignedBody::read_whole(body).await?;
        (whole, payload) = (Some(read), hash);
    }
    let signed = signer.sign(head, &authority, &payload, client.broker.clock.now().unix_seconds())?;
    let mut body = whole.unwrap_or_else(|| SignedBody::new(body, signed.resigner));
    let material = material.signed(signed.authorization);
    let plan = forward::Plan { material: Some(&material), ..plan };
    while_permitted(client, snapshot, plan, permit, draft, head, held, &mut body, sink).await
}

/// Forwards for as long as it stays permitted.
#[expect(clippy::too_many_arguments, reason = "the parts of one exchange, each borrowed from another owner")]
async fn while_permitted<B: Body, S: Sink>(
    client: &Client,
    snapshot: &Arc<Snapshot>,
    plan: forward::Plan<'_>,
    permit: Permit,
    draft: &mut Draft,
    head: &RequestHead,
    held: Option<&held::Content>,
    body: &mut B,
    sink: &mut S,
) -> Result<After, Stop> {
    let asked = question(plan.asked, plan.route.port, head, held)?;
    let mut forward = pin!(forward::forward(plan, permit, draft, head, body, sink));
    // SECURITY: a permission that is taken away ends what it allowed, however long that would have run on.
    let (seen, taken) = (Arc::clone(snapshot), plan.revocations);
    let mut revoked = pin!(decide::revoked(&client.broker, &client.run, seen, taken, asked));
    poll_fn(|cx| match forward.as_mut().poll(cx) {
        Poll::Ready(after) => Poll::Ready(after),
        Poll::Pending => revoked.as_mut().poll(cx).map(Err),
    })
    .await
}

fn question<'a>(
    host: &'a Host,
    port: u16,
    head: &'a RequestHead,
    held: Option<&'a held::Content>,
) -> Result<Question<'a>, Stop> {
    let target = head.target.as_ref().ok_or(Stop::malformed("no target"))?;
    let (fields, websocket) = (&head.fields, head.websocket.is_some());
    Ok(Question { host, port, method: &head.method, target, fields, websocket, held })
}

/// The one place that everything agrees on: CONNECT or synthetic address = SNI = Host = what is dialled and verified.
fn place(lead: &Lead, head: &RequestHead) -> Result<(Host, u16), Stop> {
    match (lead, &head.form) {
        // SECURITY: a tunnel inside a tunnel would be a place that nobody decided on (ATTACKS A30).
        (_, Form::Authority(_)) => Err(Reason::MethodForbidden.into()),
        (Lead::Plain { .. }, _) | (_, Form::Absolute { https: false, .. }) => Err(Reason::PlainHttp.into()),
        (Lead::Tunnel(Origin { refusal: Some(stop), .. }), _) => Err(stop.clone()),
        (Lead::Tunnel(origin), _) => match &head.place.name {
            Name::Host(host) if *host == origin.host => match head.place.port.unwrap_or(443) {
                port if port == origin.port => Ok((origin.host.clone(), origin.port)),
                _ => Err(Stop::new(Reason::PortNotGranted, "Host names another port than the connection")),
            },
            _ => Err(Stop::with(Reason::NameMismatch, format!("the connection is for {}", origin.host))),
        },
        (Lead::Proxy, Form::Origin) => {
            Err(Stop::malformed("a request to a proxy must name its place in the target"))
        }
        (Lead::Proxy, Form::Absolute { https: true, place }) => match &place.name {
            Name::Host(host) => Ok((host.clone(), place.port.unwrap_or(443))),
            Name::Address(_) => Err(Reason::RawAddress.into()),
        },
    }
}

/// Records a request that cannot be read, and answers it where that makes sense. The connection closes afterwards.
pub async fn refuse_unread<S: Sink>(
    client: &Client,
    lead: &Lead,
    version: Version,
    started: Moment,
    stop: &Stop,
    sink: &mut S,
) {
    let mut draft = draft(client, &client.broker.snapshot(), version, started);
    draft.note(|outcome| match lead {
        Lead::Tunnel(origin) => (outcome.host, outcome.port) = (origin.host.as_str().into(), origin.port),
        Lead::Plain { port } => outcome.port = *port,
        Lead::Proxy => {}
    });
    if let Ok(status) = sink.refuse(stop, draft.request_id(), true).await {
        draft.note(|outcome| outcome.status = status);
    }
    draft.stopped(stop);
}

/// Answers a request that does not go on. The connection is kept when the request was read to its end.
async fn refuse<B: Body, S: Sink>(
    mut draft: Draft,
    stop: &Stop,
    head: &RequestHead,
    body: &mut B,
    sink: &mut S,
) -> After {
    if sink.has_begun() {
        draft.stopped(stop);
        return After::Gone;
    }
    if stop.reason == Reason::ClientClosed {
        draft.stopped(stop);
        return After::Gone;
    }
    // SECURITY: a body that was not read must never be taken for the next request (ATTACKS B27).
    let read = body.is_done() || (!head.expects_continue && body.whole().is_some());
    let close = head.close || !read || closes(stop.reason);
    let sent = sink.refuse(stop, draft.request_id(), close).await;
    if let Ok(status) = sent {
        draft.note(|outcome| outcome.status = status);
    }
    draft.stopped(stop);
    match (sent.is_ok(), close) {
        (false, _) => After::Gone,
        (true, true) => After::Close,
        (true, false) => After::Keep,
    }
}

/// Reasons after which what follows on the connection cannot be trusted or is not wanted.
const fn closes(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::Malformed
            | Reason::HeadTooLarge
            | Reason::ClientTimeout
            | Reason::RunEnded
            | Reason::ShuttingDown
            | Reason::UpgradeRefused
    )
}

fn draft(client: &Client, snapshot: &Snapshot, version: Version, started: Moment) -> Draft {
    let (broker, run) = (&client.broker, Some(&client.run));
    Draft::new(broker, run, snapshot, Kind::Request, client.door, version.word(), started)
}
