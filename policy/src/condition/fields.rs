//! Header fields of a request as policy sees them, and what a rule demands of them.

use serde_json::{Value, json};

use crate::draft::Effect;
use crate::route::pattern::Pattern;

/// The header fields of a request that go upstream, as the caller has them.
pub trait HeaderFields: std::fmt::Debug {
    /// Calls `each` with the value of every field of this name, whatever its letter case, in order.
    fn each_value(&self, name: &str, each: &mut dyn FnMut(&[u8]));
}

/// A request without header fields.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoFields;

impl HeaderFields for NoFields {
    fn each_value(&self, _name: &str, _each: &mut dyn FnMut(&[u8])) {}
}

impl HeaderFields for Vec<(String, String)> {
    fn each_value(&self, name: &str, each: &mut dyn FnMut(&[u8])) {
        let named = self.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name));
        named.for_each(|(_, value)| each(value.as_bytes()));
    }
}

/// One header of a rule.
#[derive(Debug, Clone)]
pub(crate) struct HeaderTest {
    /// Lower case.
    pub(crate) name: Box<str>,
    pub(crate) want: HeaderWant,
}

#[derive(Debug, Clone)]
pub(crate) enum HeaderWant {
    Absent,
    Value {
        pattern: Pattern,
        /// The header may be left out.
        optional: bool,
    },
}

/// The values of one name, judged by one pattern.
struct Seen {
    count: usize,
    all: bool,
    any: bool,
}

impl HeaderTest {
    /// Why the test does not hold.
    pub(crate) fn miss(&self, effect: Effect, fields: &dyn HeaderFields) -> Option<String> {
        let name = &self.name;
        let (pattern, optional) = match &self.want {
            HeaderWant::Absent => {
                let there = self.look(fields, |_| true).count > 0;
                return there.then(|| format!("the header `{name}` is there"));
            }
            HeaderWant::Value { pattern, optional } => (pattern, *optional),
        };
        if effect == Effect::Deny {
            let seen = self.look(fields, |value| widely(pattern, value));
            return (!seen.any).then(|| format!("the header `{name}` is not what is denied"));
        }
        let seen = self.look(fields, |value| pattern.matches(value));
        match seen {
            Seen { count: 0, .. } if optional => None,
            Seen { count: 0, .. } => Some(format!("the header `{name}` is missing")),
            // SECURITY: of several fields one reader takes the first and another the last.
            Seen { count: 2.., .. } => Some(format!("the header `{name}` is there more than once")),
            Seen { all: false, .. } => Some(format!("the header `{name}` is not `{}`", spelt(pattern))),
            _ => None,
        }
    }

    fn look(&self, fields: &dyn HeaderFields, mut judge: impl FnMut(&[u8]) -> bool) -> Seen {
        let mut seen = Seen { count: 0, all: true, any: false };
        fields.each_value(&self.name, &mut |value| {
            let matches = judge(value);
            seen.count += 1;
            seen.all &= matches;
            seen.any |= matches;
        });
        seen
    }

    pub(crate) fn canonical(&self) -> Value {
        match &self.want {
            HeaderWant::Absent => json!({ "absent": true }),
            HeaderWant::Value { pattern, optional } => json!({ "is": spelt(pattern), "optional": optional }),
        }
    }
}

/// For deny rules: letter case does not matter, and neither does whether values come in one field or in several.
fn widely(pattern: &Pattern, value: &[u8]) -> bool {
    let lower = value.to_ascii_lowercase();
    let mut parts = [value, &lower].into_iter().flat_map(|text| text.split(|byte| *byte == b','));
    pattern.matches_folded(value)
        || pattern.matches(&lower)
        || parts.any(|part| pattern.matches_folded(part.trim_ascii()))
}

/// A pattern as the canonical form and messages have it.
pub(crate) fn spelt(pattern: &Pattern) -> String {
    let mut out = String::new();
    pattern.write_canonical(&mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test(want: HeaderWant) -> HeaderTest {
        HeaderTest { name: "x-mode".into(), want }
    }

    fn literal(text: &str, optional: bool) -> HeaderTest {
        test(HeaderWant::Value { pattern: Pattern::Literal(text.as_bytes().into()), optional })
    }

    fn fields(values: &[&str]) -> Vec<(String, String)> {
        values.iter().map(|value| ("X-Mode".to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn an_allow_rule_wants_one_field_with_exactly_that_value() {
        for (values, optional, holds) in [
            (&["safe"][..], false, true),
            (&["Safe"], false, false),
            (&["safe, unsafe"], false, false),
            (&["safe", "safe"], false, false),
            (&["unsafe", "safe"], true, false),
            (&[], false, false),
            (&[], true, true),
        ] {
            let miss = literal("safe", optional).miss(Effect::Allow, &fields(values));
            assert_eq!(miss.is_none(), holds, "{values:?} {miss:?}");
        }
        assert!(test(HeaderWant::Absent).miss(Effect::Allow, &fields(&[])).is_none());
        assert!(test(HeaderWant::Absent).miss(Effect::Allow, &fields(&[""])).is_some());
    }

    #[test]
    fn a_deny_rule_takes_any_field_that_may_be_read_so() {
        for (values, holds) in [
            (&["raw"][..], true),
            (&["RAW"], true),
            (&["json", "raw"], true),
            (&["json,  Raw"], true),
            (&["rawer"], false),
            (&[], false),
        ] {
            let miss = literal("raw", false).miss(Effect::Deny, &fields(values));
            assert_eq!(miss.is_none(), holds, "{values:?} {miss:?}");
        }
    }
}
