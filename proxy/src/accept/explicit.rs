//! The explicit proxy on a shared address: each request names its run by a proxy credential.
//!
//! `Proxy-Authorization: Basic base64(RUN:TOKEN)`, as in `http://RUN:TOKEN@proxy:3128`, or `Bearer RUN.TOKEN`. Without
//! a valid one: 407, and the connection stays usable for another try (ATTACKS C32, H38).

use std::net::TcpListener;
use std::pin::pin;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use freeboard_policy::Reason;
use tokio::net::TcpStream;

use super::http1::{Guest, Next, ResponseSink, next};
use super::{accept_next, proxy};
use crate::broker::{Broker, Moment};
use crate::error::Stop;
use crate::http1::{Socket, Stream};
use crate::limits;
use crate::pipeline::Client;
use crate::record::{Draft, Kind};
use crate::request::{Length, RequestHead, Version};
use crate::respond::Sink;
use crate::run::{Admitted, RunContext};

/// Serves until the broker drains.
pub(super) async fn serve(listener: TcpListener, broker: Arc<Broker>) {
    let Some(listener) = super::listener(listener) else { return };
    let draining = broker.draining.clone();
    let connections = Arc::new(tokio::sync::Semaphore::new(limits::EXPLICIT_CONNECTIONS));
    loop {
        let socket = tokio::select! {
            biased;
            () = draining.cancelled() => return,
            socket = accept_next(&listener, &broker.metrics) => socket,
        };
        let Ok(permit) = Arc::clone(&connections).try_acquire_owned() else { continue };
        let broker = Arc::clone(&broker);
        tokio::spawn(async move {
            serve_connection(&broker, socket).await;
            drop(permit);
        });
    }
}

async fn serve_connection(broker: &Arc<Broker>, socket: TcpStream) {
    let mut draining = pin!(broker.draining.cancelled());
    let mut guest = Guest::from(Stream::from(Socket::from(socket)));
    let mut bound: Option<(Client, Admitted)> = None;
    loop {
        let Next::Head(started, head) = next(broker, draining.as_mut(), &mut guest).await else {
            return guest.stream.shutdown(limits::LINGER_TIMEOUT).await;
        };
        let client = match client(broker, &mut bound, &head) {
            Ok(client) => client,
            Err(stop) => {
                let bodiless = matches!(&head, Ok(head) if head.length == Length::None);
                if !refuse(broker, started, &stop, &guest, bodiless).await {
                    return;
                }
                continue;
            }
        };
        let served = async { proxy::serve_head(&client, started, head, guest).await };
        let kept = tokio::select! {
            biased;
            () = client.run.ended.cancelled() => return,
            kept = served => kept,
        };
        match kept {
            Some(kept) => guest = kept,
            None => return,
        }
    }
}

/// The client of this request. A connection serves one run only: another run's credential on it is refused.
fn client(
    broker: &Arc<Broker>,
    bound: &mut Option<(Client, Admitted)>,
    head: &Result<Box<RequestHead>, Stop>,
) -> Result<Client, Stop> {
    let head = head.as_ref().map_err(Clone::clone)?;
    let run = head.proxy_authorization.as_deref().and_then(|value| authenticate(broker, value));
    let run = run.ok_or(Stop::from(Reason::ProxyAuthRequired))?;
    match bound {
        Some((client, _)) if client.run.id == run.id => Ok(client.clone()),
        Some(_) => Err(Stop::malformed("the connection belongs to another run")),
        None => {
            let admitted = run.admit().ok_or(Stop::from(Reason::RunLimit))?;
            let client = Client { broker: Arc::clone(broker), run, door: "explicit" };
            *bound = Some((client.clone(), admitted));
            Ok(client)
        }
    }
}

fn authenticate(broker: &Broker, value: &[u8]) -> Option<Arc<RunContext>> {
    let text = std::str::from_utf8(value).ok()?;
    let (scheme, rest) = text.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("basic") {
        let pair = STANDARD.decode(rest.trim()).ok()?;
        let colon = memchr::memchr(b':', &pair)?;
        let (id, token) = pair.split_at(colon);
        broker.runs.authenticate(std::str::from_utf8(id).ok()?, token.get(1..)?)
    } else if scheme.eq_ignore_ascii_case("bearer") {
        let (id, token) = rest.trim().split_once('.')?;
        broker.runs.authenticate(id, token.as_bytes())
    } else {
        None
    }
}

/// Answers a request of nobody; true when the connection can be kept.
async fn refuse(broker: &Arc<Broker>, started: Moment, stop: &Stop, guest: &Guest, bodiless: bool) -> bool {
    let snapshot = broker.snapshot();
    let mut draft = Draft::new(broker, None, &snapshot, Kind::Tunnel, "explicit", "http/1.1", started);
    let keep = bodiless && stop.reason == Reason::ProxyAuthRequired;
    let mut sink = ResponseSink::new(&guest.stream, Version::Http11, false);
    let sent = sink.refuse(stop, draft.request_id(), !keep).await;
    if let Ok(status) = sent {
        draft.note(|outcome| outcome.status = status);
    }
    draft.stopped(stop);
    if !keep {
        guest.stream.shutdown(limits::LINGER_TIMEOUT).await;
    }
    keep && sent.is_ok()
}
