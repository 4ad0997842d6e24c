//! Classes of IP addresses, and whether an upstream at one may be dialled. Pure: the broker asks before each dial.
//!
//! An IPv6 address that carries an IPv4 address is judged as that IPv4 address, so that no spelling of a private
//! address passes for a public one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::Serialize;

/// What kind of place an address is (IANA special-purpose registries, RFC 6890). Only `Public` needs no permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AddressClass {
    /// Reachable on the internet.
    Public,
    /// `0.0.0.0/8`, `::`: this host, on many systems.
    Unspecified,
    /// `127.0.0.0/8`, `::1`.
    Loopback,
    /// RFC 1918 and RFC 4193 (`fc00::/7`), site-local `fec0::/10`.
    Private,
    /// RFC 6598, carrier-grade NAT: `100.64.0.0/10`.
    Shared,
    /// `169.254.0.0/16`, `fe80::/10`.
    LinkLocal,
    /// Addresses at which clouds hand out the host's own credentials. Never dialled, whatever a policy says.
    Metadata,
    /// Multicast and broadcast.
    Multicast,
    /// Benchmarking `198.18.0.0/15` (the gates' synthetic addresses are there) and documentation ranges.
    Documentation,
    /// Tunnels and translators whose inner address is public: 6to4, Teredo, local-use NAT64.
    Tunnel,
    /// Everything else that no host has: `240.0.0.0/4`, discard, unassigned.
    Reserved,
}

impl AddressClass {
    /// The word used in messages and audit records.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Unspecified => "unspecified",
            Self::Loopback => "loopback",
            Self::Private => "private",
            Self::Shared => "shared",
            Self::LinkLocal => "link-local",
            Self::Metadata => "metadata",
            Self::Multicast => "multicast",
            Self::Documentation => "documentation",
            Self::Tunnel => "tunnel",
            Self::Reserved => "reserved",
        }
    }
}

impl std::fmt::Display for AddressClass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.word())
    }
}

/// Metadata services: AWS, GCP, Azure and others at `169.254.169.254`; ECS tasks and EKS pods; Alibaba; Azure's wire server;
/// Oracle. IPv6: AWS, EKS, GCP.
const METADATA_V4: [Ipv4Addr; 6] = [
    Ipv4Addr::new(169, 254, 169, 254),
    Ipv4Addr::new(169, 254, 170, 2),
    Ipv4Addr::new(169, 254, 170, 23),
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(168, 63, 129, 16),
    Ipv4Addr::new(192, 0, 0, 192),
];
const METADATA_V6: [Ipv6Addr; 3] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];

/// The class of an address after unwrapping an IPv4 address inside it.
pub fn classify(address: IpAddr) -> AddressClass {
    match address {
        IpAddr::V4(v4) => classify_v4(v4),
        IpAddr::V6(v6) => classify_v6(v6),
    }
}

/// The address that is really meant: the inner one of an IPv4-mapped or NAT64 address, otherwise the address itself.
pub fn effective(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => match embedded(v6) {
            Some((inner, _)) => IpAddr::V4(inner),
            None => address,
        },
        IpAddr::V4(_) => address,
    }
}

/// Whether an upstream at `address` may be dialled, given the ranges that its API names.
///
/// # Errors
/// The class of the address, where it is refused: metadata, unspecified and multicast addresses always, public ones
/// never, every other class unless a range holds it.
pub fn allowed(address: IpAddr, ranges: &[AddressRange]) -> Result<(), AddressClass> {
    let class = classify(address);
    let meant = effective(address);
    // SECURITY: no policy opens these; a range that happens to hold them does not either. Guarded by ATTACKS D10, G10.
    let never = matches!(class, AddressClass::Metadata | AddressClass::Unspecified | AddressClass::Multicast);
    let named = ranges
        .iter()
        .any(|range| range.holds(meant) && (class != AddressClass::Loopback || range.is_loopback()));
    if class == AddressClass::Public || (named && !never) { Ok(()) } else { Err(class) }
}

fn classify_v4(address: Ipv4Addr) -> AddressClass {
    if METADATA_V4.contains(&address) {
        return AddressClass::Metadata;
    }
    match address.octets() {
        [0, ..] => AddressClass::Unspecified,
        [127, ..] => AddressClass::Loopback,
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => AddressClass::Private,
        [100, 64..=127, ..] => AddressClass::Shared,
        [169, 254, ..] => AddressClass::LinkLocal,
        [255, 255, 255, 255] | [224..=239, ..] => AddressClass::Multicast,
        [198, 18 | 19, ..] | [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => {
            AddressClass::Documentation
        }
        [192, 88, 99, _] => AddressClass::Tunnel,
        [192, 0, 0, _] | [240..=255, ..] => AddressClass::Reserved,
        _ => AddressClass::Public,
    }
}

fn classify_v6(address: Ipv6Addr) -> AddressClass {
    if METADATA_V6.contains(&address) {
        return AddressClass::Metadata;
    }
    if address == Ipv6Addr::UNSPECIFIED {
        return AddressClass::Unspecified;
    }
    if address == Ipv6Addr::LOCALHOST {
        return AddressClass::Loopback;
    }
    if let Some((inner, carrier)) = embedded(address) {
        return match classify_v4(inner) {
            AddressClass::Public => carrier,
            class => class,
        };
    }
    match address.segments() {
        [0xff00..=0xffff, ..] => AddressClass::Multicast,
        [0xfe80..=0xfebf, ..] => AddressClass::LinkLocal,
        [0xfc00..=0xfdff | 0xfec0..=0xfeff, ..] => AddressClass::Private,
        [0x64, 0xff9b, ..] => AddressClass::Tunnel,
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] | [0x2001, 2, 0, ..] => AddressClass::Documentation,
        [0x2001, 0..=0x1ff, ..] => AddressClass::Reserved,
        [0x2000..=0x3fff, ..] => AddressClass::Public,
        _ => AddressClass::Reserved,
    }
}

/// The IPv4 address inside an IPv6 address, and the class of the carrier when the inner address is public.
fn embedded(address: Ipv6Addr) -> Option<(Ipv4Addr, AddressClass)> {
    let segments = address.segments();
    let v4 = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        Ipv4Addr::new(a, b, c, d)
    };
    match segments {
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => None,
        // IPv4-mapped (RFC 4291 2.5.5.2) and NAT64 (RFC 6052): the same host on the wire.
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            Some((v4(high, low), AddressClass::Public))
        }
        // IPv4-compatible (RFC 4291 2.5.5.1) and IPv4-translated (RFC 2765): deprecated.
        [0, 0, 0, 0, 0 | 0xffff, 0, high, low] => Some((v4(high, low), AddressClass::Reserved)),
        // Local-use NAT64 (RFC 8215), as a /96.
        [0x64, 0xff9b, 1, _, _, _, high, low] => Some((v4(high, low), AddressClass::Tunnel)),
        // 6to4 (RFC 3056).
        [0x2002, high, low, ..] => Some((v4(high, low), AddressClass::Tunnel)),
        // Teredo (RFC 4380): the client's address is the complement of the last 32 bits.
        [0x2001, 0, _, _, _, _, high, low] => Some((v4(!high, !low), AddressClass::Tunnel)),
        // ISATAP (RFC 5214 6.1).
        [_, _, _, _, 0 | 0x200, 0x5efe, high, low] => Some((v4(high, low), AddressClass::Tunnel)),
        _ => None,
    }
}

/// A range in CIDR form, as an API's `addresses` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AddressRange {
    first: IpAddr,
    prefix: u8,
}

/// Why a text is not a range that a policy may name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressRangeError {
    #[error("`{0}` is not an address range such as `10.1.0.0/16`")]
    Malformed(String),
    #[error("`{0}` has bits after its prefix; the range is `{1}`")]
    HostBits(String, String),
    #[error("`{0}` is an IPv4 range in IPv6 form")]
    Embedded(String),
    #[error("`{0}` is too wide")]
    TooWide(String),
    #[error("`{0}` can never be granted: it is {1}")]
    Never(String, AddressClass),
}

impl AddressRange {
    /// Parses `ADDRESS/PREFIX`, or one address. Refuses what no policy may open.
    pub fn parse(text: &str) -> Result<Self, AddressRangeError> {
        let malformed = || AddressRangeError::Malformed(text.to_owned());
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let first: IpAddr = address.parse().map_err(|_| malformed())?;
        let width = if first.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => width,
            Some(digits) if digits.is_empty() || (digits.len() > 1 && digits.starts_with('0')) => {
                return Err(malformed());
            }
            Some(digits) if !digits.bytes().all(|byte| byte.is_ascii_digit()) => return Err(malformed()),
            Some(digits) => digits.parse().ok().filter(|prefix| *prefix <= width).ok_or_else(malformed)?,
        };
        Self { first, prefix }.checked(text)
    }

    fn checked(self, text: &str) -> Result<Self, AddressRangeError> {
        let trimmed = Self { first: self.network(), prefix: self.prefix };
        if trimmed != self {
            return Err(AddressRangeError::HostBits(text.to_owned(), trimmed.to_string()));
        }
        let class = classify(self.first);
        match self.first {
            IpAddr::V4(_) if self.prefix < 8 => return Err(AddressRangeError::TooWide(text.to_owned())),
            IpAddr::V6(_) if self.prefix < 7 => return Err(AddressRangeError::TooWide(text.to_owned())),
            IpAddr::V6(v6) if embedded(v6).is_some() => {
                return Err(AddressRangeError::Embedded(text.to_owned()));
            }
            _ => {}
        }
        // A wide range may hold one metadata address; `allowed` refuses that address whatever the range.
        let never = matches!(class, AddressClass::Unspecified | AddressClass::Multicast)
            || (class == AddressClass::Metadata && self.is_one_address());
        if never {
            return Err(AddressRangeError::Never(text.to_owned(), class));
        }
        Ok(self)
    }

    pub fn holds(&self, address: IpAddr) -> bool {
        match (self.first, address) {
            (IpAddr::V4(first), IpAddr::V4(address)) => {
                (u32::from(first) ^ u32::from(address)) & mask32(self.prefix) == 0
            }
            (IpAddr::V6(first), IpAddr::V6(address)) => {
                (u128::from(first) ^ u128::from(address)) & mask128(self.prefix) == 0
            }
            _ => false,
        }
    }

    /// Whether every address of the range is a loopback address.
    pub fn is_loopback(&self) -> bool {
        match self.first {
            IpAddr::V4(first) => first.is_loopback() && self.prefix >= 8,
            IpAddr::V6(first) => first.is_loopback() && self.prefix == 128,
        }
    }

    /// Class of the first address of the range.
    pub fn class(&self) -> AddressClass {
        classify(self.first)
    }

    fn is_one_address(&self) -> bool {
        self.prefix == if self.first.is_ipv4() { 32 } else { 128 }
    }

    fn network(&self) -> IpAddr {
        match self.first {
            IpAddr::V4(v4) => IpAddr::V4(Ipv4Addr::from(u32::from(v4) & mask32(self.prefix))),
            IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from(u128::from(v6) & mask128(self.prefix))),
        }
    }
}

fn mask32(prefix: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0)
}

fn mask128(prefix: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(prefix.min(128))).unwrap_or(0)
}

impl std::fmt::Display for AddressRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.first, self.prefix)
    }
}

impl Serialize for AddressRange {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests;
