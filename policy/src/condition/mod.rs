//! What a rule demands of a request beside its route line: headers, media types, and what the body says.
//!
//! `Terms` belong to one rule and hold for all of its routes. An allow rule is read narrowly (every condition is proven),
//! a deny rule widely (every reading that may be meant is denied). What needs only the head is answered at once; the rest
//! is answered by [`pending`](crate::PendingBody) once the body is held.

mod body;
pub(crate) mod coding;
mod exclusive;
pub(crate) mod fields;
pub(crate) mod git;
pub(crate) mod graphql;
pub(crate) mod grpc;
pub(crate) mod json;
pub(crate) mod mcp;
pub(crate) mod media;
pub(crate) mod pending;
pub(crate) mod sample;
mod within;

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::draft::Effect;
use crate::limits::INSPECT_BYTES_DEFAULT;
use crate::{Approval, Reason, RequestQuestion, Target};
pub(crate) use body::{BodyTests, Facts, Inspection};
use fields::{HeaderFields, HeaderTest};
use grpc::GrpcTest;
use media::MediaRange;

/// Everything that a rule says beside its API and routes. A rule that says nothing more has no `Terms` at all.
#[derive(Debug, Default)]
pub(crate) struct Terms {
    /// Sorted by name, each once.
    pub(crate) headers: Vec<HeaderTest>,
    /// One of these; empty: any.
    pub(crate) content_type: Vec<MediaRange>,
    pub(crate) body: BodyTests,
    pub(crate) grpc: Option<GrpcTest>,
    /// One of these; empty: any.
    pub(crate) response_content_type: Vec<MediaRange>,
    /// Requests of one run by each route of the rule.
    pub(crate) calls: Option<u64>,
    /// A person must say yes.
    pub(crate) approve: Option<Approval>,
    /// Bytes of a body that are held; `None` = `INSPECT_BYTES_DEFAULT`.
    pub(crate) inspect_bytes: Option<u64>,
}

/// The head of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head<'a> {
    pub(crate) method: &'a str,
    pub(crate) target: &'a Target,
    pub(crate) fields: &'a dyn HeaderFields,
}

impl<'a> Head<'a> {
    pub(crate) fn of(question: &RequestQuestion<'a>) -> Self {
        Self { method: question.method, target: question.target, fields: question.fields }
    }

    fn is_get(self) -> bool {
        matches!(self.method, "GET" | "HEAD")
    }
}

/// The answer of one condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Check {
    Holds,
    /// The rule is not about this request.
    Fails(Miss),
    /// Nobody can tell: the body has no reading that everybody shares.
    Unclear(Miss),
    /// The body decides.
    NeedsBody,
}

/// Why a condition does not hold: a stable reason, and the fact in words for the record and for `explain`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Miss {
    pub(crate) reason: Reason,
    pub(crate) detail: Cow<'static, str>,
}

impl Miss {
    pub(crate) fn new(reason: Reason, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { reason, detail: detail.into() }
    }
}

impl Terms {
    /// What the head alone says.
    pub(crate) fn head(&self, effect: Effect, head: Head<'_>) -> Check {
        for test in &self.headers {
            if let Some(detail) = test.miss(effect, head.fields) {
                return Check::Fails(Miss::new(Reason::HeaderNotGranted, detail));
            }
        }
        if let Some(detail) = media::miss(&self.content_type, effect, head.fields) {
            return Check::Fails(Miss::new(Reason::ContentTypeNotGranted, detail));
        }
        if let Some(grpc) = &self.grpc
            && let Some(detail) = grpc.miss(effect, head.method, head.target, head.fields)
        {
            return Check::Fails(Miss::new(Reason::BodyNotGranted, detail));
        }
        if let Some(git) = &self.body.git {
            return git.head(effect, head);
        }
        if self.body.is_empty() {
            return Check::Holds;
        }
        if self.content_type.is_empty()
            && effect == Effect::Allow
            && let Some(detail) = self.body.media_miss(head)
        {
            return Check::Fails(Miss::new(Reason::ContentTypeNotGranted, detail));
        }
        Check::NeedsBody
    }

    /// What the body says, after `head` said that it decides.
    pub(crate) fn body(&self, effect: Effect, inspection: &Inspection<'_>) -> Check {
        if inspection.len() > self.inspect_limit() {
            let detail = format!("more than {} bytes", self.inspect_limit());
            return Check::Unclear(Miss::new(Reason::InspectionTooLarge, detail));
        }
        self.body.check(effect, inspection)
    }

    pub(crate) fn inspect_limit(&self) -> u64 {
        self.inspect_bytes.unwrap_or(INSPECT_BYTES_DEFAULT)
    }

    /// Whether the terms narrow which requests the rule is about.
    pub(crate) fn narrows(&self) -> bool {
        !self.headers.is_empty()
            || !self.content_type.is_empty()
            || !self.body.is_empty()
            || self.grpc.is_some()
    }

    /// The one spelling of what the terms mean.
    pub(crate) fn canonical(&self) -> Value {
        let mut form = serde_json::Map::new();
        let mut put = |name: &str, value: Value| form.insert(name.to_owned(), value);
        if !self.headers.is_empty() {
            let tests = self.headers.iter().map(|test| (test.name.to_string(), test.canonical()));
            put("headers", Value::Object(tests.collect()));
        }
        for (name, ranges) in
            [("content_type", &self.content_type), ("response_content_type", &self.response_content_type)]
        {
            if !ranges.is_empty() {
                let mut texts: Vec<String> = ranges.iter().map(ToString::to_string).collect();
                texts.sort_unstable();
                put(name, json!(texts));
            }
        }
        for (name, number) in [("calls", self.calls), ("inspect_bytes", self.inspect_bytes)] {
            if let Some(number) = number {
                put(name, json!(number));
            }
        }
        if let Some(approval) = &self.approve {
            put("approve", json!({ "by": approval.by, "timeout_seconds": approval.timeout_seconds }));
        }
        if let Some(grpc) = &self.grpc {
            put("grpc", grpc.canonical());
        }
        self.body.canonical(&mut put);
        Value::Object(form)
    }
}

/// Whether two rules say the same beside their routes.
pub(crate) fn same(one: Option<&Arc<Terms>>, other: Option<&Arc<Terms>>) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => Arc::ptr_eq(one, other) || one.canonical() == other.canonical(),
        _ => false,
    }
}

/// Whether every request that terms `second` take is taken by terms `first` too, as far as that is plain.
pub(crate) fn covers(first: Option<&Arc<Terms>>, second: Option<&Arc<Terms>>) -> bool {
    first.is_none_or(|first| !first.narrows()) || same(first, second)
}
