//! Whether one allow rule's conditions take every request that another's take, as far as that is plain. Yes is a proof; no is
//! not.

use super::Terms;
use super::body::BodyTests;
use super::fields::{HeaderTest, HeaderWant};
use super::git::GitTest;
use super::graphql::GraphqlTest;
use super::grpc::GrpcTest;
use super::json::value::Number;
use super::json::{JsonTest, Kind};
use super::mcp::{McpTest, names};
use super::media::MediaRange;
use crate::draft::Effect;
use crate::route::compare::{Reading, pattern_covers};
use crate::route::pattern::Pattern;

impl Terms {
    /// Whether `other` takes every request that these take.
    pub(crate) fn within(&self, other: &Self) -> bool {
        every(&other.headers, &self.headers, header_within)
            && self.media_within(other)
            && option(self.grpc.as_ref(), other.grpc.as_ref(), grpc_within)
            && (other.body.is_empty()
                || (self.inspect_limit() <= other.inspect_limit() && body_within(&self.body, &other.body)))
    }

    fn media_within(&self, other: &Self) -> bool {
        if !other.content_type.is_empty() {
            let within = |one: &MediaRange| other.content_type.iter().any(|range| range.covers(one));
            return !self.content_type.is_empty() && self.content_type.iter().all(within);
        }
        // A rule that looks at a body demands the type that goes with it, unless it names types itself.
        other.body.is_empty() || other.body.git.is_some() || self.content_type.is_empty()
    }
}

/// Whether each that is wanted follows from one that is there.
fn every<T>(wanted: &[T], there: &[T], within: impl Fn(&T, &T) -> bool) -> bool {
    wanted.iter().all(|want| there.iter().any(|have| within(have, want)))
}

fn option<T>(have: Option<&T>, want: Option<&T>, within: impl Fn(&T, &T) -> bool) -> bool {
    want.is_none_or(|want| have.is_some_and(|have| within(have, want)))
}

fn subset<T: PartialEq>(some: &[T], all: &[T]) -> bool {
    some.iter().all(|one| all.contains(one))
}

/// Where an empty list takes everything.
fn listed<T: PartialEq>(have: &[T], want: &[T]) -> bool {
    want.is_empty() || (!have.is_empty() && subset(have, want))
}

fn at_most(have: Option<u64>, want: Option<u64>) -> bool {
    want.is_none_or(|want| have.is_some_and(|have| have <= want))
}

/// `pattern_covers` is for texts that are not empty; values of headers and of JSON may be.
fn pattern_within(have: &Pattern, want: &Pattern) -> bool {
    pattern_covers(want, have, Reading::Allow) && (want.matches(b"") || !have.matches(b""))
}

fn header_within(have: &HeaderTest, want: &HeaderTest) -> bool {
    have.name == want.name
        && match (&have.want, &want.want) {
            (HeaderWant::Absent, HeaderWant::Absent) => true,
            (HeaderWant::Absent, HeaderWant::Value { optional, .. }) => *optional,
            (HeaderWant::Value { .. }, HeaderWant::Absent) => false,
            (
                HeaderWant::Value { pattern: a, optional: x },
                HeaderWant::Value { pattern: b, optional: y },
            ) => (!x || *y) && pattern_within(a, b),
        }
}

fn body_within(have: &BodyTests, want: &BodyTests) -> bool {
    // Where there is a test for git no other one is asked.
    if have.git.is_some() || want.git.is_some() {
        return option(have.git.as_ref(), want.git.as_ref(), git_within) && want.git.is_some();
    }
    every(&want.json, &have.json, json_within)
        && have.graphql.is_some() == want.graphql.is_some()
        && option(have.graphql.as_ref(), want.graphql.as_ref(), graphql_within)
        && option(have.mcp.as_ref(), want.mcp.as_ref(), mcp_within)
}

fn git_within(have: &GitTest, want: &GitTest) -> bool {
    have.operation == want.operation
        && subset(&have.refs, &want.refs)
        && subset(&have.changes, &want.changes)
        && at_most(have.max_pack_bytes, want.max_pack_bytes)
}

fn grpc_within(have: &GrpcTest, want: &GrpcTest) -> bool {
    have.methods.iter().all(|method| want.methods.iter().any(|known| known.covers(method)))
        && at_most(have.max_message_bytes, want.max_message_bytes)
}

fn graphql_within(have: &GraphqlTest, want: &GraphqlTest) -> bool {
    subset(&have.operations, &want.operations)
        && listed(&have.fields, &want.fields)
        && listed(&have.names, &want.names)
}

fn mcp_within(have: &McpTest, want: &McpTest) -> bool {
    // The shortest text that `a/*` stands for begins what every other one begins with.
    let named = |method: &str| want.methods.iter().any(|known| **known == *method || names(known, method));
    have.methods.iter().all(|method| named(method))
        && listed(&have.tools, &want.tools)
        && every(&want.arguments, &have.arguments, json_within)
        && (!have.responses || want.responses)
}

fn json_within(have: &JsonTest, want: &JsonTest) -> bool {
    let (h, w) = (&have.want, &want.want);
    if have.pointer != want.pointer || (h.optional && !w.optional && !w.absent) {
        return false;
    }
    if h.absent || w.absent {
        return h.absent && (w.absent || w.optional);
    }
    if !h.one_of.is_empty() {
        return h.one_of.iter().all(|value| w.miss(Effect::Allow, &value.json()).is_none());
    }
    let kind = |want: Kind| h.kind == Some(want) || (want, h.kind) == (Kind::Number, Some(Kind::Integer));
    let bound = |have: Option<Number>, want: Option<Number>, within: fn(Number, Number) -> bool| {
        want.is_none_or(|want| have.is_some_and(|have| within(have, want)))
    };
    w.kind.is_none_or(kind)
        && w.one_of.is_empty()
        && option(h.pattern.as_ref(), w.pattern.as_ref(), pattern_within)
        && bound(h.min, w.min, Number::at_least)
        && bound(h.max, w.max, |have, want| want.at_least(have))
        && at_most(h.max_length, w.max_length)
        && at_most(h.max_items, w.max_items)
        && listed(&h.members, &w.members)
}
