//! Asks both policies about a request, as the broker would. What a comparison reports was answered by the evaluator.

use std::sync::Arc;

use serde::Serialize;

use crate::automata::Witness;
use crate::compiled::Grant;
use crate::condition::fields::HeaderFields;
use crate::condition::sample::{self, Sample};
use crate::condition::{Head, Terms, grpc};
use crate::limits::SAMPLES_MAX;
use crate::route::method;
use crate::{
    ConnectionQuestion, Decision, DestinationQuestion, HeldBody, Host, NoFields, Permit, Policy, Reason,
    RequestQuestion, ScopeQuestion, Target, Tier,
};

/// A request and what both policies say to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Asked {
    pub caller: Arc<str>,
    pub grants: Vec<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<Tier>,
    pub method: String,
    pub url: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub websocket: bool,
    /// Header fields, where rules look at them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
    /// The body, where rules look at it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    pub old: Said,
    pub new: Said,
}

/// What one policy says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Said {
    pub allowed: bool,
    /// Fields or a body decide, which the request does not have.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub conditional: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// The rule that decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credential: Option<Arc<str>>,
}

impl Said {
    fn refused(reason: Reason, rule: Option<Arc<str>>) -> Self {
        Self { allowed: false, conditional: false, reason: Some(reason), rule, credential: None }
    }

    fn allowed(permit: &Permit, conditional: bool) -> Self {
        Self {
            allowed: true,
            conditional,
            reason: None,
            rule: Some(Arc::clone(&permit.rule().0)),
            credential: permit.credential().cloned(),
        }
    }

    /// `allowed` or `refused (REASON)`, and by which rule.
    pub fn words(&self) -> String {
        let verdict = match self.reason {
            Some(reason) => format!("refused ({reason})"),
            None if self.conditional => "allowed where its conditions hold".to_owned(),
            None => "allowed".to_owned(),
        };
        let by = self.rule.as_ref().map(|rule| format!(" by {rule}")).unwrap_or_default();
        let with =
            self.credential.as_ref().map(|name| format!(", with credential `{name}`")).unwrap_or_default();
        format!("{verdict}{by}{with}")
    }
}

/// Who asks, for what.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run<'a> {
    pub(super) caller: &'a Arc<str>,
    pub(super) grants: &'a [&'a Arc<str>],
    pub(super) tier: Option<Tier>,
}

impl Run<'_> {
    pub(super) fn ask(
        self,
        (old, new): (&Policy, &Policy),
        host: &Host,
        port: u16,
        request: &Witness,
        sample: Option<&Sample>,
    ) -> Asked {
        Asked {
            caller: Arc::clone(self.caller),
            grants: self.grants.iter().copied().cloned().collect(),
            tier: self.tier,
            method: request.method.clone(),
            url: self.url((old, new), host, port, request),
            websocket: request.websocket,
            headers: sample.map(|sample| sample.headers.clone()).unwrap_or_default(),
            body: sample.and_then(|sample| sample.body.clone()),
            old: self.one(old, host, port, request, sample),
            new: self.one(new, host, port, request, sample),
        }
    }

    /// Where the request goes, as a person writes it. A connection has no path.
    fn url(self, (old, new): (&Policy, &Policy), host: &Host, port: u16, request: &Witness) -> String {
        if request.method != method::CONNECTION {
            return format!("{}{}", crate::origin::url(host, port), request.target);
        }
        let traffic = |policy: &Policy| {
            let ports = policy.compiled.hosts.get(host)?;
            let (_, site) = ports.iter().find(|(of, _)| *of == port)?;
            let traffic = policy.compiled.traffic(policy.compiled.sites.get(*site)?);
            traffic.is_passed_on().then_some(traffic)
        };
        traffic(new).or_else(|| traffic(old)).unwrap_or_default().url(host, port)
    }

    /// The request, and others like it where conditions look at the path: calls of gRPC methods.
    pub(super) fn like(
        self,
        policies: (&Policy, &Policy),
        host: &Host,
        port: u16,
        request: &Witness,
    ) -> Vec<Witness> {
        let Ok(target) = Target::parse(request.target.as_bytes()) else { return Vec::new() };
        let terms = self.terms(policies, host, port, &target);
        let calls = grpc::paths(terms.iter().filter_map(|terms| terms.grpc.as_ref()));
        let calls = calls.into_iter().map(|target| Witness { target, ..request.clone() });
        std::iter::once(request.clone()).chain(calls).take(SAMPLES_MAX).collect()
    }

    /// Header fields and bodies that may tell the two policies apart.
    pub(super) fn samples(
        self,
        policies: (&Policy, &Policy),
        host: &Host,
        port: u16,
        request: &Witness,
    ) -> Vec<Sample> {
        let Ok(target) = Target::parse(request.target.as_bytes()) else { return Vec::new() };
        let terms = self.terms(policies, host, port, &target);
        let head = Head { method: &request.method, target: &target, fields: &NoFields };
        sample::samples(head, &terms)
    }

    /// Conditions of the rules of both policies whose path matches.
    fn terms<'p>(
        self,
        (old, new): (&'p Policy, &'p Policy),
        host: &Host,
        port: u16,
        target: &Target,
    ) -> Vec<&'p Terms> {
        let mut terms = Vec::new();
        for policy in [old, new] {
            self.terms_of(policy, host, port, target, &mut terms);
        }
        terms
    }

    fn terms_of<'p>(
        self,
        policy: &'p Policy,
        host: &Host,
        port: u16,
        target: &Target,
        terms: &mut Vec<&'p Terms>,
    ) {
        let ports = policy.compiled.hosts.get(host);
        let site = ports.and_then(|ports| ports.iter().find(|(of, _)| *of == port));
        let Some(site) = site.and_then(|(_, site)| policy.compiled.sites.get(*site)) else { return };
        let names = self.grants.iter().filter_map(|name| policy.compiled.grant_names.get(*name));
        for grant in names.filter_map(|index| policy.compiled.grants.get(*index)) {
            let allow = site.allowing.iter().filter_map(|api| grant.rules_of(*api)).map(|rules| &rules.allow);
            let deny = site.denying.iter().filter_map(|api| grant.rules_of(*api)).map(|rules| &rules.deny);
            for trie in allow.chain(deny) {
                trie.find(target.view(), |route| {
                    terms.extend(route.terms.as_deref().filter(|terms| terms.narrows()));
                    false
                });
            }
        }
    }

    fn one(
        self,
        policy: &Policy,
        host: &Host,
        port: u16,
        request: &Witness,
        sample: Option<&Sample>,
    ) -> Said {
        // When grants work is compared apart; each policy is asked at a time at which its own ones do.
        let now_unix = open_time(policy, self.grants);
        let grants: Vec<String> = self.grants.iter().map(ToString::to_string).collect();
        let question = ScopeQuestion {
            caller: Some(self.caller),
            grants: &grants,
            tier: self.tier,
            session: false,
            now_unix,
        };
        let scope = match policy.scope(&question) {
            Ok(scope) => scope,
            Err(refusal) => return Said::refused(refusal.reason, None),
        };
        let route = match policy.destination(&DestinationQuestion { scope: &scope, host, port }) {
            Ok(route) => route,
            Err(refusal) => return Said::refused(refusal.reason, None),
        };
        if request.method == method::CONNECTION {
            return match policy.connect(&ConnectionQuestion { scope: &scope, route: &route, now_unix }) {
                Ok(permit) => Said::allowed(&permit.0, false),
                Err(refusal) => Said::refused(refusal.reason, refusal.rule.map(|rule| rule.0)),
            };
        }
        let Ok(target) = Target::parse(request.target.as_bytes()) else {
            return Said::refused(Reason::TargetNotCanonical, None);
        };
        let fields: &dyn HeaderFields = sample.map_or(&NoFields, |sample| &sample.headers);
        let question = RequestQuestion {
            scope: &scope,
            route: &route,
            method: &request.method,
            target: &target,
            fields,
            websocket: request.websocket,
            now_unix,
        };
        match (policy.evaluate(&question), sample) {
            (Decision::NeedsBody(pending), Some(sample)) => {
                let body = sample.body.as_deref().unwrap_or_default();
                match pending.inspect(HeldBody::Whole(body.as_bytes())) {
                    Ok(permit) => Said::allowed(&permit, false),
                    Err(refusal) => Said::refused(refusal.reason, refusal.rule.map(|rule| rule.0)),
                }
            }
            (Decision::Allow(permit), _) => Said::allowed(&permit, false),
            (Decision::NeedsBody(pending), None) => match pending.candidates.first() {
                Some(candidate) => Said::allowed(&candidate.permit, true),
                None => Said::refused(Reason::BodyNotGranted, None),
            },
            (Decision::Refuse(refusal), _) => Said::refused(refusal.reason, refusal.rule.map(|rule| rule.0)),
        }
    }
}

/// A second at which all of the grants work; 0 where there is none.
fn open_time(policy: &Policy, names: &[&Arc<str>]) -> i64 {
    const DAY: i64 = 86_400;
    let found = names.iter().filter_map(|name| policy.compiled.grant_names.get(*name));
    let grants: Vec<&Grant> = found.filter_map(|index| policy.compiled.grants.get(*index)).collect();
    let starts = grants.iter().filter_map(|grant| grant.view.not_before_unix);
    let first = starts.max().unwrap_or(0).max(0);
    let windows = grants.iter().flat_map(|grant| &grant.view.schedule);
    let minutes: Vec<i64> =
        std::iter::once(0).chain(windows.map(|window| i64::from(window.opens()))).collect();
    // Days of the week differ; a window opens once a day at most.
    let days = (0..=7).map(|day| first.div_euclid(DAY) * DAY + day * DAY);
    let times = days.flat_map(|day| minutes.iter().map(move |minute| day + minute * 60));
    let mut times = std::iter::once(first).chain(times.filter(|time| *time >= first));
    times.find(|time| grants.iter().all(|grant| grant.closed(*time).is_none())).unwrap_or(first)
}
