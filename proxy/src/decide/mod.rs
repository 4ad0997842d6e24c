//! Asks policy about one request, with all facts of one moment, and keeps what a run has left.

use std::sync::Arc;

use freeboard_policy::{
    ApiView, ConnectionPermit, ConnectionQuestion, Decision, DestinationQuestion, GrantView, Host,
    PendingBody, Permit, Reason, RequestQuestion, Route, RunScope, Target,
};

use crate::broker::{Broker, Moment, Snapshot};
use crate::error::Stop;
use crate::request::Fields;
use crate::request::held::Content;
use crate::run::RunContext;

pub mod breaker;
pub mod budget;
pub mod rates;
pub mod revocations;

/// A request that policy allows, with what goes with the permit.
#[derive(Debug)]
pub struct Allowed<'s> {
    pub permit: Permit,
    pub route: Route,
    pub api: Arc<ApiView>,
    pub grant: &'s GrantView,
    /// How many revocations were known.
    pub revocations: u64,
}

/// What a run asks for: the facts of one request that policy looks at.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    pub host: &'a Host,
    pub port: u16,
    pub method: &'a str,
    pub target: &'a Target,
    pub fields: &'a Fields,
    pub websocket: bool,
    /// The body, once it is held.
    pub held: Option<&'a Content>,
}

/// What policy says of one request.
#[derive(Debug)]
pub enum Decided<'s> {
    Allowed(Allowed<'s>),
    /// A rule looks at the body: hold it and ask again.
    NeedsBody(PendingBody),
}

/// May this run go to this place at all? Asked at CONNECT and when a ClientHello names its server.
///
/// # Errors
/// `host_not_granted`, `port_not_granted`, or what is wrong with the run's scope.
pub fn destination(
    run: &RunContext,
    snapshot: &Arc<Snapshot>,
    now: Moment,
    host: &Host,
    port: u16,
) -> Result<(Arc<RunScope>, Route), Stop> {
    let scope = run.scope(snapshot, now)?;
    let route = snapshot.policy.destination(&DestinationQuestion { scope: &scope, host, port })?;
    Ok((scope, route))
}

/// A connection that policy allows, with what goes with the permit.
#[derive(Debug)]
pub struct AllowedConnection<'s> {
    pub permit: ConnectionPermit,
    pub route: Route,
    pub api: Arc<ApiView>,
    pub grant: &'s GrantView,
    /// How many revocations were known.
    pub revocations: u64,
}

/// May this run have this connection, which is passed on unread?
///
/// # Errors
/// Policy's refusal, or `internal` where its answer names what it does not have.
pub fn connection<'s>(
    run: &RunContext,
    snapshot: &'s Arc<Snapshot>,
    now: Moment,
    host: &Host,
    port: u16,
) -> Result<AllowedConnection<'s>, Stop> {
    // Before the look: one that comes meanwhile is seen by `connection_revoked`.
    let revocations = run.revocations();
    let (scope, route) = destination(run, snapshot, now, host, port)?;
    let question = ConnectionQuestion { scope: &scope, route: &route, now_unix: now.unix_seconds() };
    let permit = snapshot.policy.connect(&question)?;
    let fault = |what| Stop::new(Reason::Internal, what);
    if permit.api() != &route.api {
        return Err(fault("the permit is for another API than the route"));
    }
    let api = snapshot.api(&route.api).ok_or(fault("policy does not know its own API"))?;
    let grant = snapshot.grant(permit.grant()).ok_or(fault("policy does not know its own grant"))?;
    Ok(AllowedConnection { permit, route, api, grant, revocations })
}

/// May this run send this request? Asked for every request, with the policy in force at that moment.
///
/// # Errors
/// Policy's refusal, or `internal` where its answer names what it does not have.
pub fn request<'s>(
    run: &RunContext,
    snapshot: &'s Arc<Snapshot>,
    now: Moment,
    asked: Question<'_>,
) -> Result<Decided<'s>, Stop> {
    // Before the look: one that comes meanwhile is seen by `revoked`.
    let revocations = run.revocations();
    let (scope, route) = destination(run, snapshot, now, asked.host, asked.port)?;
    let question = RequestQuestion {
        scope: &scope,
        route: &route,
        method: asked.method,
        target: asked.target,
        fields: asked.fields,
        websocket: asked.websocket,
        now_unix: now.unix_seconds(),
    };
    let permit = match snapshot.policy.evaluate(&question) {
        Decision::Allow(permit) => permit,
        Decision::NeedsBody(pending) => match asked.held {
            Some(held) => pending.inspect(held.view())?,
            None => return Ok(Decided::NeedsBody(pending)),
        },
        Decision::Refuse(refusal) => return Err(refusal.into()),
    };
    let fault = |what| Stop::new(Reason::Internal, what);
    if permit.api() != &route.api {
        return Err(fault("the permit is for another API than the route"));
    }
    let api = snapshot.api(&route.api).ok_or(fault("policy does not know its own API"))?;
    let grant = snapshot.grant(permit.grant()).ok_or(fault("policy does not know its own grant"))?;
    Ok(Decided::Allowed(Allowed { permit, route, api, grant, revocations }))
}

/// Ends when what is in flight is no longer allowed, by a new generation of policy or because its time is over, with what
/// policy says now. `seen` is the generation that allowed it, and `taken` how many revocations were known then.
pub async fn revoked(
    broker: &Broker,
    run: &RunContext,
    seen: Arc<Snapshot>,
    taken: u64,
    asked: Question<'_>,
) -> Stop {
    let ask = |current: &Arc<Snapshot>| match request(run, current, broker.clock.now(), asked)? {
        Decided::Allowed(_) => Ok(()),
        // SECURITY: its body is gone, so nobody can tell what the new rules would say of it.
        Decided::NeedsBody(_) => Err(Reason::BodyNotGranted.into()),
    };
    until_refused(broker, run, seen, taken, ask).await
}

/// The same of a connection that is passed on unread. It is made of the dialled addresses and of what it carries: where the
/// policy now leads to another place, it ends too.
pub async fn connection_revoked(
    broker: &Broker,
    run: &RunContext,
    seen: Arc<Snapshot>,
    taken: u64,
    (route, api): (&Route, &ApiView),
    (host, port): (&Host, u16),
) -> Stop {
    let ask = |current: &Arc<Snapshot>| {
        let now = connection(run, current, broker.clock.now(), host, port)?;
        let same = (&now.route.host, now.route.port, now.route.traffic)
            == (&route.host, route.port, route.traffic)
            && now.api.addresses == api.addresses;
        if same { Ok(()) } else { Err(Stop::from(Reason::NoRule)) }
    };
    until_refused(broker, run, seen, taken, ask).await
}

async fn until_refused(
    broker: &Broker,
    run: &RunContext,
    mut seen: Arc<Snapshot>,
    mut taken: u64,
    ask: impl Fn(&Arc<Snapshot>) -> Result<(), Stop>,
) -> Stop {
    let mut told = false;
    loop {
        // Made before the look, so that nothing is missed.
        let ask_again = broker.ask_again.notified();
        let current = broker.snapshot();
        let (changed, revocations) = (!Arc::ptr_eq(&seen, &current), run.revocations());
        if changed || told || revocations != taken {
            let why = if changed {
                "cut: the policy has changed"
            } else if revocations != taken {
                "cut: a grant was revoked"
            } else {
                "cut: the grant's time is over"
            };
            if let Err(mut stop) = ask(&current) {
                stop.detail = Some(why.into());
                return stop;
            }
            (seen, taken) = (current, revocations);
        }
        ask_again.await;
        told = true;
    }
}
