//! JSON with one reading: strict text (RFC 8259), no member twice, bounded in depth and number of values.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};

use crate::Reason;
use crate::condition::Miss;
use crate::limits::{JSON_DEPTH_MAX, JSON_VALUES_MAX};

/// A document as it was written; members stay in their order.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Json<'a> {
    Null,
    Bool(bool),
    Number(Number),
    Text(Cow<'a, str>),
    List(Vec<Json<'a>>),
    Map(Vec<(Cow<'a, str>, Json<'a>)>),
}

/// A number, exact where it is whole and fits 64 bits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Number {
    Whole(i128),
    Float(f64),
}

/// Reads a whole body.
///
/// # Errors
/// Why the text has no reading that everybody shares.
pub(crate) fn parse(bytes: &[u8]) -> Result<Json<'_>, Miss> {
    let budget = Budget { values: Cell::new(0), trouble: Cell::new(None) };
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let read = Node { budget: &budget, depth: 0 }.deserialize(&mut deserializer);
    let read = read.and_then(|json| deserializer.end().map(|()| json));
    read.map_err(|error| match budget.trouble.get() {
        Some(Trouble::Twice) => Miss::new(Reason::InspectionDuplicateKey, "a member of a JSON object twice"),
        Some(Trouble::Deep) => {
            Miss::new(Reason::InspectionTooComplex, format!("JSON deeper than {JSON_DEPTH_MAX}"))
        }
        Some(Trouble::Many) => {
            Miss::new(Reason::InspectionTooComplex, format!("JSON with more than {JSON_VALUES_MAX} values"))
        }
        None if error.is_eof() && !bytes.trim_ascii().is_empty() => {
            Miss::new(Reason::InspectionTruncated, "JSON that ends too early")
        }
        None => Miss::new(Reason::InspectionMalformed, "the body is not JSON"),
    })
}

struct Budget {
    values: Cell<usize>,
    trouble: Cell<Option<Trouble>>,
}

#[derive(Clone, Copy)]
enum Trouble {
    Twice,
    Deep,
    Many,
}

impl Budget {
    fn stop<E: Error>(&self, trouble: Trouble) -> E {
        self.trouble.set(Some(trouble));
        E::custom("refused")
    }
}

#[derive(Clone, Copy)]
struct Node<'b> {
    budget: &'b Budget,
    depth: usize,
}

impl Node<'_> {
    fn inner<E: Error>(self) -> Result<Self, E> {
        if self.depth >= JSON_DEPTH_MAX {
            return Err(self.budget.stop(Trouble::Deep));
        }
        Ok(Self { budget: self.budget, depth: self.depth + 1 })
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Json<'de>;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Json<'de>, D::Error> {
        let values = self.budget.values.get() + 1;
        self.budget.values.set(values);
        if values > JSON_VALUES_MAX {
            return Err(self.budget.stop(Trouble::Many));
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Json<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Json<'de>, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json<'de>, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json<'de>, E> {
        Ok(Json::Number(Number::Whole(i128::from(value))))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json<'de>, E> {
        Ok(Json::Number(Number::Whole(i128::from(value))))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json<'de>, E> {
        Ok(Json::Number(Number::Float(value)))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Json<'de>, E> {
        Ok(Json::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Json<'de>, E> {
        Ok(Json::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Json<'de>, A::Error> {
        let inner = self.inner()?;
        let mut items = Vec::new();
        while let Some(item) = list.next_element_seed(inner)? {
            items.push(item);
        }
        Ok(Json::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json<'de>, A::Error> {
        let inner = self.inner()?;
        let mut members = Vec::new();
        while let Some(Json::Text(name)) = map.next_key_seed(KeyNode)? {
            members.push((name, map.next_value_seed(inner)?));
        }
        // SECURITY: of two members of one name one reader takes the first and another the last (ATTACKS D).
        let mut seen = HashSet::with_capacity(members.len());
        if members.iter().any(|(name, _)| !seen.insert(name.as_ref())) {
            return Err(self.budget.stop(Trouble::Twice));
        }
        Ok(Json::Map(members))
    }
}

/// A member's name: text, borrowed where it has no escapes.
struct KeyNode;

impl<'de> DeserializeSeed<'de> for KeyNode {
    type Value = Json<'de>;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Json<'de>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for KeyNode {
    type Value = Json<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Json<'de>, E> {
        Ok(Json::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Json<'de>, E> {
        Ok(Json::Text(Cow::Owned(text.to_owned())))
    }
}

impl<'a> Json<'a> {
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A member of an object.
    ///
    /// # Errors
    /// When another member differs from it only in letter case: some readers (Go's among them) take that one.
    pub(crate) fn member(&self, name: &str) -> Result<Option<&Json<'a>>, Miss> {
        let Self::Map(members) = self else { return Ok(None) };
        let mut found = None;
        for (other, value) in members {
            if *other == name {
                found = Some(value);
            } else if same_folded(other, name) {
                let detail = format!("a member that differs from `{name}` only in letter case");
                return Err(Miss::new(Reason::InspectionDuplicateKey, detail));
            }
        }
        Ok(found)
    }
}

/// Equal where letter case does not matter, and the two characters that fold to ASCII letters neither.
pub(crate) fn same_folded(one: &str, other: &str) -> bool {
    let fold = |c: char| match c {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        c => c.to_ascii_lowercase(),
    };
    one.chars().map(fold).eq(other.chars().map(fold))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_has_one_reading() {
        let json = parse(br#" {"a":[1,-2,1.5,true,null,"x\u0041"],"b":{}} "#).unwrap();
        let Json::Map(members) = &json else { panic!("{json:?}") };
        assert_eq!(members[0].0, "a");
        let items = [
            Json::Number(Number::Whole(1)),
            Json::Number(Number::Whole(-2)),
            Json::Number(Number::Float(1.5)),
            Json::Bool(true),
            Json::Null,
            Json::Text("xA".into()),
        ];
        assert_eq!(members[0].1, Json::List(items.to_vec()));
        assert_eq!(parse(b"18446744073709551615").unwrap(), Json::Number(Number::Whole(u64::MAX.into())));
    }

    #[test]
    fn refuses_what_has_none_with_its_own_reason() {
        let deep = "[".repeat(JSON_DEPTH_MAX + 1);
        let many = format!("[{}0]", "0,".repeat(JSON_VALUES_MAX));
        for (text, reason) in [
            ("", Reason::InspectionMalformed),
            (" \n", Reason::InspectionMalformed),
            ("{\"a\":1", Reason::InspectionTruncated),
            ("{\"a\":1}x", Reason::InspectionMalformed),
            ("{\"a\":1}{}", Reason::InspectionMalformed),
            ("{'a':1}", Reason::InspectionMalformed),
            ("{\"a\":1,}", Reason::InspectionMalformed),
            ("{\"a\":01}", Reason::InspectionMalformed),
            ("{\"a\":NaN}", Reason::InspectionMalformed),
            ("{\"a\":1e999}", Reason::InspectionMalformed),
            ("\u{feff}{}", Reason::InspectionMalformed),
            ("{\"a\":\"\\ud800\"}", Reason::InspectionMalformed),
            ("{\"a\":\"\u{1}\"}", Reason::InspectionMalformed),
            ("// c\n{}", Reason::InspectionMalformed),
            ("{\"a\":1,\"a\":2}", Reason::InspectionDuplicateKey),
            ("{\"x\":{\"a\":1,\"\\u0061\":2}}", Reason::InspectionDuplicateKey),
            (&deep, Reason::InspectionTooComplex),
            (&many, Reason::InspectionTooComplex),
        ] {
            let reason_found = parse(text.as_bytes()).map_err(|miss| miss.reason).err();
            assert_eq!(reason_found, Some(reason), "{}", text.get(..40).unwrap_or(text));
        }
        assert_eq!(parse(b"\"\xff\"").map_err(|miss| miss.reason), Err(Reason::InspectionMalformed));
    }

    #[test]
    fn members_that_differ_in_letter_case_only_are_one_to_some() {
        let json = parse("{\"role\":\"user\",\"Role\":\"admin\"}".as_bytes()).unwrap();
        assert_eq!(json.member("role").map_err(|miss| miss.reason), Err(Reason::InspectionDuplicateKey));
        assert!(parse("{\"to\u{212a}en\":1}".as_bytes()).unwrap().member("token").is_err());
        assert_eq!(json.member("other"), Ok(None));
    }
}
