//! A guest's TLS to one place: ClientHello, decision about the destination, handshake, requests.

use std::borrow::Cow;
use std::net::IpAddr;

use freeboard_policy::{Host, Reason, Traffic};
use tokio_rustls::server::TlsStream;

use super::http1::{Asked, Guest, serve};
use super::http2;
use crate::broker::Moment;
use crate::connection;
use crate::decide;
use crate::error::Stop;
use crate::http1::{Socket, Stream};
use crate::pipeline::{Client, Lead, Origin};
use crate::record::{Draft, Kind};
use crate::tls::LeafName;
use crate::tls::hello::hides_its_name;
use crate::tls::terminate::{Hello, refuse_hello};

/// What a door knows of the place that a guest wants.
#[derive(Debug, Clone)]
pub enum Wanted {
    /// CONNECT, or a synthetic address that was issued for this name.
    Name(Host, u16),
    /// An address that was not issued.
    Address(IpAddr, u16),
}

impl Wanted {
    fn port(&self) -> u16 {
        match self {
            Self::Name(_, port) | Self::Address(_, port) => *port,
        }
    }
}

/// Serves TLS from its first byte to its end. Every request on it is recorded; a tunnel without any is recorded when
/// its handshake failed or was refused.
pub async fn serve_tls(client: &Client, wanted: Wanted, socket: Socket, started: Moment) {
    if let Wanted::Name(host, port) = &wanted
        && connection::traffic(client, host, *port, started) == Traffic::TlsPassthrough
    {
        // Boxed: most connections never need this state.
        return Box::pin(pass_on(client, &wanted, (host, *port), socket, started)).await;
    }
    // Boxed: the state of a handshake is large and gone before the first request.
    let opened = Box::pin(open(client, &wanted, socket, started)).await;
    let (origin, stream) = match opened {
        Ok(opened) => opened,
        Err(stop) => return record(client, Kind::Tls, &wanted, started, &stop),
    };
    let lead = Lead::Tunnel(origin);
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        // Boxed: most connections speak HTTP/1.1 and need not carry this state.
        Box::pin(http2::serve(client, lead, stream)).await;
    } else {
        let asked = serve(client, &lead, Guest::from(Stream::from(stream))).await;
        if asked == Asked::Nothing {
            client.broker.metrics.aborts.silent.one_more();
        }
    }
}

/// Passes a TLS connection on whose hello says what was dialled. The hello goes out as it came.
async fn pass_on(
    client: &Client,
    wanted: &Wanted,
    (host, port): (&Host, u16),
    socket: Socket,
    started: Moment,
) {
    let hello = match Hello::read_recorded(socket).await {
        Ok(hello) => hello,
        Err(stop) => return record(client, Kind::Tls, wanted, started, &stop),
    };
    // SECURITY: the server name is all that is known of such a connection (ATTACKS A24, D21).
    let named = match &hello.server_name {
        None => Err(Reason::NoServerName.into()),
        Some(name) if name != host => {
            Err(Stop::with(Reason::NameMismatch, format!("the server name is {name}")))
        }
        Some(_) => Ok(()),
    };
    if let Err(stop) = named {
        hello.refuse().await;
        return record(client, Kind::Tls, wanted, started, &stop);
    }
    let (socket, bytes) = hello.into_unread();
    if hides_its_name(&bytes) {
        refuse_hello(socket).await;
        return record(client, Kind::Tls, wanted, started, &Reason::EncryptedHello.into());
    }
    drop(bytes);
    match connection::open(client, (host, port), Traffic::TlsPassthrough, started).await {
        Ok(open) => open.serve(client, socket).await,
        Err((draft, stop)) => {
            refuse_hello(socket).await;
            draft.stopped(&stop);
        }
    }
}

async fn open(
    client: &Client,
    wanted: &Wanted,
    socket: Socket,
    started: Moment,
) -> Result<(Origin, Box<TlsStream<Socket>>), Stop> {
    let hello = Hello::read(socket).await?;
    let decided = decide(client, wanted, &hello, started);
    let authority = &client.broker.authority;
    let (origin, config) = match decided {
        Decided::Go(origin) => {
            let config = authority.server_config(&origin.host);
            (origin, config)
        }
        // Completed so that the guest can read why, as long as the run's budget lasts.
        Decided::Tell(origin, leaf) => {
            let config = authority.refusal_config(&leaf, || client.run.spend_refusal_leaf());
            if let (Err(_), Some(stop)) = (&config, &origin.refusal) {
                let stop = stop.clone();
                hello.refuse().await;
                return Err(stop);
            }
            (origin, config)
        }
        Decided::Refuse(stop) => {
            hello.refuse().await;
            return Err(stop);
        }
    };
    let completed = hello.complete(config?, &client.run.handshakes).await;
    let metrics = &client.broker.metrics;
    match completed.as_ref().map_err(|stop| stop.reason) {
        Ok(_) => metrics.handshakes.one_more(),
        Err(Reason::LeafRejected) => metrics.aborts.alert.one_more(),
        Err(Reason::ClientClosed) => metrics.aborts.closed.one_more(),
        Err(_) => {}
    }
    Ok((origin, completed?))
}

enum Decided {
    Go(Origin),
    Tell(Origin, LeafName),
    Refuse(Stop),
}

/// SECURITY: the place that was dialled, the server name and (per request) Host must be one name (ATTACKS A24).
fn decide(client: &Client, wanted: &Wanted, hello: &Hello, now: Moment) -> Decided {
    let port = wanted.port();
    let tell = |host: &Host, leaf: LeafName, stop: Stop| {
        Decided::Tell(Origin { host: host.clone(), port, refusal: Some(stop) }, leaf)
    };
    match (wanted, &hello.server_name) {
        (Wanted::Address(..), Some(name)) => {
            tell(name, LeafName::Host(name.clone()), Reason::RawAddress.into())
        }
        (Wanted::Address(address, _), None) => {
            // A URL with an address has no server name; the leaf then names the address, so that the guest can read why.
            match Host::parse("address.invalid") {
                Ok(nobody) => tell(&nobody, LeafName::Address(*address), Reason::RawAddress.into()),
                Err(_) => Decided::Refuse(Reason::RawAddress.into()),
            }
        }
        (Wanted::Name(..), None) => Decided::Refuse(Reason::NoServerName.into()),
        (Wanted::Name(host, _), Some(name)) if host != name => {
            let stop = Stop::with(Reason::NameMismatch, format!("the server name is {name}"));
            tell(host, LeafName::Host(name.clone()), stop)
        }
        (Wanted::Name(host, port), Some(_)) => {
            let snapshot = client.broker.snapshot();
            match decide::destination(&client.run, &snapshot, now, host, *port) {
                Ok(_) => Decided::Go(Origin { host: host.clone(), port: *port, refusal: None }),
                Err(stop) => tell(host, LeafName::Host(host.clone()), stop),
            }
        }
    }
}

/// Records what never became a request.
pub fn record(client: &Client, kind: Kind, wanted: &Wanted, started: Moment, stop: &Stop) {
    let snapshot = client.broker.snapshot();
    let protocol = if kind == Kind::Tls { "tls" } else { "tcp" };
    let run = Some(&client.run);
    let mut draft = Draft::new(&client.broker, run, &snapshot, kind, client.door, protocol, started);
    let host: Cow<'_, str> = match wanted {
        Wanted::Name(host, _) => host.as_str().into(),
        Wanted::Address(address, _) => address.to_string().into(),
    };
    draft.note(|outcome| (outcome.host, outcome.port) = (host.into(), wanted.port()));
    draft.stopped(stop);
}
