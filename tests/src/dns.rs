//! A small DNS client: asks one question over UDP or TCP and reads what matters of the answer (RFC 1035, 6891, 8914).

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::network::Network;

pub const A: u16 = 1;
pub const TXT: u16 = 16;
pub const AAAA: u16 = 28;
pub const SVCB: u16 = 64;
pub const HTTPS: u16 = 65;
pub const ANY: u16 = 255;

/// Response codes.
pub const NO_ERROR: u8 = 0;
pub const NXDOMAIN: u8 = 3;
pub const REFUSED: u8 = 5;

/// What an answer says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DnsAnswer {
    pub code: u8,
    pub addresses: Vec<IpAddr>,
    /// Number of answer records of any type.
    pub records: u16,
    /// Extended error code (RFC 8914); 17 is "Filtered".
    pub extended_error: Option<u16>,
}

pub fn query(id: u16, name: &str, kind: u16) -> Vec<u8> {
    let mut message = Vec::new();
    message.extend_from_slice(&id.to_be_bytes());
    // Recursion desired; one question, one additional record (EDNS).
    message.extend_from_slice(&[1, 0, 0, 1, 0, 0, 0, 0, 0, 1]);
    for label in name.trim_end_matches('.').split('.').filter(|label| !label.is_empty()) {
        message.push(u8::try_from(label.len()).unwrap());
        message.extend_from_slice(label.as_bytes());
    }
    message.push(0);
    message.extend_from_slice(&kind.to_be_bytes());
    message.extend_from_slice(&[0, 1]);
    message.extend_from_slice(&[0, 0, 41, 0x04, 0xd0, 0, 0, 0, 0, 0, 0]);
    message
}

/// Asks `server` over UDP from inside `network`.
pub fn ask_udp(network: &Network, server: IpAddr, name: &str, kind: u16) -> io::Result<DnsAnswer> {
    let socket = network.udp(SocketAddr::new(server, 53))?;
    socket.send(&query(0x4242, name, kind))?;
    let mut buffer = [0; 4096];
    let length = socket.recv(&mut buffer)?;
    read(&buffer[..length]).ok_or_else(|| io::Error::other("a DNS answer that cannot be read"))
}

/// Asks `server` over TCP from inside `network`.
pub fn ask_tcp(network: &Network, server: IpAddr, name: &str, kind: u16) -> io::Result<DnsAnswer> {
    let mut stream = network.connect(SocketAddr::new(server, 53))?;
    stream.set_read_timeout(Some(std::time::Duration::from_secs(5)))?;
    let message = query(0x4242, name, kind);
    let mut framed = u16::try_from(message.len()).unwrap().to_be_bytes().to_vec();
    framed.extend_from_slice(&message);
    stream.write_all(&framed)?;
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut answer = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut answer)?;
    read(&answer).ok_or_else(|| io::Error::other("a DNS answer that cannot be read"))
}

pub fn read(message: &[u8]) -> Option<DnsAnswer> {
    let number = |at: usize| Some(u16::from_be_bytes([*message.get(at)?, *message.get(at + 1)?]));
    if number(0)? != 0x4242 || message.get(2)? & 0x80 == 0 {
        return None;
    }
    let mut answer = DnsAnswer { code: message.get(3)? & 0x0f, records: number(6)?, ..DnsAnswer::default() };
    let mut at = 12;
    for _ in 0..number(4)? {
        at = skip_name(message, at)? + 4;
    }
    for _ in 0..u32::from(number(6)?) + u32::from(number(8)?) + u32::from(number(10)?) {
        at = skip_name(message, at)?;
        let (kind, length) = (number(at)?, usize::from(number(at + 8)?));
        let data = message.get(at + 10..at + 10 + length)?;
        match kind {
            A => answer.addresses.push(Ipv4Addr::from(<[u8; 4]>::try_from(data).ok()?).into()),
            AAAA => answer.addresses.push(Ipv6Addr::from(<[u8; 16]>::try_from(data).ok()?).into()),
            41 => answer.extended_error = extended_error(data),
            _ => {}
        }
        at += 10 + length;
    }
    Some(answer)
}

fn extended_error(mut options: &[u8]) -> Option<u16> {
    while let [a, b, c, d, rest @ ..] = options {
        let (code, length) = (u16::from_be_bytes([*a, *b]), usize::from(u16::from_be_bytes([*c, *d])));
        if code == 15 {
            return Some(u16::from_be_bytes([*rest.first()?, *rest.get(1)?]));
        }
        options = rest.get(length..)?;
    }
    None
}

fn skip_name(message: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *message.get(at)? {
            0 => return Some(at + 1),
            pointer if pointer >= 0xc0 => return Some(at + 2),
            length => at += usize::from(length) + 1,
        }
    }
}
