//! Paths that were seen, place by place: a word, or data with the values that it had.

use std::collections::{BTreeMap, BTreeSet};

use crate::Target;
use crate::import::har::Segment;
use crate::limits::LEARN_VALUES_MAX;
use crate::route::pattern::{Kind, Pattern};

/// Values of one place that are listed; from one more on they become their type. Fewer say too little about what else may
/// come.
const LISTED_MAX: usize = 2;
/// Different words in one place of otherwise equal paths that are still read as words; more are names that people gave.
const WORDS_MAX: usize = 8;
/// Values that stand beside a type as examples.
const EXAMPLES_MAX: usize = 3;

/// The places of one kind of path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Shape {
    places: Vec<Place>,
    trailing_slash: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    kind: Seen,
    /// Values, decoded, at most `LEARN_VALUES_MAX`.
    values: BTreeSet<Vec<u8>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Seen {
    Word,
    /// Data of a type of route lines.
    Type(&'static str),
}

/// What paths of one kind have in common: the words, the types, and the slash at the end.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    places: Vec<KeyPlace>,
    trailing_slash: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum KeyPlace {
    Word(Vec<u8>),
    Type(&'static str),
    /// Any word: the place that is looked at.
    Hole,
}

impl Shape {
    pub(super) fn of(target: &str) -> Option<Self> {
        let target = Target::parse(target.as_bytes()).ok()?;
        let view = target.view();
        let places = (0..view.len()).filter_map(|index| view.segment(index)).map(|text| {
            let kind = std::str::from_utf8(text).ok().and_then(Segment::of_type);
            Place { kind: kind.map_or(Seen::Word, Seen::Type), values: BTreeSet::from([text.to_vec()]) }
        });
        Some(Self { places: places.collect(), trailing_slash: view.trailing_slash })
    }

    pub(super) fn key(&self) -> Key {
        let places = self.places.iter().map(|place| match place.kind {
            // A word has one value.
            Seen::Word => KeyPlace::Word(place.values.first().cloned().unwrap_or_default()),
            Seen::Type(kind) => KeyPlace::Type(kind),
        });
        Key { places: places.collect(), trailing_slash: self.trailing_slash }
    }

    /// Takes the values of a path with the same key.
    pub(super) fn add(&mut self, other: &Self) {
        for (place, more) in self.places.iter_mut().zip(&other.places) {
            for value in &more.values {
                if place.values.len() < LEARN_VALUES_MAX {
                    place.values.insert(value.clone());
                }
            }
        }
    }

    /// The path as a route line has it, and why each type stands there.
    pub(super) fn written(&self) -> (String, Vec<String>) {
        let (mut path, mut evidence) = (String::new(), Vec::new());
        for (index, place) in self.places.iter().enumerate() {
            path.push('/');
            path.push_str(&place.written());
            evidence.extend(place.evidence(index));
        }
        if self.trailing_slash || self.places.is_empty() {
            path.push('/');
        }
        (path, evidence)
    }
}

impl Place {
    fn written(&self) -> String {
        let texts: Vec<String> = self.values.iter().map(|value| literal(value)).collect();
        match (texts.as_slice(), self.kind) {
            ([only], _) => only.clone(),
            (few, _) if few.len() <= LISTED_MAX => format!("{{{}}}", few.join("|")),
            (_, Seen::Type(kind)) => format!("{{{kind}}}"),
            (_, Seen::Word) => "{any}".to_owned(),
        }
    }

    /// `{int} in segment 4: 12 values, such as 3, 14, 159`
    fn evidence(&self, index: usize) -> Option<String> {
        let number = self.values.len();
        if number <= LISTED_MAX {
            return None;
        }
        let examples: Vec<String> =
            self.values.iter().take(EXAMPLES_MAX).map(|value| literal(value)).collect();
        let at_least = if number >= LEARN_VALUES_MAX { "at least " } else { "" };
        let (kind, examples) = (self.written(), examples.join(", "));
        Some(format!("{kind} in segment {}: {at_least}{number} values, such as {examples}", index + 1))
    }
}

fn literal(value: &[u8]) -> String {
    let mut out = String::new();
    crate::route::pattern::escape_into(value, &mut out);
    out
}

/// Makes a type of the words of one place where otherwise equal paths have many different ones. Each path comes with its method.
pub(super) fn merge_names(paths: &mut [(&str, &mut Shape)]) {
    let longest = paths.iter().map(|(_, shape)| shape.places.len()).max().unwrap_or(0);
    for at in 0..longest {
        // Everything but this place is the same.
        let mut alike: BTreeMap<(String, Key), BTreeSet<Vec<u8>>> = BTreeMap::new();
        let hole = |method: &str, shape: &Shape| {
            let mut key = shape.key();
            let place = key.places.get_mut(at).filter(|place| matches!(place, KeyPlace::Word(_)))?;
            let KeyPlace::Word(word) = std::mem::replace(place, KeyPlace::Hole) else { return None };
            Some(((method.to_owned(), key), word))
        };
        for (method, shape) in paths.iter() {
            if let Some((key, word)) = hole(method, shape) {
                alike.entry(key).or_default().insert(word);
            }
        }
        for (method, shape) in paths.iter_mut() {
            let words = hole(method, shape).and_then(|(key, _)| alike.get(&key));
            let Some(words) = words.filter(|words| words.len() > WORDS_MAX) else { continue };
            let slugs = words.iter().all(|word| Pattern::Kind(Kind::Slug).matches(word));
            if let Some(place) = shape.places.get_mut(at) {
                let values = words.iter().take(LEARN_VALUES_MAX).cloned().collect();
                *place = Place { kind: Seen::Type(if slugs { "slug" } else { "any" }), values };
            }
        }
    }
}
