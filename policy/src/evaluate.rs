//! The decision on one request: deny wins, then an allow rule, otherwise a refusal that says how near it was.
//!
//! This is the hot path: no allocation, no lock, and a time that depends on the path's length, not on the number of routes.

use std::borrow::Cow;
use std::sync::Arc;

use crate::compiled::{Compiled, Grant, Route as CompiledRoute};
use crate::condition::pending::Candidate;
use crate::condition::{Check, Facts, Head, Miss, Terms};
use crate::draft::Effect;
use crate::route::method::{self, Asked};
use crate::{
    ConnectionPermit, ConnectionQuestion, Decision, NoFields, PendingBody, Permit, Policy, Reason, Refusal,
    RequestQuestion, Target,
};

impl Policy {
    /// Decides one request on a granted destination. The only maker of a [`Permit`], at once or by way of
    /// [`PendingBody::inspect`].
    pub fn evaluate(&self, question: &RequestQuestion<'_>) -> Decision {
        match self.decide(question) {
            Ok(Answer::Now((grant, api, route))) => match self.permit(grant, api, route) {
                Some(permit) => Decision::Allow(permit),
                None => Decision::Refuse(Reason::Internal.into()),
            },
            Ok(Answer::ByBody(open, last)) => match self.pending(open, last, question) {
                Some(pending) => Decision::NeedsBody(pending),
                None => Decision::Refuse(Reason::Internal.into()),
            },
            Err(refusal) => Decision::Refuse(refusal),
        }
    }

    /// Decides one connection to a destination whose connections are passed on unread. The only maker of a
    /// [`ConnectionPermit`].
    ///
    /// # Errors
    /// As `evaluate` refuses; `NoRule` where the destination takes requests.
    pub fn connect(&self, question: &ConnectionQuestion<'_>) -> Result<ConnectionPermit, Refusal> {
        if !question.route.traffic.is_passed_on() {
            return Err(Reason::NoRule.into());
        }
        let target = Target::parse(b"/").map_err(|_| Reason::Internal)?;
        let asked = question.as_request(&target);
        self.is_current(&asked)?;
        match self.walk(&asked, Asked::new(asked.method))? {
            Answer::Now((grant, api, route)) => {
                self.permit(grant, api, route).map(ConnectionPermit).ok_or(Reason::Internal.into())
            }
            // No rule about connections looks at bodies (checked at load).
            Answer::ByBody(..) => Err(Reason::Internal.into()),
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
            terms: route.terms.clone(),
            _made_by_evaluate: (),
        })
    }

    fn pending(
        &self,
        open: Open<'_>,
        last: Option<Match<'_>>,
        question: &RequestQuestion<'_>,
    ) -> Option<PendingBody> {
        let mut candidates = Vec::new();
        for (grant, api, route) in open.candidates {
            let terms = route.terms.clone();
            candidates.push(Candidate { permit: self.permit(grant, api, route)?, terms });
        }
        if let Some((grant, api, route)) = last {
            candidates.push(Candidate { permit: self.permit(grant, api, route)?, terms: None });
        }
        let denies = open
            .denies
            .into_iter()
            .filter_map(|route| route.terms.as_ref().map(|terms| (route.id.clone(), Arc::clone(terms))));
        let coding = crate::condition::coding::of(question.fields);
        let facts = Facts::of(Head::of(question));
        Some(PendingBody { denies: denies.collect(), candidates, coding, facts })
    }

    fn decide(&self, question: &RequestQuestion<'_>) -> Result<Answer<'_>, Refusal> {
        self.is_current(question)?;
        let method = Asked::new(question.method);
        if method.is_forbidden() {
            return Err(Reason::MethodForbidden.into());
        }
        if question.route.traffic.is_passed_on() {
            return Err(Reason::ConnectionOnly.into());
        }
        self.walk(question, method)
    }

    fn is_current(&self, question: &RequestQuestion<'_>) -> Result<(), Refusal> {
        let made = self.made(&question.scope.policy_digest) && self.made(&question.route.policy_digest);
        if made { Ok(()) } else { Err(Reason::PolicyUnavailable.into()) }
    }

    fn walk(&self, question: &RequestQuestion<'_>, method: Asked<'_>) -> Result<Answer<'_>, Refusal> {
        let mut walk = Walk { compiled: &self.compiled, question, method, open: Open::default() };
        if let Some(route) = walk.denied() {
            return Err(Refusal::by(Reason::DeniedByRule, route.id.clone()));
        }
        let last = walk.allowed();
        let open = walk.open;
        match last {
            Ok(found) if open.denies.is_empty() && open.candidates.is_empty() => Ok(Answer::Now(found)),
            Ok(found) => Ok(Answer::ByBody(open, Some(found))),
            Err(_) if !open.candidates.is_empty() => Ok(Answer::ByBody(open, None)),
            Err(refusal) => Err(refusal),
        }
    }
}

impl<'q> ConnectionQuestion<'q> {
    /// The question as the rules are asked: the one request that a rule about connections matches.
    pub(crate) fn as_request<'a>(&'a self, target: &'a Target) -> RequestQuestion<'a>
    where
        'q: 'a,
    {
        RequestQuestion {
            scope: self.scope,
            route: self.route,
            method: method::CONNECTION,
            target,
            fields: &NoFields,
            websocket: false,
            now_unix: self.now_unix,
        }
    }
}

/// Grant, API and route that allow a request.
type Match<'p> = (&'p Grant, usize, &'p CompiledRoute);

enum Answer<'p> {
    Now(Match<'p>),
    /// What waits for the body, and the rule that allows where nothing of that decides.
    ByBody(Open<'p>, Option<Match<'p>>),
}

/// Rules that match as far as the head goes. Empty, and without allocation, where no rule looks at bodies.
#[derive(Default)]
struct Open<'p> {
    denies: Vec<&'p CompiledRoute>,
    candidates: Vec<Match<'p>>,
}

struct Walk<'p, 'q> {
    compiled: &'p Compiled,
    question: &'q RequestQuestion<'q>,
    method: Asked<'q>,
    open: Open<'p>,
}

impl<'p> Walk<'p, '_> {
    fn head(&self, effect: Effect, terms: &Terms) -> Check {
        terms.head(effect, Head::of(self.question))
    }

    /// The first deny rule that matches. Expired grants deny on: the end of a grant never allows more.
    fn denied(&mut self) -> Option<&'p CompiledRoute> {
        let site = self.compiled.sites.get(self.question.route.site)?;
        let target = self.question.target;
        let second_reading = target.split_at_escaped_slashes();
        for grant in grants(self.compiled, self.question) {
            for rules in site
                .denying
                .iter()
                .filter_map(|api| grant.rules_of(*api))
                .filter(|rules| !rules.deny.is_empty())
            {
                let found = rules.deny.find(target.view(), |route| self.denies(route));
                // SECURITY: an upstream that decodes `%2F` first must not be a way round a deny. Guarded by ATTACKS A04.
                let found = found.or_else(|| {
                    second_reading
                        .as_ref()
                        .and_then(|split| rules.deny.find(split.view(), |route| self.denies(route)))
                });
                if found.is_some() {
                    return found;
                }
            }
        }
        None
    }

    /// The path matches already.
    fn denies(&mut self, route: &'p CompiledRoute) -> bool {
        if !route.line.methods.deny(self.method) || !route.line.query.deny(self.question.target.query()) {
            return false;
        }
        match route.terms.as_ref().map_or(Check::Holds, |terms| self.head(Effect::Deny, terms)) {
            Check::Holds | Check::Unclear(_) => true,
            Check::Fails(_) => false,
            Check::NeedsBody => {
                self.open.denies.push(route);
                false
            }
        }
    }

    fn allowed(&mut self) -> Result<Match<'p>, Refusal> {
        let site = self.compiled.sites.get(self.question.route.site).ok_or(Reason::HostNotGranted)?;
        let mut nearest = Nearest::default();
        for grant in grants(self.compiled, self.question) {
            let closed = grant.closed(self.question.now_unix);
            for &api in &site.allowing {
                let Some(rules) = grant.rules_of(api) else { continue };
                let found = rules.allow.find(self.question.target.view(), |route| {
                    match self.matches(route, &mut nearest) {
                        Check::NeedsBody if closed.is_some() => nearest.closed = closed,
                        Check::NeedsBody => self.open.candidates.push((grant, api, route)),
                        answer => return answer == Check::Holds,
                    }
                    false
                });
                match found {
                    Some(_) if closed.is_some() => nearest.closed = closed,
                    Some(route) => return Ok((grant, api, route)),
                    None => {}
                }
            }
        }
        Err(nearest.refusal())
    }

    /// The path matches already.
    fn matches(&self, route: &CompiledRoute, nearest: &mut Nearest) -> Check {
        // What a rule without terms fails on, for which `nearest` has the words.
        const ELSEWHERE: Check = Check::Fails(Miss { reason: Reason::NoRule, detail: Cow::Borrowed("") });
        nearest.path = true;
        if !route.line.methods.allow(self.method) {
            return ELSEWHERE;
        }
        nearest.method = true;
        if !route.line.query.allow(self.question.target.query()) {
            return ELSEWHERE;
        }
        if route.websocket != self.question.websocket {
            nearest.upgrade |= self.question.websocket;
            nearest.handshake |= route.websocket;
            return ELSEWHERE;
        }
        let Some(terms) = &route.terms else { return Check::Holds };
        let answer = self.head(Effect::Allow, terms);
        if let Check::Fails(miss) = &answer {
            nearest.miss.get_or_insert_with(|| miss.clone());
        }
        answer
    }
}

fn grants<'p, 'q>(
    compiled: &'p Compiled,
    question: &'q RequestQuestion<'q>,
) -> impl Iterator<Item = &'p Grant> + use<'p, 'q> {
    question.scope.grants.iter().filter_map(move |index| compiled.grants.get(*index))
}

/// How far the nearest rule got.
#[derive(Default)]
struct Nearest {
    path: bool,
    method: bool,
    /// The rule is for websocket handshakes, and this is none.
    handshake: bool,
    upgrade: bool,
    /// A rule matches, but its grant does not work now.
    closed: Option<Reason>,
    /// The first condition that did not hold where everything else did.
    miss: Option<Miss>,
}

impl Nearest {
    fn refusal(self) -> Refusal {
        match self.miss {
            Some(miss) if self.closed.is_none() => miss.into(),
            _ => self.reason().into(),
        }
    }

    fn reason(&self) -> Reason {
        match self {
            Self { closed: Some(reason), .. } => *reason,
            Self { upgrade: true, .. } => Reason::UpgradeRefused,
            Self { handshake: true, .. } => Reason::NoRule,
            Self { method: true, .. } => Reason::QueryNotGranted,
            Self { path: true, .. } => Reason::MethodNotGranted,
            Self { .. } => Reason::NoRule,
        }
    }
}
