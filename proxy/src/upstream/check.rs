//! Which of the resolved addresses may be dialled for an API.
//!
//! In: addresses as resolved. Out: those that passed; only they are dialled. Addresses of a mixed answer that do not
//! pass are skipped, so that a rebinding name (public first, private second) never reaches the private one (D08).

use std::net::{IpAddr, SocketAddr};

use freeboard_policy::Reason;
use freeboard_policy::address::{AddressRange, allowed, effective};

use crate::error::Stop;

/// Keeps the addresses that the API may use: public ones, and private ones that it names.
///
/// # Errors
/// `address_refused` when none is left.
pub fn dialable(addresses: Vec<SocketAddr>, ranges: &[AddressRange]) -> Result<Vec<SocketAddr>, Stop> {
    let mut refused = None;
    let mut kept = Vec::with_capacity(addresses.len());
    for address in addresses {
        match allowed(address.ip(), ranges) {
            // SECURITY: the unwrapped address is what is dialled, so that what was checked is what is reached (A39).
            Ok(()) => kept.push(SocketAddr::new(effective(address.ip()), address.port())),
            Err(class) => refused = Some((address.ip(), class)),
        }
    }
    match refused {
        Some((address, class)) if kept.is_empty() => {
            Err(Stop::with(Reason::AddressRefused, format!("{address} is {class}")))
        }
        _ => Ok(kept),
    }
}

/// True when a connection ends at one of the broker's own listeners: the peer's address is our own address and the
/// port is ours (ATTACKS D11). It is asked after the connection is made and before anything is sent, which also finds
/// names that lead to the broker through a public address of this host.
pub fn is_own_listener(local: SocketAddr, peer: SocketAddr, own: &[SocketAddr]) -> bool {
    if local == peer {
        return true;
    }
    let same_host = effective(local.ip()) == effective(peer.ip()) || effective(peer.ip()).is_loopback();
    own.iter().any(|listener| {
        listener.port() == peer.port()
            && (effective(listener.ip()) == effective(peer.ip()) || (same_host && is_any(listener.ip())))
    })
}

fn is_any(address: IpAddr) -> bool {
    address.is_unspecified()
}
