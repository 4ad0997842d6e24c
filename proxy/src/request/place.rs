//! `host[:port]` as written in CONNECT, an absolute target, Host or `:authority`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use freeboard_policy::{Host, HostError};

use crate::error::Stop;

/// A place that a guest named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub name: Name,
    pub port: Option<u16>,
}

/// A name, or the address that stood in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Name {
    Host(Host),
    Address(IpAddr),
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Host(host) => host.fmt(f),
            Self::Address(address) => address.fmt(f),
        }
    }
}

impl Place {
    /// Reads `host`, `host:port`, `a.b.c.d[:port]` or `[v6][:port]`. Userinfo, brackets around a name, other
    /// spellings of an address, and ports that are not 1-65535 in plain digits are malformed (ATTACKS A21, A34,
    /// A35, A38).
    ///
    /// # Errors
    /// `malformed`.
    pub fn parse(raw: &[u8]) -> Result<Self, Stop> {
        let text = std::str::from_utf8(raw).map_err(|_| Stop::malformed("the host is not ASCII"))?;
        if let Some(rest) = text.strip_prefix('[') {
            let (inside, after) =
                rest.split_once(']').ok_or(Stop::malformed("a bracket in the host is not closed"))?;
            let plain = inside.split_once('%').map_or(inside, |(address, _zone)| address);
            let address: Ipv6Addr =
                plain.parse().map_err(|_| Stop::malformed("brackets hold no IPv6 address"))?;
            let port = match after {
                "" => None,
                _ => Some(port(after.strip_prefix(':').ok_or(Stop::malformed("text after the bracket"))?)?),
            };
            return Ok(Self { name: Name::Address(IpAddr::V6(address)), port });
        }
        let (name, port) = match text.split_once(':') {
            Some((name, digits)) => (name, Some(port(digits)?)),
            None => (text, None),
        };
        let name = match Host::parse(name) {
            Ok(host) => Name::Host(host),
            Err(HostError::Address(_)) => match name.parse::<Ipv4Addr>() {
                Ok(address) => Name::Address(IpAddr::V4(address)),
                Err(_) => return Err(Stop::malformed("an odd spelling of an IPv4 address")),
            },
            Err(_) => return Err(Stop::malformed("the host is not a host name")),
        };
        Ok(Self { name, port })
    }
}

fn port(digits: &str) -> Result<u16, Stop> {
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.starts_with('0');
    let port = if plain { digits.parse().ok() } else { None };
    port.ok_or(Stop::malformed("the port is not a number from 1 to 65535"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_names_addresses_and_ports() {
        let place = Place::parse(b"API.Test.:8443").unwrap();
        assert_eq!((place.name.to_string().as_str(), place.port), ("api.test", Some(8443)));
        assert!(matches!(Place::parse(b"10.0.0.1").unwrap().name, Name::Address(_)));
        assert!(matches!(Place::parse(b"[::ffff:169.254.169.254]:443").unwrap().name, Name::Address(_)));
        assert!(matches!(Place::parse(b"[fe80::1%25eth0]").unwrap().name, Name::Address(_)));
    }

    #[test]
    fn a21_a34_a35_a38_refuses_what_has_two_readings() {
        for raw in [
            "",
            ":443",
            "api.test@evil.test",
            "api.test:443@evil.test",
            "api.test/v1",
            "[api.test]",
            "[[evil.test]]:443",
            "api.test:65979",
            "api.test:0",
            "api.test:+443",
            "api.test:0443",
            "api.test:",
            "api.test: 443",
            "2130706433",
            "0x7f.1",
            "0177.0.0.1",
            "127.1",
            "010.0.0.1",
            "127.0.0.1.",
            "::1",
            "api.test, evil.test",
            "api.test:1:2",
            "api test",
            "\u{ff41}pi.test",
            "[::1",
            "[::1]x",
        ] {
            assert!(Place::parse(raw.as_bytes()).is_err(), "{raw:?}");
        }
    }
}
