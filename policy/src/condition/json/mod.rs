//! Conditions on a JSON body: a pointer (RFC 6901, and `*` for every element of a list) and what stands there.

mod pointer;
pub(crate) mod value;

use serde_json::json;

pub(crate) use pointer::Pointer;
use value::{Json, Number};

use super::fields::spelt;
use super::{Check, Miss};
use crate::Reason;
use crate::draft::Effect;
use crate::route::pattern::Pattern;

/// One line of `json`.
#[derive(Debug, Clone)]
pub(crate) struct JsonTest {
    pub(crate) pointer: Pointer,
    pub(crate) want: JsonWant,
}

/// What must stand at a place. Every part that is there must hold.
#[derive(Debug, Clone, Default)]
pub(crate) struct JsonWant {
    /// Nothing may stand there.
    pub(crate) absent: bool,
    /// Nothing need stand there.
    pub(crate) optional: bool,
    pub(crate) kind: Option<Kind>,
    /// One of these; empty: any.
    pub(crate) one_of: Vec<Scalar>,
    pub(crate) pattern: Option<Pattern>,
    pub(crate) min: Option<Number>,
    pub(crate) max: Option<Number>,
    /// Characters of a text.
    pub(crate) max_length: Option<u64>,
    /// Elements of a list, or members of an object.
    pub(crate) max_items: Option<u64>,
    /// The only members that an object may have; empty: any.
    pub(crate) members: Vec<Box<str>>,
}

/// A value that can be compared.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Scalar {
    Bool(bool),
    Number(Number),
    Text(Box<str>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Null,
    Boolean,
    Integer,
    Number,
    String,
    Array,
    Object,
}

impl Kind {
    pub(crate) const ALL: [Self; 7] =
        [Self::Null, Self::Boolean, Self::Integer, Self::Number, Self::String, Self::Array, Self::Object];

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Boolean => "boolean",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::String => "string",
            Self::Array => "array",
            Self::Object => "object",
        }
    }

    pub(crate) fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }

    fn is(self, json: &Json<'_>) -> bool {
        matches!(
            (self, json),
            (Self::Null, Json::Null)
                | (Self::Boolean, Json::Bool(_))
                | (Self::Integer, Json::Number(Number::Whole(_)))
                | (Self::Number, Json::Number(_))
                | (Self::String, Json::Text(_))
                | (Self::Array, Json::List(_))
                | (Self::Object, Json::Map(_))
        )
    }
}

/// Whether all tests hold of a document.
pub(crate) fn check(tests: &[JsonTest], effect: Effect, document: &Json<'_>) -> Check {
    for test in tests {
        match test.miss(effect, document) {
            Ok(None) => {}
            Ok(Some(why)) => {
                let shown = test.pointer.to_string();
                let shown = if shown.is_empty() { "the body".to_owned() } else { format!("`{shown}`") };
                let detail = format!("{shown} {why}");
                return Check::Fails(Miss::new(Reason::BodyNotGranted, detail));
            }
            Err(unclear) => return Check::Unclear(unclear),
        }
    }
    Check::Holds
}

impl JsonTest {
    /// An allow rule wants every place to hold; a deny rule takes one that does.
    fn miss(&self, effect: Effect, document: &Json<'_>) -> Result<Option<String>, Miss> {
        let (mut places, mut missing, mut held, mut first) = (0_usize, false, false, None);
        self.pointer.visit(document, &mut |found| match found {
            Some(value) => {
                places += 1;
                match self.want.miss(effect, value) {
                    None => held = true,
                    Some(why) => first = first.take().or(Some(why)),
                }
            }
            None => missing = true,
        })?;
        Ok(match effect {
            Effect::Allow if self.want.absent => (places > 0).then(|| "is there".to_owned()),
            Effect::Allow if missing && !self.want.optional => Some("is missing".to_owned()),
            Effect::Allow => first,
            Effect::Deny if self.want.absent => (places > 0).then(|| "is there".to_owned()),
            Effect::Deny => (!held).then(|| "is not what is denied".to_owned()),
        })
    }

    pub(crate) fn canonical(&self) -> serde_json::Value {
        let want = &self.want;
        let number = |number: &Option<Number>| number.map(|number| number.to_string());
        let mut one_of: Vec<String> = want.one_of.iter().map(ToString::to_string).collect();
        one_of.sort_unstable();
        let mut members = want.members.clone();
        members.sort_unstable();
        json!({
            "absent": want.absent, "optional": want.optional, "type": want.kind.map(Kind::word),
            "enum": one_of, "pattern": want.pattern.as_ref().map(spelt), "min": number(&want.min),
            "max": number(&want.max), "max_length": want.max_length, "max_items": want.max_items,
            "members": members,
        })
    }
}

impl JsonWant {
    /// Why a value that is there is not what is wanted.
    pub(crate) fn miss(&self, effect: Effect, json: &Json<'_>) -> Option<String> {
        if let Some(kind) = self.kind.filter(|kind| !kind.is(json)) {
            return Some(format!("is not of type {}", kind.word()));
        }
        if !self.one_of.is_empty() && !self.one_of.iter().any(|scalar| scalar.is(effect, json)) {
            return Some("is none of the values".to_owned());
        }
        if let Some(pattern) = &self.pattern {
            let matches = |text: &str| match effect {
                Effect::Allow => pattern.matches(text.as_bytes()),
                Effect::Deny => {
                    pattern.matches(text.as_bytes()) || pattern.matches(text.to_ascii_lowercase().as_bytes())
                }
            };
            if !json.text().is_some_and(matches) {
                return Some(format!("does not match `{}`", spelt(pattern)));
            }
        }
        self.size_miss(json)
    }

    fn size_miss(&self, json: &Json<'_>) -> Option<String> {
        let number = match json {
            Json::Number(number) => Some(*number),
            _ => None,
        };
        if let Some(min) = self.min
            && !number.is_some_and(|number| number.at_least(min))
        {
            return Some(format!("is less than {min}"));
        }
        if let Some(max) = self.max
            && !number.is_some_and(|number| max.at_least(number))
        {
            return Some(format!("is more than {max}"));
        }
        if let Some(max) = self.max_length
            && json.text().is_none_or(|text| text.chars().count() as u64 > max)
        {
            return Some(format!("is longer than {max} characters"));
        }
        let items = match json {
            Json::List(items) => Some(items.len()),
            Json::Map(members) => Some(members.len()),
            _ => None,
        };
        if let Some(max) = self.max_items
            && items.is_none_or(|items| items as u64 > max)
        {
            return Some(format!("has more than {max} items"));
        }
        if !self.members.is_empty() {
            let Json::Map(found) = json else { return Some("is not an object".to_owned()) };
            let known = |name: &str| self.members.iter().any(|member| **member == *name);
            if let Some((name, _)) = found.iter().find(|(name, _)| !known(name)) {
                return Some(format!("has the member `{}`", name.escape_debug()));
            }
        }
        None
    }
}

impl Scalar {
    pub(crate) fn json(&self) -> Json<'_> {
        match self {
            Self::Bool(value) => Json::Bool(*value),
            Self::Number(number) => Json::Number(*number),
            Self::Text(text) => Json::Text(std::borrow::Cow::Borrowed(&**text)),
        }
    }

    fn is(&self, effect: Effect, json: &Json<'_>) -> bool {
        match (self, json) {
            (Self::Bool(one), Json::Bool(other)) => one == other,
            (Self::Number(one), Json::Number(other)) => one.at_least(*other) && other.at_least(*one),
            (Self::Text(one), Json::Text(other)) => match effect {
                Effect::Allow => **one == **other,
                Effect::Deny => value::same_folded(one, other),
            },
            _ => false,
        }
    }
}

impl std::fmt::Display for Scalar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bool(value) => write!(f, "{value}"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => write!(f, "{text:?}"),
        }
    }
}

impl Number {
    /// Exact for whole numbers; a comparison with a fraction is that of 64-bit floats.
    pub(crate) fn at_least(self, other: Self) -> bool {
        match (self, other) {
            (Self::Whole(one), Self::Whole(other)) => one >= other,
            (one, other) => one.float() >= other.float(),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "a fraction is a float on the other side too")]
    fn float(self) -> f64 {
        match self {
            Self::Whole(whole) => whole as f64,
            Self::Float(float) => float,
        }
    }
}

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Whole(whole) => write!(f, "{whole}"),
            Self::Float(float) => write!(f, "{float}"),
        }
    }
}

#[cfg(test)]
mod tests;
