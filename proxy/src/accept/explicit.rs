//! The explicit proxy on a shared address, and the guard, which is the same over TLS for sandboxes on other machines: each
//! request names its run by a proxy credential.
//!
//! `Proxy-Authorization: Basic base64(RUN:TOKEN)`, as in `http://RUN:TOKEN@proxy:3128`, or `Bearer RUN.TOKEN`. Without
//! a valid one: 407, and the connection stays usable for another try (ATTACKS C32, H38).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, TcpListener};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use freeboard_policy::Reason;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::http1::{Guest, Next, ResponseSink, next};
use super::{accept_next, proxy};
use crate::broker::{Broker, Moment};
use crate::error::Stop;
use crate::http1::{Socket, Stream, Wire};
use crate::limits;
use crate::pipeline::Client;
use crate::record::{Draft, Kind};
use crate::request::{Length, RequestHead, Version};
use crate::respond::Sink;
use crate::run::{Admitted, RunContext};

/// How guests come in.
#[derive(Clone)]
pub enum Entrance {
    /// In the clear, on this host.
    Explicit,
    /// Over TLS, from other machines.
    Guard(TlsAcceptor),
}

impl Entrance {
    const fn door(&self) -> &'static str {
        match self {
            Self::Explicit => "explicit",
            Self::Guard(_) => "guard",
        }
    }
}

impl std::fmt::Debug for Entrance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.door())
    }
}

/// Serves until the broker drains.
pub(super) async fn serve(listener: TcpListener, entrance: Entrance, broker: Arc<Broker>) {
    let Some(listener) = super::listener(listener) else { return };
    let draining = broker.draining.clone();
    let connections = Arc::new(tokio::sync::Semaphore::new(limits::EXPLICIT_CONNECTIONS));
    let strangers = Arc::<Strangers>::default();
    loop {
        let socket = tokio::select! {
            biased;
            () = draining.cancelled() => return,
            socket = accept_next(&listener, &broker.metrics) => socket,
        };
        let address = socket.peer_addr().map(|peer| peer.ip().to_canonical());
        let stranger = address.ok().and_then(|address| Strangers::admit(&strangers, address));
        let permit = Arc::clone(&connections).try_acquire_owned();
        let (Some(stranger), Ok(permit)) = (stranger, permit) else {
            broker.metrics.connections_over_limit.one_more();
            continue;
        };
        let (broker, entrance) = (Arc::clone(&broker), entrance.clone());
        tokio::spawn(async move {
            if let Some(socket) = enter(&broker, &entrance, socket).await {
                serve_connection(&broker, entrance.door(), socket, stranger).await;
            }
            drop(permit);
        });
    }
}

/// Connections that have not named a run yet, by the address that they come from: whoever can reach the door, and knows no credential,
/// takes a part of it only (ATTACKS E14).
#[derive(Debug, Default)]
struct Strangers {
    by_address: Mutex<HashMap<IpAddr, usize>>,
}

/// One of them, as long as this lives.
#[derive(Debug)]
struct Stranger {
    all: Arc<Strangers>,
    address: IpAddr,
}

impl Strangers {
    fn admit(all: &Arc<Self>, address: IpAddr) -> Option<Stranger> {
        let mut by_address = all.by_address.lock().unwrap_or_else(PoisonError::into_inner);
        let count = by_address.entry(address).or_default();
        if *count >= limits::EXPLICIT_STRANGERS_PER_ADDRESS {
            return None;
        }
        *count += 1;
        Some(Stranger { all: Arc::clone(all), address })
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let mut by_address = self.all.by_address.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(mut count) = by_address.entry(self.address) {
            match *count.get() {
                ..=1 => drop(count.remove()),
                _ => *count.get_mut() -= 1,
            }
        }
    }
}

/// Ends the guard's TLS. A failed handshake is recorded, of nobody.
async fn enter(broker: &Arc<Broker>, entrance: &Entrance, socket: TcpStream) -> Option<Socket> {
    let Entrance::Guard(acceptor) = entrance else { return Some(Socket::from(socket)) };
    let started = broker.clock.now();
    let stop = match timeout(limits::HANDSHAKE_TIMEOUT, acceptor.accept(Socket::from(socket))).await {
        Ok(Ok(stream)) => return Some(Socket::from(Wire::Guard(Box::new(stream)))),
        Ok(Err(error)) => Stop::with(Reason::TlsRefused, error.to_string()),
        Err(_) => Stop::new(Reason::ClientTimeout, "the TLS handshake did not end in time"),
    };
    let snapshot = broker.snapshot();
    Draft::new(broker, None, &snapshot, Kind::Tls, entrance.door(), "tls", started).stopped(&stop);
    None
}

async fn serve_connection(broker: &Arc<Broker>, door: &'static str, socket: Socket, stranger: Stranger) {
    let mut draining = pin!(broker.draining.cancelled());
    let mut guest = Guest::from(Stream::from(socket));
    let mut stranger = Some(stranger);
    let mut bound: Option<(Client, Admitted)> = None;
    loop {
        let Next::Head(started, head) = next(broker, draining.as_mut(), &mut guest).await else {
            return guest.stream.shutdown(limits::LINGER_TIMEOUT).await;
        };
        let client = match client(broker, door, &mut bound, &head) {
            Ok(client) => {
                // Known from now on.
                drop(stranger.take());
                client
            }
            Err(stop) => {
                let bodiless = matches!(&head, Ok(head) if head.length == Length::None);
                if !refuse(broker, door, started, &stop, &guest, bodiless).await {
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
    door: &'static str,
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
            let client = Client { broker: Arc::clone(broker), run, door };
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
async fn refuse(
    broker: &Arc<Broker>,
    door: &'static str,
    started: Moment,
    stop: &Stop,
    guest: &Guest,
    bodiless: bool,
) -> bool {
    let snapshot = broker.snapshot();
    let mut draft = Draft::new(broker, None, &snapshot, Kind::Tunnel, door, "http/1.1", started);
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

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn e14_strangers_of_one_address_are_bounded_and_forgotten() {
        let all = Arc::<Strangers>::default();
        let [one, other] = [1, 2].map(|last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)));
        let mut held: Vec<_> = std::iter::from_fn(|| Strangers::admit(&all, one)).collect();
        assert_eq!(held.len(), limits::EXPLICIT_STRANGERS_PER_ADDRESS);
        assert!(Strangers::admit(&all, other).is_some(), "another address is none the worse");
        held.pop();
        held.extend(Strangers::admit(&all, one));
        assert_eq!(held.len(), limits::EXPLICIT_STRANGERS_PER_ADDRESS);
        drop(held);
        assert!(all.by_address.lock().unwrap().is_empty());
    }
}
