//! The decision on one request: deny wins, then an allow rule, otherwise a refusal that says how near it was.
//!
//! This is the hot path: no allocation, no lock, and a time that depends on the path's length, not on the number of routes.

use std::sync::Arc;

use crate::compiled::{Compiled, Grant, Route as CompiledRoute};
use crate::route::method::Asked;
use crate::{Decision, Permit, Policy, Reason, Refusal, RequestQuestion};

impl Policy {
    /// Decides one request on a granted destination. The only maker of a [`Permit`].
    pub fn evaluate(&self, question: &RequestQuestion<'_>) -> Decision {
        match self.decide(question) {
            Ok((grant, api, route)) => match self.permit(grant, api, route) {
                Some(permit) => Decision::Allow(permit),
                None => Decision::Refuse(Reason::Internal.into()),
            },
            Err(refusal) => Decision::Refuse(refusal),
        }
    }

    fn permit(&self, grant: &Grant, api: usize, route: &CompiledRoute) -> Option<Permit> {
        let api = &self.compiled.apis.get(api)?.view;
        Some(Permit {
            grant: Arc::clone(&grant.view.name),
            rule: route.id.clone(),
            api: Arc::clone(&api.name),
            credential: api.credential.clone(),
            websocket: route.websocket,
            _made_by_evaluate: (),
        })
    }

    fn decide(&self, question: &RequestQuestion<'_>) -> Result<(&Grant, usize, &CompiledRoute), Refusal> {
        if !self.made(&question.scope.policy_digest) || !self.made(&question.route.policy_digest) {
            return Err(Reason::PolicyUnavailable.into());
        }
        let method = Asked::new(question.method);
        if method.is_forbidden() {
            return Err(Reason::MethodForbidden.into());
        }
        let walk = Walk { compiled: &self.compiled, question, method };
        if let Some(route) = walk.denied() {
            return Err(Refusal { reason: Reason::DeniedByRule, rule: Some(route.id.clone()) });
        }
        walk.allowed()
    }
}

struct Walk<'p, 'q> {
    compiled: &'p Compiled,
    question: &'q RequestQuestion<'q>,
    method: Asked<'q>,
}

impl<'p> Walk<'p, '_> {
    fn grants(&self) -> impl Iterator<Item = &'p Grant> {
        let compiled = self.compiled;
        self.question.scope.grants.iter().filter_map(move |index| compiled.grants.get(*index))
    }

    /// The first deny rule that matches. Expired grants deny on: the end of a grant never allows more.
    fn denied(&self) -> Option<&'p CompiledRoute> {
        let site = self.compiled.sites.get(self.question.route.site)?;
        let target = self.question.target;
        let matches = |route: &&CompiledRoute| {
            route.line.methods.deny(self.method) && route.line.query.deny(target.query())
        };
        let second_reading = target.split_at_escaped_slashes();
        for grant in self.grants() {
            for rules in site
                .denying
                .iter()
                .filter_map(|api| grant.rules_of(*api))
                .filter(|rules| !rules.deny.is_empty())
            {
                let found = rules.deny.find(target.view(), |route| matches(&route));
                // SECURITY: an upstream that decodes `%2F` first must not be a way round a deny. Guarded by ATTACKS A04.
                let found = found.or_else(|| {
                    second_reading
                        .as_ref()
                        .and_then(|split| rules.deny.find(split.view(), |route| matches(&route)))
                });
                if found.is_some() {
                    return found;
                }
            }
        }
        None
    }

    fn allowed(&self) -> Result<(&'p Grant, usize, &'p CompiledRoute), Refusal> {
        let site = self.compiled.sites.get(self.question.route.site).ok_or(Reason::HostNotGranted)?;
        let mut nearest = Nearest::default();
        for grant in self.grants() {
            for &api in &site.allowing {
                let Some(rules) = grant.rules_of(api) else { continue };
                let found =
                    rules.allow.find(self.question.target.view(), |route| self.matches(route, &mut nearest));
                match found {
                    Some(_) if grant.is_expired(self.question.now_unix) => nearest.expired = true,
                    Some(route) => return Ok((grant, api, route)),
                    None => {}
                }
            }
        }
        Err(nearest.reason().into())
    }

    /// The path matches already.
    fn matches(&self, route: &CompiledRoute, nearest: &mut Nearest) -> bool {
        nearest.path = true;
        if !route.line.methods.allow(self.method) {
            return false;
        }
        nearest.method = true;
        if !route.line.query.allow(self.question.target.query()) {
            return false;
        }
        if route.websocket != self.question.websocket {
            nearest.upgrade |= self.question.websocket;
            nearest.handshake |= route.websocket;
            return false;
        }
        true
    }
}

/// How far the nearest rule got.
#[derive(Default)]
struct Nearest {
    path: bool,
    method: bool,
    /// The rule is for websocket handshakes, and this is none.
    handshake: bool,
    upgrade: bool,
    expired: bool,
}

impl Nearest {
    fn reason(&self) -> Reason {
        match self {
            Self { expired: true, .. } => Reason::GrantExpired,
            Self { upgrade: true, .. } => Reason::UpgradeRefused,
            Self { handshake: true, .. } => Reason::NoRule,
            Self { method: true, .. } => Reason::QueryNotGranted,
            Self { path: true, .. } => Reason::MethodNotGranted,
            Self { .. } => Reason::NoRule,
        }
    }
}
