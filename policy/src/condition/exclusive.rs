//! Whether no request can meet the conditions of two allow rules, as far as that is plain. Yes is a proof; no is not.

use super::Terms;
use super::fields::{HeaderTest, HeaderWant};
use super::graphql::GraphqlTest;
use super::grpc::GrpcMethod;
use super::json::value::Number;
use super::json::{JsonTest, Kind};
use super::mcp::{CALL, McpTest, names};
use super::media::MediaRange;
use crate::route::compare::{Reading, pattern_meets};

impl Terms {
    pub(crate) fn excludes(&self, other: &Self) -> bool {
        pairs(&self.headers, &other.headers, headers_exclude)
            || (!self.content_type.is_empty()
                && !other.content_type.is_empty()
                && !pairs(&self.content_type, &other.content_type, MediaRange::meets))
            || pairs(&self.body.json, &other.body.json, json_excludes)
            || both(self.body.graphql.as_ref(), other.body.graphql.as_ref(), graphql_excludes)
            || both(self.body.mcp.as_ref(), other.body.mcp.as_ref(), mcp_excludes)
            || both(self.grpc.as_ref(), other.grpc.as_ref(), |one, other| {
                !pairs(&one.methods, &other.methods, GrpcMethod::meets)
            })
    }
}

/// Whether some pair is so.
fn pairs<T>(ones: &[T], others: &[T], is: impl Fn(&T, &T) -> bool) -> bool {
    ones.iter().any(|one| others.iter().any(|other| is(one, other)))
}

fn both<T>(one: Option<&T>, other: Option<&T>, is: impl Fn(&T, &T) -> bool) -> bool {
    one.zip(other).is_some_and(|(one, other)| is(one, other))
}

fn headers_exclude(one: &HeaderTest, other: &HeaderTest) -> bool {
    if one.name != other.name {
        return false;
    }
    match (&one.want, &other.want) {
        (HeaderWant::Absent, HeaderWant::Value { optional, .. })
        | (HeaderWant::Value { optional, .. }, HeaderWant::Absent) => !optional,
        (HeaderWant::Value { pattern: a, optional: x }, HeaderWant::Value { pattern: b, optional: y }) => {
            !(*x && *y || pattern_meets(a, b, Reading::Allow))
        }
        (HeaderWant::Absent, HeaderWant::Absent) => false,
    }
}

fn json_excludes(one: &JsonTest, other: &JsonTest) -> bool {
    let (a, b) = (&one.want, &other.want);
    if one.pointer != other.pointer || one.pointer.has_each() || (a.optional && b.optional) {
        return false;
    }
    if a.absent || b.absent {
        return a.absent != b.absent && !(a.optional || b.optional);
    }
    let numbers = |kind: Kind| matches!(kind, Kind::Integer | Kind::Number);
    let kinds = both(a.kind.as_ref(), b.kind.as_ref(), |a, b| a != b && !(numbers(*a) && numbers(*b)));
    let values = !a.one_of.is_empty() && !b.one_of.is_empty() && !pairs(&a.one_of, &b.one_of, |a, b| a == b);
    let above = |low: Option<Number>, high: Option<Number>| {
        low.zip(high).is_some_and(|(low, high)| !high.at_least(low))
    };
    kinds || values || above(a.min, b.max) || above(b.min, a.max)
}

fn apart(ones: &[Box<str>], others: &[Box<str>]) -> bool {
    !ones.is_empty() && !others.is_empty() && !pairs(ones, others, |one, other| one == other)
}

/// A document has an operation, and an operation a field.
fn graphql_excludes(one: &GraphqlTest, other: &GraphqlTest) -> bool {
    !pairs(&one.operations, &other.operations, |one, other| one == other)
        || apart(&one.fields, &other.fields)
        || apart(&one.names, &other.names)
}

/// A body has a message.
fn mcp_excludes(one: &McpTest, other: &McpTest) -> bool {
    if one.responses && other.responses {
        return false;
    }
    let shared: Vec<&str> = one
        .methods
        .iter()
        .chain(&other.methods)
        .map(|method| &**method)
        .filter(|method| {
            let in_all =
                |test: &McpTest| test.methods.iter().any(|known| **known == **method || names(known, method));
            in_all(one) && in_all(other)
        })
        .collect();
    shared.is_empty() || (shared.iter().all(|method| *method == CALL) && apart(&one.tools, &other.tools))
}

#[cfg(test)]
mod tests {
    use crate::{Code, Policy, Severity, SourceFile};

    /// Whether two rules with these conditions on one route are taken for ambiguous.
    fn ambiguous(one: &str, other: &str) -> bool {
        let text = format!(
            "[api.a]\norigins = [\"https://a.test\"]\n[grant.g]\ncallers = [\"x\"]\n\
             [[grant.g.allow]]\napi = \"a\"\nroutes = [\"POST /a\"]\n{one}\n\
             [[grant.g.allow]]\napi = \"a\"\nroutes = [\"POST /{{x}}\"]\n{other}\n"
        );
        match Policy::load(&[SourceFile::new("p.toml", text)]) {
            Ok(_) => false,
            Err(problems) => {
                let mut errors = problems.iter().filter(|problem| problem.severity == Severity::Error);
                assert!(errors.all(|problem| problem.code == Code::AmbiguousRule), "{problems:?}");
                true
            }
        }
    }

    #[test]
    fn rules_that_cannot_both_hold_are_not_ambiguous() {
        for (one, other, expected) in [
            ("headers = { x = \"a\" }", "headers = { x = \"b\" }", false),
            ("headers = { x = \"a\" }", "headers = { x = [\"a\", \"b\"] }", true),
            ("headers = { x = \"a\" }", "headers = { x = { absent = true } }", false),
            ("headers = { x = \"a\" }", "headers = { y = \"b\" }", true),
            ("headers = { x = \"a\" }", "", true),
            ("content_type = \"text/plain\"", "content_type = \"text/*\"", true),
            ("content_type = \"text/plain\"", "content_type = \"image/*\"", false),
            ("json = { \"/a\" = 1 }", "json = { \"/a\" = [2, 3] }", false),
            ("json = { \"/a\" = 1 }", "json = { \"/b\" = 1 }", true),
            ("json = { \"/a\" = { max = 3 } }", "json = { \"/a\" = { min = 4 } }", false),
            ("json = { \"/a\" = { max = 4 } }", "json = { \"/a\" = { min = 4 } }", true),
            ("json = { \"/a\" = { type = \"string\" } }", "json = { \"/a\" = { absent = true } }", false),
            ("graphql = { operations = [\"query\"] }", "graphql = { operations = [\"mutation\"] }", false),
            (
                "graphql = { operations = [\"query\"] }",
                "graphql = { operations = [\"query\"], fields = [\"a\"] }",
                true,
            ),
            (
                "mcp = { methods = [\"tools/call\"], tools = [\"a\"] }",
                "mcp = { methods = [\"tools/*\"], tools = [\"b\"] }",
                false,
            ),
            ("mcp = { methods = [\"tools/*\"] }", "mcp = { methods = [\"tools/list\"] }", true),
            ("grpc = { methods = [\"a.B/C\"] }", "grpc = { methods = [\"a.B/D\"] }", false),
            ("grpc = { methods = [\"a.B/C\"] }", "grpc = { methods = [\"a.B/*\"] }", true),
        ] {
            assert_eq!(ambiguous(one, other), expected, "{one} / {other}");
        }
    }
}
