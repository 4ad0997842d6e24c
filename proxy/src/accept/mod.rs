//! Stage 1: from a handed socket to a client of one run.
//!
//! Which run is speaking follows from the socket that accepted, never from anything that the guest says; the explicit
//! door on a shared address alone asks for a credential.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use freeboard_control::Door;
use freeboard_policy::Reason;
use rustix::net::sockopt::{ip_original_dst, ipv6_original_dst};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

use crate::broker::Broker;
use crate::error::Stop;
use crate::http1::{Socket, Stream};
use crate::limits;
use crate::metrics::Metrics;
use crate::pipeline::Client;
use crate::record::Kind;
use crate::run::RunContext;
use http1::Guest;
use tunnel::Wanted;

pub mod explicit;
pub mod guard;
pub mod http1;
pub mod http2;
pub(crate) mod proxy;
mod streams;
mod transparent;
pub mod tunnel;
pub mod worker;

/// Serves one door of a gate until the run ends. Spawned by `accept::worker` (`control_server` calls that).
pub async fn serve_door(door: Door, descriptor: OwnedFd, run: Arc<RunContext>, broker: Arc<Broker>) {
    match door {
        Door::DnsUdp => crate::dns::serve_udp(descriptor, run, broker).await,
        Door::DnsTcp => crate::dns::serve_tcp(descriptor, run, broker).await,
        Door::Tcp { .. } => serve_listener(descriptor, Client { broker, run, door: "transparent" }).await,
        Door::Proxy { .. } => serve_listener(descriptor, Client { broker, run, door: "proxy" }).await,
        Door::CatchAll => serve_listener(descriptor, Client { broker, run, door: "catch_all" }).await,
        Door::Streams => serve_streams(descriptor, Client { broker, run, door: "streams" }).await,
    }
}

async fn serve_listener(descriptor: OwnedFd, client: Client) {
    let Some(listener) = listener(std::net::TcpListener::from(descriptor)) else { return };
    loop {
        let socket = accept_next(&listener, &client.broker.metrics).await;
        let Some(admitted) = client.run.admit() else {
            refuse_for_limit(&client, &socket);
            continue;
        };
        let client = client.clone();
        tokio::spawn(async move {
            let ended = client.run.ended.clone();
            tokio::select! {
                biased;
                // The end of a run cuts its connections; what was in flight is recorded as cut.
                () = ended.cancelled() => {}
                () = serve_connection(&client, socket) => {}
            }
            drop(admitted);
        });
    }
}

async fn serve_connection(client: &Client, socket: TcpStream) {
    match client.door {
        "proxy" => proxy::serve_connection(client, Guest::from(Stream::from(Socket::from(socket)))).await,
        "catch_all" => refuse_caught(client, &socket),
        _ => transparent::serve_connection(client, socket).await,
    }
}

async fn serve_streams(descriptor: OwnedFd, client: Client) {
    let Ok(streams) = streams::Streams::new(descriptor) else { return };
    while let Ok(Some(stream)) = streams.next().await {
        // The worker is one run's; a stream beyond its limit is closed, which its fetch sees as a network error.
        let Some(admitted) = client.run.admit() else { continue };
        let client = client.clone();
        tokio::spawn(async move {
            let ended = client.run.ended.clone();
            let guest = Guest::from(Stream::from(Socket::from(stream)));
            tokio::select! {
                biased;
                () = ended.cancelled() => {}
                () = proxy::serve_connection(&client, guest) => {}
            }
            drop(admitted);
        });
    }
}

/// Takes a listener over into this thread's runtime.
pub(crate) fn listener(listener: std::net::TcpListener) -> Option<TcpListener> {
    listener.set_nonblocking(true).ok()?;
    TcpListener::from_std(listener).ok()
}

/// The next connection, whatever happens meanwhile: out of descriptors or memory, it waits and goes on (ATTACKS E15).
pub(crate) async fn accept_next(listener: &TcpListener, metrics: &Metrics) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((socket, _)) => {
                // Without it about half of all new connections wait 40 ms for a delayed acknowledgement (measured).
                // A socket that is gone already shows that at its first read.
                let _ = socket.set_nodelay(true);
                return socket;
            }
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionAborted => {}
            Err(_) => {
                metrics.accept_failures.one_more();
                sleep(limits::ACCEPT_PAUSE).await;
            }
        }
    }
}

fn refuse_for_limit(client: &Client, socket: &TcpStream) {
    let wanted = socket.local_addr().map(|local| transparent::wanted(client, local));
    let Ok(wanted) = wanted else { return };
    let stop = Stop::new(Reason::RunLimit, "too many connections at once");
    tunnel::record(client, Kind::Connection, &wanted, client.broker.clock.now(), &stop);
}

/// A connection to a port that no grant has, redirected here: recorded and closed.
fn refuse_caught(client: &Client, socket: &TcpStream) {
    let Ok(local) = socket.local_addr() else { return };
    let meant = ip_original_dst(socket).map(Into::into);
    let meant = meant.or_else(|_| ipv6_original_dst(socket).map(Into::into)).unwrap_or(local);
    let wanted = transparent::wanted(client, meant);
    let reason = match wanted {
        Wanted::Name(..) => Reason::PortNotGranted,
        Wanted::Address(..) => Reason::RawAddress,
    };
    tunnel::record(client, Kind::Connection, &wanted, client.broker.clock.now(), &reason.into());
}
