//! What a policy opens, for people who look after it: writes, wildcards, the reach of credentials and callers, and what is
//! about to end. Nothing here is a mistake; it is what a security team asks first.

mod render;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;

use crate::compiled::{Api, Grant, Route};
use crate::explain::RuleView;
use crate::route::PathEnd;
use crate::route::pattern::Pattern;
use crate::route::query::QueryPattern;
use crate::{Policy, units};

/// Seconds of a day.
const DAY: i64 = 86_400;

/// The report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Risks {
    pub policy: Arc<str>,
    /// Grants that may change something, those with most such routes first.
    pub writes: Vec<Writes>,
    /// Rules with wildcards, the broadest first.
    pub wildcards: Vec<Wildcard>,
    /// Credentials, those that reach most first.
    pub credentials: Vec<CredentialReach>,
    /// Callers, those that reach most first; `*` = every authenticated caller.
    pub callers: Vec<CallerReach>,
    /// Grants that end soon, or ended; the first to end first.
    pub expiring: Vec<Expiring>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Writes {
    pub grant: Arc<str>,
    pub callers: Vec<Arc<str>>,
    pub hosts: BTreeSet<String>,
    pub rules: Vec<RuleView>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Wildcard {
    pub rule: RuleView,
    /// How broad, in points: a connection that is passed on unread 16, any further path 8, every method 4, any query 2, any segment 1 each.
    pub breadth: u32,
    pub why: Vec<&'static str>,
    pub credential: Option<Arc<str>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CredentialReach {
    pub credential: Arc<str>,
    pub hosts: BTreeSet<String>,
    pub grants: BTreeSet<Arc<str>>,
    pub callers: BTreeSet<Arc<str>>,
    pub routes: usize,
    pub writes: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CallerReach {
    pub caller: Arc<str>,
    pub grants: BTreeSet<Arc<str>>,
    pub hosts: BTreeSet<String>,
    pub credentials: BTreeSet<Arc<str>>,
    pub routes: usize,
    pub writes: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Expiring {
    pub grant: Arc<str>,
    /// `YYYY-MM-DD`
    pub last_day: String,
    /// Whole days until the grant ends; 0 or less when it has ended.
    pub days_left: i64,
}

impl Policy {
    /// What the policy opens to whom. `now_unix` and `soon_days` say which grants end soon.
    pub fn risks(&self, now_unix: i64, soon_days: i64) -> Risks {
        Risks {
            policy: Arc::clone(self.digest()),
            writes: self.writes(),
            wildcards: self.wildcards(),
            credentials: self.credential_reach(),
            callers: self.caller_reach(),
            expiring: self.expiring(now_unix, soon_days),
        }
    }

    /// Every allow rule with its grant and API.
    fn allowing(&self) -> impl Iterator<Item = (&Grant, &Api, &Route)> {
        self.compiled.grants.iter().flat_map(move |grant| {
            grant
                .rules
                .iter()
                .filter_map(move |rules| Some((rules, self.compiled.apis.get(rules.api)?)))
                .flat_map(move |(rules, api)| rules.allow.routes.iter().map(move |route| (grant, api, route)))
        })
    }

    fn writes(&self) -> Vec<Writes> {
        let mut by_grant: BTreeMap<&Arc<str>, Writes> = BTreeMap::new();
        for (grant, api, route) in self.allowing().filter(|(_, _, route)| writes(route)) {
            let entry = by_grant.entry(&grant.view.name).or_insert_with(|| Writes {
                grant: Arc::clone(&grant.view.name),
                callers: grant.callers.clone(),
                hosts: BTreeSet::new(),
                rules: Vec::new(),
            });
            entry.hosts.extend(hosts(api));
            entry.rules.push(RuleView::from(route));
        }
        let mut found: Vec<Writes> = by_grant.into_values().collect();
        found.sort_by_key(|writes| std::cmp::Reverse(writes.rules.len()));
        found
    }

    fn wildcards(&self) -> Vec<Wildcard> {
        let breadth = self.allowing().filter_map(|(_, api, route)| {
            let (breadth, why) = breadth(route);
            let credential = api.view.credential.clone();
            (breadth > 0).then(|| Wildcard { rule: RuleView::from(route), breadth, why, credential })
        });
        let mut found: Vec<Wildcard> = breadth.collect();
        found.sort_by_key(|wildcard| std::cmp::Reverse((wildcard.breadth, wildcard.credential.is_some())));
        found
    }

    fn credential_reach(&self) -> Vec<CredentialReach> {
        let mut reach: BTreeMap<Arc<str>, CredentialReach> = BTreeMap::new();
        for (grant, api, route) in self.allowing() {
            let Some(name) = &api.view.credential else { continue };
            let entry = reach.entry(Arc::clone(name)).or_insert_with(|| CredentialReach {
                credential: Arc::clone(name),
                hosts: BTreeSet::new(),
                grants: BTreeSet::new(),
                callers: BTreeSet::new(),
                routes: 0,
                writes: 0,
            });
            entry.hosts.extend(hosts(api));
            entry.grants.insert(Arc::clone(&grant.view.name));
            entry.callers.extend(grant.callers.iter().cloned());
            entry.routes += 1;
            entry.writes += usize::from(writes(route));
        }
        let mut found: Vec<CredentialReach> = reach.into_values().collect();
        found.sort_by_key(|reach| {
            std::cmp::Reverse((reach.hosts.len(), reach.callers.len(), reach.writes, reach.routes))
        });
        found
    }

    fn caller_reach(&self) -> Vec<CallerReach> {
        let mut reach: BTreeMap<Arc<str>, CallerReach> = BTreeMap::new();
        for (grant, api, route) in self.allowing() {
            for caller in &grant.callers {
                let entry = reach.entry(Arc::clone(caller)).or_insert_with(|| CallerReach {
                    caller: Arc::clone(caller),
                    grants: BTreeSet::new(),
                    hosts: BTreeSet::new(),
                    credentials: BTreeSet::new(),
                    routes: 0,
                    writes: 0,
                });
                entry.grants.insert(Arc::clone(&grant.view.name));
                entry.hosts.extend(hosts(api));
                entry.credentials.extend(api.view.credential.clone());
                entry.routes += 1;
                entry.writes += usize::from(writes(route));
            }
        }
        let mut found: Vec<CallerReach> = reach.into_values().collect();
        found.sort_by_key(|reach| std::cmp::Reverse((reach.writes, reach.hosts.len(), reach.routes)));
        found
    }

    fn expiring(&self, now_unix: i64, soon_days: i64) -> Vec<Expiring> {
        let ending = self.compiled.grants.iter().filter_map(|grant| Some((grant, grant.view.expires_unix?)));
        let mut found: Vec<Expiring> = ending
            .map(|(grant, end)| Expiring {
                grant: Arc::clone(&grant.view.name),
                last_day: units::last_day(end),
                days_left: end.saturating_sub(now_unix).div_euclid(DAY),
            })
            .filter(|expiring| expiring.days_left <= soon_days)
            .collect();
        found.sort_by_key(|expiring| expiring.days_left);
        found
    }
}

fn hosts(api: &Api) -> impl Iterator<Item = String> {
    api.origins.iter().map(|origin| api.view.traffic.url(&origin.host, origin.port))
}

fn writes(route: &Route) -> bool {
    route.line.methods.change_something()
}

fn breadth(route: &Route) -> (u32, Vec<&'static str>) {
    let mut why = Vec::new();
    let mut points = 0;
    let mut add = |more: u32, what: &'static str| {
        points += more;
        why.push(what);
    };
    if route.line.methods.is_connection() {
        add(16, "nobody sees what is sent");
    }
    if route.line.path.end == PathEnd::Rest {
        add(8, "any further path");
    }
    if route.line.methods.is_every() {
        add(4, "every method");
    }
    match &route.line.query {
        QueryPattern::Any => add(2, "any query"),
        QueryPattern::Listed(listed) if listed.others => add(2, "other parameters"),
        QueryPattern::Listed(_) | QueryPattern::None => {}
    }
    let any = route.line.path.segments.iter().filter(|segment| matches!(segment, Pattern::Any)).count();
    if any > 0 {
        add(u32::try_from(any).unwrap_or(u32::MAX), "any segment");
    }
    (points, why)
}
