//! The smallest grant that covers what was seen: records of the audit log come in, a policy file for review comes out.
//!
//! A segment becomes a type only where several values of that type were seen in its place; each such step stands in a
//! comment with its counts and examples. One value stays that value. Nothing here writes a file: what comes out is in force once
//! somebody has put it into the policy folder.

mod path;
mod query;
mod sketch;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use crate::import::text::comment;
use crate::import::{ImportError, Imported, Kind, Report};
use crate::replay::Record;
use crate::replay::decide::{CUT, is_decided_by_policy};
use crate::traffic::Traffic;
use crate::{Policy, Reason, SourceFile, Tier};
use path::{Key, Shape};
use query::Parameters;

/// What is learnt, and how it is called.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Whose requests are looked at.
    pub callers: Vec<String>,
    pub grant: String,
    /// Requests that were refused by rules are taken too.
    pub include_refused: bool,
    /// The folder that the file is for: its APIs are used, and the file is checked beside it. Empty: the file stands alone.
    pub beside: Vec<SourceFile>,
}

/// A grant in the making: feed it records, then ask for the file.
#[derive(Debug)]
pub struct Learner {
    options: Options,
    report: Report,
    places: BTreeMap<Place, BTreeMap<(String, Key), Seen>>,
    /// Origin → the API that the records name there. A refused request names none.
    apis: BTreeMap<String, String>,
    /// Run → its requests.
    calls: BTreeMap<String, u64>,
    tiers: BTreeSet<Option<Tier>>,
}

/// Everything that was seen, for the file.
#[derive(Debug)]
struct Learnt {
    options: Options,
    report: Report,
    /// (method, what was seen) by place.
    places: BTreeMap<Place, Vec<(String, Seen)>>,
    apis: BTreeMap<String, String>,
    calls: BTreeMap<String, u64>,
    tiers: BTreeSet<Option<Tier>>,
}

/// Where requests went.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    origin: String,
    websocket: bool,
    traffic: Traffic,
}

/// What was seen of one kind of request.
#[derive(Debug, Default)]
struct Seen {
    count: u64,
    refused: u64,
    approved: u64,
    runs: BTreeSet<String>,
    shape: Shape,
    parameters: Parameters,
}

impl Learner {
    pub fn new(options: Options) -> Self {
        Self {
            options,
            report: Report::default(),
            places: BTreeMap::new(),
            apis: BTreeMap::new(),
            calls: BTreeMap::new(),
            tiers: BTreeSet::new(),
        }
    }

    /// Looks at one record; those of other callers and those that are not wanted pass by.
    pub fn add(&mut self, record: &Record) {
        let origin = record.origin();
        if let Some(api) = &record.api {
            self.apis.entry(origin.clone()).or_insert_with(|| api.clone());
        }
        if !self.is_wanted(record) {
            return;
        }
        let target = if record.traffic.is_passed_on() { "/" } else { &record.target };
        let shape = if target.ends_with(CUT) { None } else { Shape::of(target) };
        let Some(shape) = shape else {
            let reason = "the record holds only the beginning of its target, or one without a canonical form";
            self.report.add(Kind::NotExpressed, subject(record), reason);
            return;
        };
        if let Some(run) = &record.run {
            *self.calls.entry(run.clone()).or_default() += 1;
        }
        self.tiers.insert(record.tier);
        let place = Place { origin, websocket: record.websocket, traffic: record.traffic };
        let kinds = self.places.entry(place).or_default();
        let seen = kinds.entry((record.method.clone(), shape.key()));
        seen.or_insert_with(|| Seen { shape: shape.clone(), ..Seen::default() }).add(record, &shape);
    }

    fn is_wanted(&self, record: &Record) -> bool {
        let by_rules =
            |reason: Reason| is_decided_by_policy(reason) && !matches!(reason, Reason::TargetNotCanonical);
        record.caller.as_ref().is_some_and(|caller| self.options.callers.contains(caller))
            && (record.permitted || (self.options.include_refused && record.reason.is_some_and(by_rules)))
    }

    /// The file.
    ///
    /// # Errors
    /// When nothing was seen, the folder beside has errors, or a name does not fit the language.
    pub fn finish(self) -> Result<Imported, ImportError> {
        let places = self.places.into_iter().map(|(place, kinds)| (place, joined(kinds))).collect();
        let beside = if self.options.beside.is_empty() {
            None
        } else {
            Some(Policy::load(&self.options.beside).map_err(ImportError::Refused)?.policy)
        };
        let learnt = Learnt {
            report: self.report,
            places,
            apis: self.apis,
            calls: self.calls,
            tiers: self.tiers,
            options: self.options,
        };
        sketch::write(&learnt, beside.as_ref())
    }
}

fn subject(record: &Record) -> String {
    comment(&format!("{} {}{}", record.method, record.host, record.target))
}

impl Seen {
    fn add(&mut self, record: &Record, shape: &Shape) {
        self.count += 1;
        self.refused += u64::from(!record.permitted);
        self.approved += u64::from(record.approved);
        self.runs.extend(record.run.clone());
        self.shape.add(shape);
        let query = record.target.split_once('?').map_or("", |(_, query)| query);
        self.parameters.add(query);
    }

    fn join(&mut self, other: Self) {
        self.count += other.count;
        self.refused += other.refused;
        self.approved += other.approved;
        self.runs.extend(other.runs);
        self.shape.add(&other.shape);
        self.parameters.join(other.parameters);
    }
}

/// Kinds of requests with the names that people gave as types; those that became the same are one.
fn joined(kinds: BTreeMap<(String, Key), Seen>) -> Vec<(String, Seen)> {
    let mut kinds: Vec<(String, Seen)> =
        kinds.into_iter().map(|((method, _), seen)| (method, seen)).collect();
    let mut paths: Vec<(&str, &mut Shape)> =
        kinds.iter_mut().map(|(method, seen)| (method.as_str(), &mut seen.shape)).collect();
    path::merge_names(&mut paths);
    let mut out: BTreeMap<(String, Key), Seen> = BTreeMap::new();
    for (method, seen) in kinds {
        match out.entry((method, seen.shape.key())) {
            Entry::Occupied(mut known) => known.get_mut().join(seen),
            Entry::Vacant(vacant) => {
                vacant.insert(seen);
            }
        }
    }
    out.into_iter().map(|((method, _), seen)| (method, seen)).collect()
}
