//! The first two questions: may this caller use these grants, and does a run's grants reach this destination?

use std::sync::Arc;

use crate::compiled::Grant;
use crate::limits::GRANTS_PER_RUN_MAX;
use crate::{DestinationQuestion, Host, Policy, Reason, Refusal, Route, RunScope, ScopeQuestion};

impl Policy {
    /// Resolves the grants that a run asks for. A run without grants has a scope too, which reaches nothing.
    ///
    /// # Errors
    /// `GrantNotAvailable` for a grant that does not exist or is not the caller's (the same answer, so that nobody can
    /// list grants), `GrantExpired` `GrantNotYetValid` and `FloorNotMet` for one that is the caller's.
    pub fn scope(&self, question: &ScopeQuestion<'_>) -> Result<RunScope, Refusal> {
        let mut indices = Vec::new();
        if question.grants.len() > GRANTS_PER_RUN_MAX {
            return Err(Reason::GrantNotAvailable.into());
        }
        for name in question.grants {
            indices.push(self.available(name, question)?);
        }
        indices.sort_unstable();
        indices.dedup();
        let grants: Vec<&Grant> =
            indices.iter().filter_map(|index| self.compiled.grants.get(*index)).collect();
        let floor = grants.iter().filter_map(|grant| grant.view.floor).max();
        if let (Some(tier), Some(floor)) = (question.tier, floor)
            && tier < floor
        {
            return Err(Reason::FloorNotMet.into());
        }
        let apis = reached(&grants);
        Ok(RunScope {
            policy_digest: Arc::clone(&self.digest),
            caller: question.caller.map(Arc::from),
            ttl_seconds: grants.iter().filter_map(|grant| grant.view.ttl_seconds).min(),
            floor,
            names: self.names(&apis).into(),
            ports: self.ports(&apis).into(),
            grants: indices.into(),
            apis: apis.into(),
        })
    }

    /// Ports of every origin that some call of a session of this caller could be let reach: its gate is made before anybody knows
    /// which grants its calls will name. Sorted, without repeats.
    pub fn session_ports(&self, caller: Option<&str>) -> Vec<u16> {
        let grants = self.compiled.grants.iter().filter(|grant| grant.view.sessions);
        let own: Vec<&Grant> =
            grants.filter(|grant| caller.is_some_and(|caller| may_use(grant, caller))).collect();
        self.ports(&reached(&own))
    }

    /// Ports of the origins of these APIs that something is allowed on, sorted, without repeats.
    fn ports(&self, apis: &[usize]) -> Vec<u16> {
        let sites =
            self.compiled.sites.iter().filter(|site| site.allowing.iter().any(|api| apis.contains(api)));
        let mut ports: Vec<u16> = sites.map(|site| site.origin.port).collect();
        ports.sort_unstable();
        ports.dedup();
        ports
    }

    fn available(&self, name: &str, question: &ScopeQuestion<'_>) -> Result<usize, Refusal> {
        let caller = question.caller.ok_or(Reason::GrantNotAvailable)?;
        let index = *self.compiled.grant_names.get(name).ok_or(Reason::GrantNotAvailable)?;
        let grant = self.compiled.grants.get(index).ok_or(Reason::GrantNotAvailable)?;
        // The same words for a session: who may not use a grant learns nothing of it.
        if !may_use(grant, caller) || (question.session && !grant.view.sessions) {
            return Err(Reason::GrantNotAvailable.into());
        }
        if let Some(reason) = grant.unavailable(question.now_unix) {
            return Err(reason.into());
        }
        Ok(index)
    }

    fn names(&self, apis: &[usize]) -> Vec<Host> {
        let mut names = Vec::new();
        for api in apis.iter().filter_map(|api| self.compiled.apis.get(*api)) {
            let shown = api.origins.iter().filter(|_| !api.view.hidden).map(|origin| &origin.host);
            names.extend(shown.chain(&api.view.alias).cloned());
        }
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Whether some grant of the run reaches this host and port.
    ///
    /// # Errors
    /// `PortNotGranted` where the host is granted on other ports, `HostNotGranted` otherwise; `PolicyUnavailable` for a
    /// scope that another policy made.
    pub fn destination(&self, question: &DestinationQuestion<'_>) -> Result<Route, Refusal> {
        if !self.made(&question.scope.policy_digest) {
            return Err(Reason::PolicyUnavailable.into());
        }
        let ports = self.compiled.hosts.get(question.host).ok_or(Reason::HostNotGranted)?;
        let mut host_is_granted = false;
        for &(port, index) in ports {
            let Some(site) = self.compiled.sites.get(index) else { continue };
            let Some(api) = site.allowing.iter().find(|api| question.scope.apis.contains(api)) else {
                continue;
            };
            host_is_granted = true;
            if port == question.port
                && let Some(api) = self.compiled.apis.get(*api)
            {
                return Ok(Route {
                    api: Arc::clone(&api.view.name),
                    host: site.origin.host.clone(),
                    port: site.origin.port,
                    traffic: api.view.traffic,
                    site: index,
                    policy_digest: Arc::clone(&self.digest),
                });
            }
        }
        let reason = if host_is_granted { Reason::PortNotGranted } else { Reason::HostNotGranted };
        Err(reason.into())
    }

    pub(crate) fn made(&self, digest: &Arc<str>) -> bool {
        Arc::ptr_eq(&self.digest, digest) || self.digest == *digest
    }
}

/// Whether the grant is this caller's.
fn may_use(grant: &Grant, caller: &str) -> bool {
    grant.callers.iter().any(|allowed| **allowed == *caller || **allowed == *"*")
}

/// APIs that some rule of the grants allows something of.
fn reached(grants: &[&Grant]) -> Vec<usize> {
    let allowing = grants.iter().flat_map(|grant| &grant.rules).filter(|rules| !rules.allow.is_empty());
    let mut apis: Vec<usize> = allowing.map(|rules| rules.api).collect();
    apis.sort_unstable();
    apis.dedup();
    apis
}
