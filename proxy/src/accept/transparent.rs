//! Connections that a guest made as if there were no proxy: where it wanted to go is the local address.

use std::net::SocketAddr;

use freeboard_policy::{Reason, Traffic};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::http1::{Guest, serve};
use super::tunnel::{Wanted, record, serve_tls};
use crate::connection;
use crate::error::Stop;
use crate::http1::{Socket, Stream};
use crate::limits;
use crate::pipeline::{Client, Lead};
use crate::record::Kind;

/// First byte of a TLS record that carries a handshake (RFC 8446 5.1).
const TLS_HANDSHAKE: u8 = 22;

/// Serves one connection of a `tcp` door.
pub(super) async fn serve_connection(client: &Client, socket: TcpStream) {
    let started = client.broker.clock.now();
    let Ok(local) = socket.local_addr() else { return };
    let wanted = wanted(client, local);
    if let Wanted::Name(host, port) = &wanted
        && connection::traffic(client, host, *port, started) == Traffic::Tcp
    {
        return connection::serve_tcp(client, (host, *port), Socket::from(socket), started).await;
    }
    let mut first = [0_u8; 1];
    match timeout(limits::HANDSHAKE_TIMEOUT, socket.peek(&mut first)).await {
        Ok(Ok(1)) => {}
        Ok(_) => {
            let stop = Stop::new(Reason::ClientClosed, "closed without a byte");
            return record(client, Kind::Connection, &wanted, started, &stop);
        }
        Err(_) => {
            let stop = Stop::new(Reason::ClientTimeout, "silent");
            return record(client, Kind::Connection, &wanted, started, &stop);
        }
    }
    match first {
        [TLS_HANDSHAKE] => serve_tls(client, wanted, Socket::from(socket), started).await,
        // A method begins with a letter: clear text, which is answered and refused.
        [byte] if byte.is_ascii_alphabetic() => {
            let guest = Guest::from(Stream::from(Socket::from(socket)));
            serve(client, &Lead::Plain { port: local.port() }, guest).await;
        }
        _ => {
            let stop = Stop::malformed("neither TLS nor HTTP");
            record(client, Kind::Connection, &wanted, started, &stop);
        }
    }
}

/// The name that the dialled address was issued for, or the address itself.
pub(super) fn wanted(client: &Client, dialled: SocketAddr) -> Wanted {
    let address = dialled.ip().to_canonical();
    match client.run.account.names.lookup(address) {
        Some(host) => Wanted::Name(host, dialled.port()),
        None => Wanted::Address(address, dialled.port()),
    }
}
