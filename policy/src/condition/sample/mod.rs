//! Requests to try conditions with: header fields and a body for each thing that some of them look at, and for each way in
//! which they can differ. They show what a comparison found; that it found everything does not rest on them.

mod bodies;

use serde_json::{Map, Value, json};

use super::fields::{HeaderTest, HeaderWant};
use super::json::value::{self, Number};
use super::json::{JsonTest, JsonWant, Kind, Pointer, Scalar};
use super::{Head, Terms, media};
use crate::automata::texts;
use crate::draft::Effect;
use crate::limits::{SAMPLE_ITEMS_MAX, SAMPLES_MAX};
use crate::route::pattern::Pattern;

/// What a request has beside method and target.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Option<String>,
}

/// One thing that conditions look at, with what may stand there; the first is nothing.
struct Aspect<'t> {
    what: What<'t>,
    choices: Vec<Option<String>>,
}

enum What<'t> {
    Header(&'t str),
    ContentType,
    /// JSON at a place of the body.
    Json(&'t Pointer),
    /// A whole body: GraphQL, JSON-RPC or pkt-lines.
    Body,
}

/// Requests for rules of one route; `head` is what they are sent with. For each rule one that it takes, where one is easily
/// found, and then that one with one thing changed.
pub(crate) fn samples(head: Head<'_>, all: &[&Terms]) -> Vec<Sample> {
    let aspects = aspects(all);
    let mut found: Vec<Sample> = Vec::new();
    let mut add = |chosen: &[usize]| {
        let sample = build(&aspects, chosen);
        if !found.contains(&sample) {
            found.push(sample);
        }
    };
    let bases: Vec<Vec<usize>> = all
        .iter()
        .map(|terms| aspects.iter().map(|aspect| aspect.choice_for(head, terms)).collect())
        .collect();
    for base in &bases {
        add(base);
    }
    for base in &bases {
        for (at, aspect) in aspects.iter().enumerate() {
            for choice in 0..aspect.choices.len() {
                let mut chosen = base.clone();
                if let Some(place) = chosen.get_mut(at) {
                    *place = choice;
                }
                add(&chosen);
            }
        }
    }
    found.truncate(SAMPLES_MAX);
    // Last, because a body that is not there says less than one that is denied.
    found.push(Sample::default());
    found
}

fn aspects<'t>(all: &[&'t Terms]) -> Vec<Aspect<'t>> {
    let mut aspects = Vec::new();
    let headers: Vec<&HeaderTest> = all.iter().flat_map(|terms| &terms.headers).collect();
    for test in &headers {
        let known = |aspect: &Aspect<'_>| matches!(aspect.what, What::Header(name) if *name == *test.name);
        if !aspects.iter().any(known) {
            let named = headers.iter().filter(|other| other.name == test.name);
            let patterns: Vec<&Pattern> = named.filter_map(|test| test.want.pattern()).collect();
            let mut values: Vec<String> =
                texts(&patterns).into_iter().filter(|text| !text.chars().any(char::is_control)).collect();
            values.push("x".to_owned());
            // An empty value says less.
            values.sort_by_key(String::is_empty);
            aspects.push(Aspect::new(What::Header(&test.name), values));
        }
    }
    aspects.push(Aspect::new(What::ContentType, types(all)));
    let tests: Vec<&JsonTest> = all.iter().flat_map(|terms| &terms.body.json).collect();
    for test in &tests {
        let known = |aspect: &Aspect<'_>| matches!(aspect.what, What::Json(of) if *of == test.pointer);
        if !aspects.iter().any(known) {
            let wants = tests.iter().filter(|other| other.pointer == test.pointer).map(|test| &test.want);
            aspects.push(Aspect::new(What::Json(&test.pointer), values(&wants.collect::<Vec<_>>())));
        }
    }
    aspects.push(Aspect::new(What::Body, bodies::of(all)));
    aspects
}

impl<'t> Aspect<'t> {
    fn new(what: What<'t>, values: Vec<String>) -> Self {
        let mut choices = vec![None];
        for value in values.into_iter().map(Some) {
            if !choices.contains(&value) {
                choices.push(value);
            }
        }
        Self { what, choices }
    }

    /// The first choice that does for these terms.
    fn choice_for(&self, head: Head<'_>, terms: &Terms) -> usize {
        let does = |choice: &Option<String>| match &self.what {
            What::Header(name) => {
                let fields: Vec<(String, String)> =
                    choice.iter().map(|value| ((*name).to_owned(), value.clone())).collect();
                let mut tests = terms.headers.iter().filter(|test| *test.name == **name);
                tests.all(|test| test.miss(Effect::Allow, &fields).is_none())
            }
            What::ContentType => type_does(head, terms, choice.as_deref()),
            What::Json(pointer) => {
                let mut tests = terms.body.json.iter().filter(|test| test.pointer == **pointer);
                tests.all(|test| value_does(&test.want, choice.as_deref()))
            }
            What::Body => body_does(head, terms, choice.as_deref()),
        };
        self.choices.iter().position(does).unwrap_or(0)
    }
}

fn type_does(head: Head<'_>, terms: &Terms, choice: Option<&str>) -> bool {
    let fields: Vec<(String, String)> =
        choice.iter().map(|value| ("content-type".to_owned(), (*value).to_owned())).collect();
    let head = Head { fields: &fields, ..head };
    let git = terms.body.git.as_ref().map(|git| format!("application/x-{}-request", git.operation.service()));
    media::miss(&terms.content_type, Effect::Allow, &fields).is_none()
        && (terms.grpc.is_none() || choice == Some(GRPC))
        && match git {
            Some(git) => choice == Some(&git),
            None => terms.body.is_empty() || terms.body.media_miss(head).is_none(),
        }
}

fn value_does(want: &JsonWant, choice: Option<&str>) -> bool {
    let Some(text) = choice else { return want.absent || want.optional };
    !want.absent && value::parse(text.as_bytes()).is_ok_and(|json| want.miss(Effect::Allow, &json).is_none())
}

fn body_does(head: Head<'_>, terms: &Terms, choice: Option<&str>) -> bool {
    let tests = &terms.body;
    if tests.graphql.is_none() && tests.mcp.is_none() && tests.git.is_none() {
        return choice.is_none();
    }
    let Some(text) = choice else { return false };
    let git = tests.git.as_ref().map(|git| format!("application/x-{}-request", git.operation.service()));
    let kind = git.unwrap_or_else(|| JSON.to_owned());
    let fields = vec![("content-type".to_owned(), kind)];
    let facts = super::Facts::of(Head { fields: &fields, ..head });
    let inspection = super::Inspection::new(&facts, Ok(text.as_bytes()));
    let holds = |check: Option<super::Check>| check.is_none_or(|check| check == super::Check::Holds);
    holds(tests.graphql.as_ref().map(|test| test.check(Effect::Allow, &inspection)))
        && holds(tests.mcp.as_ref().map(|test| test.check(Effect::Allow, &inspection)))
        && holds(tests.git.as_ref().map(|test| test.check(Effect::Allow, &facts, text.as_bytes())))
}

const GRPC: &str = "application/grpc";
const JSON: &str = "application/json";

fn types(all: &[&Terms]) -> Vec<String> {
    let ranges = all.iter().flat_map(|terms| &terms.content_type);
    let mut types: Vec<String> = ranges.map(|range| range.to_string().replace('*', "x")).collect();
    if all.iter().any(|terms| !terms.body.is_empty()) {
        types.insert(0, JSON.to_owned());
    }
    if all.iter().any(|terms| terms.grpc.is_some()) {
        types.push(GRPC.to_owned());
    }
    let operations = all.iter().filter_map(|terms| terms.body.git.as_ref()).map(|git| git.operation);
    types.extend(operations.map(|operation| format!("application/x-{}-request", operation.service())));
    types.push("text/plain".to_owned());
    types
}

/// Values of JSON, as text.
fn values(wants: &[&JsonWant]) -> Vec<String> {
    let mut found: Vec<Value> = Vec::new();
    for want in wants {
        found.extend(want.one_of.iter().map(Scalar::value));
        for bound in [want.min, want.max].into_iter().flatten() {
            found.extend([bound.value(), bound.beside(-1), bound.beside(1)]);
        }
        for size in [want.max_length, want.max_items].into_iter().flatten() {
            let size = usize::try_from(size).unwrap_or(usize::MAX).min(SAMPLE_ITEMS_MAX);
            for size in [size, size + 1] {
                found.push(json!("a".repeat(size)));
                found.push(json!(vec![0; size]));
            }
        }
        let object = |names: &[Box<str>]| {
            Value::Object(names.iter().map(|name| (name.to_string(), json!(0))).collect())
        };
        if !want.members.is_empty() {
            found.extend([object(&want.members), object(&["other".into()])]);
        }
    }
    let patterns: Vec<&Pattern> = wants.iter().filter_map(|want| want.pattern.as_ref()).collect();
    found.extend(texts(&patterns).into_iter().map(Value::String));
    found.extend(Kind::ALL.map(|kind| match kind {
        Kind::Null => Value::Null,
        Kind::Boolean => json!(true),
        Kind::Integer => json!(0),
        Kind::Number => json!(0.5),
        Kind::String => json!("a"),
        Kind::Array => json!([]),
        Kind::Object => json!({}),
    }));
    found.iter().map(Value::to_string).collect()
}

fn build(aspects: &[Aspect<'_>], chosen: &[usize]) -> Sample {
    let mut sample = Sample::default();
    let mut document: Option<Value> = None;
    let chosen = aspects
        .iter()
        .zip(chosen)
        .filter_map(|(aspect, choice)| Some((&aspect.what, aspect.choices.get(*choice)?.as_ref()?)));
    let mut whole = None;
    for (what, value) in chosen {
        match what {
            What::Header(name) => sample.headers.push(((*name).to_owned(), value.clone())),
            What::ContentType => sample.headers.push(("content-type".to_owned(), value.clone())),
            What::Json(pointer) => put(document.get_or_insert_with(|| json!({})), pointer, value),
            What::Body => whole = Some(value.clone()),
        }
    }
    sample.body = match (whole, document) {
        (Some(whole), Some(document)) => Some(merged(&whole, document)),
        (whole, document) => whole.or_else(|| document.map(|document| document.to_string())),
    };
    let is_json = sample.headers.iter().any(|(name, value)| name == "content-type" && value == JSON);
    if sample.body.is_none() && is_json {
        sample.body = Some("{}".to_owned());
    }
    sample
}

/// A whole body with values put into it, where it is an object.
fn merged(whole: &str, document: Value) -> String {
    match (serde_json::from_str::<Map<String, Value>>(whole), document) {
        (Ok(mut members), Value::Object(more)) => {
            members.extend(more);
            Value::Object(members).to_string()
        }
        _ => whole.to_owned(),
    }
}

/// Puts a value where a pointer shows. `*` is the first element of a list.
fn put(document: &mut Value, pointer: &Pointer, text: &str) {
    let Ok(value) = serde_json::from_str(text) else { return };
    let mut at = document;
    for step in pointer.keys() {
        at = match step {
            Some(key) => {
                if !at.is_object() {
                    *at = json!({});
                }
                let Value::Object(members) = at else { return };
                members.entry(key).or_insert(Value::Null)
            }
            None => {
                if !at.is_array() {
                    *at = json!([null]);
                }
                let Some(first) = at.get_mut(0) else { return };
                first
            }
        };
    }
    *at = value;
}

impl HeaderWant {
    fn pattern(&self) -> Option<&Pattern> {
        match self {
            Self::Absent => None,
            Self::Value { pattern, .. } => Some(pattern),
        }
    }
}

impl Scalar {
    fn value(&self) -> Value {
        match self {
            Self::Bool(value) => json!(value),
            Self::Number(number) => number.value(),
            Self::Text(text) => json!(text),
        }
    }
}

impl Number {
    fn value(self) -> Value {
        match self {
            // A number beyond 64 bits is no bound of interest.
            Self::Whole(whole) => i64::try_from(whole).map_or(Value::Null, |whole| json!(whole)),
            Self::Float(float) => json!(float),
        }
    }

    fn beside(self, by: i32) -> Value {
        match self {
            Self::Whole(whole) => Self::Whole(whole.saturating_add(i128::from(by))).value(),
            Self::Float(float) => json!(float + f64::from(by)),
        }
    }
}
