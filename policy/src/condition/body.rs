//! What a rule demands of a body, and a body that is held for it.

use std::cell::OnceCell;

use serde_json::Value;

use super::git::{GitOperation, GitTest};
use super::graphql::GraphqlTest;
use super::json::value::{self, Json};
use super::json::{self, JsonTest};
use super::mcp::McpTest;
use super::media::Media;
use super::{Check, Head, Miss};
use crate::Reason;
use crate::draft::Effect;

/// The conditions of one rule that only the body can answer.
#[derive(Debug, Default)]
pub(crate) struct BodyTests {
    /// Sorted by pointer, each once.
    pub(crate) json: Vec<JsonTest>,
    pub(crate) graphql: Option<GraphqlTest>,
    pub(crate) mcp: Option<McpTest>,
    pub(crate) git: Option<GitTest>,
}

/// What the head says that a body is read by.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    /// GET or HEAD: what would be in a body is in the query.
    pub(crate) get: bool,
    pub(crate) query: Option<Box<str>>,
    pub(crate) media: Option<Media>,
}

impl Facts {
    /// The content type of a request to one of git's services.
    pub(crate) fn media_is_git(&self, service: &str) -> bool {
        self.media.as_ref().is_some_and(|media| media.is("application", &format!("x-{service}-request")))
    }

    pub(crate) fn of(head: Head<'_>) -> Self {
        Self { get: head.is_get(), query: head.target.query().map(Box::from), media: Media::of(head.fields) }
    }
}

/// One body, read at most once however many rules look at it.
#[derive(Debug)]
pub(crate) struct Inspection<'a> {
    facts: &'a Facts,
    /// Decoded; `Err` says why there is nothing to look at.
    bytes: Result<&'a [u8], Miss>,
    /// More follows.
    beginning: bool,
    json: OnceCell<Result<Json<'a>, Miss>>,
}

impl<'a> Inspection<'a> {
    pub(crate) fn new(facts: &'a Facts, bytes: Result<&'a [u8], Miss>) -> Self {
        Self { facts, bytes, beginning: false, json: OnceCell::new() }
    }

    /// Of a body whose beginning alone is held.
    pub(crate) fn of_beginning(facts: &'a Facts, bytes: Result<&'a [u8], Miss>) -> Self {
        Self { beginning: true, ..Self::new(facts, bytes) }
    }

    pub(crate) fn facts(&self) -> &'a Facts {
        self.facts
    }

    /// The body as text.
    pub(crate) fn text(&self) -> Result<&'a str, Miss> {
        let bytes = self.bytes.clone()?;
        std::str::from_utf8(bytes)
            .map_err(|_| Miss::new(Reason::InspectionMalformed, "the body is not UTF-8"))
    }

    pub(crate) fn len(&self) -> u64 {
        self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)
    }

    pub(crate) fn json(&self) -> Result<&Json<'a>, Miss> {
        let parsed = self.json.get_or_init(|| self.bytes.clone().and_then(value::parse));
        parsed.as_ref().map_err(Clone::clone)
    }
}

impl BodyTests {
    pub(crate) fn is_empty(&self) -> bool {
        self.json.is_empty() && self.graphql.is_none() && self.mcp.is_none() && self.git.is_none()
    }

    /// Why the content type does not go with the tests, where the rule itself demands none: a body that one reader takes
    /// for JSON must not be a form to another.
    pub(crate) fn media_miss(&self, head: Head<'_>) -> Option<&'static str> {
        let media = Media::of(head.fields);
        let is = |kind, subtype| media.as_ref().is_some_and(|media| media.is(kind, subtype));
        let json = media.as_ref().is_some_and(Media::is_json);
        let graphql = self.graphql.is_some() && (head.is_get() || is("application", "graphql"));
        let fits = json || (graphql && self.json.is_empty());
        (!fits).then_some("the body of this rule is JSON in UTF-8, and the content type must say so")
    }

    /// All tests must hold; one that plainly does not settles it.
    pub(crate) fn check(&self, effect: Effect, inspection: &Inspection<'_>) -> Check {
        if let Some(git) = &self.git {
            return match &inspection.bytes {
                Ok(bytes) if inspection.beginning && !git.is_enough(bytes) => {
                    Check::Unclear(Miss::new(Reason::InspectionTruncated, "a push that ends too early"))
                }
                Ok(bytes) => git.check(effect, inspection.facts, bytes),
                Err(miss) => Check::Unclear(miss.clone()),
            };
        }
        if inspection.beginning {
            return Check::Unclear(Miss::new(Reason::Internal, "only the beginning of the body is held"));
        }
        let json = (!self.json.is_empty()).then(|| match inspection.json() {
            Ok(document) => json::check(&self.json, effect, document),
            Err(miss) => Check::Unclear(miss),
        });
        let graphql = self.graphql.as_ref().map(|test| test.check(effect, inspection));
        let mcp = self.mcp.as_ref().map(|test| test.check(effect, inspection));
        let mut result = Check::Holds;
        for check in [json, graphql, mcp].into_iter().flatten() {
            match (&result, &check) {
                (_, Check::Fails(_)) => return check,
                (Check::Holds, _) => result = check,
                _ => {}
            }
        }
        result
    }

    /// Whether the beginning of a body is enough to judge it.
    pub(crate) fn is_enough(&self, bytes: &[u8]) -> bool {
        self.git.as_ref().is_some_and(|git| git.is_enough(bytes))
    }

    /// Whether the rest of a large body need not be held.
    pub(crate) fn judges_beginnings(&self) -> bool {
        self.git.as_ref().is_some_and(|git| git.operation == GitOperation::Push)
    }

    pub(crate) fn canonical(&self, put: &mut dyn FnMut(&str, Value) -> Option<Value>) {
        if !self.json.is_empty() {
            let tests = self.json.iter().map(|test| (test.pointer.to_string(), test.canonical()));
            put("json", Value::Object(tests.collect()));
        }
        if let Some(test) = &self.graphql {
            put("graphql", test.canonical());
        }
        if let Some(test) = &self.mcp {
            put("mcp", test.canonical());
        }
        if let Some(test) = &self.git {
            put("git", test.canonical());
        }
    }
}
