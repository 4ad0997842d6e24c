//! What a change of policy means: two policies come in; who may newly send what, who no longer, and what else changes for
//! requests that stay allowed, comes out, each with a shortest request that both policies were asked about.
//!
//! Decided on the languages of the rules (`automata`), not on their text: a rule that is written in another way, moved or
//! made redundant is no difference. No difference in what is allowed is missed: what cannot be decided is listed as such
//! and counts as wider.
//!
//! Grants are compared by name, one caller at a time, as a run with that grant alone sees them (`rules`); deny rules also
//! as runs see them that name a second grant (`together`). More grants in one run show nothing that two do not.

mod attributes;
mod bounds;
mod confirm;
mod grants;
mod order;
mod render;
mod rules;
mod together;

use std::sync::Arc;

use serde::Serialize;

pub use confirm::{Asked, Said};

use crate::Policy;
use crate::explain::RuleView;

/// Every difference between two policies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diff {
    pub old_digest: Arc<str>,
    pub new_digest: Arc<str>,
    pub verdict: Verdict,
    /// Ordered by risk.
    pub changes: Vec<Change>,
}

/// The whole in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Nothing differs for any caller.
    Same,
    /// Something is taken away, nothing is added.
    Narrower,
    /// Something is newly allowed, or may be.
    Wider,
}

impl Verdict {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Narrower => "narrower",
            Self::Wider => "wider",
        }
    }
}

/// What kind of difference it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Requests are allowed that were refused.
    Allowed,
    /// Requests are refused that were allowed.
    Refused,
    /// Another credential, or another definition of it, is attached.
    Credential,
    /// A person must say yes, need not any more, or other people may.
    Approval,
    /// A rule demands something else beside its route. Counts as wider unless it is plain that it is not.
    Condition,
    /// Requests to one name go to another upstream.
    Destination,
    /// Other private addresses may be dialled.
    Addresses,
    /// Other certificates of the upstream are trusted.
    Trust,
    /// The tier that runs must have.
    Floor,
    /// What runs may use up, of the grant or of the API.
    Budget,
    /// When the grant works, and how long one run of it lasts.
    Time,
    /// Whether calls of a session may use the grant.
    Sessions,
}

impl Kind {
    pub const fn words(self) -> &'static str {
        match self {
            Self::Allowed => "newly allowed",
            Self::Refused => "newly refused",
            Self::Credential => "credential changed",
            Self::Approval => "approval changed",
            Self::Condition => "condition changed",
            Self::Destination => "destination changed",
            Self::Addresses => "addresses changed",
            Self::Trust => "trust changed",
            Self::Floor => "floor changed",
            Self::Budget => "budget changed",
            Self::Time => "time changed",
            Self::Sessions => "sessions changed",
        }
    }
}

/// Which way a difference goes. What cannot be shown to be narrower is wider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    Wider,
    Narrower,
}

/// Why a reviewer should look twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Risk {
    /// Methods other than GET, HEAD and OPTIONS.
    Writes,
    /// A host that the grant did not reach before.
    NewHost,
    /// An API with addresses that are not public.
    PrivateAddresses,
    /// Runs behind a weaker boundary.
    WeakerFloor,
    /// Every authenticated caller.
    EveryCaller,
    /// Any further path (`**`).
    AnyPath,
}

impl Risk {
    pub const fn words(self) -> &'static str {
        match self {
            Self::Writes => "changes things",
            Self::NewHost => "a new host",
            Self::PrivateAddresses => "private addresses",
            Self::WeakerFloor => "a weaker boundary",
            Self::EveryCaller => "every caller",
            Self::AnyPath => "any further path",
        }
    }
}

/// One difference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    pub kind: Kind,
    pub direction: Direction,
    pub grant: Arc<str>,
    /// Shows only in runs that name this grant too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub with: Option<Arc<str>>,
    /// Whom it concerns; `*` = every caller that is not named.
    pub callers: Vec<Arc<str>>,
    /// What was done, in a few words.
    pub what: String,
    /// The rules that make the difference: of the new policy where something is added, of the old one otherwise.
    pub rules: Vec<RuleView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// A shortest request that shows it, as both policies answered it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub witness: Option<Asked>,
    /// Fields or a body decide whether such a request is allowed; the one that is shown has neither.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub conditional: bool,
    /// The rules are too intricate to decide; taken for the worse.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub undecided: bool,
    pub risks: Vec<Risk>,
}

impl Diff {
    /// Compares two policies.
    pub fn between(old: &Policy, new: &Policy) -> Self {
        let mut changes = grants::compare(old, new);
        order::by_risk(&mut changes);
        let wider = changes.iter().any(|change| change.direction == Direction::Wider);
        let verdict = match (changes.is_empty(), wider) {
            (true, _) => Verdict::Same,
            (false, true) => Verdict::Wider,
            (false, false) => Verdict::Narrower,
        };
        Self { old_digest: Arc::clone(old.digest()), new_digest: Arc::clone(new.digest()), verdict, changes }
    }
}
