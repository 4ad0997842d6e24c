//! Takes away what a process could use to change its surroundings: capabilities, the way back to them, and more than
//! its share of countable things.

use std::io;

use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_capabilities_secure_bits, set_no_new_privs,
};

use super::{Limits, limits};

/// Drops every capability from every set, for good.
///
/// SECURITY: without the secure bits, guest root would get the bounding set back by executing a program; without the
/// bounding set, a file with capabilities could give them (test: f04_no_capability_comes_back).
pub fn drop_capabilities() -> io::Result<()> {
    let bits = CapabilitiesSecureBits::NO_ROOT
        | CapabilitiesSecureBits::NO_ROOT_LOCKED
        | CapabilitiesSecureBits::NO_SETUID_FIXUP
        | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
        | CapabilitiesSecureBits::KEEP_CAPS_LOCKED
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED;
    set_capabilities_secure_bits(bits)?;
    drop_bounding_set()?;
    clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    Ok(())
}

/// No program that this process or its children execute gets a capability, whatever its file says.
pub fn drop_bounding_set() -> io::Result<()> {
    for bit in 0..64 {
        let Some(capability) = CapabilitySet::from_bits(1 << bit) else { continue };
        match remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            // A number that this kernel does not know yet, nor any after it (`cap_valid` of linux/capability.h).
            Err(rustix::io::Errno::INVAL) => break,
            Err(error) => return Err(error.into()),
        }
    }
    set_no_new_privs(true)?;
    Ok(())
}

/// Limits per process, or per user where the kernel counts so. They hold where no control group is there, and beside it.
pub fn set_rlimits(wanted: &Limits, by_group: bool) -> io::Result<()> {
    let fixed = [
        (Resource::Core, 0),
        (Resource::Nproc, processes(wanted, by_group)),
        (Resource::Nofile, limits::OPEN_FILES),
        (Resource::Fsize, limits::FILE_BYTES),
        (Resource::Memlock, limits::LOCKED_MEMORY_BYTES),
        (Resource::Msgqueue, limits::MESSAGE_QUEUE_BYTES),
        (Resource::Sigpending, limits::PENDING_SIGNALS),
        (Resource::Rtprio, 0),
        (Resource::Nice, 0),
    ];
    for (resource, limit) in fixed {
        lower(resource, limit)?;
    }
    if !by_group {
        // Private writable memory of each process; address space is not limited, since engines reserve a lot of it.
        lower(Resource::Data, wanted.memory_bytes)?;
    }
    Ok(())
}

/// How many processes the user of the run may have. A group counts them as well and reports it, so this one is wider
/// there and only holds if the group does not.
pub fn processes(wanted: &Limits, by_group: bool) -> u64 {
    if by_group { wanted.pids.saturating_mul(2) } else { wanted.pids }
}

/// Sets both limits, not above the hard limit that is there already.
fn lower(resource: Resource, limit: u64) -> io::Result<()> {
    let present = rustix::process::getrlimit(resource);
    let limit = present.maximum.map_or(limit, |maximum| maximum.min(limit));
    setrlimit(resource, Rlimit { current: Some(limit), maximum: Some(limit) })?;
    Ok(())
}
