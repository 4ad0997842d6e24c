//! One connection that is passed on unread, from top to bottom: what `pipeline` is for a request.
//!
//! A guest's socket and the name that it means come in; one audit record comes out. The order is the same: policy, budget, room
//! for the record, connection, and only then the guest's first byte. There is no credential: what is not read gets none.

use std::future::{Future as _, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use freeboard_policy::{ApiView, GrantView, Host, Reason, Route, Traffic};
use tokio::net::TcpStream;

use crate::approvals::{Approvals, Asked};
use crate::broker::{Moment, Snapshot};
use crate::decide::budget::InFlight;
use crate::decide::{self, AllowedConnection};
use crate::error::Stop;
use crate::http1::{Socket, Stream};
use crate::limits;
use crate::pipeline::Client;
use crate::record::{Draft, Kind};
use crate::upstream::unread::{Bounds, relay};

/// What stands in place of a method in records.
const METHOD: &str = "CONNECT";

/// What is passed on at this place for this run, if anything is.
pub fn traffic(client: &Client, host: &Host, port: u16, now: Moment) -> Traffic {
    let snapshot = client.broker.snapshot();
    let route = decide::destination(&client.run, &snapshot, now, host, port);
    route.map(|(_, route)| route.traffic).unwrap_or_default()
}

/// A connection that policy allowed and that was made. Dropping it records it as cut.
#[derive(Debug)]
pub struct Open {
    draft: Draft,
    upstream: TcpStream,
    bounds: Bounds,
    snapshot: Arc<Snapshot>,
    revocations: u64,
    place: (Host, u16),
    route: Route,
    api: Arc<ApiView>,
    in_flight: InFlight,
}

/// Decides on a connection and makes it.
///
/// # Errors
/// The record in the making and why it ends there: whoever can answer the guest does so first, with the id of the record.
pub async fn open(
    client: &Client,
    (host, port): (&Host, u16),
    traffic: Traffic,
    started: Moment,
) -> Result<Box<Open>, (Draft, Stop)> {
    let snapshot = client.broker.snapshot();
    let (broker, run) = (&client.broker, Some(&client.run));
    let protocol = if traffic == Traffic::TlsPassthrough { "tls" } else { "tcp" };
    let mut draft = Draft::new(broker, run, &snapshot, Kind::Connection, client.door, protocol, started);
    draft.note(|outcome| {
        outcome.method = METHOD.into();
        (outcome.host, outcome.port) = (host.as_str().into(), port);
        outcome.uninspected = true;
    });
    match make(client, &snapshot, &mut draft, (host, port), traffic).await {
        Ok(Made { upstream, address, bounds, revocations, route, api, in_flight }) => {
            draft.note(|outcome| outcome.upstream_address = Some(address));
            let place = (host.clone(), port);
            Ok(Box::new(Open {
                draft,
                upstream,
                bounds,
                snapshot,
                revocations,
                place,
                route,
                api,
                in_flight,
            }))
        }
        Err(stop) => Err((draft, stop)),
    }
}

struct Made {
    upstream: TcpStream,
    address: SocketAddr,
    bounds: Bounds,
    revocations: u64,
    route: Route,
    api: Arc<ApiView>,
    in_flight: InFlight,
}

async fn make(
    client: &Client,
    snapshot: &Arc<Snapshot>,
    draft: &mut Draft,
    (host, port): (&Host, u16),
    traffic: Traffic,
) -> Result<Made, Stop> {
    if client.broker.draining.is_cancelled() {
        return Err(Reason::ShuttingDown.into());
    }
    let started = draft.started();
    let allowed = decide::connection(&client.run, snapshot, started, host, port)?;
    let AllowedConnection { permit, route, api, grant, revocations } = allowed;
    draft.note(|outcome| {
        outcome.grant = Some(Arc::clone(permit.grant()));
        outcome.rule = Some(permit.rule().clone());
        outcome.api = Some(Arc::clone(permit.api()));
    });
    // SECURITY: a policy that came between the look at the place and this one may have made something else of it.
    if route.traffic != traffic {
        return Err(Stop::new(Reason::NoRule, "the policy has changed"));
    }
    let in_flight = client.run.account.budget(grant).begin(grant, started.instant)?;
    if let Some(calls) = permit.calls() {
        client.run.account.begin_route(permit.rule(), calls)?;
    }
    if grant.caller_per_minute.is_some() || api.per_minute.is_some() {
        client.broker.rates.take(&api, grant, client.run.caller.as_ref(), started.instant)?;
    }
    if let Some(approval) = permit.approval() {
        let asked = Asked {
            request_id: draft.request_id().to_string(),
            grant: permit.grant(),
            rule: permit.rule().to_string(),
            method: METHOD,
            host: host.as_str(),
            path: "",
            body_bytes: 0,
        };
        let still = || {
            let current = client.broker.snapshot();
            decide::connection(&client.run, &current, client.broker.clock.now(), host, port)?;
            let withdrawn = Stop::new(Reason::ApprovalWithdrawn, "the policy has changed");
            if Arc::ptr_eq(&current, snapshot) { Ok(()) } else { Err(withdrawn) }
        };
        let by = Approvals::wait(&client.broker, &client.run, approval, asked, still).await?;
        draft.note(|outcome| outcome.approved_by = Some(by));
    }
    let slot = client.broker.recorder.reserve()?;
    draft.note(|outcome| outcome.slot = Some(slot));
    let (upstream, address) = client.broker.dialler.connect_unread(permit, &api, &route).await?;
    Ok(Made { upstream, address, bounds: bounds(grant), revocations, route, api, in_flight })
}

fn bounds(grant: &GrantView) -> Bounds {
    Bounds {
        to_upstream: grant.request_bytes.unwrap_or(limits::DEFAULT_CONNECTION_BYTES),
        to_guest: grant.response_bytes.unwrap_or(limits::DEFAULT_CONNECTION_BYTES),
    }
}

impl Open {
    /// Passes on what `socket` brings until both sides are done or the permission is gone. Exactly one record, also when it is
    /// dropped midway.
    pub async fn serve(self, client: &Client, socket: Socket) {
        let Self { mut draft, upstream, bounds, snapshot, revocations, place, route, api, in_flight } = self;
        let counted = draft.count();
        let (guest, upstream) = (Stream::from(socket), Stream::from(Socket::from(upstream)));
        let mut relayed = pin!(relay(&guest, &upstream, bounds, &counted));
        // SECURITY: a permission that is taken away ends what it allowed, however long that would have run on.
        let (host, port) = &place;
        let mut revoked = pin!(decide::connection_revoked(
            &client.broker,
            &client.run,
            snapshot,
            revocations,
            (&route, &api),
            (host, *port),
        ));
        let ended = poll_fn(|cx| match relayed.as_mut().poll(cx) {
            Poll::Ready(ended) => Poll::Ready(ended),
            Poll::Pending => revoked.as_mut().poll(cx).map(Err),
        })
        .await;
        // Its place is free once its record is there.
        drop(in_flight);
        match ended {
            Ok(how) => {
                draft.note(|outcome| outcome.detail = how.map(Into::into));
                draft.allowed();
            }
            Err(stop) => draft.stopped(&stop),
        }
    }
}

/// Serves a TCP connection that a guest made without a proxy, from before its first byte: the server may speak first.
pub async fn serve_tcp(client: &Client, (host, port): (&Host, u16), socket: Socket, started: Moment) {
    match open(client, (host, port), Traffic::Tcp, started).await {
        Ok(open) => open.serve(client, socket).await,
        // Closed without a word: nobody knows what would be understood.
        Err((draft, stop)) => draft.stopped(&stop),
    }
}
