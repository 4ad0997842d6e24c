//! Yesterday's requests under another policy: records of the audit log come in; which of them would be decided otherwise
//! comes out, grouped and counted, and plainly what a record cannot tell.
//!
//! A connection that was passed on unread is a record, too; what went over it nobody knows.
//!
//! A record holds method, host, path and query (secrets replaced), caller, tier and the grants of the run. It holds neither
//! header fields nor bodies: where those decide, the answer is that nobody can know.

pub(crate) mod decide;
mod render;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;

use crate::traffic::Traffic;
use crate::{Policy, Reason, Tier};

/// One request as the log has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Record {
    pub caller: Option<String>,
    pub tier: Option<Tier>,
    /// Grants that the run named; `None` where the log does not say: then every grant of the caller is tried.
    pub grants: Option<Vec<String>>,
    pub run: Option<String>,
    /// The run was a call of a session.
    pub session: bool,
    pub method: String,
    pub host: String,
    pub port: u16,
    /// When it ended, seconds since 1970 UTC.
    pub time_unix: Option<i64>,
    /// Path and query as recorded.
    pub target: String,
    pub websocket: bool,
    /// Of a connection that was passed on unread, what it was; its method and target say nothing.
    pub traffic: Traffic,
    /// Whether it was permitted then, whatever came of it.
    pub permitted: bool,
    /// A person let it go on.
    pub approved: bool,
    /// Why it was refused, or failed.
    pub reason: Option<Reason>,
    pub api: Option<String>,
}

impl Record {
    /// `https://HOST[:PORT]`, `tls://HOST[:PORT]`, `tcp://HOST:PORT`.
    pub(crate) fn origin(&self) -> String {
        self.traffic.url_of(&self.host, self.port)
    }
}

/// What a policy says of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Allowed {
        rule: Arc<str>,
        /// Once a person says yes.
        approval: bool,
    },
    Refused(Reason),
    /// The record does not hold what decides.
    Unknown(Unknown),
}

/// What a record does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unknown {
    /// A rule looks at the body.
    Body,
    /// A rule looks at header fields.
    Fields,
    /// The target was too long to be written whole.
    Cut,
    /// A parameter's value was replaced because it looked like a secret.
    RedactedValue,
    /// The connection was passed on unread, and the policy would read what goes over it.
    Unread,
}

impl Unknown {
    pub const fn words(self) -> &'static str {
        match self {
            Self::Body => "a rule looks at the body, and bodies are not kept",
            Self::Fields => "a rule looks at header fields, and those are not kept",
            Self::Cut => "the record holds only the beginning of the target",
            Self::RedactedValue => "a parameter's value was replaced in the record",
            Self::Unread => "the connection was passed on unread, and the policy decides on requests there",
        }
    }
}

/// What would be different.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It was permitted, and would be refused.
    NowRefused,
    /// It was permitted without anybody being asked, and a person would have to say yes.
    NeedsApproval,
    /// It was refused, and would be allowed.
    NowAllowed,
    /// The record does not hold what decides.
    Unknown,
}

impl Outcome {
    pub const fn words(self) -> &'static str {
        match self {
            Self::NowRefused => "would now be refused",
            Self::NeedsApproval => "would now need approval",
            Self::NowAllowed => "would now be allowed",
            Self::Unknown => "cannot be told",
        }
    }
}

/// Requests with one outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Group {
    pub outcome: Outcome,
    pub caller: String,
    pub method: String,
    /// `https://HOST[:PORT]` and the path, data in it as types.
    pub route: String,
    /// Why it would be refused, or was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// What would decide and is not kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<Unknown>,
    /// The rule that would allow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<Arc<str>>,
    pub count: u64,
    pub runs: usize,
    /// One of them, as recorded.
    pub example: String,
}

/// Everything that was replayed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Replay {
    pub policy: Arc<str>,
    /// Requests, and connections that were passed on unread.
    pub requests: u64,
    /// The latter alone.
    pub connections: u64,
    /// Decided as then.
    pub same: u64,
    pub now_refused: u64,
    pub needs_approval: u64,
    pub now_allowed: u64,
    pub unknown: u64,
    /// Refused then for what no policy decides (budgets, malformed requests).
    pub not_comparable: u64,
    /// Requests of runs whose beginning is not in the log: decided by every grant of their caller.
    pub grants_assumed: u64,
    /// Most frequent first.
    pub groups: Vec<Group>,
}

/// (outcome, caller, method, route, reason, unknown, rule)
type Key = (Outcome, String, String, String, Option<&'static str>, Option<Unknown>, Option<Arc<str>>);

/// A replay in the making: feed it records, then ask for the report.
#[derive(Debug)]
pub struct Replayer<'p> {
    policy: &'p Policy,
    now_unix: i64,
    report: Replay,
    groups: BTreeMap<Key, (Group, BTreeSet<String>)>,
}

impl<'p> Replayer<'p> {
    /// `now_unix` is the time at which the policy is asked: grants that are over by then refuse.
    pub fn new(policy: &'p Policy, now_unix: i64) -> Self {
        let report = Replay {
            policy: Arc::clone(policy.digest()),
            requests: 0,
            connections: 0,
            same: 0,
            now_refused: 0,
            needs_approval: 0,
            now_allowed: 0,
            unknown: 0,
            not_comparable: 0,
            grants_assumed: 0,
            groups: Vec::new(),
        };
        Self { policy, now_unix, report, groups: BTreeMap::new() }
    }

    /// Decides one record again.
    pub fn add(&mut self, record: &Record) {
        self.report.requests += 1;
        self.report.connections += u64::from(record.traffic.is_passed_on());
        if !record.permitted && !record.reason.is_some_and(decide::is_decided_by_policy) {
            self.report.not_comparable += 1;
            return;
        }
        self.report.grants_assumed += u64::from(record.grants.is_none());
        let answer = decide::again(self.policy, record, self.now_unix);
        let (outcome, reason, unknown, rule) = match (record.permitted, answer) {
            (true, Answer::Refused(reason)) => (Outcome::NowRefused, Some(reason), None, None),
            (true, Answer::Allowed { rule, approval: true }) if !record.approved => {
                (Outcome::NeedsApproval, None, None, Some(rule))
            }
            (false, Answer::Allowed { rule, .. }) => (Outcome::NowAllowed, record.reason, None, Some(rule)),
            (_, Answer::Unknown(unknown)) => (Outcome::Unknown, None, Some(unknown), None),
            (true, Answer::Allowed { .. }) | (false, Answer::Refused(_)) => {
                self.report.same += 1;
                return;
            }
        };
        *match outcome {
            Outcome::NowRefused => &mut self.report.now_refused,
            Outcome::NeedsApproval => &mut self.report.needs_approval,
            Outcome::NowAllowed => &mut self.report.now_allowed,
            Outcome::Unknown => &mut self.report.unknown,
        } += 1;
        let (caller, route) = (record.caller.clone().unwrap_or_default(), decide::route(record));
        let key = (
            outcome,
            caller.clone(),
            record.method.clone(),
            route.clone(),
            reason.map(Reason::code),
            unknown,
            rule.clone(),
        );
        let (group, runs) = self.groups.entry(key).or_insert_with(|| {
            let method = record.method.clone();
            let example = format!("{} {}{}", record.method, record.origin(), record.target);
            let group =
                Group { outcome, caller, method, route, reason, unknown, rule, count: 0, runs: 0, example };
            (group, BTreeSet::new())
        });
        group.count += 1;
        runs.extend(record.run.clone());
    }

    /// The report.
    pub fn finish(self) -> Replay {
        let groups = self.groups.into_values().map(|(group, runs)| Group { runs: runs.len(), ..group });
        let mut groups: Vec<Group> = groups.collect();
        // What stops working first, then what opens; stable, so that equal counts stay in the order of the names.
        groups.sort_by_key(|group| (group.outcome, std::cmp::Reverse(group.count)));
        Replay { groups, ..self.report }
    }
}
