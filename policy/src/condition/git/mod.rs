//! `git`: fetches and pushes over smart HTTP (gitprotocol-http), judged by their pkt-lines before anything goes on.
//!
//! What the lines of a push prove: which refs it creates, changes or deletes, and the size of its pack. What they do not
//! prove: whether a change is a fast-forward. Old and new object ids look the same either way, and only who has the history
//! can tell. So `update` lets a ref be moved anywhere, and says so; a rule without it lets refs be created only.

mod fetch;
mod pkt;
mod push;
mod refs;

use serde_json::{Value, json};

pub(crate) use refs::RefPattern;

use super::body::Facts;
use super::{Check, Head, Miss};
use crate::Reason;
use crate::draft::Effect;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GitOperation {
    Fetch,
    Push,
}

impl GitOperation {
    pub(crate) const ALL: [Self; 2] = [Self::Fetch, Self::Push];

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Fetch => "fetch",
            Self::Push => "push",
        }
    }

    pub(crate) fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|operation| operation.word() == word)
    }

    /// The service of the endpoints (gitprotocol-http).
    pub(super) const fn service(self) -> &'static str {
        match self {
            Self::Fetch => "git-upload-pack",
            Self::Push => "git-receive-pack",
        }
    }
}

/// What a push may do to a ref.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RefChange {
    Create,
    /// Also by force: the lines of a push do not tell.
    Update,
    Delete,
}

impl RefChange {
    pub(crate) const ALL: [Self; 3] = [Self::Create, Self::Update, Self::Delete];

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }

    pub(crate) fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|change| change.word() == word)
    }
}

#[derive(Debug, Clone)]
pub(crate) struct GitTest {
    pub(crate) operation: GitOperation,
    /// Refs that a push may name; empty for a fetch.
    pub(crate) refs: Vec<RefPattern>,
    /// What a push may do to them.
    pub(crate) changes: Vec<RefChange>,
    pub(crate) max_pack_bytes: Option<u64>,
}

/// Which endpoint of a repository a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Endpoint {
    /// `GET …/info/refs?service=…`
    Advertisement,
    /// `POST …/git-upload-pack`
    UploadPack,
    /// `POST …/git-receive-pack`
    ReceivePack,
}

fn endpoint(head: Head<'_>) -> Option<Endpoint> {
    let view = head.target.view();
    let last = view.len().checked_sub(1).and_then(|at| view.segment(at))?;
    let before = view.len().checked_sub(2).and_then(|at| view.segment(at));
    match (head.method, before, last) {
        ("GET", Some(b"info"), b"refs") => Some(Endpoint::Advertisement),
        ("POST", _, b"git-upload-pack") if head.target.query().is_none() => Some(Endpoint::UploadPack),
        ("POST", _, b"git-receive-pack") if head.target.query().is_none() => Some(Endpoint::ReceivePack),
        _ => None,
    }
}

impl GitTest {
    /// What the head says: whether the rule is about this endpoint, and whether its body is looked at.
    pub(crate) fn head(&self, effect: Effect, head: Head<'_>) -> Check {
        let fails = |detail: &'static str| Check::Fails(Miss::new(Reason::BodyNotGranted, detail));
        let Some(endpoint) = endpoint(head) else {
            return fails("the request is none of git's over smart HTTP");
        };
        match (endpoint, self.operation) {
            (Endpoint::Advertisement, operation) => {
                let service = format!("service={}", operation.service());
                if head.target.query() != Some(service.as_str()) {
                    return fails("the advertisement is for another service");
                }
                // A deny rule on refs or changes does not keep a guest from looking.
                if effect == Effect::Allow || self.is_whole() {
                    Check::Holds
                } else {
                    fails("an advertisement changes nothing")
                }
            }
            (Endpoint::UploadPack, GitOperation::Fetch) if effect == Effect::Deny => Check::Holds,
            (Endpoint::ReceivePack, GitOperation::Push) if effect == Effect::Deny && self.is_whole() => {
                Check::Holds
            }
            (Endpoint::UploadPack, GitOperation::Fetch) | (Endpoint::ReceivePack, GitOperation::Push) => {
                Check::NeedsBody
            }
            (Endpoint::UploadPack, GitOperation::Push) => fails("a fetch, where the rule is for pushes"),
            (Endpoint::ReceivePack, GitOperation::Fetch) => fails("a push, where the rule is for fetches"),
        }
    }

    /// Whether the rule is about every push or fetch.
    fn is_whole(&self) -> bool {
        self.refs.is_empty() && self.changes.is_empty()
    }

    /// Whether the beginning of a body is enough to judge it.
    pub(crate) fn is_enough(&self, bytes: &[u8]) -> bool {
        // Deletions have no pack behind them: only the end of the body shows that nothing else is.
        self.operation == GitOperation::Push
            && match push::read(bytes) {
                Ok(push) => push.has_pack(),
                Err(unreadable) => unreadable != push::Unreadable::Truncated,
            }
    }

    pub(crate) fn check(&self, effect: Effect, facts: &Facts, bytes: &[u8]) -> Check {
        if !facts.media_is_git(self.operation.service()) {
            let detail = format!("the content type of a {} says so", self.operation.word());
            return match effect {
                Effect::Allow => Check::Fails(Miss::new(Reason::ContentTypeNotGranted, detail)),
                Effect::Deny => Check::Unclear(Miss::new(Reason::InspectionMalformed, detail)),
            };
        }
        match self.operation {
            GitOperation::Fetch => match fetch::read(bytes) {
                Ok(()) => Check::Holds,
                Err(miss) => Check::Unclear(miss),
            },
            GitOperation::Push => self.check_push(effect, bytes),
        }
    }

    fn check_push(&self, effect: Effect, bytes: &[u8]) -> Check {
        let push = match push::read(bytes) {
            Ok(push) => push,
            Err(push::Unreadable::Truncated) => {
                return Check::Unclear(Miss::new(Reason::InspectionTruncated, "a push that ends too early"));
            }
            Err(push::Unreadable::Malformed(why)) => {
                return Check::Unclear(Miss::new(Reason::InspectionMalformed, why));
            }
        };
        let denied = |command: &push::Command<'_>| {
            (self.refs.is_empty() || self.refs.iter().any(|pattern| pattern.matches(effect, command.name)))
                && (self.changes.is_empty() || self.changes.contains(&command.change))
        };
        if effect == Effect::Deny {
            if push.commands.iter().any(denied) {
                return Check::Holds;
            }
            return Check::Fails(Miss::new(Reason::BodyNotGranted, "no ref is what is denied"));
        }
        for command in &push.commands {
            let shown = command.name.escape_ascii();
            if !self.changes.contains(&command.change) {
                let detail = format!("the push would {} `{shown}`", command.change.word());
                return Check::Fails(Miss::new(Reason::BodyNotGranted, detail));
            }
            if !self.refs.iter().any(|pattern| pattern.matches(effect, command.name)) {
                let detail = format!("the push names `{shown}`, which is none of the refs");
                return Check::Fails(Miss::new(Reason::BodyNotGranted, detail));
            }
        }
        Check::Holds
    }

    pub(crate) fn canonical(&self) -> Value {
        let mut refs: Vec<String> = self.refs.iter().map(ToString::to_string).collect();
        refs.sort_unstable();
        let mut changes: Vec<&str> = self.changes.iter().map(|change| change.word()).collect();
        changes.sort_unstable();
        json!({
            "operation": self.operation.word(), "refs": refs, "changes": changes,
            "max_pack_bytes": self.max_pack_bytes,
        })
    }
}

#[cfg(test)]
mod tests;
