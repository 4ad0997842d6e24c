//! Synthetic addresses: one IPv4 and one IPv6 address per name of a run. The one place where their ranges are fixed.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};

use freeboard_policy::Host;

use super::refusals::Refusals;
use crate::limits::NAMES_PER_RUN;

/// The name server of a gate, as `/etc/resolv.conf` names it. Any other address answers too: every address of a
/// gate is the broker.
pub const NAME_SERVER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// First synthetic IPv4 address. 198.18.0.0/15 is for benchmarks between networks (RFC 2544): no real server has one
/// of its addresses, and the broker never dials one (`freeboard_policy::address`). 198.18.0.0/24 is kept for the gate.
pub const FIRST_V4: Ipv4Addr = Ipv4Addr::new(198, 18, 1, 0);
/// First synthetic IPv6 address, in a unique local range (RFC 4193) whose 40 random bits are the project's.
pub const FIRST_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xf2ee, 0xb0a2, 0, 0, 0, 1, 0);

/// Addresses of one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Issued {
    pub v4: Ipv4Addr,
    pub v6: Ipv6Addr,
}

/// Synthetic addresses of one run: one per name and family, for as long as the run lasts. `dns` issues them for
/// granted names, `accept` looks up what a guest dialled.
#[derive(Debug, Default)]
pub struct NameTable {
    issued: Mutex<Names>,
    pub(super) refusals: Refusals,
}

#[derive(Debug, Default)]
struct Names {
    numbers: HashMap<Host, u32>,
    hosts: Vec<Host>,
}

impl NameTable {
    /// The name that this address was issued for. Called by `accept` with the address that a guest dialled.
    pub fn lookup(&self, address: IpAddr) -> Option<Host> {
        let number = match address.to_canonical() {
            IpAddr::V4(v4) => u32::from(v4).checked_sub(u32::from(FIRST_V4))?,
            IpAddr::V6(v6) => u128::from(v6).checked_sub(u128::from(FIRST_V6))?.try_into().ok()?,
        };
        let names = self.issued.lock().unwrap_or_else(PoisonError::into_inner);
        names.hosts.get(usize::try_from(number).ok()?).cloned()
    }

    /// The addresses of a granted name: the same ones for the whole run. `None` when the run has used up its addresses.
    pub(super) fn issue(&self, host: &Host) -> Option<Issued> {
        let mut names = self.issued.lock().unwrap_or_else(PoisonError::into_inner);
        let number = match names.numbers.get(host) {
            Some(number) => *number,
            None if names.hosts.len() >= NAMES_PER_RUN => return None,
            None => {
                let number = u32::try_from(names.hosts.len()).ok()?;
                names.hosts.push(host.clone());
                names.numbers.insert(host.clone(), number);
                number
            }
        };
        Some(Issued {
            v4: Ipv4Addr::from(u32::from(FIRST_V4).checked_add(number)?),
            v6: Ipv6Addr::from(u128::from(FIRST_V6).checked_add(u128::from(number))?),
        })
    }
}
