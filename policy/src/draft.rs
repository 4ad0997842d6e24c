//! The definitions of a policy as read, each with its places: what the checks look at and the compiler takes.

use std::collections::HashSet;
use std::sync::Arc;

use crate::RuleId;
use crate::condition::Terms;
use crate::diagnostic::{Code, Diagnostic, Place};
use crate::model::{ApiView, CredentialView, GrantView};
use crate::origin::Origin;
use crate::route::RouteLine;

/// A value and where it stands.
#[derive(Debug, Clone)]
pub(crate) struct At<T> {
    pub(crate) value: T,
    pub(crate) place: Place,
}

/// Everything that the files of one folder define.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    pub(crate) credentials: Vec<DraftCredential>,
    pub(crate) apis: Vec<DraftApi>,
    pub(crate) grants: Vec<DraftGrant>,
    pub(crate) groups: Vec<DraftGroup>,
    /// `[defaults]` of each file that has it.
    pub(crate) defaults: Vec<At<GrantDefaults>>,
    /// Names that were tried to define, also where the definition is broken: a reference to one is no second problem.
    pub(crate) broken: Vec<(Kind, String)>,
    /// Some file could not be read at all: what is missing may be defined there.
    pub(crate) incomplete: bool,
    pub(crate) diagnostics: Vec<Diagnostic>,
    /// Warnings that may stay.
    pub(crate) allowances: Vec<DraftAllowance>,
    pub(crate) routes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Credential,
    Api,
    Grant,
    Group,
}

impl Kind {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Credential => "credential",
            Self::Api => "api",
            Self::Grant => "grant",
            Self::Group => "group",
        }
    }

    pub(crate) const fn with_article(self) -> &'static str {
        match self {
            Self::Credential => "a credential",
            Self::Api => "an API",
            Self::Grant => "a grant",
            Self::Group => "a group of callers",
        }
    }
}

#[derive(Debug)]
pub(crate) struct DraftCredential {
    pub(crate) name: At<Arc<str>>,
    pub(crate) view: CredentialView,
}

#[derive(Debug)]
pub(crate) struct DraftApi {
    pub(crate) name: At<Arc<str>>,
    pub(crate) origins: Vec<At<Origin>>,
    pub(crate) alias: Option<At<crate::Host>>,
    pub(crate) credential: Option<At<Arc<str>>>,
    pub(crate) view: ApiView,
}

/// `[[allow_warning]]`
#[derive(Debug)]
pub(crate) struct DraftAllowance {
    pub(crate) code: Code,
    /// Lines of the definition that it is about; `None` = every line of its file.
    pub(crate) lines: Option<HashSet<u32>>,
    pub(crate) reason: Arc<str>,
    pub(crate) place: Place,
}

/// `[group.NAME]`
#[derive(Debug)]
pub(crate) struct DraftGroup {
    pub(crate) name: At<Arc<str>>,
    pub(crate) callers: Vec<Arc<str>>,
}

/// What a grant can say once for others.
#[derive(Debug, Clone, Default)]
pub(crate) struct GrantDefaults {
    pub(crate) floor: Option<crate::Tier>,
    pub(crate) ttl_seconds: Option<u64>,
    pub(crate) budget: Budget,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Budget {
    pub(crate) calls: Option<u64>,
    pub(crate) per_minute: Option<u64>,
    pub(crate) caller_per_minute: Option<u64>,
    pub(crate) concurrent: Option<u64>,
    pub(crate) request_bytes: Option<u64>,
    pub(crate) response_bytes: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct DraftGrant {
    pub(crate) name: At<Arc<str>>,
    pub(crate) callers: Vec<Arc<str>>,
    /// Groups whose callers are callers too.
    pub(crate) groups: Vec<At<Arc<str>>>,
    /// The grant whose rules and settings this one has too.
    pub(crate) extends: Option<At<Arc<str>>>,
    pub(crate) view: GrantView,
    pub(crate) rules: Vec<DraftRule>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Effect {
    Allow,
    Deny,
}

impl Effect {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}

/// One `[[grant.NAME.allow]]` or `[[grant.NAME.deny]]`.
#[derive(Debug, Clone)]
pub(crate) struct DraftRule {
    pub(crate) effect: Effect,
    pub(crate) api: At<Arc<str>>,
    pub(crate) websocket: bool,
    /// What the rule says beside its routes; `None` for nothing.
    pub(crate) terms: Option<Arc<Terms>>,
    /// None where the rule is about connections, until the checks have put `RouteLine::connection` there.
    pub(crate) routes: Vec<DraftRoute>,
    /// Routes stand there, and none could be read.
    pub(crate) lost_routes: bool,
    /// `GRANT.allow[0]`
    pub(crate) id: Arc<str>,
    /// Where the rule begins.
    pub(crate) place: Place,
}

#[derive(Debug, Clone)]
pub(crate) struct DraftRoute {
    pub(crate) id: RuleId,
    pub(crate) line: RouteLine,
    pub(crate) place: Place,
}
