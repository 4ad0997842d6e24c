//! `graphql`: which operations a request may run, and which fields of the root they may ask for.
//!
//! Every operation of every document is judged, also of a batch and also those that `operationName` does not choose. A
//! request whose document is not in it (a persisted query) hides its fields and is refused.

mod document;
mod lexer;

use serde_json::{Value, json};

pub(crate) use document::{Operation, OperationKind};
use lexer::Unreadable;

use super::body::Inspection;
use super::json::value::{Json, same_folded};
use super::{Check, Miss};
use crate::Reason;
use crate::draft::Effect;
use crate::limits::BATCH_MAX;
use crate::route::pattern::Decoded;

#[derive(Debug, Clone, Default)]
pub(crate) struct GraphqlTest {
    pub(crate) operations: Vec<OperationKind>,
    /// Fields of the root; empty: any.
    pub(crate) fields: Vec<Box<str>>,
    /// Names of operations; empty: any, and none.
    pub(crate) names: Vec<Box<str>>,
}

/// Members of a request, and parameters of its GET form.
const MEMBERS: [&str; 4] = ["query", "operationName", "variables", "extensions"];

/// Parameters in which some servers look for a document, or for the name of one, whatever the body says.
const HIDING: [&str; 12] = [
    "query",
    "operationname",
    "variables",
    "extensions",
    "id",
    "queryid",
    "documentid",
    "doc_id",
    "docid",
    "hash",
    "sha256hash",
    "persistedquery",
];

impl GraphqlTest {
    pub(crate) fn check(&self, effect: Effect, inspection: &Inspection<'_>) -> Check {
        match self.judge(effect, inspection) {
            Ok(None) => Check::Holds,
            Ok(Some(detail)) => Check::Fails(Miss::new(Reason::BodyNotGranted, detail)),
            Err(miss) => Check::Unclear(miss),
        }
    }

    /// Why the test does not hold.
    fn judge(&self, effect: Effect, inspection: &Inspection<'_>) -> Result<Option<String>, Miss> {
        let facts = inspection.facts();
        let query = facts.query.as_deref().unwrap_or_default();
        let mut verdict = Verdict { test: self, effect, held: false, miss: None };
        if facts.get {
            if inspection.len() > 0 {
                return Err(malformed("a GET request with a body"));
            }
            verdict.document(&from_query(query)?)?;
        } else {
            let hides =
                |name: &[u8]| HIDING.iter().any(|hiding| name.eq_ignore_ascii_case(hiding.as_bytes()));
            if parameters(query).any(|(name, _)| hides(&name)) {
                return Err(malformed("a document, or the name of one, beside the body"));
            }
            if facts.media.as_ref().is_some_and(|media| media.is("application", "graphql")) {
                let text = inspection.text()?;
                verdict.document(text)?;
            } else {
                verdict.json(inspection.json()?)?;
            }
        }
        Ok(verdict.end())
    }

    fn miss(&self, operation: &Operation<'_>) -> Option<String> {
        let word = operation.kind.word();
        if !self.operations.contains(&operation.kind) {
            return Some(format!("a {word} is none of the operations"));
        }
        if !self.names.is_empty() && !operation.name.is_some_and(|name| listed(&self.names, name)) {
            return Some(format!("the {word} `{}` is none of the names", operation.name.unwrap_or("")));
        }
        let unlisted = operation.fields.iter().find(|field| !listed(&self.fields, field));
        unlisted
            .filter(|_| !self.fields.is_empty())
            .map(|field| format!("the {word} asks for the field `{field}`"))
    }

    /// As a deny rule: the operation may be one of those, by any of its fields.
    fn denies(&self, operation: &Operation<'_>) -> bool {
        let named = |names: &[Box<str>], name: &str| names.iter().any(|known| same_folded(known, name));
        self.operations.contains(&operation.kind)
            && (self.names.is_empty() || operation.name.is_some_and(|name| named(&self.names, name)))
            && (self.fields.is_empty() || operation.fields.iter().any(|field| named(&self.fields, field)))
    }

    pub(crate) fn canonical(&self) -> Value {
        let sorted = |texts: &[Box<str>]| {
            let mut texts = texts.to_vec();
            texts.sort_unstable();
            texts
        };
        let mut operations: Vec<&str> = self.operations.iter().map(|kind| kind.word()).collect();
        operations.sort_unstable();
        json!({ "operations": operations, "fields": sorted(&self.fields), "names": sorted(&self.names) })
    }
}

fn listed(names: &[Box<str>], name: &str) -> bool {
    names.iter().any(|known| **known == *name)
}

/// What was found so far of one request, which may be a batch.
struct Verdict<'t> {
    test: &'t GraphqlTest,
    effect: Effect,
    /// An operation that a deny rule is after.
    held: bool,
    /// The first operation that an allow rule does not take.
    miss: Option<String>,
}

impl Verdict<'_> {
    fn json(&mut self, json: &Json<'_>) -> Result<(), Miss> {
        match json {
            Json::List(items) if items.is_empty() => Err(malformed("an empty batch")),
            Json::List(items) if items.len() > BATCH_MAX => {
                Err(Miss::new(Reason::InspectionTooComplex, format!("a batch of more than {BATCH_MAX}")))
            }
            Json::List(items) => items.iter().try_for_each(|item| self.request(item)),
            _ => self.request(json),
        }
    }

    fn request(&mut self, json: &Json<'_>) -> Result<(), Miss> {
        let Json::Map(members) = json else { return Err(malformed("a GraphQL request that is no object")) };
        let query = json.member("query")?;
        for (name, _) in members {
            if !MEMBERS.contains(&name.as_ref()) {
                return Err(match query {
                    None => hidden(),
                    Some(_) => malformed(format!("a GraphQL request with `{}`", name.escape_debug())),
                });
            }
        }
        match json.member("extensions")? {
            None | Some(Json::Null) => {}
            Some(Json::Map(extensions)) => {
                if extensions.iter().any(|(name, _)| same_folded(name, "persistedQuery")) {
                    return Err(hidden());
                }
            }
            Some(_) => return Err(malformed("extensions that are no object")),
        }
        match json.member("operationName")? {
            None | Some(Json::Null | Json::Text(_)) => {}
            Some(_) => return Err(malformed("an operationName that is no text")),
        }
        match query {
            Some(Json::Text(text)) => self.document(text),
            _ => Err(hidden()),
        }
    }

    fn document(&mut self, text: &str) -> Result<(), Miss> {
        let operations = document::read(text).map_err(|why| match why {
            Unreadable::Malformed => malformed("not a GraphQL document of operations"),
            Unreadable::Truncated => {
                Miss::new(Reason::InspectionTruncated, "a GraphQL document that ends too early")
            }
            Unreadable::TooComplex => {
                Miss::new(Reason::InspectionTooComplex, "a GraphQL document that is too large or deep")
            }
        })?;
        for operation in &operations {
            match self.effect {
                Effect::Allow if self.miss.is_none() => self.miss = self.test.miss(operation),
                Effect::Allow => {}
                Effect::Deny => self.held |= self.test.denies(operation),
            }
        }
        Ok(())
    }

    fn end(self) -> Option<String> {
        match self.effect {
            Effect::Allow => self.miss,
            Effect::Deny => (!self.held).then(|| "no operation is what is denied".to_owned()),
        }
    }
}

/// The document of the GET form.
fn from_query(query: &str) -> Result<String, Miss> {
    let mut document = None;
    let mut seen: Vec<Vec<u8>> = Vec::new();
    for (name, value) in parameters(query) {
        if seen.contains(&name) {
            return Err(Miss::new(Reason::InspectionDuplicateKey, "a GraphQL parameter twice"));
        }
        let known = MEMBERS.iter().find(|member| member.as_bytes() == name.as_slice());
        match known {
            Some(&"query") => document = Some(value),
            Some(&"extensions") => {
                let text = String::from_utf8_lossy(&value);
                if !text.trim().is_empty() && text.trim() != "{}" {
                    return Err(hidden());
                }
            }
            Some(_) => {}
            None if HIDING.iter().any(|hiding| name.eq_ignore_ascii_case(hiding.as_bytes())) => {
                return Err(hidden());
            }
            None => {}
        }
        seen.push(name);
    }
    let document = document.ok_or_else(hidden)?;
    String::from_utf8(document).map_err(|_| malformed("a GraphQL document that is not UTF-8"))
}

/// Decoded names and values; `;` separates for some servers, and here.
fn parameters(query: &str) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
    query.as_bytes().split(|byte| matches!(byte, b'&' | b';')).filter(|pair| !pair.is_empty()).map(|pair| {
        let at = pair.iter().position(|byte| *byte == b'=').unwrap_or(pair.len());
        let (name, value) = pair.split_at(at);
        let value = value.strip_prefix(b"=").unwrap_or(value);
        (Decoded::form(name).collect(), Decoded::form(value).collect())
    })
}

fn malformed(detail: impl Into<std::borrow::Cow<'static, str>>) -> Miss {
    Miss::new(Reason::InspectionMalformed, detail)
}

fn hidden() -> Miss {
    Miss::new(Reason::BodyNotGranted, "a persisted query: its fields are not in the request")
}

#[cfg(test)]
mod tests;
