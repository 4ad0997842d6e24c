//! Upstream names to addresses, as the host does it (`/etc/hosts` included) or by the overrides of the configuration.
//!
//! In: the host of a granted origin. Out: a bounded list of addresses, unchecked. It is asked once per upstream
//! connection and never for a guest; names that no grant reaches never come here.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use freeboard_policy::{Host, Reason};
use tokio::sync::Semaphore;

use crate::error::Stop;
use crate::limits::{ADDRESSES_PER_NAME, LOOKUPS_PER_NAME, RESOLVE_TIMEOUT};

/// The resolver of one broker.
#[derive(Debug, Default)]
pub struct Resolver {
    overrides: HashMap<Host, Vec<IpAddr>>,
    /// Lookups in flight per name: a name server that answers slowly for one name does not take the threads that
    /// other names need (ATTACKS E26). Bounded by the number of origins in the policies that were in force.
    running: Mutex<HashMap<Host, Arc<Semaphore>>>,
}

impl Resolver {
    /// `overrides` is `hosts` of `freeboard.toml`: split DNS and tests. Its addresses are checked like any others.
    pub fn new(overrides: HashMap<Host, Vec<IpAddr>>) -> Self {
        Self { overrides, running: Mutex::default() }
    }

    /// The addresses of `host`, in the order of preference of the host's resolver.
    ///
    /// # Errors
    /// `upstream_unresolved`: no address, or no answer in time.
    pub async fn resolve(&self, host: &Host, port: u16) -> Result<Vec<SocketAddr>, Stop> {
        if let Some(addresses) = self.overrides.get(host) {
            return Ok(addresses.iter().map(|address| SocketAddr::new(*address, port)).collect());
        }
        let slow = |_| Stop::new(Reason::UpstreamUnresolved, "the name server did not answer in time");
        tokio::time::timeout(RESOLVE_TIMEOUT, self.ask_host(host, port)).await.map_err(slow)?
    }

    async fn ask_host(&self, host: &Host, port: u16) -> Result<Vec<SocketAddr>, Stop> {
        let turns = {
            let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
            let fresh = || Arc::new(Semaphore::new(LOOKUPS_PER_NAME));
            Arc::clone(running.entry(host.clone()).or_insert_with(fresh))
        };
        let _turn = turns.acquire().await;
        let failed = |error: std::io::Error| Stop::with(Reason::UpstreamUnresolved, error.to_string());
        let mut found: Vec<SocketAddr> = Vec::new();
        for address in tokio::net::lookup_host((host.as_str(), port)).await.map_err(failed)? {
            if found.len() < ADDRESSES_PER_NAME && !found.contains(&address) {
                found.push(address);
            }
        }
        if found.is_empty() { Err(Reason::UpstreamUnresolved.into()) } else { Ok(found) }
    }
}
