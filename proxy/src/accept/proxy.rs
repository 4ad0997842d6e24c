//! Connections of programs that were told to use a proxy: CONNECT, and `https` targets in absolute form.

use std::pin::pin;

use freeboard_policy::{Reason, Traffic};

use super::http1::{Guest, Next, ResponseSink, next, serve_one};
use super::transparent;
use super::tunnel::{Wanted, serve_tls};
use crate::broker::Moment;
use crate::connection;
use crate::decide;
use crate::error::Stop;
use crate::http1::Socket;
use crate::limits;
use crate::pipeline::{Client, Lead};
use crate::record::{Draft, Kind};
use crate::request::head::Form;
use crate::request::{Name, Place, RequestHead};
use crate::respond::Sink;

/// Serves a connection whose run is known: the proxy door inside a gate, a stream of a run's worker.
pub(crate) async fn serve_connection(client: &Client, mut guest: Guest) {
    let mut draining = pin!(client.broker.draining.cancelled());
    loop {
        let Next::Head(started, head) = next(&client.broker, draining.as_mut(), &mut guest).await else {
            return guest.stream.shutdown(limits::LINGER_TIMEOUT).await;
        };
        match serve_head(client, started, head, guest).await {
            Some(kept) => guest = kept,
            None => return,
        }
    }
}

/// Serves one request to a proxy; gives the connection back when another may follow.
pub(super) async fn serve_head(
    client: &Client,
    started: Moment,
    head: Result<Box<RequestHead>, Stop>,
    mut guest: Guest,
) -> Option<Guest> {
    let form = head.as_ref().ok().map(|head| &head.form);
    let place = match form {
        Some(Form::Authority(place)) if client.door != "streams" => place.clone(),
        _ => return serve_one(client, &Lead::Proxy, started, head, &mut guest).await.then_some(guest),
    };
    let wanted = wanted(client, place);
    if let Err(stop) = may_connect(client, &wanted, started) {
        let keep = refuse_connect(client, &wanted, started, &stop, &guest).await;
        return keep.then_some(guest);
    }
    if let Wanted::Name(host, port) = &wanted
        && connection::traffic(client, host, *port, started) == Traffic::Tcp
    {
        // Made before it is answered, so that the guest can read why it cannot be had.
        return match connection::open(client, (host, *port), Traffic::Tcp, started).await {
            Ok(open) => {
                open.serve(client, established(guest).await?).await;
                None
            }
            Err((draft, stop)) => refuse(draft, &stop, &guest).await.then_some(guest),
        };
    }
    let socket = established(guest).await?;
    // SECURITY: what follows is TLS or nothing: opaque bytes are passed on only where policy says so of the place.
    serve_tls(client, wanted, socket, started).await;
    None
}

/// Says that the tunnel stands, and gives the socket with what the guest sent without waiting for that.
async fn established(guest: Guest) -> Option<Socket> {
    let answer =
        guest.stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n", limits::CLIENT_WRITE_TIMEOUT);
    answer.await.ok()?;
    let Guest { stream, input } = guest;
    let mut socket = stream.into_socket()?;
    socket.unread(input.bytes());
    Some(socket)
}

fn wanted(client: &Client, place: Place) -> Wanted {
    let port = place.port.unwrap_or(443);
    match place.name {
        Name::Host(host) => Wanted::Name(host, port),
        // A program that resolved the name itself names the synthetic address.
        Name::Address(address) => transparent::wanted(client, (address, port).into()),
    }
}

fn may_connect(client: &Client, wanted: &Wanted, now: Moment) -> Result<(), Stop> {
    if client.broker.draining.is_cancelled() {
        return Err(Reason::ShuttingDown.into());
    }
    match wanted {
        Wanted::Address(..) => Err(Reason::RawAddress.into()),
        Wanted::Name(host, port) => {
            let snapshot = client.broker.snapshot();
            decide::destination(&client.run, &snapshot, now, host, *port).map(drop)
        }
    }
}

async fn refuse_connect(
    client: &Client,
    wanted: &Wanted,
    started: Moment,
    stop: &Stop,
    guest: &Guest,
) -> bool {
    let snapshot = client.broker.snapshot();
    let (broker, run) = (&client.broker, Some(&client.run));
    let mut draft = Draft::new(broker, run, &snapshot, Kind::Tunnel, client.door, "http/1.1", started);
    draft.note(|outcome| {
        outcome.method = "CONNECT".into();
        (outcome.host, outcome.port) = match wanted {
            Wanted::Name(host, port) => (host.as_str().into(), *port),
            Wanted::Address(address, port) => (address.to_string().into(), *port),
        };
    });
    refuse(draft, stop, guest).await
}

/// Answers a CONNECT that does not go on; true when the connection can be kept.
async fn refuse(mut draft: Draft, stop: &Stop, guest: &Guest) -> bool {
    let mut sink = ResponseSink::new(&guest.stream, crate::request::Version::Http11, false);
    let sent = sink.refuse(stop, draft.request_id(), false).await;
    if let Ok(status) = sent {
        draft.note(|outcome| outcome.status = status);
    }
    draft.stopped(stop);
    sent.is_ok()
}
