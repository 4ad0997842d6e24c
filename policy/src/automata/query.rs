//! Every set of patterns that some query matches, with a shortest query for each.
//!
//! What a pattern says of a query depends on the pairs only, not on their order. Parameters that no raw name joins are
//! independent of each other, so they are gone through apart (`Component`) and then put together.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet};

use super::{TooLarge, values};
use crate::limits::AUTOMATA_STATES_MAX;
use crate::route::compare::Reading;
use crate::route::pattern::{Decoded, Pattern, escape_into};
use crate::route::query::{Listed, Pair, Parameter, QueryPattern};

/// Spellings of one name that are gone through. More characters with two readings, or more letter cases taken by other
/// parameters, than these leave room for make a question undecided.
const SPELLINGS_MAX: usize = 64;

/// For each set of patterns that some query matches (one flag each): a shortest such query, `""` for none.
///
/// # Errors
/// When there are too many.
pub(super) fn outcomes(patterns: &[(&QueryPattern, Reading)]) -> Result<Vec<(Vec<bool>, String)>, TooLarge> {
    let mut whole: BTreeMap<Vec<bool>, String> =
        BTreeMap::from([(vec![true; patterns.len()], String::new())]);
    for component in Component::all(patterns)? {
        let parts = component.outcomes(patterns)?;
        let mut next: BTreeMap<Vec<bool>, String> = BTreeMap::new();
        for (hits, query) in &whole {
            for (more, pairs) in &parts {
                let both = hits.iter().zip(more).map(|(one, other)| *one && *other).collect();
                keep_shortest(&mut next, both, joined(query, pairs));
            }
        }
        if next.len() > AUTOMATA_STATES_MAX {
            return Err(TooLarge);
        }
        whole = next;
    }
    Ok(whole.into_iter().collect())
}

fn keep_shortest(into: &mut BTreeMap<Vec<bool>, String>, hits: Vec<bool>, query: String) {
    let known = into.entry(hits).or_insert_with(|| query.clone());
    if (query.len(), &query) < (known.len(), known) {
        *known = query;
    }
}

fn joined(one: &str, other: &str) -> String {
    match (one, other) {
        ("", only) | (only, "") => only.to_owned(),
        _ => format!("{one}&{other}"),
    }
}

/// A parameter of a pattern: indices of both.
type Place = (usize, usize);

/// Parameters that some name belongs to at once, and every pair that makes a difference to them.
struct Component {
    places: Vec<Place>,
    /// Raw `name` or `name=value`.
    pairs: Vec<String>,
}

impl Component {
    fn all(patterns: &[(&QueryPattern, Reading)]) -> Result<Vec<Self>, TooLarge> {
        let places: Vec<(Place, &Parameter)> = patterns
            .iter()
            .enumerate()
            .filter_map(|(at, (pattern, _))| Some((at, listed(pattern)?)))
            .flat_map(|(at, listed)| {
                listed.parameters.iter().enumerate().map(move |(number, found)| ((at, number), found))
            })
            .collect();
        let names = names(patterns, &places)?;
        let mut groups: Vec<(HashSet<Place>, Vec<String>)> = Vec::new();
        for name in &names {
            let touched = touched(name, patterns, &places);
            let at: HashSet<Place> = touched.iter().map(|(place, ..)| *place).collect();
            let values = values::parts(
                &touched.iter().map(|(_, value, reading)| (*value, *reading)).collect::<Vec<_>>(),
            )?;
            let spelt =
                |value: &String| if value.is_empty() { name.clone() } else { format!("{name}={value}") };
            let mut group = (at, values.iter().map(spelt).collect::<Vec<_>>());
            // A group that shares a parameter with this one is the same component.
            let (joined, apart): (Vec<_>, Vec<_>) =
                groups.into_iter().partition(|(of, _)| !of.is_disjoint(&group.0));
            for (places, pairs) in joined {
                group.0.extend(places);
                group.1.extend(pairs);
            }
            groups = apart;
            groups.push(group);
        }
        let fresh = fresh(&places);
        let mut components: Vec<Self> = groups
            .into_iter()
            .map(|(places, pairs)| {
                let mut places: Vec<Place> = places.into_iter().collect();
                places.sort_unstable();
                Self { places, pairs }
            })
            .collect();
        // A parameter that nobody lists, and one that holds a semicolon.
        components.push(Self { places: Vec::new(), pairs: vec![fresh.clone(), format!("{fresh};")] });
        Ok(components)
    }

    /// As `outcomes`, for queries of this component's pairs only.
    fn outcomes(
        &self,
        patterns: &[(&QueryPattern, Reading)],
    ) -> Result<BTreeMap<Vec<bool>, String>, TooLarge> {
        let effects: Vec<(&String, Vec<Effect>)> = self
            .pairs
            .iter()
            .map(|pair| {
                (pair, patterns.iter().map(|(pattern, reading)| effect(pattern, *reading, pair)).collect())
            })
            .collect();
        let mut found = BTreeMap::new();
        let mut closed = HashSet::new();
        let mut shortest: HashMap<Vec<Seen>, String> = HashMap::new();
        let start = vec![Seen::default(); patterns.len()];
        let mut open = BinaryHeap::from([(Reverse(0), Reverse(String::new()), start.clone())]);
        shortest.insert(start, String::new());
        while let Some((_, Reverse(query), seen)) = open.pop() {
            if !closed.insert(seen.clone()) {
                continue;
            }
            if closed.len() > AUTOMATA_STATES_MAX {
                return Err(TooLarge);
            }
            let hits = patterns.iter().zip(&seen).enumerate();
            let hits = hits.map(|(at, ((pattern, reading), seen))| self.holds(at, pattern, *reading, *seen));
            keep_shortest(&mut found, hits.collect(), query.clone());
            for (pair, effects) in &effects {
                let next: Vec<Seen> =
                    seen.iter().zip(effects).map(|(seen, effect)| seen.after(*effect)).collect();
                if !closed.contains(&next) {
                    let query = joined(&query, pair);
                    let known = shortest.get(&next).is_some_and(|known| known.len() <= query.len());
                    if !known {
                        shortest.insert(next.clone(), query.clone());
                        open.push((Reverse(query.len()), Reverse(query), next));
                    }
                }
            }
        }
        Ok(found)
    }

    /// Whether a pattern matches as far as this component goes.
    fn holds(&self, at: usize, pattern: &QueryPattern, reading: Reading, seen: Seen) -> bool {
        let Some(listed) = listed(pattern) else { return !seen.bad };
        let mut here = self.places.iter().filter(|(of, _)| *of == at).map(|(_, number)| *number);
        let there = |number: usize| seen.listed & (1 << number) != 0;
        match reading {
            Reading::Allow => {
                !seen.bad
                    && here.all(|number| {
                        there(number)
                            || !listed.parameters.get(number).is_some_and(|parameter| parameter.required)
                    })
            }
            Reading::Deny => here.all(there),
        }
    }
}

/// What one pattern has seen of a query.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Seen {
    /// It cannot match any more.
    bad: bool,
    /// Listed parameters that were there, one bit each (at most `QUERY_PARAMETERS_MAX`).
    listed: u64,
}

/// What one pair does to one pattern.
#[derive(Debug, Clone, Copy)]
enum Effect {
    Bad,
    /// These parameters are there; once only for allow rules.
    There {
        listed: u64,
        once: bool,
    },
}

impl Seen {
    fn after(self, effect: Effect) -> Self {
        match effect {
            Effect::There { listed, once } if !self.bad && (!once || self.listed & listed == 0) => {
                Self { bad: false, listed: self.listed | listed }
            }
            _ => Self { bad: true, listed: 0 },
        }
    }
}

fn effect(pattern: &QueryPattern, reading: Reading, pair: &str) -> Effect {
    match (pattern, reading) {
        (QueryPattern::Listed(listed), Reading::Deny) => {
            let there = listed.parameters.iter().enumerate().filter(|(_, parameter)| parameter.denies(pair));
            Effect::There { listed: there.fold(0, |bits, (at, _)| bits | 1 << at), once: false }
        }
        (_, Reading::Deny) | (QueryPattern::Any, _) => Effect::There { listed: 0, once: false },
        (QueryPattern::None, Reading::Allow) => Effect::Bad,
        (QueryPattern::Listed(listed), Reading::Allow) => match listed.pair(pair.as_bytes()) {
            Pair::Listed { at, fits: true } => Effect::There { listed: 1 << at, once: true },
            Pair::Unlisted { fits: true } => Effect::There { listed: 0, once: false },
            Pair::Listed { fits: false, .. } | Pair::Unlisted { fits: false } => Effect::Bad,
        },
    }
}

fn listed(pattern: &QueryPattern) -> Option<&Listed> {
    match pattern {
        QueryPattern::Listed(listed) => Some(listed),
        QueryPattern::None | QueryPattern::Any => None,
    }
}

/// Parameters that a raw name belongs to, with what they want of the value.
fn touched<'p>(
    name: &str,
    patterns: &[(&QueryPattern, Reading)],
    places: &[(Place, &'p Parameter)],
) -> Vec<(Place, &'p Pattern, Reading)> {
    let touched = places.iter().filter_map(|(place, parameter)| {
        let (_, reading) = patterns.get(place.0)?;
        let named = match reading {
            Reading::Allow => parameter.is_named(name.as_bytes()),
            Reading::Deny => parameter.is_named_widely(name.as_bytes()),
        };
        named.then_some((*place, &parameter.value, *reading))
    });
    touched.collect()
}

/// Every raw name that makes a difference: each spelling of each listed name, and where a deny rule lists it another
/// letter case that no allow rule lists.
fn names(
    patterns: &[(&QueryPattern, Reading)],
    places: &[(Place, &Parameter)],
) -> Result<Vec<String>, TooLarge> {
    let mut names: Vec<String> = Vec::new();
    for ((at, _), parameter) in places {
        names.extend(spellings(&parameter.name)?);
        if patterns.get(*at).is_some_and(|(_, reading)| *reading == Reading::Deny) {
            for name in spellings(&parameter.name)? {
                names.extend(other_letters(&name, places)?);
            }
        }
    }
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

/// A space is `%20` or `+`, a semicolon `%3B` or itself.
fn spellings(name: &[u8]) -> Result<Vec<String>, TooLarge> {
    let mut spellings = vec![String::new()];
    for byte in name {
        let mut plain = String::new();
        escape_into(&[*byte], &mut plain);
        let other = match byte {
            b' ' => Some("+"),
            b';' => Some(";"),
            _ => None,
        };
        let forms: Vec<&str> = std::iter::once(plain.as_str()).chain(other).collect();
        spellings = forms
            .iter()
            .flat_map(|form| spellings.iter().map(move |before| format!("{before}{form}")))
            .collect();
        if spellings.len() > SPELLINGS_MAX {
            return Err(TooLarge);
        }
    }
    Ok(spellings)
}

/// The name with the case of some letters turned so that nobody lists it; `None` where every such name is listed.
fn other_letters(name: &str, places: &[(Place, &Parameter)]) -> Result<Option<String>, TooLarge> {
    // Digits of escapes are letters too, but turning those changes nothing.
    let letters: Vec<usize> = name
        .bytes()
        .enumerate()
        .filter(|(at, byte)| byte.is_ascii_alphabetic() && !is_in_escape(name, *at))
        .map(|(at, _)| at)
        .collect();
    let is_listed = |raw: &str| {
        let decoded: Vec<u8> = Decoded::form(raw.as_bytes()).collect();
        places.iter().any(|(_, parameter)| *parameter.name == *decoded)
    };
    let bits = letters.len().min(SPELLINGS_MAX.ilog2() as usize);
    for turned in 1..1_usize << bits {
        let turn = |(at, c): (usize, char)| {
            let bit = letters.iter().take(bits).position(|letter| *letter == at);
            if bit.is_some_and(|bit| turned & (1 << bit) != 0) { turned_case(c) } else { c }
        };
        let spelt: String = name.chars().enumerate().map(turn).collect();
        if !is_listed(&spelt) {
            return Ok(Some(spelt));
        }
    }
    if letters.len() > bits { Err(TooLarge) } else { Ok(None) }
}

fn is_in_escape(name: &str, at: usize) -> bool {
    let byte_before = |distance: usize| at.checked_sub(distance).and_then(|at| name.as_bytes().get(at));
    byte_before(1) == Some(&b'%') || byte_before(2) == Some(&b'%')
}

fn turned_case(character: char) -> char {
    if character.is_ascii_lowercase() {
        character.to_ascii_uppercase()
    } else {
        character.to_ascii_lowercase()
    }
}

/// A name that no parameter has, in no letter case.
fn fresh(places: &[(Place, &Parameter)]) -> String {
    let taken = |name: &str| {
        let with_semicolon = format!("{name};");
        places.iter().any(|(_, parameter)| {
            parameter.is_named_widely(name.as_bytes()) || parameter.is_named(with_semicolon.as_bytes())
        })
    };
    let short = "xabcdefghijklmnopqrstuvwyz".chars().map(String::from);
    // Finitely many parameters: some number is free.
    let mut names = short.chain((0_u32..).map(|number| format!("x{number}")));
    names.find(|name| !taken(name)).unwrap_or_default()
}
