//! One record to the answer that a policy gives to it.
//!
//! The evaluator answers where it looks at nothing that the record does not hold. Where it would, every rule is read again, slowly, and
//! says yes, no, or that nobody can tell.

use std::cell::Cell;
use std::sync::Arc;

use super::{Answer, Record, Unknown};
use crate::compiled::{Grant, Route as CompiledRoute};
use crate::condition::Terms;
use crate::import::har::Segment;
use crate::route::RouteLine;
use crate::route::pattern::Pattern;
use crate::route::query::QueryPattern;
use crate::traffic::Traffic;
use crate::{
    ConnectionQuestion, Decision, DestinationQuestion, Fault, HeaderFields, Host, Policy, Reason,
    RequestQuestion, Route, RunScope, ScopeQuestion, Target,
};

/// What the audit log puts in place of a value (`freeboard-audit`, `redact`).
pub(crate) const REDACTED: &str = "[redacted]";
/// How a field ends that the audit log has cut (`freeboard-audit`, `escape`).
pub(crate) const CUT: &str = "[cut]";

/// Whether a refusal was made by the policy, so that another policy may decide otherwise.
pub(crate) fn is_decided_by_policy(reason: Reason) -> bool {
    reason.fault() == Fault::Policy
        && !matches!(
            reason,
            Reason::BudgetExhausted
                | Reason::ConnectionTooLarge
                | Reason::EncryptedHello
                | Reason::RawAddress
                | Reason::AddressRefused
                | Reason::PlainHttp
                | Reason::MethodForbidden
        )
}

/// Asks the policy as the broker would have asked it.
pub(super) fn again(policy: &Policy, record: &Record, now_unix: i64) -> Answer {
    match decided(policy, record, now_unix) {
        Ok(answer) => answer,
        Err(reason) => Answer::Refused(reason),
    }
}

fn decided(policy: &Policy, record: &Record, now_unix: i64) -> Result<Answer, Reason> {
    let caller = record.caller.as_deref();
    let grants = match &record.grants {
        Some(grants) => grants.clone(),
        None => policy.grants_of(caller, now_unix),
    };
    let question =
        ScopeQuestion { caller, grants: &grants, tier: record.tier, session: record.session, now_unix };
    let scope = policy.scope(&question).map_err(|refusal| refusal.reason)?;
    let host = Host::parse(&record.host).map_err(|_| Reason::HostNotGranted)?;
    let destination = DestinationQuestion { scope: &scope, host: &host, port: record.port };
    let route = policy.destination(&destination).map_err(|refusal| refusal.reason)?;
    if record.traffic.is_passed_on() || route.traffic.is_passed_on() {
        return unread(
            policy,
            record,
            &ConnectionQuestion { scope: &scope, route: &route, now_unix: now(record, now_unix) },
        );
    }
    if record.target.ends_with(CUT) {
        return Ok(Answer::Unknown(Unknown::Cut));
    }
    let target = Target::parse(record.target.as_bytes()).map_err(|_| Reason::TargetNotCanonical)?;
    let fields = Unrecorded::default();
    let question = RequestQuestion {
        scope: &scope,
        route: &route,
        method: &record.method,
        target: &target,
        fields: &fields,
        websocket: record.websocket,
        now_unix: now(record, now_unix),
    };
    let decision = policy.evaluate(&question);
    let redacted = redacted(&target);
    if fields.asked.get() || !redacted.is_empty() {
        let rules = Rules { policy, scope: &scope, route: &route, question: &question, redacted: &redacted };
        return rules.answer(decision);
    }
    match decision {
        Decision::Refuse(refusal) => Err(refusal.reason),
        Decision::NeedsBody(_) => Ok(Answer::Unknown(Unknown::Body)),
        Decision::Allow(permit) => {
            Ok(Answer::Allowed { rule: Arc::clone(&permit.rule().0), approval: permit.approval().is_some() })
        }
    }
}

/// A connection that was, or would be, passed on unread. What would be read of one now is not known, and a connection of which nothing
/// was read may be none of TLS.
fn unread(policy: &Policy, record: &Record, question: &ConnectionQuestion<'_>) -> Result<Answer, Reason> {
    let known = match question.route.traffic {
        Traffic::Requests => false,
        Traffic::TlsPassthrough => record.traffic != Traffic::Tcp,
        Traffic::Tcp => true,
    };
    if !known {
        return Ok(Answer::Unknown(Unknown::Unread));
    }
    let permit = policy.connect(question).map_err(|refusal| refusal.reason)?;
    Ok(Answer::Allowed { rule: Arc::clone(&permit.rule().0), approval: permit.approval().is_some() })
}

/// The time at which a policy is asked for a record.
fn now(record: &Record, now_unix: i64) -> i64 {
    record.time_unix.map_or(now_unix, |time| same_time_of_week(time, now_unix))
}

/// Header fields that nobody wrote down; notes whether somebody wants to see them.
#[derive(Debug, Default)]
struct Unrecorded {
    asked: Cell<bool>,
}

impl HeaderFields for Unrecorded {
    fn each_value(&self, _name: &str, _each: &mut dyn FnMut(&[u8])) {
        self.asked.set(true);
    }
}

/// Names, as they stand in the query, of the parameters whose values were replaced.
fn redacted(target: &Target) -> Vec<Vec<u8>> {
    let pairs = target.query().unwrap_or_default().split('&');
    let names = pairs.filter_map(|pair| pair.split_once('='));
    names.filter(|(_, value)| is_redacted(value)).map(|(name, _)| name.as_bytes().to_vec()).collect()
}

/// Brackets may be written as escapes in a canonical target.
pub(crate) fn is_redacted(value: &str) -> bool {
    value == REDACTED || value.eq_ignore_ascii_case("%5Bredacted%5D")
}

/// Every rule that the request could be decided by, read with what is known.
struct Rules<'a> {
    policy: &'a Policy,
    scope: &'a RunScope,
    route: &'a Route,
    question: &'a RequestQuestion<'a>,
    redacted: &'a [Vec<u8>],
}

/// Whether a rule is about the request.
enum Said {
    Yes,
    No,
    Unknown(Unknown),
}

impl<'a> Rules<'a> {
    /// `decision` is the evaluator's for a request without fields and body; its reason stands where every rule says no.
    fn answer(&self, decision: Decision) -> Result<Answer, Reason> {
        let mut unknown = None;
        for (_, rule) in self.denying() {
            match self.denies(rule) {
                Said::Yes => return Err(Reason::DeniedByRule),
                Said::Unknown(why) => unknown = unknown.or(Some(why)),
                Said::No => {}
            }
        }
        let (mut allowing, mut perhaps) = (Vec::new(), Vec::new());
        for (grant, rule) in self.allowing() {
            match self.allows(rule) {
                _ if grant.closed(self.question.now_unix).is_some() => {}
                Said::Yes => allowing.push(rule),
                Said::Unknown(why) => perhaps.push((why, rule)),
                Said::No => {}
            }
        }
        // Where it depends on what is not kept whether a person is asked, that cannot be told either.
        let asks = |rule: &CompiledRoute| rule.terms.as_ref().is_some_and(|terms| terms.approve.is_some());
        let first = allowing.first().copied();
        let undecided = perhaps.iter().find(|(_, rule)| first.is_none_or(|first| asks(first) != asks(rule)));
        match (unknown.or(undecided.map(|(why, _)| *why)), first) {
            (None, Some(rule)) => Ok(Answer::Allowed { rule: Arc::clone(&rule.id.0), approval: asks(rule) }),
            (_, None) if perhaps.is_empty() => Err(match decision {
                Decision::Refuse(refusal) => refusal.reason,
                Decision::Allow(_) | Decision::NeedsBody(_) => Reason::NoRule,
            }),
            (Some(why), _) => Ok(Answer::Unknown(why)),
            (None, None) => Err(Reason::NoRule),
        }
    }

    fn grants(&self) -> impl Iterator<Item = &'a Grant> {
        self.scope.grants.iter().filter_map(|at| self.policy.compiled.grants.get(*at))
    }

    fn denying(&self) -> impl Iterator<Item = (&'a Grant, &'a CompiledRoute)> {
        let site = self.policy.compiled.sites.get(self.route.site);
        let apis = site.map(|site| site.denying.as_slice()).unwrap_or_default();
        self.grants().flat_map(|grant| {
            let rules = apis.iter().filter_map(|api| grant.rules_of(*api));
            rules.flat_map(|rules| &rules.deny.routes).map(move |rule| (grant, rule))
        })
    }

    fn allowing(&self) -> impl Iterator<Item = (&'a Grant, &'a CompiledRoute)> {
        let site = self.policy.compiled.sites.get(self.route.site);
        let apis = site.map(|site| site.allowing.as_slice()).unwrap_or_default();
        self.grants().flat_map(|grant| {
            let rules = apis.iter().filter_map(|api| grant.rules_of(*api));
            rules.flat_map(|rules| &rules.allow.routes).map(move |rule| (grant, rule))
        })
    }

    fn denies(&self, rule: &CompiledRoute) -> Said {
        let of = |line: &RouteLine| line.denies(self.question.method, self.question.target);
        self.said(rule, of)
    }

    fn allows(&self, rule: &CompiledRoute) -> Said {
        if rule.websocket != self.question.websocket {
            return Said::No;
        }
        let of = |line: &RouteLine| line.mismatch(self.question.method, self.question.target).is_none();
        self.said(rule, of)
    }

    fn said(&self, rule: &CompiledRoute, matches: impl Fn(&RouteLine) -> bool) -> Said {
        let blind = self.redacted.iter().all(|name| is_blind_to(&rule.line.query, name));
        let matching = if blind {
            matches(&rule.line)
        } else {
            matches(&RouteLine { query: QueryPattern::Any, ..rule.line.clone() })
        };
        match rule.terms.as_deref() {
            _ if !matching => Said::No,
            Some(terms) if terms.narrows() => Said::Unknown(needed(terms)),
            _ if blind => Said::Yes,
            _ => Said::Unknown(Unknown::RedactedValue),
        }
    }
}

const fn needed(terms: &Terms) -> Unknown {
    if terms.headers.is_empty() && terms.content_type.is_empty() { Unknown::Body } else { Unknown::Fields }
}

/// Whether the pattern says the same whatever the parameter's value is. A value that is replaced is not empty; one with `;` in it, which
/// allow rules refuse, is left out of account: tokens, keys and signatures have none.
fn is_blind_to(query: &QueryPattern, name: &[u8]) -> bool {
    match query {
        QueryPattern::Any | QueryPattern::None => true,
        QueryPattern::Listed(listed) => listed.parameters.iter().all(|parameter| {
            !parameter.is_named_widely(name) || matches!(parameter.value, Pattern::Any | Pattern::AnyOrEmpty)
        }),
    }
}

/// The last time at which it was the same weekday and hour as then: schedules are asked about the time of the call, the
/// ends of grants about now.
fn same_time_of_week(then: i64, now: i64) -> i64 {
    const WEEK: i64 = 7 * 86_400;
    now - (now - then).rem_euclid(WEEK)
}

/// Origin and path of a record with its data as types, so that calls of one kind are counted together.
pub(super) fn route(record: &Record) -> String {
    let mut out = record.origin();
    let path = record.target.split('?').next().unwrap_or_default();
    for segment in path.split('/').skip(1) {
        out.push('/');
        match Segment::of_type(segment) {
            Some(kind) => out.push_str(&format!("{{{kind}}}")),
            None => out.push_str(segment),
        }
    }
    out
}
